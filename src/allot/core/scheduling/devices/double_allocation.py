"""Detects devices that are allocated twice, after the fact, on servers that do not prevent it.

Our API server refuses such writes. Others store what schedulers write, so after each write the scheduler checks what
else holds the claim's devices. Of two allocations the later one must be undone: by allocation time, then by
resource version, then by uid, so that all schedulers agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from allot.core.allocation import ClaimID, DeviceID, Inventory
from allot.core.allocation.counters import PoolCounters, consumption
from allot.core.allocation.devices import DeviceEntry, DeviceState
from allot.core.model import resource_v1 as api
from allot.core.quantity import Quantity

ClaimOf = Callable[[ClaimID], api.ResourceClaim | None]


class DoubleAllocation(msgspec.Struct, frozen=True):
    """Something that is held more than once."""

    text: str
    # Its holders, the latest last.
    holders: tuple[ClaimID, ...]

    @property
    def later(self) -> ClaimID:
        """The claim whose allocation must be undone."""
        return self.holders[-1]


def double_allocations(inventory: Inventory, claim: ClaimID, claim_of: ClaimOf) -> Iterator[DoubleAllocation]:
    """What a claim holds that others hold too. Costs no more than the claim's own devices if there is no conflict."""
    allocation = inventory.ledger.allocation(claim)
    if allocation is None:
        return
    seen: set[DeviceID] = set()
    for result in allocation.devices.results:
        id_ = DeviceID(result.driver, result.pool, result.device)
        if result.admin_access or id_ in seen:
            continue
        seen.add(id_)
        state = inventory.ledger.find(id_)
        if state is None:
            continue
        found = _device(state) or _capacity(state) or _counters(state, claim)
        if found is not None:
            text, holders = found
            yield DoubleAllocation(text, _by_time(holders, claim_of))


def _device(state: DeviceState) -> tuple[str, list[ClaimID]] | None:
    """One claim alone, or several with a share each."""
    if not state.claims or len(state.claims) + len(state.shares) == 1:
        return None
    holders = [*state.claims, *(share.claim for share in state.shares)]
    if len(set(holders)) == 1:
        return None
    return f"device {state.id} is allocated to {_names(holders)}", holders


def _capacity(state: DeviceState) -> tuple[str, list[ClaimID]] | None:
    for entry in state.entries:
        for name, consumed in state.consumed.items():
            published = entry.capacity.get(name)
            if published is not None and consumed > published.value.nano:
                holders = [share.claim for share in state.shares if share.consumed.get(name)]
                amount = Quantity.from_nano(consumed, published.value.format)
                text = f"capacity {name} of device {state.id}: {amount} of {published.value} is allocated"
                return f"{text} to {_names(holders)}", holders
    return None


def _counters(state: DeviceState, claim: ClaimID) -> tuple[str, list[ClaimID]] | None:
    for pool, entry in state.counters:
        if not pool.overcommitted:
            continue
        for key in consumption(entry):
            if pool.available.get(key, 0) < 0:
                holders = [holder for other in _drawing(pool, key) for holder in _holders(other.state)]
                if set(holders) != {claim}:
                    text = f"counter {key[0]}/{key[1]} of pool {state.id.driver}/{state.id.pool}"
                    return f"{text} is overcommitted by {_names(holders)}", holders
    return None


def _drawing(pool: PoolCounters, key: tuple[str, str]) -> Iterator[DeviceEntry]:
    return (entry for entry in pool.devices if entry.state.allocated and consumption(entry).get(key))


def _holders(state: DeviceState) -> list[ClaimID]:
    return [*state.claims, *(share.claim for share in state.shares)]


def _by_time(holders: Iterable[ClaimID], claim_of: ClaimOf) -> tuple[ClaimID, ...]:
    return tuple(sorted(set(holders), key=lambda id_: _moment(id_, claim_of(id_))))


def _moment(id_: ClaimID, claim: api.ResourceClaim | None) -> tuple[bool, str, int, str, ClaimID]:
    """When a claim was allocated. Unwritten decisions come last: they can still be reverted without a write."""
    if claim is None or claim.status.allocation is None:
        return True, "", 0, "", id_
    metadata = claim.metadata
    version = int(metadata.resource_version) if metadata.resource_version.isdecimal() else 0
    return False, claim.status.allocation.allocation_timestamp or "", version, metadata.uid, id_


def _names(holders: Iterable[ClaimID]) -> str:
    names = sorted({str(holder) for holder in holders})
    return f"claim {names[0]}" if len(names) == 1 else f"claims {', '.join(names[:-1])} and {names[-1]}"
