"""Whether several pods can get their devices on one node at once: one joint search of the allocator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from allot.core.allocation import Allocated, AllocationError, allocate
from allot.core.allocation.plan import ClaimPlan
from allot.core.model import resource_v1 as api
from allot.core.scheduling.devices.claim_fit import CANNOT_ALLOCATE, ClaimFit, error_status, refusal
from allot.core.scheduling.devices.pod_claims import Variant
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.status import Status, Verdict

if TYPE_CHECKING:
    from allot.core.scheduling.devices.claims import Claims

# Namespace, name, uid.
Key = tuple[str, str, str]


def fit_together(claims: Claims, fits: Sequence[ClaimFit], node: NodeInfo) -> Status | None:
    """Why the pods of these fits cannot all have their devices on a node. If they can, each fit keeps what its pod gets (`steps`). A
    claim that several of them name gets its devices once."""
    variants: list[Variant] = []
    wanted: dict[Key, tuple[api.ResourceClaim, ClaimPlan]] = {}
    for fit in fits:
        variant = fit.needed_on(node)
        if isinstance(variant, Status):
            return variant
        variants.append(variant)
        for claim, plan in zip(variant.claims, variant.plans, strict=True):
            wanted.setdefault(_key(claim), (claim, plan))
    found: dict[Key, api.AllocationResult] = {}
    if wanted:
        try:
            answer = allocate(
                claims.inventory,
                node.node,
                [claim for claim, _ in wanted.values()],
                claims.policy,
                steps_max=claims.steps_max,
                with_reasons=False,
                plans=[plan for _, plan in wanted.values()],
            )
        except AllocationError as error:
            return error_status(error)
        claims.search_steps += answer.steps
        if not isinstance(answer, Allocated):
            if answer.undecided:
                text = f"node {node.name}: timed out trying to allocate devices"
                return refusal(text, Verdict.ERROR)
            return CANNOT_ALLOCATE
        found = dict(zip(wanted, answer.results, strict=True))
    for fit, variant in zip(fits, variants, strict=True):
        status = fit.accept(node, variant, tuple(found[_key(claim)] for claim in variant.claims))
        if status is not None:
            return status
    return None


def _key(claim: api.ResourceClaim) -> Key:
    """Identifies a claim, including one for extended resources that has no name yet."""
    return claim.metadata.namespace, claim.metadata.name, claim.metadata.uid
