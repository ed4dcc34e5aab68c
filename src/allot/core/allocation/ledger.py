"""Which claim holds which device. Everything that changes who holds what lives in this file.

The ledger is fed with claims as stored; a claim replaces what it held before. It never refuses: what the API says
is true, even if two claims say that they hold the same device.
"""

from __future__ import annotations

from collections.abc import Callable

from allot.core.allocation.devices import ClaimID, DeviceID, DeviceState, Share
from allot.core.model.resource_v1 import AllocationResult, DeviceRequestAllocationResult

# A device, and the share of it; None for the whole device.
_Held = tuple[DeviceState, Share | None]


class Ledger:
    """Holders of all devices, by claim and by device."""

    def __init__(self, consumable_capacity: bool, changed: Callable[[DeviceState], None]) -> None:
        self._consumable_capacity = consumable_capacity
        self._changed = changed
        self._states: dict[DeviceID, DeviceState] = {}
        self._held: dict[ClaimID, tuple[AllocationResult, tuple[_Held, ...]]] = {}

    def state(self, id_: DeviceID) -> DeviceState:
        """The state of a device, published or not."""
        state = self._states.get(id_)
        if state is None:
            state = self._states[id_] = DeviceState(id_)
        return state

    def find(self, id_: DeviceID) -> DeviceState | None:
        """The state of a device if it is published or held."""
        return self._states.get(id_)

    def forget_if_unused(self, state: DeviceState) -> None:
        """Drop the state of a device that is neither published nor held."""
        if not state.allocated and not state.entries:
            self._states.pop(state.id, None)

    def allocation(self, claim: ClaimID) -> AllocationResult | None:
        """What a claim holds."""
        held = self._held.get(claim)
        return held[0] if held is not None else None

    def claims(self) -> tuple[ClaimID, ...]:
        """Claims that hold something, sorted."""
        return tuple(sorted(self._held))

    def hold(self, claim: ClaimID, allocation: AllocationResult) -> None:
        """The claim is allocated."""
        before = self._held.get(claim)
        if before is not None:
            if before[0] is allocation or before[0].devices.results == allocation.devices.results:
                # Only its time or configuration changed, which does not affect others.
                self._held[claim] = (allocation, before[1])
                return
            self.release(claim)
        held = []
        for result in allocation.devices.results:
            if result.admin_access:
                continue  # admin access takes nothing away from anyone
            held.append(self._take(claim, result))
        self._held[claim] = (allocation, tuple(held))

    def _take(self, claim: ClaimID, result: DeviceRequestAllocationResult) -> _Held:
        state = self.state(DeviceID(result.driver, result.pool, result.device))
        was_allocated = state.allocated
        share = None
        if result.share_id is None or not self._consumable_capacity:
            state.claims.append(claim)
        else:
            share = Share(claim, {name: amount.nano for name, amount in result.consumed_capacity.items()})
            state.shares.append(share)
            for name, amount in share.consumed.items():
                state.consumed[name] = state.consumed.get(name, 0) + amount
        if not was_allocated:
            for counters, entry in state.counters:
                counters.taken(entry)
        self._changed(state)
        return state, share

    def release(self, claim: ClaimID) -> None:
        """The claim is no longer allocated, or is gone."""
        before = self._held.pop(claim, None)
        if before is None:
            return
        for state, share in before[1]:
            if share is None:
                state.claims.remove(claim)
            else:
                self._release_share(state, share)
            if not state.allocated:
                for counters, entry in state.counters:
                    counters.released(entry)
            self._changed(state)
            self.forget_if_unused(state)

    @staticmethod
    def _release_share(state: DeviceState, share: Share) -> None:
        state.shares.remove(share)
        for name, amount in share.consumed.items():
            rest = state.consumed.get(name, 0) - amount
            if rest:
                state.consumed[name] = rest
            else:
                state.consumed.pop(name, None)
