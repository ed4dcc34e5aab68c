"""What an expression reads of a device and compares it with, from its syntax tree.

Reads are followed through cel.bind, optional selection and orValue; lookups by a computed name are unknown here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from allot.core.cel.syntax.ast import Call, Comprehension, Expr, Ident, ListExpr, Literal, Parsed, Select
from allot.core.cel.syntax.builder import children
from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.parser import parse
from allot.core.cel.syntax.unparse import unparse

ATTRIBUTES, CAPACITY = "attributes", "capacity"
RELATIONS = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">=", "_==_": "==", "_!=_": "!="}
IN = "in"
ORDERS = frozenset(("<", "<=", ">", ">="))
_SIZE = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:(?:[KMGTPE]i?|k)B?)?")
_VERSION = re.compile(r"v?[0-9]+\.[0-9]+(?:\.[0-9]+)?(?:[-+].*)?")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_LOOKUPS = frozenset(("_[_]", "_[?_]", "_?._"))
_OPTIONAL = frozenset(("_[?_]", "_?._"))

_Bound = Mapping[str, Expr]


class Read(msgspec.Struct, frozen=True):
    """An attribute or capacity that is read. An empty domain means the device's own driver."""

    kind: str
    domain: str
    name: str
    # Whether the expression tolerates its absence: optional selection, has().
    is_optional: bool = False
    offset: int = 0


class Comparison(msgspec.Struct, frozen=True):
    """A read value compared with a literal, with the read value on the left."""

    read: Read
    relation: str
    literal: str | int | float | bool
    # The text of the comparison.
    text: str
    # Whether it is a plain literal, or the argument of quantity().
    is_quantity: bool = False

    @property
    def orders_text(self) -> str:
        """`size` or `version` if texts that look like one are ordered alphabetically; else empty."""
        if self.read.kind != ATTRIBUTES or self.relation not in ORDERS or self.is_quantity:
            return ""
        if not isinstance(self.literal, str):
            return ""
        if _VERSION.fullmatch(self.literal):
            return "version"
        return "size" if _SIZE.fullmatch(self.literal) else ""


class Reading(msgspec.Struct, frozen=True):
    """Everything in one expression."""

    reads: tuple[Read, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    # Names that device.driver is compared with for equality.
    drivers: tuple[str, ...] = ()


def read_expression(text: str) -> Reading | None:
    """What an expression reads; None if it does not parse."""
    try:
        parsed = parse(text)
    except CelCompileError:
        return None
    reads: dict[tuple[str, str, str], Read] = {}
    comparisons: list[Comparison] = []
    drivers: dict[str, None] = {}
    for node, bound in _walk(parsed.root):
        found = _read(node, bound, parsed)
        if found is not None:
            key = (found.kind, found.domain, found.name)
            if key not in reads or reads[key].is_optional:
                reads[key] = found
        if isinstance(node, Call) and node.function in RELATIONS and len(node.args) == 2:
            comparisons += _comparisons(node, bound, parsed)
            drivers |= dict.fromkeys(_drivers(node))
        elif isinstance(node, Call) and node.function == "@in" and len(node.args) == 2:
            comparisons += _memberships(node, bound, parsed)
    return Reading(tuple(reads.values()), tuple(comparisons), tuple(drivers))


def _walk(root: Expr) -> Iterator[tuple[Expr, _Bound]]:
    pending: list[tuple[Expr, _Bound]] = [(root, {})]
    while pending:
        node, bound = pending.pop()
        yield node, bound
        if isinstance(node, Comprehension) and node.iter_var == "#unused":
            # cel.bind: the value under the variable's name.
            pending += [(node.result, {**bound, node.accu_var: node.accu_init}), (node.accu_init, bound)]
        else:
            pending += [(child, bound) for child in reversed(tuple(children(node)))]


def _comparisons(node: Call, bound: _Bound, parsed: Parsed) -> Iterator[Comparison]:
    relation = RELATIONS[node.function]
    left, right = node.args
    for one, other, seen in ((left, right, relation), (right, left, _FLIPPED[relation])):
        read = _read(_without_default(one), bound, parsed)
        literal, is_quantity = _literal(other)
        if read is not None and literal is not None:
            yield Comparison(read, seen, literal, unparse(node, parsed), is_quantity)
            return


def _memberships(node: Call, bound: _Bound, parsed: Parsed) -> Iterator[Comparison]:
    """A read value that is searched in a list of literals, once for each of them."""
    one, among = node.args
    read = _read(_without_default(one), bound, parsed)
    if read is None or not isinstance(among, ListExpr):
        return
    for element in among.elements:
        literal, is_quantity = _literal(element)
        if literal is not None:
            yield Comparison(read, IN, literal, unparse(node, parsed), is_quantity)


def _drivers(node: Call) -> Iterator[str]:
    for one, other in (node.args, node.args[::-1]):
        literal, _ = _literal(other)
        if node.function == "_==_" and _is_of_device(one, "driver") and isinstance(literal, str):
            yield literal


def _literal(node: Expr) -> tuple[str | int | float | bool | None, bool]:
    is_quantity = isinstance(node, Call) and node.function == "quantity" and len(node.args) == 1
    inner = node.args[0] if is_quantity and isinstance(node, Call) else node
    value = inner.value if isinstance(inner, Literal) else None
    return (value, is_quantity) if isinstance(value, str | int | float | bool) else (None, False)


def _without_default(node: Expr) -> Expr:
    """The operand of `.orValue(...)`."""
    if isinstance(node, Call) and node.function == "orValue" and node.target is not None:
        return node.target
    return node


def _read(node: Expr, bound: _Bound, parsed: Parsed) -> Read | None:
    name, container, is_optional = _looked_up(node)
    if name is None or container is None:
        return None
    container = _resolved(container, bound)
    domain, map_, domain_is_optional = _looked_up(container)
    if domain is None and _is_lookup_by_driver(container):
        domain, map_ = "", container.args[0] if isinstance(container, Call) else None
    if domain is None or map_ is None:
        return None
    map_ = _resolved(map_, bound)
    for kind in (ATTRIBUTES, CAPACITY):
        if _is_of_device(map_, kind):
            offset = parsed.offsets.get(node.id, 0)
            return Read(kind, domain, name, is_optional or domain_is_optional, offset)
    return None


def _looked_up(node: Expr) -> tuple[str | None, Expr | None, bool]:
    """The name, the container and whether it is optional, for `container.name` and `container["name"]`."""
    if isinstance(node, Select):
        return node.field, node.operand, node.test_only
    if isinstance(node, Call) and node.function in _LOOKUPS and len(node.args) == 2:
        key = node.args[1]
        if isinstance(key, Literal) and isinstance(key.value, str):
            return key.value, node.args[0], node.function in _OPTIONAL
    return None, None, False


def _is_lookup_by_driver(node: Expr) -> bool:
    return (
        isinstance(node, Call)
        and node.function in _LOOKUPS
        and len(node.args) == 2
        and _is_of_device(node.args[1], "driver")
    )


def _resolved(node: Expr, bound: _Bound) -> Expr:
    for _ in range(len(bound)):
        if not (isinstance(node, Ident) and node.name in bound):
            break
        node = bound[node.name]
    return node


def _is_of_device(node: Expr, field: str) -> bool:
    return (
        isinstance(node, Select)
        and node.field == field
        and isinstance(node.operand, Ident)
        and node.operand.name == "device"
    )
