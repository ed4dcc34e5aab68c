"""matchAttribute and distinctAttribute: what chosen devices must have in common, or must not.

An attribute is a set of type-tagged values: a scalar is a set of one, so that one rule serves scalars and lists. Devices match if
some value is in all of their sets; they are distinct if their sets are pairwise disjoint.
"""

from __future__ import annotations

from typing import NamedTuple

from allot.core.allocation.devices import ClaimID, DeviceEntry, attribute_value
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.features import Features
from allot.core.allocation.plan import ConstraintPlan, Leaf
from allot.core.cel.selector import (
    CompiledDerived,
    EnvironmentOptions,
    EvaluationError,
    SelectorCompileError,
    compile_derived,
)

Value = tuple[str, object]

_ELEMENT_KIND = {"ints": "int", "bools": "bool", "strings": "string", "versions": "version"}


class Values(NamedTuple):
    """The values of one attribute of one device; opaque if it is a list while lists are switched off."""

    values: frozenset[Value]
    opaque: bool = False


class AttributeReader:
    """Looks up attributes for constraints, derived ones included (those are remembered for one attempt)."""

    __slots__ = ("_compiled", "_derived", "_lists", "_options")

    def __init__(self, features: Features) -> None:
        self._lists = features.list_type_attributes
        self._options = EnvironmentOptions(
            list_type_attributes=features.list_type_attributes,
            consumable_capacity=features.consumable_capacity,
            stored=True,
        )
        self._derived: dict[tuple[DeviceEntry, str], Values | AllocationError | None] = {}
        self._compiled: dict[str, CompiledDerived | SelectorCompileError] = {}

    def read(self, entry: DeviceEntry, name: str, leaf: Leaf) -> Values | None:
        """Values of the attribute; None if the device has none. A derived attribute that fails raises AllocationError."""
        if leaf.derived and name in leaf.derived:
            expression = leaf.derived[name]
            key = (entry, expression)
            if key not in self._derived:
                try:
                    self._derived[key] = self._values(entry, self._derive(entry, name, expression))
                except AllocationError as error:
                    self._derived[key] = error
            found = self._derived[key]
            if isinstance(found, AllocationError):
                raise found
            return found
        return self.read_published(entry, name)

    def read_published(self, entry: DeviceEntry, name: str) -> Values | None:
        """Values of an attribute as the driver published it."""
        try:
            return entry.values[name]
        except KeyError:
            attribute = entry.attribute(name)
            found = self._values(entry, attribute_value(attribute) if attribute is not None else None)
            entry.values[name] = found
            return found

    def _values(self, entry: DeviceEntry, tagged: tuple[str, object] | None) -> Values | None:
        if tagged is None:
            return None
        kind, value = tagged
        element = _ELEMENT_KIND.get(kind)
        if element is None:
            return Values(frozenset({(kind, value)}))
        assert isinstance(value, (tuple, list))
        if not self._lists:
            # Equal to nothing but itself: a list is accepted as the first device only.
            return Values(frozenset({("opaque", entry)}), opaque=True)
        if not value:
            return None
        return Values(frozenset((element, item) for item in value))

    def _derive(self, entry: DeviceEntry, name: str, expression: str) -> tuple[str, object]:
        compiled = self._compiled.get(expression)
        if compiled is None:
            try:
                compiled = compile_derived(expression, self._options)
            except SelectorCompileError as error:
                compiled = error
            self._compiled[expression] = compiled
        if isinstance(compiled, SelectorCompileError):
            raise AllocationError(f"compile derived attribute {name} failed: {compiled.message}")
        try:
            return compiled.evaluate(entry.view)
        except EvaluationError as error:
            raise AllocationError(f"evaluate derived attribute {name} on device {entry.id} failed: {error}") from error


class MatchState(NamedTuple):
    """Values that all devices so far have in common."""

    common: frozenset[Value] | None = None

    def add(self, values: Values) -> MatchState | None:
        """The state with one more device; None if nothing is common to all."""
        if self.common is None:
            return MatchState(values.values)
        common = self.common & values.values
        return MatchState(common) if common else None


class DistinctState(NamedTuple):
    """Values that devices so far have taken."""

    devices: int = 0
    taken: frozenset[Value] = frozenset()

    def add(self, values: Values) -> DistinctState | None:
        """The state with one more device; None if it has a value of another device."""
        if values.opaque:
            return DistinctState(1) if not self.devices else None
        if self.taken & values.values:
            return None
        return DistinctState(self.devices + 1, self.taken | values.values)


ConstraintState = MatchState | DistinctState


def initial(constraint: ConstraintPlan) -> ConstraintState:
    """The state before any device."""
    return MatchState() if constraint.match else DistinctState()


def unsatisfied(claim: ClaimID, leaf: Leaf, entry: DeviceEntry) -> AllocationError:
    """An "All" request and a constraint that contradict each other."""
    return AllocationError(
        f"claim {claim}, request {leaf.name}: cannot add device {entry.id} because a claim constraint would not be satisfied"
    )
