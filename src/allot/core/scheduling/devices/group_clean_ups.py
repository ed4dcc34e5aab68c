"""Cleanup when a group of pods does not fit (PodGroupPostFilter of DynamicResources)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.devices.claim_fit import ClaimFit, refusal
from allot.core.scheduling.devices.group_claims import LookupFailure, controller_of, group_claim_name, is_reserved_for
from allot.core.scheduling.plan import CleanUp, Deallocate, Unreserve
from allot.core.scheduling.status import Status, Verdict

if TYPE_CHECKING:
    from allot.core.scheduling.devices.claims import Claims

# A pod that found no node, its device requirements, and the nodes' statuses.
Refused = tuple[core_v1.Pod, object, Mapping[str, Status]]

_DONE = refusal("deallocation and deletion of ResourceClaims completed", Verdict.UNSCHEDULABLE)
_DEALLOCATED = refusal("deallocation of PodGroup ResourceClaim completed", Verdict.UNSCHEDULABLE)
_UNRESERVED = refusal("ResourceClaim unreserved for PodGroup")


def group_clean_ups(
    claims: Claims, group: PodGroup, refused: Sequence[Refused], scheduled: int
) -> tuple[tuple[CleanUp, ...], Status]:
    """What to clear away, and the message about it.

    Each pod's own claims first. If that leaves a pod without help and none of the group runs (scheduled), one claim of
    the group: its devices if it cannot be used where they are, else its reservation.
    """
    found: list[CleanUp] = []
    helpless = False
    for _, fit, statuses in refused:
        mine: tuple[CleanUp, ...] = ()
        if isinstance(fit, ClaimFit):
            mine, _ = fit.clean_ups(statuses)
        found += [step for step in mine if step not in found]
        helpless = helpless or not mine
    if helpless and claims.workload_claims and not scheduled:
        shared = _deallocate(group, refused, found) or _unreserve(claims, group, refused[0][0])
        if isinstance(shared, Status):
            return tuple(found), shared
        if shared is not None:
            step, status = shared
            return (*found, step), status
    return tuple(found), _DONE


def _deallocate(group: PodGroup, refused: Iterable[Refused], found: Sequence[CleanUp]) -> tuple[CleanUp, Status] | None:
    for _, fit, statuses in refused:
        if not isinstance(fit, ClaimFit):
            continue
        for claim in fit.unavailable_claims(statuses):
            step = Deallocate(claim=claim)
            only_ours = all(consumer.uid == group.metadata.uid for consumer in claim.status.reserved_for)
            if only_ours and step not in found:
                return step, _DEALLOCATED
    return None


def _unreserve(claims: Claims, group: PodGroup, pod: core_v1.Pod) -> tuple[CleanUp, Status] | Status | None:
    namespace = group.metadata.namespace
    for entry in group.spec.resource_claims:
        try:
            name, check_owner = group_claim_name(group, entry)
        except LookupFailure as failure:
            return refusal(str(failure), Verdict.ERROR)
        if name is None:
            continue
        claim = claims.claim(namespace, name)
        if claim is None:
            return refusal(f'could not find ResourceClaim "{namespace}/{name}"', Verdict.ERROR)
        if check_owner and not _is_owned(claim, group):
            continue
        if claim.status.allocation is not None and is_reserved_for(pod, claim, workload_claims=True):
            return Unreserve(claim=claim, uid=group.metadata.uid), _UNRESERVED
    return None


def _is_owned(claim: api.ResourceClaim, group: PodGroup) -> bool:
    controller = controller_of(claim)
    return controller is not None and controller.uid == group.metadata.uid
