"""Objects in and out: JSON bytes or JSON values to structs and back.

`decode` and `decode_json` create an object of a known type; `decode_object` finds the type by apiVersion and kind, converts
older versions and keeps what the types do not name. `encode` and `encode_envelope` return the JSON that an API server emits.
Nothing is defaulted or validated here beyond types.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from allot.core.model.convert import ConversionError, convert_to_hub, from_hub
from allot.core.model.decoding import (
    DecodeError,
    ObjectWithDuplicates,
    Problem,
    check_bounds,
    decode_carefully,
    describe,
    to_quantity,
)
from allot.core.model.encoding import encode_struct, merge_back
from allot.core.model.kinds import Kind, is_kind_type, kind_of, kind_of_type
from allot.core.model.meta import APIStruct, RawJSON
from allot.core.model.schema import has_partial_parts
from allot.core.quantity import Quantity

__all__ = [
    "DecodeError",
    "Decoded",
    "Envelope",
    "ObjectWithDuplicates",
    "Problem",
    "decode",
    "decode_json",
    "decode_object",
    "decode_served",
    "encode",
    "encode_envelope",
    "parse_json",
    "without_managed_fields",
]

T = TypeVar("T", bound=APIStruct)

_TYPE_META = frozenset({"apiVersion", "kind"})
# For messages only: valid namespaces and names are shorter.
_NAME_LENGTH_MAX = 330


class Decoded(msgspec.Struct, Generic[T], frozen=True):
    """An object, and the fields of the input that did not go into it."""

    object: T
    unknown_fields: tuple[str, ...] = ()
    duplicate_fields: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings that an API server would send."""
        return _strict_texts(self.unknown_fields, self.duplicate_fields)


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An object of any kind with what is needed to write it back whole.

    `api_version` is the version that was read; `object` is always of the kind's type, in its hub version. `source` is
    the JSON that was read, if the kind has fields that the types do not name.
    """

    kind: Kind
    api_version: str
    object: APIStruct
    source: Mapping[str, Any] | None = None
    unknown_fields: tuple[str, ...] = ()
    duplicate_fields: tuple[str, ...] = ()
    conversion_warnings: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings for the author of the object."""
        return self.conversion_warnings + _strict_texts(self.unknown_fields, self.duplicate_fields)


# --- in ---


def decode(value: object, type_: type[T], *, strict: bool = False) -> Decoded[T]:
    """An object from a JSON value; DecodeError when a value has the wrong type, or, strictly, a field is unknown."""
    careful = decode_carefully(value, type_, _TYPE_META if is_kind_type(type_) else frozenset())
    decoded = Decoded(cast(T, careful.object), careful.unknown_fields, careful.duplicate_fields)
    return _checked(decoded, strict)


def decode_served(value: Mapping[str, Any], type_: type[T]) -> T:
    """An object that an API server sent: as `decode`, but ten times as fast for well-formed input, the usual case."""
    try:
        parts = {key: part for key, part in value.items() if key not in _TYPE_META}
        return msgspec.convert(parts, type_, dec_hook=_custom)
    except (msgspec.ValidationError, ValueError, RecursionError):
        # A field that the types do not name, or an unusually spelled value.
        return decode(value, type_).object


def without_managed_fields(value: dict[str, Any]) -> dict[str, Any]:
    """An object without managedFields, which make up much of its size. An update that omits them
    leaves them unchanged."""
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return value
    return {**value, "metadata": {key: part for key, part in metadata.items() if key != "managedFields"}}


def decode_json(data: bytes, type_: type[T], *, strict: bool = False) -> Decoded[T]:
    """An object from JSON text: as `decode`, but fast for well-formed text."""
    try:
        document = None if _may_have_duplicates(data, msgspec.json.decode(data)) else _json_decoder(type_).decode(data)
    except msgspec.ValidationError:
        document = None
    except (ValueError, RecursionError) as error:
        raise _malformed(error) from None
    if document is None:
        return decode(parse_json(data), type_, strict=strict)
    names = type_.__struct_fields__
    return Decoded(type_(**{name: getattr(document, name) for name in names}) if is_kind_type(type_) else document)


def parse_json(data: bytes) -> Any:
    """The JSON value of a text, with duplicate keys recorded; DecodeError if it is not JSON."""
    try:
        # msgspec parses strict JSON; the standard library also reveals duplicates.
        value = msgspec.json.decode(data)
        return _with_duplicates(data) if _may_have_duplicates(data, value) else value
    except (ValueError, RecursionError) as error:
        raise _malformed(error) from None


