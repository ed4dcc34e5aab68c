"""Claims: what they request, what they hold, which pods use them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from allot.core.advice.tree import asks_of, reported_of
from allot.core.advice.usage.claims import claim_state, nodes_of
from allot.core.advice.usage.devices import users_of
from allot.core.allocation.devices import DeviceID
from allot.core.model.resource_v1 import ResourceClaim


def claim_row(
    claim: ResourceClaim,
    named_by: Collection[str],
    use: tuple[float, float] | None = None,
    low_since: float | None = None,
) -> dict[str, Any]:
    """A claim in lists. named_by: pods that name it and have not ended; use: of its devices, percent of their time and MiB of
    their memory; low_since: when that was last more than next to nothing."""
    users = users_of(claim)
    waiting = sorted(set(named_by) - set(users))
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    row: dict[str, Any] = {
        "s": claim_state(claim, used=bool(users), wanted=bool(waiting)).value,
        "at": claim.metadata.creation_timestamp,
        "asks": [" or ".join(asks_of(request)) for request in claim.spec.devices.requests],
    }
    optional: dict[str, Any] = {
        "since": allocation.allocation_timestamp if allocation is not None else None,
        "d": [f"{r.driver}/{r.pool}/{r.device}" for r in results if not r.admin_access],
        "admin": [f"{r.driver}/{r.pool}/{r.device}" for r in results if r.admin_access],
        "nodes": nodes_of(allocation),
        "pods": users,
        "waiting": waiting,
        "use": (round(use[0]), round(use[1])) if use is not None else None,
        "low": low_since,
        "x": "; ".join(dict.fromkeys(problem for _, problem in problems_of(claim))),
    }
    return row | {key: value for key, value in optional.items() if value}


def held_by(claim: ResourceClaim | None) -> Iterator[DeviceID]:
    """The devices of a claim."""
    if claim is not None and claim.status.allocation is not None:
        for result in claim.status.allocation.devices.results:
            yield DeviceID(result.driver, result.pool, result.device)


def problems_of(claim: ResourceClaim) -> Iterator[tuple[DeviceID, str]]:
    """Complaints of drivers about devices of the claim."""
    if claim.status.allocation is not None and claim.status.devices:
        for result in claim.status.allocation.devices.results:
            problem = reported_of(claim, result)
            if problem:
                yield DeviceID(result.driver, result.pool, result.device), problem
