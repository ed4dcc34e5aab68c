"""Which parts of a device an expression reads.

Devices that agree on those parts get the same answer, so one evaluation serves a whole class of devices. The analysis
follows constants, selections, `in`, has(), cel.bind, conditionals and `attributes[device.driver]`; where it loses track
it falls back to the whole domain, the whole map or the whole device, never to less than is read.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from operator import attrgetter
from typing import Any, Final

import msgspec

from allot.core.cel.data.values import Value
from allot.core.cel.device import DeviceView
from allot.core.cel.evaluation.plan_nodes import (
    And,
    Block,
    Call,
    Chain,
    Conditional,
    Constant,
    Equal,
    Fold,
    ListNode,
    MapNode,
    Membership,
    Node,
    Operand,
    OptionalOr,
    Or,
    Qualifier,
)
from allot.core.quantity import Quantity
from allot.core.semver import Semver

ATTRIBUTES: Final = "attributes"
CAPACITY: Final = "capacity"


class Reference(msgspec.Struct, frozen=True, order=True):
    """One part of a device.

    kind is driver, allowMultipleAllocations, attributes, capacity or device (all of it). An empty domain stands for all
    domains, an empty name for the whole domain. With `of_driver` the domain is the device's driver; with
    `existence` it only matters whether the domain exists.
    """

    kind: str
    domain: str = ""
    name: str = ""
    of_driver: bool = False
    existence: bool = False


# The analysis is recursive; deeper expressions are assumed to read everything.
_HEIGHT_MAX: Final = 150
_TEXT_MAX: Final = 1024

_DRIVER: Final = Reference("driver")
_MULTIPLE: Final = Reference("allowMultipleAllocations")
_DEVICE: Final = Reference("device")


class Projection:
    """The parts of a device that matter to some expressions."""

    __slots__ = ("_readers", "references")

    def __init__(self, references: Iterable[Reference]) -> None:
        self.references = tuple(sorted(_without_covered(frozenset(references))))
        self._readers = tuple(_reader(reference) for reference in self.references)

    def key(self, view: DeviceView) -> Hashable:
        """The key of a device: equal keys, equal outcomes. Values carry their type, since Python's True equals 1."""
        return tuple([read(view) for read in self._readers])

    @staticmethod
    def union(projections: Iterable[Projection]) -> Projection:
        """The parts that matter to any of several expressions."""
        return Projection(reference for projection in projections for reference in projection.references)

    @property
    def is_exact(self) -> bool:
        """Whether only single attributes and capacities are read, no whole domains."""
        return all(
            reference.kind not in (ATTRIBUTES, CAPACITY, "device") or reference.name or reference.existence
            for reference in self.references
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Projection) and self.references == other.references

    def __hash__(self) -> int:
        return hash(self.references)

    def __repr__(self) -> str:
        return f"Projection({list(self.references)!r})"


def project(plan: Node) -> Projection:
    """The parts of `device` that a plan reads."""
    if plan.height > _HEIGHT_MAX:
        return Projection((_DEVICE,))
    analysis = _Analysis()
    analysis.use(analysis.visit(plan))
    return Projection(analysis.references)


def _without_covered(references: frozenset[Reference]) -> list[Reference]:
    """Drops references that a coarser one covers."""
    if _DEVICE in references:
        return [_DEVICE]
    kept: list[Reference] = []
    for reference in references:
        whole_kind = Reference(reference.kind)
        whole_domain = Reference(reference.kind, reference.domain, of_driver=reference.of_driver)
        covered = reference != whole_kind and whole_kind in references
        if reference.name or reference.existence:
            covered = covered or (whole_domain != whole_kind and whole_domain in references)
        if not covered:
            kept.append(reference)
    return kept


# --- keys ---


class _Absent:
    """Stands for something a device lacks; equal only to itself."""

    __slots__ = ()


_ABSENT: Final = _Absent()


