"""Why a pod gets no devices, in a sentence or two that kube-scheduler's texts lack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allot.core.allocation import AllocationError, Inventory, Unallocatable, allocate
from allot.core.allocation.plan import ClaimPlan
from allot.core.explain import NAMES_MAX, Obstacle, RequestReason, summarize
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node
from allot.core.scheduling.devices.extended_resources import SPECIAL_NAME

_SENTENCES_MAX = 2
_NAMED_MAX = 2


def why_not(inventory: Inventory, node: Node, claims: Sequence[api.ResourceClaim], plans: Sequence[ClaimPlan]) -> str:
    """Why the claims do not fit on the node; empty if they do, or if the reason is an error that is reported anyway."""
    try:
        answer = allocate(inventory, node, claims, plans=plans)
    except AllocationError:
        return ""
    if not isinstance(answer, Unallocatable):
        return ""
    sentences = []
    others = []
    for reason in answer.reasons:
        if not reason.together and reason.devices and _all_in_use(reason):
            sentences.append(_in_use(reason))
        else:
            others.append(reason)
    if others:
        name = node.metadata.name
        sentences += [f"node {name}: {sentence}" for sentence in summarize(others)]
    if answer.undecided:
        sentences.insert(0, f"gave up after {answer.steps} search steps: the claims may or may not fit")
    text = "; ".join(sentences[:_SENTENCES_MAX])
    more = len(sentences) - _SENTENCES_MAX
    return f"{text}; and {more} more" if more > 0 else text


def _all_in_use(reason: RequestReason) -> bool:
    """Whether devices in use are the only obstacle, ignoring devices of other classes."""
    return all(found.obstacle in (Obstacle.IN_USE, Obstacle.NOT_IN_CLASS) for found in reason.in_the_way)


def _in_use(reason: RequestReason) -> str:
    devices = "1 device" if reason.needed == 1 else f"{reason.needed} devices"
    special = reason.claim.endswith(SPECIAL_NAME)
    whose = "for the pod's extended resources" if special else f"of claim {reason.claim}"
    has = (
        f"request {reason.request} {whose} needs {devices} of class {reason.device_class}: "
        f"node {reason.node} has {reason.devices}"
    )
    holders = sorted({claim for found in reason.in_the_way for claim in found.claims})
    if not holders:
        return has
    share = f"{reason.devices - reason.free} of them" if reason.free else "all"
    if reason.devices == 1:
        share = "which is"
    return f"{has}, {share} in use by {_claims(holders)}"


def _claims(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"claim {names[0]}"
    if len(names) <= NAMES_MAX:
        return f"claims {', '.join(names[:-1])} and {names[-1]}"
    return f"claims {', '.join(names[:_NAMED_MAX])} and {len(names) - _NAMED_MAX} more"


def where_held(claims: Iterable[api.ResourceClaim]) -> str:
    """Where claims that have their devices can be used."""
    sentences = []
    for claim in claims:
        allocation = claim.status.allocation
        if allocation is None or allocation.node_selector is None:
            continue
        name = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
        nodes = sorted(
            {
                value
                for term in allocation.node_selector.node_selector_terms
                for field in term.match_fields
                if field.key == "metadata.name" and field.operator == "In"
                for value in field.values
            }
        )
        where = f"node {nodes[0]}" if len(nodes) == 1 else "the nodes that its allocation selects"
        sentences.append(f"{name} is allocated and can only be used on {where}")
    return "; ".join(sentences[:_SENTENCES_MAX])
