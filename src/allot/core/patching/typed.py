"""Values along their schema: merged, with fields taken out, and checked, as server-side apply needs it.

Differs from other merges in what counts as one thing: atomic lists and maps are replaced, lists with keys and sets are merged
element by element, and nothing is ever removed by a merge. Input is never changed.
"""

from __future__ import annotations

from typing import Any

from allot.core.memo import Memo
from allot.core.patching.elements import ListError, element_of, items_by_element
from allot.core.patching.extent import is_small
from allot.core.patching.fieldset import LEAF, SELF, Tree, element_text
from allot.core.schema import Kind, Schema, Shape

_LISTS = (Shape.LIST_MAP, Shape.LIST_SET)
_MAPPINGS = (Shape.MAPPING, Shape.DEDUCED)
_NONE: Any = object()
# Looked up once instead of for every value.
_STRING, _OBJECT, _MAP, _LIST = Kind.STRING, Kind.OBJECT, Kind.MAP, Kind.LIST
ERRORS_MAX = 100


# --- merge ---


def merged(live: Any, config: Any, schema: Schema) -> Any:
    """The live value with the configuration on top."""
    shape = schema.shape
    if shape in _MAPPINGS and isinstance(live, dict) and (isinstance(config, dict) or (live and config is None)):
        return _merged_mappings(live, config or {}, schema) if live or config else config
    if shape in _LISTS and isinstance(live, list) and (isinstance(config, list) or (live and config is None)):
        return _merged_lists(live, config or [], schema) if live or config else config
    return config


def _merged_mappings(live: dict[str, Any], config: dict[str, Any], schema: Schema) -> dict[str, Any]:
    result = dict(live)
    for name, value in config.items():
        node = schema.fields[name][1] if name in schema.fields else schema.elements or schema
        result[name] = merged(live[name], value, node) if name in live else value
    return result


