"""Pods of users who may not read what the scheduler decides by: the scheduler's message replaces a decision that cannot be reproduced."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.report import Reason
from allot.core.advice.snapshot import snapshot_kind
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup

# Without these no decision is possible, and a gap in them looks like a cause.
_DECIDED_BY: tuple[type[APIStruct], ...] = (core_v1.Node, api.ResourceSlice, api.DeviceClass)
# Other namespaces may have some of these that hold devices or fill nodes.
_HOLDERS: tuple[type[APIStruct], ...] = (core_v1.Pod, api.ResourceClaim)
_NOT_FOUND: Mapping[Reason, type[APIStruct]] = {
    Reason.TEMPLATE_MISSING: api.ResourceClaimTemplate,
    Reason.CLAIM_MISSING: api.ResourceClaim,
    Reason.CLASS_MISSING: api.DeviceClass,
    Reason.GROUP_MISSING: PodGroup,
}


def is_unfounded(what_if: WhatIfCluster, early: Diagnosis) -> bool:
    """Whether an object seems missing only because it could not be read."""
    type_ = _NOT_FOUND.get(early.reason)
    return type_ is not None and what_if.unread.get(type_) == ""


def undecided(what_if: WhatIfCluster, pod: core_v1.Pod, *, fits: bool) -> Diagnosis | None:
    """What is known about a pod although not everything could be read; None if the decision is reliable. fits: whether there is
    room for it in what could be read; others may have taken it."""
    lacking = [type_ for type_ in _DECIDED_BY if type_ in what_if.unread]
    if not lacking and fits:
        lacking = [type_ for type_ in _HOLDERS if type_ in what_if.unread]
    if not lacking:
        return None
    kinds = ", ".join(snapshot_kind(type_).plural for type_ in lacking)
    where = "" if any(type_ in _DECIDED_BY for type_ in lacking) else " of other namespaces"
    said = [each.message for each in pod.status.conditions if each.type == "PodScheduled" and each.status == "False"]
    text = (
        f"the scheduler says: {said[0]}" if said and said[0] else "the scheduler has not reported anything about it yet"
    )
    return Diagnosis(
        reason=Reason.UNREAD,
        text=text,
        details=(f"{kinds}{where} could not be read, so its decision cannot be reproduced here",),
    )
