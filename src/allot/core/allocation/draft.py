"""What an attempt has chosen so far, with undo: the one place that knows whether one more device can be added.

The checks and their order are upstream's (reference: allocateDevice). A draft is made for one node and one list of claims and
is thrown away afterwards; the inventory is only read.
"""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.allocation import capacity as capacities
from allot.core.allocation.constraints import AttributeReader, ConstraintState, initial, unsatisfied
from allot.core.allocation.counters import CounterDraft, Undo
from allot.core.allocation.devices import ClaimID, DeviceEntry, DeviceID
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.features import Features
from allot.core.allocation.plan import ClaimPlan, Leaf
from allot.core.allocation.pools import NodeView
from allot.core.allocation.result import Choice
from allot.core.allocation.signature import SelectorFailure


class Taken:
    """How to undo one choice."""

    __slots__ = ("claim", "constraints", "counters", "id", "share")

    def __init__(self, claim: int, id_: DeviceID) -> None:
        self.claim = claim
        self.id = id_
        self.counters: Undo | None = None
        self.constraints: list[tuple[int, ConstraintState]] | None = None
        # What was drafted of the device's capacity before this choice; only for a share.
        self.share: tuple[dict[str, int] | None] | None = None


class Draft:
    """Choices made so far for the claims of one pod on one node."""

    __slots__ = ("choices", "claims", "consumed", "counters", "features", "plans", "reader", "states", "used", "view")

    def __init__(
        self, view: NodeView, claims: Sequence[ClaimID], plans: Sequence[ClaimPlan], features: Features
    ) -> None:
        self.view = view
        self.claims = claims
        self.plans = plans
        self.features = features
        self.choices: list[list[Choice]] = [[] for _ in plans]
        # Claims (by position) for which a device was chosen; shareable devices are in `consumed` instead.
        self.used: dict[DeviceID, list[int]] = {}
        self.consumed: dict[DeviceID, dict[str, int]] = {}
        self.counters = CounterDraft(features.compatibility_groups)
        self.states: list[list[ConstraintState]] = [[initial(c) for c in plan.constraints] for plan in plans]
        self.reader = AttributeReader(features)

    def in_use(self, entry: DeviceEntry, leaf: Leaf, claim: int) -> bool:
        """Whether the device is ruled out for the leaf before anything else is checked."""
        users = self.used.get(entry.id)
        if leaf.admin_access:
            return users is not None and claim in users
        return bool(users) or bool(entry.state.claims)

    def failure(self, failure: SelectorFailure, leaf: Leaf, claim: int) -> AllocationError:
        """The error that evaluating the device ends in."""
        return AllocationError(failure.sentence(self.claims[claim], leaf.name, all_devices=leaf.all_devices))

    def take(self, entry: DeviceEntry, leaf: Leaf, claim: int) -> Taken | None:
        """Choose a device that is not in use; None if something is in the way."""
        assert leaf.signature is not None
        id_ = entry.id
        shareable = entry.shareable
        taken = Taken(claim, id_)
        consumption: capacities.Consumption | None = None
        if entry.capacity and self.features.consumable_capacity:
            consumption = leaf.signature.consumption(entry)
            # An exclusive device has no drafted shares.
            drafted = self.consumed.get(id_, {})
            if consumption is None or not capacities.fits(consumption, entry.capacity, entry.state.consumed, drafted):
                return None
        if entry.device.consumes_counters and not (shareable and (entry.state.shares or id_ in self.consumed)):
            # A further share of a device in use draws no counters: the first share did.
            taken.counters = self.counters.take(self.view.counters[entry], entry)
            if taken.counters is None:
                return None
        if leaf.constraints and not self._constrain(entry, leaf, claim, taken):
            self.undo_counters(taken)
            if leaf.all_devices:
                raise unsatisfied(self.claims[claim], leaf, entry)
            return None
        if shareable:
            before = self.consumed.get(id_)
            taken.share = (before,)
            after = dict(before) if before is not None else {}
            for name, amount in (consumption or {}).items():
                after[name] = after.get(name, 0) + amount.nano
            self.consumed[id_] = after
            self.choices[claim].append(Choice(leaf, entry, "", consumption))
        else:
            users = self.used.get(id_)
            if users is None:
                self.used[id_] = [claim]
            else:
                users.append(claim)
            self.choices[claim].append(Choice(leaf, entry))
        return taken

    def _constrain(self, entry: DeviceEntry, leaf: Leaf, claim: int, taken: Taken) -> bool:
        plan, states = self.plans[claim], self.states[claim]
        before: list[tuple[int, ConstraintState]] = []
        try:
            for index in leaf.constraints:
                values = self.reader.read(entry, plan.constraints[index].attribute, leaf)
                after = states[index].add(values) if values is not None else None
                if after is None:
                    break
                before.append((index, states[index]))
                states[index] = after
            else:
                taken.constraints = before
                return True
        except AllocationError:
            self._undo_constraints(claim, before)
            self.undo_counters(taken)
            raise
        self._undo_constraints(claim, before)
        return False

    def undo(self, taken: Taken) -> None:
        """Revert the latest choice."""
        self.choices[taken.claim].pop()
        if taken.share is not None:
            (before,) = taken.share
            if before is None:
                del self.consumed[taken.id]
            else:
                self.consumed[taken.id] = before
        else:
            users = self.used[taken.id]
            users.pop()
            if not users:
                del self.used[taken.id]
        if taken.constraints:
            self._undo_constraints(taken.claim, taken.constraints)
        self.undo_counters(taken)

    def _undo_constraints(self, claim: int, before: list[tuple[int, ConstraintState]]) -> None:
        states = self.states[claim]
        for index, state in reversed(before):
            states[index] = state

    def undo_counters(self, taken: Taken) -> None:
        """Give back counters."""
        if taken.counters is not None:
            self.counters.undo(taken.counters)
            taken.counters = None
