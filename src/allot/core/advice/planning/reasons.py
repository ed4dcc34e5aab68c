"""Why a copy does not fit, in the words of `allot explain` for the copy's pods."""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.planning.changes import with_objects
from allot.core.advice.planning.copies import Copy, Manifest
from allot.core.advice.snapshot import Snapshot
from allot.core.model import resource_v1 as api


def why_none_fits(snapshot: Snapshot, manifest: Manifest) -> Explanation | None:
    """The cause and what would help; None if each pod would fit alone."""
    copy = manifest.copy(0)
    explainer = _explainer(snapshot, copy, manifest.templates.values())
    if copy.group is not None:
        return explainer.group(copy.group.metadata.namespace, copy.group.metadata.name)
    for number, pod in enumerate(copy.pods):
        if any(member is manifest.members[number] for member in manifest.members[:number]):
            continue  # like one before
        found = explainer.pod(pod.metadata.namespace, pod.metadata.name)
        if found.reason is not Reason.FITS:
            return found
    return None


def cause_of(snapshot: Snapshot, copy: Copy, templates: Iterable[api.ResourceClaimTemplate]) -> str:
    """Only the cause, for the first pod of a copy; empty if the pod would fit."""
    pod = copy.pods[0].metadata
    found = _explainer(snapshot, copy, templates).pod(pod.namespace, pod.name, briefly=True)
    return found.cause if found.reason is not Reason.FITS else ""


def _explainer(snapshot: Snapshot, copy: Copy, templates: Iterable[api.ResourceClaimTemplate]) -> Explainer:
    return Explainer(with_objects(snapshot, (*templates, *copy.objects, *copy.pods)))