def _tagged(value: Value) -> Hashable:
    value_class = value.__class__
    if value_class is str or value_class is int:
        return value  # type: ignore[no-any-return]
    if value_class is bool or value_class is _Absent:
        return (value_class, value)
    if isinstance(value, Quantity):
        # Equal amounts may behave differently: 1.5Ki is not an integer, 1536 is.
        return ("quantity", value.nano, value.format, value.scale, value.big)
    if value_class is Semver:
        return ("version", str(value))
    if value_class is list or value_class is tuple:
        return ("list", *map(_tagged, value))
    return ("map", *((key, _tagged(item)) for key, item in value.items()))


def _reader(reference: Reference) -> Callable[[DeviceView], Hashable]:
    if reference == _DRIVER:
        return lambda view: view.driver
    if reference == _MULTIPLE:
        return lambda view: view.allow_multiple_allocations
    if reference == _DEVICE:
        return lambda view: _tagged(view.variables["device"])
    return _map_reader(reference)


def _map_reader(reference: Reference) -> Callable[[DeviceView], Hashable]:
    kind, domain, name = reference.kind, reference.domain, reference.name
    read_map = attrgetter(kind)
    if reference.existence:
        return lambda view: domain in read_map(view)
    if not domain and not reference.of_driver:
        return lambda view: _tagged(read_map(view))
    if not name:
        # An empty domain and a missing one differ only for `in`, which has a separate reference.
        return lambda view: _tagged(read_map(view)[view.driver if reference.of_driver else domain])
    if reference.of_driver:
        return lambda view: _tagged(read_map(view)[view.driver].get(name, _ABSENT))
    return _attribute_reader(domain, name) if kind == ATTRIBUTES else _capacity_reader(domain, name)


def _attribute_reader(domain: str, name: str) -> Callable[[DeviceView], Hashable]:
    def read(view: DeviceView) -> Hashable:
        value: Hashable = view.attributes[domain].get(name, _ABSENT)
        value_class = value.__class__
        return value if value_class is str or value_class is int else _tagged(value)

    return read


def _capacity_reader(domain: str, name: str) -> Callable[[DeviceView], Hashable]:
    return lambda view: _tagged(view.capacity[domain].get(name, _ABSENT))


# --- analysis ---


class _Part(msgspec.Struct, frozen=True):
    """What is known about a value: a constant text, the device, one of its maps, a domain, its driver; or nothing."""

    what: str
    kind: str = ""
    domain: str = ""
    of_driver: bool = False
    text: str = ""


_OTHER: Final = _Part("other")
_WHOLE: Final = _Part("device")
_OWN_DRIVER: Final = _Part("driver")


