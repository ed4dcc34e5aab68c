"""Which devices are interchangeable in one attempt.

Two devices are symmetric if swapping them in any solution gives a solution again: the same requests may use them, they have the same
values for all constraints in play, draw on the same counters by the same amounts, and have the same capacity left.
Names, and attributes that nothing reads, do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from allot.core.allocation.counters import consumption
from allot.core.allocation.devices import DeviceEntry, DeviceID
from allot.core.allocation.draft import Draft
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.plan import Leaf, RequestPlan
from allot.core.allocation.signature import SelectorFailure

CandidatesOf = Callable[[Leaf], tuple[Sequence[DeviceEntry], Mapping[DeviceEntry, SelectorFailure]]]


class Symmetry:
    """Numbers the symmetry classes of devices in one attempt."""

    __slots__ = ("_by_entry", "_by_id", "_numbers")

    def __init__(
        self,
        draft: Draft,
        requests: Sequence[Sequence[RequestPlan]],
        candidates: CandidatesOf,
        worth: Callable[[DeviceEntry], Hashable] = lambda _: None,
    ) -> None:
        """worth: an additional distinction, for a policy that prefers some devices to others."""
        self._numbers: dict[object, int] = {}
        self._by_entry: dict[DeviceEntry, int] = {}
        self._by_id: dict[DeviceID, int] = {}
        looks: dict[DeviceEntry, list[object]] = {}
        # Equal leaves see devices alike: compute once.
        seen: dict[object, int] = {}
        for claim, plans in enumerate(requests):
            for plan in plans:
                for leaf in plan.leaves:
                    assert leaf.signature is not None
                    question = (
                        leaf.signature.number,
                        leaf.all_devices,
                        claim if leaf.constraints else -1,
                        leaf.constraints,
                        tuple(leaf.derived.items()),
                    )
                    if question in seen:
                        continue
                    number = seen[question] = len(seen)
                    devices, failures = candidates(leaf)
                    for entry in devices:
                        looks.setdefault(entry, []).append(_look(number, claim, leaf, entry, draft, failures))
        for entry, parts in looks.items():
            key = (tuple(parts), worth(entry), *_condition(entry, draft))
            number = self._numbers.setdefault(key, len(self._numbers))
            self._by_entry[entry] = number
            self._by_id[entry.id] = number

    def of(self, entry: DeviceEntry, draft: Draft) -> Hashable:
        """What the device looks like now."""
        number = self._by_entry[entry]
        used, drafted = draft.used.get(entry.id), draft.consumed.get(entry.id)
        if used is None and drafted is None:
            return number
        return number, tuple(used or ()), tuple(sorted((drafted or {}).items()))

    def situation(self, draft: Draft, claim: int) -> Hashable:
        """Everything that decisions from this claim on depend on.

        Equal for drafts that differ only in which of several like devices they took, and in what claims before this one
        agreed on.
        """
        exclusive = sorted(
            (self._by_id[id_], tuple(user for user in users if user >= claim)) for id_, users in draft.used.items()
        )
        shared = sorted((self._by_id[id_], tuple(sorted(amounts.items()))) for id_, amounts in draft.consumed.items())
        return tuple(exclusive), tuple(shared), tuple(draft.states[claim]) if claim < len(draft.states) else ()


def _look(
    number: int,
    claim: int,
    leaf: Leaf,
    entry: DeviceEntry,
    draft: Draft,
    failures: Mapping[DeviceEntry, SelectorFailure],
) -> object:
    if entry in failures:
        return number, "failure"
    values: list[object] = []
    for index in leaf.constraints:
        try:
            found = draft.reader.read(entry, draft.plans[claim].constraints[index].attribute, leaf)
            values.append(found)
        except AllocationError:
            values.append(entry)  # like no other
    taken: tuple[tuple[str, int], ...] = ()
    if entry.shareable and leaf.signature is not None:
        taken = tuple(sorted((name, amount.nano) for name, amount in (leaf.signature.consumption(entry) or {}).items()))
    return number, tuple(values), taken


def _condition(entry: DeviceEntry, draft: Draft) -> tuple[object, ...]:
    state = entry.state
    left: tuple[tuple[str, int], ...] = ()
    if entry.shareable or state.consumed:
        left = tuple(sorted((n, c.value.nano - state.consumed.get(n, 0)) for n, c in entry.capacity.items()))
    drawn: tuple[object, ...] = ()
    if entry.device.consumes_counters:
        groups = tuple((c.counter_set, frozenset(c.compatibility_groups)) for c in entry.device.consumes_counters)
        drawn = (id(draft.view.counters.get(entry)), tuple(sorted(consumption(entry).items())), groups)
    return entry.shareable, bool(state.claims), bool(state.shares), left, drawn
