"""Why not even one copy fits, as `allot explain` would say it of the copy's pods if they were there."""

from __future__ import annotations

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.planning.changes import with_objects
from allot.core.advice.planning.copies import Manifest
from allot.core.advice.snapshot import Snapshot


def why_none_fits(snapshot: Snapshot, manifest: Manifest) -> Explanation | None:
    """The cause, and what would help; None if each pod would fit alone."""
    copy = manifest.copy(0)
    group = () if copy.group is None else (copy.group,)
    made = (*manifest.templates.values(), *copy.claims, *group, *copy.pods)
    explainer = Explainer(with_objects(snapshot, made))
    if copy.group is not None:
        return explainer.group(copy.group.metadata.namespace, copy.group.metadata.name)
    for number, pod in enumerate(copy.pods):
        if any(member is manifest.members[number] for member in manifest.members[:number]):
            continue  # like one before
        found = explainer.pod(pod.metadata.namespace, pod.metadata.name)
        if found.reason is not Reason.FITS:
            return found
    return None
