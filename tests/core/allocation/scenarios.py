"""Runs one scenario (the format of the allocator vectors) through the allocator."""

from __future__ import annotations

from typing import Any

from allot.core.allocation import (
    ALL_FEATURES,
    FIRST_FIT,
    Allocated,
    AllocationError,
    ClaimID,
    Features,
    Inventory,
    Policy,
    Unallocatable,
    allocate,
    claim_id,
)
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode, encode
from allot.core.model.core_v1 import Node


def load(scenario: dict[str, Any]) -> tuple[Inventory, Node, list[api.ResourceClaim]]:
    """Inventory, node and claims of a scenario."""
    names = scenario["features"]
    inventory = Inventory(ALL_FEATURES if names == "all" else Features.from_names(names))
    for device_class in scenario["classes"]:
        inventory.put_class(decode(device_class, api.DeviceClass).object)
    for number, slice_ in enumerate(scenario["slices"]):
        # Scenarios may use one name for several slices.
        inventory.put_slice(decode(slice_, api.ResourceSlice).object, key=str(number))
    for number, claim in enumerate(scenario["allocated"]):
        holder = decode(claim, api.ResourceClaim).object
        assert holder.status.allocation is not None
        id_ = claim_id(holder)
        if inventory.ledger.allocation(id_) is not None:
            id_ = ClaimID(id_.namespace, f"{id_.name}-{number}")  # likewise for holders
        inventory.hold(id_, holder.status.allocation)
    node = decode(scenario["node"], Node).object
    return inventory, node, [decode(claim, api.ResourceClaim).object for claim in scenario["claims"]]


def run(scenario: dict[str, Any], policy: Policy = FIRST_FIT) -> tuple[list[Any] | None, str | None, Any]:
    """(results as JSON or None, error text or None, the answer)."""
    inventory, node, claims = load(scenario)
    try:
        answer = allocate(inventory, node, claims, policy, new_share_id=lambda *_: "*")
    except AllocationError as error:
        return None, error.message, None
    if isinstance(answer, Unallocatable):
        return None, None, answer
    assert isinstance(answer, Allocated)
    # No claims, no results: the vectors say null.
    return [encode(result) for result in answer.results] or None, None, answer
