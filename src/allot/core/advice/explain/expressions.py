"""What selectors read and compare, as syntax tree nodes, and what devices publish at those places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from allot.core.allocation.devices import attribute_value
from allot.core.cel.device import split_name
from allot.core.cel.syntax.ast import Call, Expr, Ident, Literal, Select
from allot.core.cel.syntax.builder import children
from allot.core.model import resource_v1 as api
from allot.core.quoting import quoted

ATTRIBUTES, CAPACITY = "attributes", "capacity"
_RELATIONS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">=", "_==_": "==", "_!=_": "!="}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_LOOKUPS = frozenset(("_[_]", "_[?_]", "_?._"))
_VALUES_MAX = 64


class Place(msgspec.Struct, frozen=True):
    """Where a value of a device is."""

    kind: str
    domain: str
    name: str

    @property
    def text(self) -> str:
        """As an expression reads it."""
        name = f".{self.name}" if self.name.isidentifier() else f"[{quoted(self.name)}]"
        return f"device.{self.kind}[{quoted(self.domain)}]{name}"


class Comparison(msgspec.Struct, frozen=True):
    """A value of a device, compared with a literal."""

    node: Expr
    place: Place
    read: Expr
    relation: str
    value: str | int | bool
    # The function around the value: quantity, semver or none.
    wrapped: str = ""


class Published:
    """What devices publish, looked up on demand."""

    def __init__(self, slices: Sequence[api.ResourceSlice]) -> None:
        self._slices = slices
        self._values: dict[Place, dict[object, str]] = {}
        self._places: set[Place] | None = None

    @property
    def drivers(self) -> set[str]:
        """Drivers that have published devices."""
        return {slice_.spec.driver for slice_ in self._slices if slice_.spec.devices}

    @property
    def places(self) -> set[Place]:
        """Everything published, by the first and last device of each slice."""
        if self._places is None:
            self._places = set()
            for slice_ in self._slices:
                devices = slice_.spec.devices or ()
                for device in {id(each): each for each in (*devices[:1], *devices[-1:])}.values():
                    for name in device.attributes:
                        self._places.add(Place(ATTRIBUTES, *split_name(name, slice_.spec.driver)))
                    for name in device.capacity:
                        self._places.add(Place(CAPACITY, *split_name(name, slice_.spec.driver)))
        return self._places

    def values(self, place: Place) -> dict[object, str]:
        """Different values at a place, and their kinds."""
        found = self._values.get(place)
        if found is None:
            found = self._values[place] = {}
            for slice_ in self._slices:
                for device in slice_.spec.devices or ():
                    value = value_at(device, slice_.spec.driver, place)
                    if value is not None and len(found) < _VALUES_MAX:
                        found[value[1]] = value[0]
        return found


def value_at(device: api.Device, driver: str, place: Place) -> tuple[str, object] | None:
    names = (f"{place.domain}/{place.name}", *((place.name,) if place.domain == driver else ()))
    for name in names:
        if place.kind == CAPACITY:
            capacity = device.capacity.get(name)
            if capacity is not None:
                return "quantity", capacity.value
        else:
            attribute = device.attributes.get(name)
            if attribute is not None:
                kind, value = attribute_value(attribute) or ("", None)
                return (kind, value if isinstance(value, str | int | bool) else str(value))
    return None


# --- the tree ---


def walk(root: Expr) -> Iterator[Expr]:
    pending = [root]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(children(node)))


def place_of(node: Expr) -> Place | None:
    """The place that a node reads."""
    name, container = _looked_up(node)
    if name is None or container is None:
        return None
    domain, map_ = _looked_up(container)
    if domain is None or not isinstance(map_, Select) or map_.field not in (ATTRIBUTES, CAPACITY):
        return None
    if not isinstance(map_.operand, Ident) or map_.operand.name != "device":
        return None
    return Place(map_.field, domain, name)


def _looked_up(node: Expr) -> tuple[str | None, Expr | None]:
    if isinstance(node, Select) and not node.test_only:
        return node.field, node.operand
    if isinstance(node, Call) and node.function in _LOOKUPS and len(node.args) == 2:
        key = node.args[1]
        if isinstance(key, Literal) and isinstance(key.value, str):
            return key.value, node.args[0]
    return None, None


def _read(node: Expr) -> Place | None:
    if isinstance(node, Call) and node.function == "orValue" and node.target is not None:
        node = node.target
    return place_of(node)


def comparisons(root: Expr) -> Iterator[Comparison]:
    for node in walk(root):
        if not isinstance(node, Call):
            continue
        if node.function in _RELATIONS and len(node.args) == 2:
            relation = _RELATIONS[node.function]
            left, right = node.args
            for one, other, seen in ((left, right, relation), (right, left, _FLIPPED[relation])):
                found = _plain(node, one, other, seen) or _compared(node, one, other, seen)
                if found is not None:
                    yield found
                    break
        elif node.function in ("isGreaterThan", "isLessThan") and node.target is not None and len(node.args) == 1:
            found = _plain(node, node.target, node.args[0], ">" if node.function == "isGreaterThan" else "<")
            if found is not None:
                yield found


def _plain(node: Expr, one: Expr, other: Expr, relation: str) -> Comparison | None:
    """`place OP literal`, `place OP quantity(literal)`."""
    place = _read(one)
    value, wrapped = _literal(other)
    return None if place is None or value is None else Comparison(node, place, one, relation, value, wrapped)


def _compared(node: Expr, one: Expr, other: Expr, relation: str) -> Comparison | None:
    """`place.compareTo(quantity(literal)) OP 0`."""
    if not (isinstance(other, Literal) and other.value == 0 and isinstance(one, Call) and one.function == "compareTo"):
        return None
    return _plain(node, one.target, one.args[0], relation) if one.target is not None and one.args else None


def _literal(node: Expr) -> tuple[str | int | bool | None, str]:
    wrapped = ""
    if isinstance(node, Call) and node.function in ("quantity", "semver") and node.args and node.target is None:
        wrapped, node = node.function, node.args[0]
    if isinstance(node, Literal) and isinstance(node.value, str | int | bool):
        return node.value, wrapped
    return None, ""
