"""Which fields an object has, and which ones differ between two states of it.

Ownership of fields follows from these: what a write changed or added is the writer's, what it removed is no one's. Both
functions walk the object once along its schema; parts that are equal are passed over.

Two things are there without being written, because Kubernetes' types make them so: structs, and lists that are required. A
field below them is added, they themselves are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from allot.core.patching.elements import items_by_element
from allot.core.patching.extent import added, added_object, is_implied, whole
from allot.core.patching.fieldset import LEAF, SELF, Tree, ordered, union
from allot.core.schema import Schema, Shape

# Looked up once instead of for every value.
_LEAF, _MAPPING, _LIST_MAP, _LIST_SET = Shape.LEAF, Shape.MAPPING, Shape.LIST_MAP, Shape.LIST_SET


# --- one object ---


def configured_fields(value: dict[str, Any], schema: Schema) -> Tree:
    """What an applied configuration claims: its leaves, elements of lists and maps, and what it sets to null or empty."""
    return _configured(value, schema)


def _configured(value: Any, schema: Schema) -> Tree:
    """What is below an element, as a set without the element itself."""
    shape = schema.shape
    if isinstance(value, dict) and shape in (_MAPPING, Shape.DEDUCED):
        tree: Tree = {}
        for name, item in value.items():
            declared = name in schema.fields
            element, node = schema.fields[name] if declared else (f"f:{name}", schema.elements or schema)
            leaf = _is_leaf(item, node)
            below = LEAF if leaf else _configured(item, node)
            if leaf or item is None or item == {} or not declared:
                tree[element] = {SELF: LEAF, **below} if below else LEAF
            elif below:
                tree[element] = below
        return ordered(tree)
    if isinstance(value, list) and shape in (_LIST_MAP, _LIST_SET):
        assert schema.items is not None
        return ordered(
            {
                element: {SELF: LEAF, **below} if (below := _item_fields(items, schema.items)) else LEAF
                for element, items in items_by_element(value, schema).items()
            }
        )
    return LEAF


def _item_fields(items: list[Any], schema: Schema) -> Tree:
    return _configured(items[0], schema) if len(items) == 1 and not _is_leaf(items[0], schema) else LEAF


def _is_leaf(value: Any, schema: Schema) -> bool:
    """Whether a value is owned as one thing."""
    shape = schema.shape
    if shape is _LEAF:
        return True
    if shape is Shape.DEDUCED:
        return not isinstance(value, dict)
    # A value of the wrong type has no parts that could be owned.
    return not isinstance(value, dict if shape is _MAPPING else list) and value is not None


# --- two objects ---


class _Missing:
    """No value, which is something else than null."""


_MISSING: Any = _Missing()


def compare(old: dict[str, Any] | None, new: dict[str, Any], schema: Schema) -> tuple[Tree, Tree]:
    """The fields that the new state no longer has, and those that it changed or added. None: there was no old state."""
    if not old:
        return LEAF, added_object(new, schema) if new else LEAF
    removed, changed = _compare(old, new, schema)
    return removed or LEAF, changed or LEAF


_Difference = tuple[Tree | None, Tree | None]
_SAME: _Difference = (None, None)


def _compare(old: Any, new: Any, schema: Schema) -> _Difference:
    """The trees below an element that both states have; None where nothing is removed or changed."""
    shape = schema.shape
    if shape is _MAPPING or shape is Shape.DEDUCED:
        if _empty(old, dict) and _empty(new, dict):
            return _SAME if _alike(old, new) else (None, LEAF)
        if _mapping_or_null(old) and _mapping_or_null(new):
            return _compare_mappings(old or {}, new or {}, schema)
        if shape is Shape.DEDUCED and not _alike(old, new):
            # From an object to something else, or the other way round: what was in it is gone, or new.
            gone = {element: below for element, below in whole(old, schema).items() if element != SELF}
            return gone or None, whole(new, schema)
    elif shape is not _LEAF:
        if _empty(old, list) and _empty(new, list):
            return _SAME if _alike(old, new) else (None, LEAF)
        if _list_or_null(old) and _list_or_null(new):
            return _compare_lists(old, new, schema)
    return _SAME if _alike(old, new) else (None, LEAF)


def _compare_mappings(old: dict[str, Any], new: dict[str, Any], schema: Schema) -> _Difference:
    if not old:
        return None, added(new, schema)
    removed: Tree = {}
    changed: Tree = {}
    fields, others, required = schema.fields, schema.elements or schema, schema.required
    for name, item in new.items():
        before = old.get(name, _MISSING)
        if before is item or (before == item and type(before) is type(item)):
            continue
        element, node = fields.get(name) or (f"f:{name}", others)
        if before is _MISSING:
            before = _implied(node, name in required)
        if before is _MISSING:
            changed[element] = whole(item, node)
        else:
            _note(element, _compare(before, item, node), removed, changed)
    if len(old) + len(changed) != len(new) or any(name not in new for name in old):
        for name, before in old.items():
            if name not in new:
                element, node = fields.get(name) or (f"f:{name}", others)
                after = _implied(node, name in required)
                if after is _MISSING:
                    removed[element] = whole(before, node)
                else:
                    _note(element, _compare(before, after, node), removed, changed)
    return removed or None, changed or None


def _implied(node: Schema, required: bool) -> Any:
    """What a field is that is not written."""
    if not is_implied(node, required):
        return _MISSING
    return {} if node.always_there else None


def _note(element: str, difference: _Difference, removed: Tree, changed: Tree) -> None:
    if difference[0] is not None:
        removed[element] = difference[0]
    if difference[1] is not None:
        changed[element] = difference[1]


def _compare_lists(old: Any, new: Any, schema: Schema) -> _Difference:
    before, after = items_by_element(old, schema), items_by_element(new, schema)
    removed: Tree = {}
    changed: Tree = {}
    below = schema.items
    assert below is not None
    for element in _elements(before, after):
        olds, news = before.get(element, ()), after.get(element, ())
        if len(olds) == 1 and len(news) == 1:
            if olds[0] is not news[0] and olds[0] != news[0]:
                _note(element, _compare(olds[0], news[0], below), removed, changed)
            continue
        if len(olds) >= 2 and len(news) >= 2:
            if olds != news:
                changed[element] = LEAF
            continue
        if olds:
            removed[element] = whole(olds[0], below) if len(olds) == 1 else LEAF
        if news:
            changed[element] = whole(news[0], below) if len(news) == 1 else LEAF
    return removed or None, changed or None


def _elements(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> Iterator[str]:
    yield from before
    yield from (element for element in after if element not in before)


def _empty(value: Any, type_: type) -> bool:
    return value is None or (isinstance(value, type_) and not value)


def _mapping_or_null(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _list_or_null(value: Any) -> bool:
    return value is None or isinstance(value, list)


def _alike(old: Any, new: Any) -> bool:
    return bool(old == new) and isinstance(old, bool) == isinstance(new, bool)


def all_changes(old: dict[str, Any], new: dict[str, Any], schema: Schema) -> Tree:
    """Everything that differs, however it does."""
    return union(*compare(old, new, schema))