def _merged_lists(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """Shared elements in the order of the configuration; elements of one side stay beside their neighbours."""
    items = schema.items
    assert items is not None
    old = _elements(live, schema)
    new = _elements(config, schema)
    by_old, by_new = items_by_element(live, schema), items_by_element(config, schema)
    shared = [element for element, _ in new if element in by_old]
    done: set[str] = set()
    result = []
    position = next_shared = 0

    def take(element: str) -> None:
        done.add(element)
        value = by_new[element][0]
        before = by_old.get(element, ())
        # Items that cannot be distinguished are not merged with the new one, but replaced.
        result.append(merged(before[0], value, items) if len(before) == 1 else value)

    for element, _ in new:
        while position < len(old):
            candidate, value = old[position]
            if candidate == element:
                position += 1
                break
            if candidate in by_new and not (next_shared < len(shared) and shared[next_shared] != candidate):
                # The next shared element of the configuration: its turn has not come. Or one that had its turn.
                position += candidate in done
                break
            if candidate not in by_new:
                result.append(value)
            position += 1
        take(element)
        if next_shared < len(shared) and shared[next_shared] == element:
            next_shared += 1
    return result + [value for element, value in old[position:] if element not in by_new]


def _elements(items: list[Any], schema: Schema) -> list[tuple[str, Any]]:
    elements = []
    for item in items:
        try:
            elements.append((element_of(item, schema), item))
        except ListError:
            continue
    return elements


# --- removal ---


def without(value: dict[str, Any], fields: Tree, schema: Schema) -> dict[str, Any]:
    """The object without the given fields. An object or list that loses everything and is not given itself is empty then.

    Kubernetes makes it null, which for most fields is the same; but who states an empty object wants to have it.
    """
    left = _without(value, fields, schema) if fields else value
    assert isinstance(left, dict)
    return left


def _without(value: Any, fields: Tree, schema: Schema) -> Any:
    if isinstance(value, dict) and schema.shape in _MAPPINGS:
        left = {}
        for name, item in value.items():
            element, node = schema.fields.get(name) or (f"f:{name}", schema.elements or schema)
            below = fields.get(element)
            kept = item if below is None else _NONE if _is_member(below) else _without(item, below, node)
            if kept is not _NONE:
                left[name] = kept
        return left
    if isinstance(value, list) and schema.shape in _LISTS:
        assert schema.items is not None
        items = []
        for item in value:
            try:
                below = fields.get(element_of(item, schema))
            except ListError:
                below = None
            kept = item if below is None else _NONE if _is_member(below) else _without(item, below, schema.items)
            if kept is not _NONE:
                items.append(kept)
        return items
    return _NONE if value is None or isinstance(value, (dict, list)) else value


def _is_member(node: Tree) -> bool:
    return not node or SELF in node


def with_named_fields(fields: Tree, schema: Schema) -> Tree:
    """The set with every member that the schema names and below which something is in the set."""
    result: Tree = {}
    for element, below in fields.items():
        if not below or element == SELF:
            result[element] = below
            continue
        name = element[2:]
        if element.startswith("f:") and schema.shape in _MAPPINGS:
            declared = name in schema.fields
            node = schema.fields[name][1] if declared else schema.elements or schema
        else:
            declared, node = False, schema.items or schema
        deeper = with_named_fields(below, node)
        result[element] = {SELF: LEAF, **deeper} if declared and SELF not in deeper else deeper
    return result


_reconciled_sets: Memo[tuple[int, int], tuple[Tree, Schema, Tree]] = Memo(1000)


def reconciled(fields: Tree, schema: Schema) -> Tree:
    """The set after parts of the schema became atomic: who owned something below such a part owns all of it."""
    # Objects that look the same share their sets.
    key = id(fields), id(schema)
    known = _reconciled_sets.get(key)
    if known is not None:
        return known[2]
    result = _reconciled(fields, schema)
    if is_small(fields):
        _reconciled_sets.remember(key, (fields, schema, result))
    return result


def _reconciled(fields: Tree, schema: Schema) -> Tree:
    result: Tree = {}
    changed = False
    for element, below in fields.items():
        node = _node_at(element, schema)
        new = below
        if below and node is not None:
            new = LEAF if _is_atomic(node) else _reconciled(below, node)
        changed = changed or new is not below
        result[element] = new
    return result if changed else fields


def _node_at(element: str, schema: Schema) -> Schema | None:
    if element == SELF:
        return None
    if element.startswith("f:"):
        name = element[2:]
        return schema.fields[name][1] if name in schema.fields else schema.elements
    return schema.items


def atomic_paths(value: Any, schema: Schema, path: str = "") -> list[str]:
    """Where a configuration states parts that are one thing, which a merge would replace as a whole."""
    is_map, is_list = isinstance(value, dict), isinstance(value, list)
    found = [path] if (is_map or is_list) and _is_atomic(schema) else []
    if is_map:
        for name, item in value.items():
            if name in schema.fields:
                found += atomic_paths(item, schema.fields[name][1], f"{path}.{name}")
    elif is_list and schema.items is not None:
        for index, item in enumerate(value):
            found += atomic_paths(item, schema.items, f"{path}[{index}]")
    return found


def _is_atomic(node: Schema) -> bool:
    return node.shape is Shape.LEAF and node.kind in (Kind.OBJECT, Kind.MAP, Kind.LIST, Kind.ANY)


# --- checks ---


def type_problem(value: Any, schema: Schema) -> str:
    """What is wrong with a configuration, in the words of Kubernetes; paths start with a dot. Empty if nothing is."""
    if _fits(value, schema):
        return ""
    errors: list[str] = []
    _check(value, schema, "", errors)
    del errors[ERRORS_MAX:]
    return errors[0] if len(errors) == 1 else "errors:\n" + "\n".join(f"  {error}" for error in errors)


def _fits(value: Any, schema: Schema) -> bool:
    """Whether there is nothing to say about a value: looked at without remembering where one is."""
    kind = schema.kind
    if value is None:
        return True
    if kind is _OBJECT or kind is _MAP:
        if not isinstance(value, dict):
            return False
        fields, elements = schema.fields, schema.elements
        for name, item in value.items():
            field = fields.get(name)
            node = field[1] if field is not None else elements
            if node is None:
                return False
            if not (node.kind is _STRING and type(item) is str) and not _fits(item, node):
                return False
        return True
    if kind is _LIST:
        items = schema.items
        if not isinstance(value, list) or items is None:
            return False
        if schema.shape in _LISTS:
            try:
                if len({element_of(item, schema) for item in value}) != len(value):
                    return False
            except ListError:
                return False
        return all(_fits(item, items) for item in value)
    return kind is Kind.ANY or not _scalar_problem(value, schema)


def _check(value: Any, schema: Schema, path: str, errors: list[str]) -> None:
    if value is None or len(errors) >= ERRORS_MAX:
        return
    kind = schema.kind
    if kind in (Kind.OBJECT, Kind.MAP):
        if isinstance(value, dict):
            _check_members(value, schema, path, errors)
        else:
            errors.append(f"{_prefix(path)}expected map, got &{{{_shown(value)}}}")
    elif kind is Kind.LIST:
        if isinstance(value, list):
            _check_items(value, schema, path, errors)
        else:
            errors.append(f"{_prefix(path)}expected list, got &{{{_shown(value)}}}")
    elif kind is not Kind.ANY:
        text = _scalar_problem(value, schema)
        if text:
            errors.append(f"{_prefix(path)}{text}")


def _check_members(value: dict[str, Any], schema: Schema, path: str, errors: list[str]) -> None:
    for name, item in value.items():
        field = schema.fields.get(name)
        node = field[1] if field is not None else schema.elements
        if node is None:
            errors.append(f"{path}.{name}: field not declared in schema")
        else:
            _check(item, node, f"{path}.{name}", errors)


def _check_items(value: list[Any], schema: Schema, path: str, errors: list[str]) -> None:
    items = schema.items
    assert items is not None
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if schema.shape in _LISTS:
            try:
                element = element_of(item, schema)
            except ListError as error:
                errors.append(f"{_prefix(path)}element {index}: {error}")
                return
            if element in seen:
                errors.append(f"{_prefix(path)}duplicate entries for key {element_text(element)}")
            seen.add(element)
        _check(item, items, path + element_text(element), errors)


def _scalar_problem(value: Any, schema: Schema) -> str:
    kind = schema.kind
    if kind in (Kind.INTEGER, Kind.NUMBER):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"expected numeric (int or float), got {_go_type(value)}"
    elif kind is Kind.BOOLEAN:
        if not isinstance(value, bool):
            return f"expected boolean, got &{{{_shown(value)}}}"
    elif kind is Kind.STRING and not (schema.structural and schema.format):
        if not isinstance(value, str):
            return f"expected string, got &value.valueUnstructured{{Value:{_shown(value)}}}"
    elif isinstance(value, (dict, list)):
        return f"expected any scalar, got &{{{_shown(value)}}}"
    return ""


def _prefix(path: str) -> str:
    return f"{path}: " if path else ""


def _go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return "bool" if isinstance(value, bool) else "string"


def _shown(value: Any) -> str:
    """A value as Go prints it, of bounded length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        text = f"map[{' '.join(f'{name}:{_shown(item)}' for name, item in list(value.items())[:20])}]"
    elif isinstance(value, list):
        text = f"[{' '.join(_shown(item) for item in value[:20])}]"
    else:
        text = str(value)
    return (text if len(text) <= 200 else text[:200] + "...").encode(errors="backslashreplace").decode()