class _Analysis:
    def __init__(self) -> None:
        self.references: set[Reference] = set()
        self._variables: dict[str, _Part] = {}

    def use(self, part: _Part) -> None:
        """The value leaves the analysis: all of it counts as read."""
        if part.what == "device":
            self.references.add(_DEVICE)
        elif part.what == "map":
            self.references.add(Reference(part.kind))
        elif part.what == "domain":
            self.references.add(Reference(part.kind, part.domain, of_driver=part.of_driver))
        elif part.what == "driver":
            self.references.add(_DRIVER)

    def visit(self, node: Node) -> _Part:
        """What a node evaluates to; records what it reads."""
        return _VISITORS[node.__class__](self, node)

    def _all_used(self, nodes: Iterable[Node]) -> _Part:
        for node in nodes:
            self.use(self.visit(node))
        return _OTHER

    def _constant(self, node: Constant) -> _Part:
        return _Part("text", text=node.value) if node.value.__class__ is str else _OTHER

    def _chain(self, node: Chain) -> _Part:
        source = node.source
        if isinstance(source, Conditional):
            self.use(self.visit(source.condition))
            truthy, falsy = self.visit(source.truthy), self.visit(source.falsy)
            if truthy == falsy:
                return truthy
            self.use(truthy)
            self.use(falsy)
            return _OTHER
        if isinstance(source, Operand):
            part = self.visit(source.node)
        else:
            name = source.name
            part = self._variables.get(name, _WHOLE if name.removeprefix(".") == "device" else _OTHER)
        for qualifier in node.qualifiers:
            part = self._qualified(part, qualifier)
        return part

    def _qualified(self, part: _Part, qualifier: Qualifier) -> _Part:
        key = _Part("text", text=qualifier.key) if qualifier.key.__class__ is str else _OTHER
        if qualifier.index is not None:
            key = self.visit(qualifier.index)
        if part.what == "device":
            return self._field(key, qualifier.test)
        if part.what == "map":
            return self._domain(part, key, qualifier.test)
        if part.what == "domain":
            self._name(part, key)
        else:
            self.use(part)
            self.use(key)
        return _OTHER

    def _field(self, key: _Part, test: bool) -> _Part:
        if key.what != "text":
            self.use(key)
            self.references.add(_DEVICE)
            return _OTHER
        # The fields always exist.
        if test or key.text not in ("driver", "allowMultipleAllocations", ATTRIBUTES, CAPACITY):
            return _OTHER
        if key.text == "driver":
            return _OWN_DRIVER
        if key.text == "allowMultipleAllocations":
            self.references.add(_MULTIPLE)
            return _OTHER
        return _Part("map", key.text)

    def _domain(self, part: _Part, key: _Part, test: bool) -> _Part:
        if key.what not in ("text", "driver"):
            self.use(key)
            self.use(part)
            return _OTHER
        if test:
            # Selecting a domain always succeeds.
            return _OTHER
        if key.what == "driver":
            self.references.add(_DRIVER)
            return _Part("domain", part.kind, of_driver=True)
        if not key.text:
            # The empty name is how references spell "all of them".
            self.use(part)
            return _OTHER
        return _Part("domain", part.kind, key.text)

    def _name(self, part: _Part, key: _Part) -> None:
        if key.what == "text" and key.text:
            self.references.add(Reference(part.kind, part.domain, key.text, part.of_driver))
        else:
            self.use(key)
            self.use(part)

    def _call(self, node: Call) -> _Part:
        if node.function == "@in":
            return self._membership_call(node)
        parts = [self.visit(argument) for argument in node.arguments]
        if node.function == "dyn":
            return parts[0]
        if node.function == "_+_" and all(part.what == "text" for part in parts):
            text = parts[0].text + parts[1].text
            # No domain or name is that long, and this bounds repeated doubling.
            return _Part("text", text=text) if len(text) <= _TEXT_MAX else _OTHER
        for part in parts:
            self.use(part)
        return _OTHER

    def _membership_call(self, node: Call) -> _Part:
        key, container = (self.visit(argument) for argument in node.arguments)
        if container.what == "domain":
            self._name(container, key)
        elif container.what == "map" and key.what == "text" and key.text:
            self.references.add(Reference(container.kind, key.text, existence=True))
        else:
            self.use(key)
            self.use(container)
        return _OTHER

    def _fold(self, node: Fold) -> _Part:
        outer = self._variables
        initial = self.visit(node.accu_init)
        iter_range = self.visit(node.iter_range)
        self.use(iter_range)
        if not node.is_binding:
            self.use(initial)
            initial = _OTHER
        inside = {name: _OTHER for name in (node.iter_var, node.iter_var2) if name}
        self._variables = {**outer, **inside, node.accu_var: initial}
        self.use(self.visit(node.condition))
        if not node.is_binding:
            self.use(self.visit(node.step))
        self._variables = {**outer, node.accu_var: initial}
        result = self.visit(node.result)
        self._variables = outer
        return result

    def _block(self, node: Block) -> _Part:
        self._all_used(node.slots)
        return self.visit(node.result)


def _children(node: Any) -> tuple[Node, ...]:
    if isinstance(node, Equal | OptionalOr):
        return (node.left, node.right)
    if isinstance(node, Membership):
        return (node.wanted,)
    if isinstance(node, ListNode):
        return node.elements
    if isinstance(node, MapNode):
        return (*node.keys, *node.values)
    return node.terms  # type: ignore[no-any-return]


def _used(analysis: _Analysis, node: Any) -> _Part:
    return analysis._all_used(_children(node))


_VISITORS: Final[dict[type, Callable[[_Analysis, Any], _Part]]] = {
    Constant: _Analysis._constant,
    Chain: _Analysis._chain,
    Call: _Analysis._call,
    Fold: _Analysis._fold,
    Block: _Analysis._block,
    **dict.fromkeys((And, Or, Equal, OptionalOr, Membership, ListNode, MapNode), _used),
}
