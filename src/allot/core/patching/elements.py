"""The identity of list elements: by their keys, or by value if the list is a set."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from allot.core.patching.fieldset import key_element, value_element
from allot.core.schema import Schema, Shape

# Keys that are the same in JSON.
_PLAIN = re.compile(r"[A-Za-z0-9 ._/:@+-]*", re.ASCII)


class ListError(ValueError):
    """A list whose elements cannot be distinguished."""


def element_of(item: Any, schema: Schema) -> str:
    """The element of a path for an item of a list that is a map or a set; ListError if it has none."""
    if schema.shape is Shape.LIST_SET:
        if isinstance(item, (dict, list)) or item is None:
            what = "a map type" if isinstance(item, dict) else "an explicit null" if item is None else "a list"
            raise ListError(f"associative list without keys has an element that's {what}")
        return value_element(item)
    if not isinstance(item, dict):
        what = "a null element" if item is None else "non-map elements"
        raise ListError(f"associative list with keys may not have {what}")
    keys = schema.map_keys
    if len(keys) == 1:
        key = item.get(keys[0])
        if type(key) is str and _PLAIN.fullmatch(key):
            return f'k:{{"{keys[0]}":"{key}"}}'
    values = [item.get(key) for key in keys]
    if None in values:
        values = [
            schema.key_defaults.get(key) if value is None else value for key, value in zip(keys, values, strict=True)
        ]
        if all(value is None for value in values):
            names = " ".join(f'"{key}"' for key in keys)
            raise ListError(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
    if any(isinstance(value, (dict, list)) for value in values):
        return _keyed_element.__wrapped__(keys, *values)
    return _keyed_element(keys, *values)


@lru_cache(maxsize=4096, typed=True)
def _keyed_element(keys: tuple[str, ...], *values: Any) -> str:
    return key_element({key: value for key, value in zip(keys, values, strict=True) if value is not None})


def items_by_element(items: Any, schema: Schema) -> dict[str, list[Any]]:
    """The items of a list by element. An item that has none is left out; more than one item may have the same."""
    found: dict[str, list[Any]] = {}
    for item in items if isinstance(items, list) else ():
        try:
            element = element_of(item, schema)
        except ListError:
            continue
        found.setdefault(element, []).append(item)
    return found
