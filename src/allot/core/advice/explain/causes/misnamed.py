"""A claim that no pod uses because pods name another one, which does not exist."""

from __future__ import annotations

from typing import NamedTuple

from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.wording import named
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.claim_owners import controller_of, recorded_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

# A claim of another purpose often has a similar name: only one that is nearly the same is meant.
_LIKENESS_MIN = 0.75


class Mention(NamedTuple):
    """An entry of a pod that names what does not exist."""

    pod: core_v1.Pod
    position: int
    entry: core_v1.PodResourceClaim


class Misnamed(NamedTuple):
    """Pods that probably mean a claim which they do not name. text: phrased to follow a colon."""

    text: str
    first: Mention


def misnamed(what_if: WhatIfCluster, claim: api.ResourceClaim) -> Misnamed | None:
    """The pods that probably mean a claim which no pod uses; None if there are none."""
    if controller_of(claim) is not None:
        # It was created for a pod, which does not name it.
        return None
    namespace, name = claim.metadata.namespace, claim.metadata.name
    known = {each.metadata.name for each in what_if.all(api.ResourceClaim) if each.metadata.namespace == namespace}
    is_template = what_if.get(api.ResourceClaimTemplate, name, namespace) is not None
    as_template: list[Mention] = []
    missing: dict[str, list[Mention]] = {}
    for pod in what_if.all(core_v1.Pod):
        if pod.metadata.namespace != namespace or pod.status.phase in FINISHED or pod.metadata.deletion_timestamp:
            continue
        for position, entry in enumerate(pod.spec.resource_claims):
            wanted = entry.resource_claim_name
            if wanted is not None and wanted not in known:
                missing.setdefault(wanted, []).append(Mention(pod, position, entry))
            elif entry.resource_claim_template_name == name and recorded_name(pod, entry) is None and not is_template:
                as_template.append(Mention(pod, position, entry))
    if as_template:
        text = "{} {} it as a ResourceClaimTemplate, and there is none of that name (spec.resourceClaims[{}].resourceClaimTemplateName)"
        return _told(text, as_template)
    near = nearest(name, missing, likeness_min=_LIKENESS_MIN)
    # Another claim may be even more similar.
    if near is None or nearest(near, known) != name:
        return None
    text = f"{{}} {{}} claim {near} instead, which does not exist (spec.resourceClaims[{{}}].resourceClaimName)"
    return _told(text, missing[near])


def _told(text: str, mentions: list[Mention]) -> Misnamed:
    first = min(mentions, key=lambda each: each.pod.metadata.name)
    names = sorted({each.pod.metadata.name for each in mentions})
    verb = "names" if len(names) == 1 else "name"
    return Misnamed(text.format(named("pod", names), verb, first.position), first)
