"""Sets of fields, kept in the form in which objects carry them (fieldsV1).

A set is a tree of dictionaries. An element of a path is its key: `f:<name>` a member, `k:{...}` an element of a list by its
keys, `v:<value>` an element of a list that is a set, `i:<index>` a position. `{}` below an element says that it is in the set
and nothing below it; `.` beside others says that the element itself is in the set too; without `.` only things below it are.
So reading and writing managedFields costs nothing, and the operations here share what they do not change.

Trees are shared between objects and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from allot.core.model.decoding import DEPTH_MAX

Tree = dict[str, Any]
Path = tuple[str, ...]

# The tree below an element that is in the set and has nothing below it; also the empty set. Compared by value.
LEAF: Tree = {}
SELF = "."

_RANKS = {".": 0, "f": 1, "k": 2, "v": 3, "i": 4}


class FieldsError(ValueError):
    """Something that is no fieldsV1."""


def ordered(tree: Tree) -> Tree:
    """The tree with its elements in canonical order."""
    return dict(sorted(tree.items(), key=_canonical))


def _canonical(item: tuple[str, Tree]) -> tuple[int, str]:
    element = item[0]
    return _RANKS.get(element[:1], 5), element


# --- sets ---


def union(one: Tree, other: Tree) -> Tree:
    """What is in either."""
    if not one or one is other:
        return other
    if not other:
        return one
    merged: Tree | None = None
    for element, below in other.items():
        mine = one.get(element)
        if mine is None:
            new = below
        else:
            new = _node_union(mine, below)
            if new is mine:
                continue
        if merged is None:
            merged = dict(one)
        merged[element] = new
    return one if merged is None else ordered(merged)


def _node_union(one: Tree, other: Tree) -> Tree:
    if one is other:
        return one
    if not one:
        return other if not other or SELF in other else {SELF: LEAF, **other}
    if not other:
        return one if SELF in one else {SELF: LEAF, **one}
    return union(one, other)


def intersection(one: Tree, other: Tree) -> Tree:
    """What is in both."""
    common: Tree = {}
    for element, below in one.items():
        theirs = other.get(element)
        if theirs is None or element == SELF:
            continue
        node = _node(_is_member(below) and _is_member(theirs), intersection(_below(below), _below(theirs)))
        if node is not None:
            common[element] = node
    return common


def difference(one: Tree, other: Tree) -> Tree:
    """What is in the first and not in the second. What is below an element of the second stays."""
    left: Tree | None = None
    for element, theirs in other.items():
        mine = one.get(element)
        if mine is None or element == SELF:
            continue
        if not theirs:
            # The element itself and nothing below it, as most are.
            if mine and SELF not in mine:
                continue
            node = _below(mine) or None
        else:
            below = _below(mine)
            node = _node(_is_member(mine) and not _is_member(theirs), difference(below, _below(theirs)))
            if node is not None and _same_shape(node, mine):
                continue
        if left is None:
            left = dict(one)
        if node is None:
            del left[element]
        else:
            left[element] = node
    return one if left is None else left


def recursive_difference(one: Tree, other: Tree) -> Tree:
    """The first without the elements of the second and everything below them."""
    left: Tree | None = None
    for element, theirs in other.items():
        mine = one.get(element)
        if mine is None or element == SELF:
            continue
        node = None
        if not _is_member(theirs):
            node = _node(_is_member(mine), recursive_difference(_below(mine), theirs))
        if left is None:
            left = dict(one)
        if node is None:
            del left[element]
        else:
            left[element] = node
    return one if left is None else left


def has(tree: Tree, path: Path) -> bool:
    """Whether a path is in the set."""
    for element in path[:-1]:
        below = tree.get(element)
        if below is None:
            return False
        tree = below
    last = tree.get(path[-1]) if path else None
    return last is not None and _is_member(last)


def paths(tree: Tree) -> Iterator[Path]:
    """All paths in the set: members of a level before what is below them."""
    elements = sorted(((e, below) for e, below in tree.items() if e != SELF), key=_canonical)
    for element, below in elements:
        if _is_member(below):
            yield (element,)
    for element, below in elements:
        for path in paths(below):
            yield (element, *path)


def from_paths(*all_paths: Path) -> Tree:
    """The set of these paths."""
    tree: Tree = {}
    for path in all_paths:
        single = LEAF
        for element in reversed(path):
            single = {element: single}
        tree = union(tree, single)
    return tree


def fields(*dotted: str) -> Tree:
    """The set of members given as names with dots ("metadata.name")."""
    return from_paths(*(tuple(f"f:{name}" for name in each.split(".")) for each in dotted))


def _is_member(node: Tree) -> bool:
    return not node or SELF in node


def _below(node: Tree) -> Tree:
    """What is below an element, as a set."""
    return {e: below for e, below in node.items() if e != SELF} if SELF in node else node


def _node(member: bool, below: Tree) -> Tree | None:
    """The tree below an element; None if neither it nor anything below is in the set."""
    if not below:
        return LEAF if member else None
    return {SELF: LEAF, **below} if member else below


def _same_shape(one: Tree, other: Tree) -> bool:
    return len(one) == len(other) and (SELF in one) == (SELF in other) and one == other


# --- elements ---


def key_element(keys: Mapping[str, Any]) -> str:
    """The element for an element of a list with these keys."""
    return f"k:{encode_json(dict(sorted(keys.items())))}"


def value_element(value: Any) -> str:
    """The element for a value in a list that is a set."""
    return f"v:{encode_json(value)}"


_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def encode_json(value: Any) -> str:
    """JSON as Go writes it: characters that mean something in HTML escaped, whole floats without a point."""
    text = msgspec.json.encode(_whole(value)).decode()
    if not text.isascii() or "<" in text or ">" in text or "&" in text:
        for character, escape in _ESCAPES.items():
            text = text.replace(character, escape)
    return text


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return value


def element_text(element: str) -> str:
    """An element as in messages: `.name`, `[name="x"]`, `[="x"]`, `[1]`."""
    kind, _, rest = element.partition(":")
    if kind == "f":
        return f".{rest}"
    if kind == "i":
        return f"[{rest}]"
    try:
        value = msgspec.json.decode(rest)
    except ValueError:
        return f"[{rest}]"
    if kind == "k" and isinstance(value, dict):
        return "[" + ",".join(f"{name}={_value_text(item)}" for name, item in sorted(value.items())) + "]"
    return f"[={_value_text(value)}]"


def _value_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def path_text(path: Path) -> str:
    """A path as in messages: `.spec.containers[name="c"].image`."""
    return "".join(map(element_text, path))


# --- from outside ---


def decode(value: Any) -> Tree:
    """A set from fieldsV1 of whatever origin, in canonical form; FieldsError if it is none."""
    if value is None:
        return LEAF
    if not isinstance(value, dict):
        raise FieldsError("expected an object")
    tree = _decoded(value, 0)
    tree.pop(SELF, None)
    return tree


def _decoded(value: Any, depth: int) -> Tree:
    if not isinstance(value, dict) or depth > DEPTH_MAX:
        raise FieldsError("expected an object" if depth <= DEPTH_MAX else "nested too deeply")
    tree: Tree = {}
    for element, below in value.items():
        if element == SELF:
            tree[SELF] = LEAF
            continue
        canonical = _canonical_element(element)
        if canonical is not None:
            tree[canonical] = _decoded(below, depth + 1)
    return LEAF if tree.keys() == {SELF} else tree


def _canonical_element(element: Any) -> str | None:
    """The element as we write it; None for kinds of elements that a later version may have."""
    if not isinstance(element, str) or len(element) < 2:
        raise FieldsError("key must be 2 characters long")
    kind, rest = element[:2], element[2:]
    if kind[1] != ":":
        raise FieldsError(f"missing colon: {element[:80]}")
    if kind == "f:":
        return element
    if kind == "i:":
        if not rest.lstrip("+-").isdecimal() or len(rest) > 18:
            raise FieldsError(f"invalid index: {element[:80]}")
        return f"i:{int(rest)}"
    if kind not in ("k:", "v:"):
        return None
    try:
        value = msgspec.json.decode(rest)
    except ValueError:
        raise FieldsError(f"invalid path element: {element[:80]}") from None
    if kind == "v:":
        return value_element(value)
    if not isinstance(value, dict):
        raise FieldsError(f"invalid path element: {element[:80]}")
    return key_element(value)
