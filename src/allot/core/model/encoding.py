"""Structs to JSON values in the shape that a Kubernetes API server emits.

Empty fields are omitted except where `model.schema` says otherwise; quantities are canonical; the order of
keys is that of the types. `merge_back` restores fields beyond the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from allot.core.model.meta import APIStruct
from allot.core.model.schema import Field, Schema, Shape, Value, has_partial_parts, innermost_struct, schema_of

_Encoder = Callable[[Any], Any]


def encode_struct(value: APIStruct) -> dict[str, Any]:
    """The JSON object for a struct."""
    encoded: dict[str, Any] = _struct_encoder(type(value))(value)
    return encoded


@cache
def _struct_encoder(type_: type[APIStruct]) -> _Encoder:
    # Made on first use: types may contain themselves.
    made: list[_Encoder] = []

    def encode(value: Any) -> Any:
        if not made:
            made.append(_written_out(type_))
        return made[0](value)

    return encode


@cache
def _written_out(type_: type[APIStruct]) -> _Encoder:
    """An encoder without a loop over the fields: a generated function with a line per field. Every name in its source is that of one
    of our fields."""
    names: dict[str, Any] = {}
    lines = ["def encode(value):", "    encoded = {}"]
    for place, field in enumerate(schema_of(type_).fields):
        name, wire_name, encode_member, absent_when_empty, null_when_empty = _planned(field)
        written = "member"
        if encode_member is not None:
            names[f"encode_{place}"] = encode_member
            written = f"encode_{place}(member)"
        present = "member" if absent_when_empty else "member is not None"
        lines += [f"    member = value.{name}", f"    if {present}:", f"        encoded[{wire_name!r}] = {written}"]
        if null_when_empty:
            lines += ["    else:", f"        encoded[{wire_name!r}] = None"]
    exec("\n".join([*lines, "    return encoded"]), names)
    encoder: _Encoder = names["encode"]
    return encoder


def _planned(field: Field) -> tuple[str, str, _Encoder | None, bool, bool]:
    """How a field is written: its encoder, whether empty means absent, and whether absent is written as null."""
    is_collection = field.value.shape in (Shape.LIST, Shape.MAP)
    # An optional value counts as set even when it is zero; a struct or quantity that is not optional is always there.
    empty_is_absent = is_collection or not (
        field.optional or field.written_when_empty or field.value.shape in (Shape.STRUCT, Shape.QUANTITY)
    )
    return field.name, field.wire_name, _encoder(field.value), empty_is_absent, field.written_when_empty


def _encoder(value: Value) -> _Encoder | None:
    """How a value is written; None if it is written unchanged."""
    if value.shape is Shape.STRUCT:
        assert value.struct is not None
        return _struct_encoder(value.struct)
    if value.shape is Shape.QUANTITY:
        return str
    if value.shape is Shape.RAW:
        return _raw_value
    if value.item is None:
        return None
    encode_item = _encoder(value.item)
    if value.shape is Shape.LIST:
        return list if encode_item is None else lambda items: [encode_item(item) for item in items]
    return dict if encode_item is None else lambda items: {key: encode_item(item) for key, item in items.items()}


def _raw_value(raw: Any) -> Any:
    return raw.value()


# --- restoring fields that the types do not name ---


def merge_back(source: Mapping[str, Any], encoded: dict[str, Any], type_: type[APIStruct]) -> dict[str, Any]:
    """The encoded object with the fields of `source` that its type does not name.

    Fields that the type names are as encoded, so one that the new object lacks is removed. List items match
    if they have the same name (or type, or position where items have neither).
    """
    schema = schema_of(type_)
    fields = {field.wire_name: field for field in schema.fields}
    merged: dict[str, Any] = {}
    for key, was in source.items():
        field = fields.get(key)
        if field is None:
            if schema.partial:
                merged[key] = was
        elif key in encoded:
            merged[key] = _merged_value(was, encoded[key], field.value)
        elif not was and field.value.shape is not Shape.STRUCT:
            # It was empty and is now absent, which is equivalent; the spelling stays.
            merged[key] = was
    merged.update({key: now for key, now in encoded.items() if key not in merged})
    return merged


def _merged_value(was: Any, now: Any, value: Value) -> Any:
    struct = innermost_struct(value)
    if struct is None or not has_partial_parts(struct):
        return now
    if value.shape is Shape.STRUCT and isinstance(was, dict) and isinstance(now, dict):
        return merge_back(was, now, struct)
    if value.shape is Shape.LIST and isinstance(was, list) and isinstance(now, list):
        return _merged_list(was, now, schema_of(struct))
    return now


def _merged_list(was: list[Any], now: list[Any], schema: Schema) -> list[Any]:
    key_field = schema.key_field
    before = {
        item.get(key_field) if key_field else index: item for index, item in enumerate(was) if isinstance(item, dict)
    }
    merged = []
    for index, item in enumerate(now):
        source = before.get(item.get(key_field) if key_field else index)
        merged.append(item if source is None else merge_back(source, item, schema.type))
    return merged
