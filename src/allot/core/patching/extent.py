"""The fields of a value that is added or removed as a whole.

This is what a create costs, so it is planned: objects of one kind mostly have the same members, and which elements those make
is the same every time. A plan is kept with the node of the schema, per names of members, and with it the trees that it led
to: equal objects get the same tree, which also keeps one copy of it instead of one per object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from allot.core.patching.elements import items_by_element
from allot.core.patching.fieldset import LEAF, SELF, Tree, ordered
from allot.core.schema import Kind, Schema, Shape

_PLANS_MAX = 1000
_TREES_MAX = 200
_PARTS_MAX = 100
# What is kept for objects to come: of some thousand characters, and of so many members.
_KEPT_SIZE_MAX = 16 * 1024
_NAMES_MAX = 256

_LEAF, _MAPPING, _LIST_MAP, _LIST_SET = Shape.LEAF, Shape.MAPPING, Shape.LIST_MAP, Shape.LIST_SET

_UID = ("uid",)

# A value's node -> what is below it; None if nothing is.
_Extent = Callable[[Any, Schema], Tree | None]


class _Plan:
    """How to make the tree of an object with certain members."""

    __slots__ = ("elements", "known_parts", "parts", "trees")

    def __init__(self, elements: dict[str, Tree], parts: list[tuple[str, str, Schema, _Extent]]) -> None:
        # Elements below which there is nothing, or nothing yet, in order.
        self.elements = elements
        # (name, element, node, how) of members that have parts.
        self.parts = parts
        self.trees: dict[tuple[int, ...], Tree] = {}
        # Identity of a value -> the value and what is below it.
        self.known_parts: dict[int, tuple[Any, Tree | None]] = {}

    def tree(self, value: dict[str, Any]) -> Tree:
        if not self.parts:
            return self.elements
        return self._joined([how(value[name], node) for name, _, node, how in self.parts])

    def tree_of_object(self, value: dict[str, Any]) -> Tree:
        """The same for a whole object: its parts, but for metadata, are often those of others."""
        below = []
        for name, _, node, how in self.parts:
            part = value[name]
            if name == "metadata" or type(part) is not dict:
                below.append(how(part, node))
                continue
            known = self.known_parts.get(id(part))
            if known is None:
                if len(self.known_parts) >= _PARTS_MAX:
                    self.known_parts.clear()
                known = (part, how(part, node))
                if is_small(part):
                    self.known_parts[id(part)] = known
            below.append(known[1])
        return self._joined(below)

    def _joined(self, below: list[Tree | None]) -> Tree:
        # Identity is enough of a key: the tree keeps what is below it alive.
        key = tuple(map(id, below))
        tree = self.trees.get(key)
        if tree is None:
            tree = dict(self.elements)
            for (_, element, _, _), node in zip(self.parts, below, strict=True):
                if node is None:
                    del tree[element]
                else:
                    tree[element] = node
            if len(self.trees) >= _TREES_MAX:
                self.trees.clear()
            if is_small(tree):
                self.trees[key] = tree
        return tree


def is_small(value: Any) -> bool:
    """Whether a value or tree is worth keeping: large ones are hardly ever met again, and thousands of them are gigabytes."""
    try:
        return len(msgspec.json.encode(value)) <= _KEPT_SIZE_MAX
    except (TypeError, ValueError, RecursionError):
        return False


def whole(value: Any, schema: Schema) -> Tree:
    """What is below an element that is added or removed with everything in it, the element itself included."""
    shape = schema.shape
    if shape is _LEAF or not value:
        return LEAF
    if isinstance(value, dict):
        if shape is _LIST_MAP or shape is _LIST_SET:
            return LEAF
        plan = schema.plans.get(tuple(value)) or _planned(value, schema)
        return plan.tree(value)
    if isinstance(value, list) and (shape is _LIST_MAP or shape is _LIST_SET):
        return _list_tree(value, schema, schema.plans, (SELF,), (LEAF,)) or LEAF
    return LEAF


def added(value: Any, schema: Schema) -> Tree | None:
    """What is below an element that was there without being written, or an object that is new; None if nothing is."""
    if not value:
        return None
    if isinstance(value, dict) and schema.shape in (_MAPPING, Shape.DEDUCED):
        plan = schema.added_plans.get(tuple(value)) or _planned_addition(value, schema)
        return plan.tree(value) or None
    if isinstance(value, list) and schema.shape in (_LIST_MAP, _LIST_SET):
        return _list_tree(value, schema, schema.added_plans, (), ())
    return LEAF


def added_object(object_: dict[str, Any], schema: Schema) -> Tree:
    """What there is in a new object. Objects are not changed: parts that are the same objects are checked once."""
    plan = schema.added_plans.get(tuple(object_)) or _planned_addition(object_, schema)
    return plan.tree_of_object(object_)


def is_implied(node: Schema, required: bool) -> bool:
    """Whether a field is there without being written: a struct, or a list or map that is required."""
    return node.always_there or (required and node.kind in (Kind.LIST, Kind.MAP) and not node.structural)


def _list_tree(
    value: list[Any], schema: Schema, kept: dict[Any, Any], elements: tuple[str, ...], below: tuple[Tree, ...]
) -> Tree | None:
    """The tree of a list, the same one for lists with the same elements; None if no element can be distinguished."""
    items = schema.items
    assert items is not None
    found = items_by_element(value, schema)
    if not found:
        return None
    elements += tuple(found)
    # Which of several items with the same keys is meant cannot be told: they are owned as one.
    below += tuple([whole(each[0], items) if len(each) == 1 else LEAF for each in found.values()])
    if len(found) == 1 and schema.map_keys == _UID:
        # No other object has such an element: nothing to find, nothing to keep, and in order.
        return dict(zip(elements, below, strict=True))
    key = (elements, tuple(map(id, below)))
    tree: Tree | None = kept.get(key)
    if tree is None:
        tree = ordered(dict(zip(elements, below, strict=True)))
        if is_small(tree):
            _keep(kept, key, tree)
    return tree


def _planned(value: dict[str, Any], schema: Schema) -> _Plan:
    plan = _plan(value, schema, {SELF: LEAF}, lambda _node, _name: whole)
    if len(value) <= _NAMES_MAX:
        _keep(schema.plans, tuple(value), plan)
    return plan


def _planned_addition(value: dict[str, Any], schema: Schema) -> _Plan:
    required = schema.required
    plan = _plan(value, schema, {}, lambda node, name: added if is_implied(node, name in required) else whole)
    if len(value) <= _NAMES_MAX:
        _keep(schema.added_plans, tuple(value), plan)
    return plan


def _plan(value: dict[str, Any], schema: Schema, start: Tree, how: Callable[[Schema, str], _Extent]) -> _Plan:
    elements = dict(start)
    parts = []
    for name in value:
        element, node = schema.fields.get(name) or (f"f:{name}", schema.elements or schema)
        elements[element] = LEAF
        extent = how(node, name)
        if node.shape is not _LEAF or extent is added:
            parts.append((name, element, node, extent))
    return _Plan(ordered(elements), parts)


def _keep(kept: dict[Any, Any], key: Any, found: _Plan | Tree) -> None:
    if len(kept) >= _PLANS_MAX:
        kept.clear()
    kept[key] = found