def decode_object(value: object, *, strict: bool = False) -> Envelope:
    """An object of the kind that it names.

    Raises DecodeError for wrong values, UnknownKind for kinds that core does not know, and ConversionError for what
    the hub version cannot express.
    """
    check_bounds(value)
    if not isinstance(value, dict):
        raise DecodeError((Problem("", f"expected object, got {describe(value)}"),))
    api_version, name = _type_meta(value, "apiVersion"), _type_meta(value, "kind")
    kind = kind_of(api_version, name)
    subject = f"{name}{_object_name(value)}"
    try:
        converted = convert_to_hub(value)
        careful = decode_carefully(converted.value, kind.type, _TYPE_META)
        envelope = Envelope(
            kind=kind,
            api_version=api_version,
            object=careful.object,
            source=value if has_partial_parts(kind.type) else None,
            unknown_fields=converted.unknown_fields + careful.unknown_fields,
            duplicate_fields=careful.duplicate_fields,
            conversion_warnings=converted.warnings,
        )
        return _checked(envelope, strict)
    except DecodeError as error:
        raise DecodeError(error.problems, subject) from None
    except ConversionError as error:
        raise ConversionError(f"{subject}: {error}") from None


# --- out ---


def encode(object_: APIStruct, api_version: str | None = None) -> dict[str, Any]:
    """The JSON for an object; whole objects get apiVersion and kind, in the hub version or another one."""
    encoded = encode_struct(object_)
    if not is_kind_type(type(object_)):
        return encoded
    kind = kind_of_type(type(object_))
    document = {"apiVersion": kind.hub_api_version, "kind": kind.name, **encoded}
    return document if api_version in (None, kind.hub_api_version) else from_hub(document, str(api_version))


def encode_envelope(envelope: Envelope, api_version: str | None = None) -> dict[str, Any]:
    """The JSON for an object with everything it had when read."""
    encoded = encode(envelope.object, api_version)
    if envelope.source is None:
        return encoded
    type_meta = {"apiVersion": encoded.pop("apiVersion"), "kind": encoded.pop("kind")}
    source = {key: item for key, item in envelope.source.items() if key not in _TYPE_META}
    return type_meta | merge_back(source, encoded, envelope.kind.type)


# --- the fast path ---


@cache
def _json_decoder(type_: type[APIStruct]) -> msgspec.json.Decoder[Any]:
    """Decodes well-formed JSON text and refuses everything else."""
    if not is_kind_type(type_):
        return msgspec.json.Decoder(type_, dec_hook=_custom)
    members = [("api_version", str, ""), ("kind", str, "")]
    document = msgspec.defstruct(f"{type_.__name__}Document", members, bases=(type_,), frozen=True, kw_only=True)
    return msgspec.json.Decoder(document, dec_hook=_custom)


def _custom(type_: type, value: Any) -> Any:
    if type_ is Quantity:
        return to_quantity(value)
    assert type_ is RawJSON, f"unexpected type {type_} in a struct"
    return RawJSON(value)


def _may_have_duplicates(data: bytes, value: Any) -> bool:
    """Whether keys may occur twice in a JSON text: a duplicate is lost in a round trip.

    A round trip also rewrites unusual escapes and numbers, so true only means that a closer check is needed.
    """
    return msgspec.json.format(data, indent=-1) != msgspec.json.encode(value)


def _with_duplicates(data: bytes) -> Any:
    """The JSON value of a text; if it has duplicate keys anywhere, the outermost object is marked too."""
    found = False

    def read(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        members = dict(pairs)
        if len(members) == len(pairs):
            return members
        found = True
        marked = ObjectWithDuplicates(members)
        counts = Counter(key for key, _ in pairs)
        marked.duplicates = tuple(key for key, count in counts.items() if count > 1)
        return marked

    value = json.loads(data, object_pairs_hook=read)
    return ObjectWithDuplicates(value) if found and type(value) is dict else value


# --- errors ---


C = TypeVar("C", Decoded[Any], Envelope)


def _checked(result: C, strict: bool) -> C:
    if strict:
        texts = _strict_texts(result.unknown_fields, result.duplicate_fields)
        if texts:
            raise DecodeError((Problem("", f"strict decoding error: {', '.join(texts)}"),))
    return result


def _strict_texts(unknown: tuple[str, ...], duplicates: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f'unknown field "{name}"' for name in unknown) + tuple(
        f'duplicate field "{name}"' for name in duplicates
    )


def _malformed(error: Exception) -> DecodeError:
    text = "nested too deeply" if isinstance(error, RecursionError) else f"malformed JSON: {error}"
    return DecodeError((Problem("", text),))


def _type_meta(value: dict[Any, Any], field: str) -> str:
    text = value.get(field)
    if not isinstance(text, str) or not text:
        got = "" if text is None else f", got {describe(text)}"
        raise DecodeError((Problem(field, f"expected the {field} of an object{got}"),))
    return text


def _object_name(value: dict[Any, Any]) -> str:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return ""
    namespace = metadata.get("namespace")
    prefix = f"{namespace}/" if isinstance(namespace, str) and namespace else ""
    return f" {prefix}{metadata['name']}"[:_NAME_LENGTH_MAX].encode(errors="backslashreplace").decode()
