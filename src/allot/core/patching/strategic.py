"""Strategic merge patch: a merge patch that knows which lists are merged element by element, and by which key.

What a patch can say besides values: `$patch: replace | delete` in an object or as an element of a list, `$retainKeys` (which
members may stay), `$deleteFromPrimitiveList/<list>` and `$setElementOrder/<list>`. Strategies and merge keys come from the
schema; members that the schema does not know are merged as plain JSON. Lists are merged in `strategic_lists`. Input is never
changed. Nulls inside values that are new stay out, as in Kubernetes.
"""

from __future__ import annotations

from typing import Any

from allot.core.patching.bounds import check_patch_bounds
from allot.core.patching.errors import PatchError, internal, malformed
from allot.core.patching.strategic_lists import (
    DIRECTIVE,
    check_order,
    element_kind,
    in_element_order,
    merge_lists_by_key,
    merge_scalar_lists,
    old_order,
    present,
)
from allot.core.schema import Schema

DELETE_FROM_PRIMITIVE_LIST = "$deleteFromPrimitiveList"
SET_ELEMENT_ORDER = "$setElementOrder"
RETAIN_KEYS = "$retainKeys"

_BAD_PRIMITIVE_LIST = "invalid patch format of primitive list"
_BAD_ELEMENT_ORDER = "invalid patch format of setElementOrder list"
_BAD_RETAIN_KEYS = "invalid patch format of retainKeys"


def strategic_merge_patch(object_: dict[str, Any], patch: Any, schema: Schema) -> dict[str, Any]:
    """The object with the patch merged into it; PatchError (400, 422, 500) if the patch cannot be."""
    if schema.structural:
        raise malformed("strategic merge patch format is not supported")
    if not isinstance(patch, dict):
        raise malformed(f"json: cannot unmarshal {_go_type(patch)} into Go value of type map[string]interface {{}}")
    check_patch_bounds(patch)
    return merge_objects(object_, patch, schema)


def merge_objects(original: dict[str, Any], patch: dict[str, Any], schema: Schema | None) -> dict[str, Any]:
    """An object with a patch merged into it. Without a schema nothing is known about members: plain merge."""
    if DIRECTIVE in patch:
        return _directed(patch)
    merged = dict(original)
    rest = dict(patch)
    _retain_keys(merged, rest)
    _merge_ordered_lists(merged, rest, schema)
    for name, value in rest.items():
        if name.startswith(DELETE_FROM_PRIMITIVE_LIST):
            _delete_from_list(merged, _after_prefix(name, _BAD_PRIMITIVE_LIST), value)
        elif value is None:
            merged.pop(name, None)
        else:
            _merge_member(merged, name, value, schema)
    return merged


def _merge_member(merged: dict[str, Any], name: str, value: Any, schema: Schema | None) -> None:
    before = merged.get(name)
    node = schema.member(name) if schema is not None else None
    if isinstance(before, dict) and isinstance(value, dict):
        merged[name] = value if _strategy(node) == "replace" else merge_objects(before, value, node)
    elif isinstance(before, list) and isinstance(value, list):
        merged[name] = _merge_lists(before, value, node)
    else:
        kept, new = without_directives(without_nulls(value))
        if kept:
            merged[name] = new
        else:
            merged.pop(name, None)


def _directed(patch: dict[str, Any]) -> dict[str, Any]:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != DIRECTIVE}
    if directive == "delete":
        return {}
    raise _unknown_directive(directive, patch)


def _unknown_directive(directive: Any, patch: dict[str, Any]) -> PatchError:
    return internal(f"unknown patch type: {directive} in map: {shown(patch)}")


# --- what to keep ---


def _retain_keys(merged: dict[str, Any], patch: dict[str, Any]) -> None:
    """Remove members that $retainKeys does not name; every member of the patch has to be named."""
    if RETAIN_KEYS not in patch:
        return
    keys = patch.pop(RETAIN_KEYS)
    if not isinstance(keys, list):
        raise malformed(_BAD_RETAIN_KEYS)
    for name, value in patch.items():
        directive = name.startswith((DELETE_FROM_PRIMITIVE_LIST, SET_ELEMENT_ORDER))
        if value is not None and not directive and name not in keys:
            raise malformed(_BAD_RETAIN_KEYS)
    for name in [name for name in merged if name not in keys]:
        del merged[name]


def _delete_from_list(merged: dict[str, Any], name: str, values: Any) -> None:
    before = merged.get(name)
    if values is None:
        merged.pop(name, None)
    elif isinstance(before, list):
        if not isinstance(values, list):
            return
        if any(isinstance(each, (dict, list)) for each in (*before, *values)):
            raise malformed(_BAD_PRIMITIVE_LIST)
        merged[name] = [each for each in before if not present(each, values)]


# --- lists ---


def _merge_lists(before: list[Any], patch: list[Any], node: Schema | None) -> list[Any]:
    if node is None or _strategy(node) != "merge":
        return patch
    if not before and not patch:
        return before
    if element_kind(before, patch) is not dict:
        return merge_scalar_lists(before, patch)
    if not node.merge_key:
        raise internal(f"cannot merge lists without merge key for {node.name or 'list'}")
    items = node.items

    def merge(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        return merge_objects(one, other, items)

    return merge_lists_by_key(before, patch, node.merge_key, merge)


def _merge_ordered_lists(merged: dict[str, Any], patch: dict[str, Any], schema: Schema | None) -> None:
    """Merge every list that comes with $setElementOrder, and bring it into that order."""
    for directive in [name for name in patch if name.startswith(SET_ELEMENT_ORDER)]:
        order = patch.pop(directive)
        name = _after_prefix(directive, _BAD_ELEMENT_ORDER)
        if not isinstance(order, list):
            raise internal(f"expected a []interface {{}}, but received a {_go_type(order)}")
        node = schema.member(name) if schema is not None else None
        merge_key = node.merge_key if node is not None else ""
        before, values = merged.get(name), patch.get(name)
        for each in (before, values):
            if each is not None and not isinstance(each, list):
                raise internal(f"expected a []interface {{}}, but received a {_go_type(each)}")
        check_order(values or [], order, merge_key)
        if values is None and before is None:
            continue
        if values is None:
            both = before or []
        elif before is None:
            both = without_directives(values)[1]
        else:
            both = _merge_lists(before, values, node)
        merged[name] = in_element_order(both, order, old_order(before or [], values or [], merge_key), merge_key)
        patch.pop(name, None)


# --- parts ---


def _strategy(node: Schema | None) -> str:
    strategies = [each for each in node.patch_strategies if each != "retainKeys"] if node is not None else []
    return strategies[0] if strategies else ""


def _after_prefix(name: str, complaint: str) -> str:
    prefix, slash, rest = name.partition("/")
    if not slash or prefix not in (DELETE_FROM_PRIMITIVE_LIST, SET_ELEMENT_ORDER):
        raise malformed(complaint)
    return rest


def without_nulls(value: Any) -> Any:
    """A value without the null members of its objects."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def without_directives(value: Any) -> tuple[bool, Any]:
    """Whether a value stays, and what of it: objects with $patch do not."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return False, None
        members = {name: without_directives(item) for name, item in value.items()}
        return True, {name: item for name, (kept, item) in members.items() if kept}
    if isinstance(value, list):
        return True, [item for kept, item in map(without_directives, value) if kept]
    return True, value


def _go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return {bool: "bool", int: "int64", float: "float64", str: "string"}.get(type(value), "<nil>")


def shown(value: Any) -> str:
    """A value for a message, of bounded length."""
    text = str(value)
    return text if len(text) <= 200 else text[:200] + "..."
