"""What claims hold and who uses them: waiting claims, claims in use, and claims with idle devices (`allot top claims`)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec

from allot.core.advice.usage.devices import users_of
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation import claim_id
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.selectors import nodes_named


class ClaimState(StrEnum):
    """The state of a claim."""

    # No devices yet, and a pod waits for them.
    PENDING = "pending"
    # No devices, and no pod that wants any.
    UNUSED = "unused"
    # Has devices and is used.
    IN_USE = "in use"
    # Has devices that no pod uses.
    IDLE = "idle"
    DELETING = "deleting"


class ClaimUsage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A claim. Times are in seconds before the snapshot; None if the snapshot does not say."""

    namespace: str
    name: str
    state: ClaimState
    devices: tuple[str, ...] = ()
    # Devices that it only monitors, with admin access.
    watched: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    # Pods that name it but have not reserved it.
    waiting: tuple[str, ...] = ()
    age_seconds: float | None = None
    allocated_seconds: float | None = None


def claim_usage(what_if: WhatIfCluster, namespace: str = "") -> tuple[ClaimUsage, ...]:
    """The claims of a namespace, or of all."""
    waiting = _waiting(what_if)
    taken_at = what_if.taken_at
    claims = (found for found in what_if.claims.claims() if not namespace or found.metadata.namespace == namespace)
    return tuple(
        _usage(claim, waiting.get((claim.metadata.namespace, claim.metadata.name), ()), taken_at)
        for claim in sorted(claims, key=claim_id)
    )


def _waiting(what_if: WhatIfCluster) -> dict[tuple[str, str], list[str]]:
    """Pods that name a claim and have not ended, by claim."""
    found: dict[tuple[str, str], list[str]] = {}
    for pod in what_if.all(core_v1.Pod):
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        for id_ in what_if.claims.claims_of(pod):
            found.setdefault((id_.namespace, id_.name), []).append(pod.metadata.name)
    return found


def _usage(claim: api.ResourceClaim, named_by: Iterable[str], taken_at: float | None) -> ClaimUsage:
    users = users_of(claim)
    waiting = tuple(name for name in named_by if name not in users)
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return ClaimUsage(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        state=claim_state(claim, used=bool(users), wanted=bool(waiting)),
        devices=tuple(f"{r.driver}/{r.pool}/{r.device}" for r in results if not r.admin_access),
        watched=tuple(f"{r.driver}/{r.pool}/{r.device}" for r in results if r.admin_access),
        nodes=nodes_of(allocation),
        pods=users,
        waiting=waiting,
        age_seconds=_seconds_since(claim.metadata.creation_timestamp, taken_at),
        allocated_seconds=_seconds_since(allocation.allocation_timestamp if allocation else None, taken_at),
    )


def claim_state(claim: api.ResourceClaim, *, used: bool, wanted: bool) -> ClaimState:
    """used: reserved; wanted: named by a pod that has not reserved it."""
    if claim.metadata.deletion_timestamp is not None:
        return ClaimState.DELETING
    if claim.status.allocation is None:
        return ClaimState.PENDING if wanted else ClaimState.UNUSED
    return ClaimState.IN_USE if used else ClaimState.IDLE


def nodes_of(allocation: api.AllocationResult | None) -> tuple[str, ...]:
    """The nodes that an allocation names; none if other nodes can use it too."""
    return nodes_named(allocation.node_selector) if allocation is not None else ()


def _seconds_since(time: str | None, now: float | None) -> float | None:
    return None if time is None or now is None else max(0.0, now - seconds_of(time))
