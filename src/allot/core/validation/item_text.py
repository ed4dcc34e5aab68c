"""Values as error messages print them: JSON with fields in type order and sorted map keys, as in Go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from allot.core.model.meta import APIStruct, RawJSON
from allot.core.model.schema import schema_of
from allot.core.quantity import Quantity


def item_text(item: Any) -> Any:
    """The item as a JSON value, ready to be printed."""
    match item:
        case APIStruct():
            return _struct_text(item)
        case tuple() | list():
            return [item_text(entry) for entry in item]
        case Mapping():
            return {name: item_text(item[name]) for name in sorted(item)}
        case Quantity():
            return str(item)
        case RawJSON():
            return item.value()
        case _:
            return item


def _struct_text(item: APIStruct) -> dict[str, Any]:
    text = {}
    for field in schema_of(type(item)).fields:
        value = getattr(item, field.name)
        empty = value is None or (not field.optional and value in ("", 0, False, (), {}))
        if not empty:
            text[field.wire_name] = item_text(value)
        elif field.written_when_empty:
            # An absent list is null in Go.
            text[field.wire_name] = None if value in ((), {}) else value
    return text
