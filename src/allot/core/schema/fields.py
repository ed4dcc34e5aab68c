"""Whether the fields of an object are fields of its kind, as in strict decoding.

Unknown and duplicate fields are named by path; values of a wrong JSON type in the words of Go's decoder, because clients see
those. For custom resources only unknown and duplicate fields are told here: their types are checked with the rest of their
schema, which gives better messages.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec

from allot.core.model.decoding import DEPTH_MAX, ObjectWithDuplicates, to_quantity, utc_time
from allot.core.quantity import QuantityError
from allot.core.schema.node import Kind, Schema

FINDINGS_MAX = 100

_INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_GO_SCALARS = {
    Kind.STRING: "string",
    Kind.BOOLEAN: "bool",
    Kind.NUMBER: "float64",
    Kind.BYTES: "[]uint8",
    Kind.QUANTITY: "resource.Quantity",
    Kind.INT_OR_STRING: "intstr.IntOrString",
    Kind.TIME: "v1.Time",
    Kind.MICRO_TIME: "v1.MicroTime",
    Kind.ANY: "interface {}",
}
_COMMON_QUANTITY = re.compile(r"[0-9]{1,15}(?:m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?", re.ASCII)
_QUANTITY_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NO_BASE64 = re.compile(r"[^A-Za-z0-9+/]")
_TEXT_LENGTH_MAX = 200
_CLEAN_VALUES_MAX = 256
_CLEAN_VALUE_LENGTH_MAX = 8 * 1024
_CLEAN_VALUE_LENGTH_MIN = 200
_TOKEN_VOLUME = b'"kube-api-access-'
_token_volume = re.compile(_TOKEN_VOLUME + rb"[a-z0-9]{5}(?=\")")


class FieldReport(msgspec.Struct, frozen=True):
    """What was found. `untidy`: pruning would change something (unknown fields, nulls, empty lists and maps)."""

    unknown: tuple[str, ...] = ()
    duplicates: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    untidy: bool = False

    @property
    def strict_errors(self) -> tuple[str, ...]:
        """The texts for warnings, or for the refusal when field validation is strict."""
        return tuple(f'unknown field "{path}"' for path in self.unknown) + tuple(
            f'duplicate field "{path}"' for path in self.duplicates
        )


_CLEAN = FieldReport()

# A place: (place above, name or index, node of the object that it is in). None is the root.
_Place = tuple[Any, str | int, Any] | None

# Looked up once instead of for every value.
_STRING, _OBJECT, _MAP, _LIST, _ANY = Kind.STRING, Kind.OBJECT, Kind.MAP, Kind.LIST, Kind.ANY


class _Findings:
    __slots__ = ("duplicates", "unknown", "untidy", "wrong")

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.duplicates: list[str] = []
        self.wrong: list[str] = []
        self.untidy = False


def check_fields(object_: Any, schema: Schema, *, no_duplicates: bool = False) -> FieldReport:
    """Everything that strict decoding would say about an object. Depth is bounded.

    no_duplicates: nothing in the object was read from text with duplicate fields. Then JSON tells everything about a value, and
    large parts that were found to be clean in another object, as the spec of pods of the same job, are not walked again.
    """
    findings = _Findings()
    unseen: list[tuple[Schema, bytes]] = []
    if no_duplicates and isinstance(object_, dict):
        object_ = _without_clean_parts(object_, schema, unseen)
    _check(object_, schema, None, findings, 0)
    if not (findings.untidy or findings.wrong or findings.duplicates):
        for node, encoded in unseen:
            if len(node.clean_values) >= _CLEAN_VALUES_MAX:
                node.clean_values.clear()
            node.clean_values[encoded] = None
        return _CLEAN
    unknown = sorted(findings.unknown) if schema.structural else findings.unknown
    return FieldReport(tuple(unknown), tuple(findings.duplicates), tuple(findings.wrong), findings.untidy)


def _without_clean_parts(object_: dict[str, Any], schema: Schema, unseen: list[tuple[Schema, bytes]]) -> dict[str, Any]:
    """The object without the members that are known to be clean; adds to unseen what will be when the rest is."""
    rest = {}
    for name, value in object_.items():
        node = schema.properties.get(name)
        if name == "metadata" and node is not None and isinstance(value, dict):
            managed, entries = value.get("managedFields"), node.properties.get("managedFields")
            if entries is not None and _is_clean(managed, entries, unseen):
                value = {member: each for member, each in value.items() if member != "managedFields"}
        elif node is not None and type(value) is not str and _is_clean(value, node, unseen, small=name == "spec"):
            continue
        rest[name] = value
    return rest


def _is_clean(value: Any, node: Schema, unseen: list[tuple[Schema, bytes]], *, small: bool = False) -> bool:
    """Whether a value is known to be clean. small: also if it is, because there are others like it."""
    # Whether something empty is in order depends on where it is.
    if not value or not isinstance(value, (dict, list)):
        return False
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError):
        return False
    # What is small is walked as quickly as it is looked up, and mostly differs from object to object.
    if len(encoded) > _CLEAN_VALUE_LENGTH_MAX or (len(encoded) < _CLEAN_VALUE_LENGTH_MIN and not small):
        return False
    if _TOKEN_VOLUME in encoded:
        # Each pod has its own name for this volume; which one is no matter here.
        encoded = _token_volume.sub(_TOKEN_VOLUME, encoded)
    if encoded in node.clean_values:
        return True
    unseen.append((node, encoded))
    return False


def _check(value: Any, schema: Schema, place: _Place, findings: _Findings, depth: int) -> None:
    kind = schema.kind
    if kind is _STRING:
        if type(value) is not str and not schema.structural:
            _wrong_type(value, schema, place, findings)
    elif kind is _OBJECT or kind is _MAP:
        if isinstance(value, dict):
            _check_members(value, schema, place, findings, depth + 1)
        elif not schema.structural:
            _wrong_type(value, schema, place, findings)
    elif kind is _LIST:
        if isinstance(value, list):
            _check_items(value, schema, place, findings, depth + 1)
        elif not schema.structural:
            _wrong_type(value, schema, place, findings)
    elif kind is _ANY:
        if isinstance(value, (dict, list)):
            _check_any(value, schema, place, findings, depth + 1)
    elif not schema.structural:
        _check_scalar(value, schema, place, findings)


def _check_members(value: dict[str, Any], schema: Schema, place: _Place, findings: _Findings, depth: int) -> None:
    if depth > DEPTH_MAX:
        return _too_deep(findings)
    if isinstance(value, ObjectWithDuplicates):
        findings.duplicates += [_path((place, name, None)) for name in value.duplicates]
    properties, additional, structural = schema.properties, schema.additional, schema.structural
    for name, item in value.items():
        node = properties.get(name, additional)
        if node is None:
            if not schema.preserve_unknown and len(findings.unknown) < FINDINGS_MAX:
                findings.unknown.append(_path((place, name, None)))
            findings.untidy = findings.untidy or not schema.preserve_unknown
        elif item is None:
            findings.untidy = findings.untidy or not structural
        elif node.kind is _STRING:
            if type(item) is not str and not structural:
                _wrong_type(item, node, (place, name, schema), findings)
        else:
            if not item and not structural and node.kind in (_LIST, _MAP) and name not in schema.kept_empty:
                findings.untidy = True
            _check(item, node, (place, name, schema), findings, depth)
    return None


def _check_items(value: list[Any], schema: Schema, place: _Place, findings: _Findings, depth: int) -> None:
    if depth > DEPTH_MAX:
        return _too_deep(findings)
    items = schema.items
    assert items is not None
    for index, item in enumerate(value):
        if item is not None:
            _check(item, items, (place, index, None), findings, depth)
        elif not schema.structural:
            findings.untidy = True
    return None


def _check_any(value: Any, schema: Schema, place: _Place, findings: _Findings, depth: int) -> None:
    """Nothing is unknown here; duplicates are still reported."""
    if depth > DEPTH_MAX:
        return _too_deep(findings)
    if isinstance(value, ObjectWithDuplicates):
        findings.duplicates += [_path((place, name, None)) for name in value.duplicates]
    for step, item in value.items() if isinstance(value, dict) else enumerate(value):
        # Most of what is free-form is managedFields, and most of that are empty objects.
        if item and isinstance(item, (dict, list)):
            _check_any(item, schema, (place, step, None), findings, depth + 1)
    return None


# --- scalars ---


def _check_scalar(value: Any, schema: Schema, place: _Place, findings: _Findings) -> None:
    kind = schema.kind
    if kind is Kind.BOOLEAN:
        fits = isinstance(value, bool)
    elif kind is Kind.INTEGER:
        low, high = _INTEGERS.get(schema.format, _INTEGERS["int64"])
        fits = type(value) is int and low <= value <= high
    elif kind is Kind.NUMBER:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    else:
        fits = isinstance(value, str)
        text = _problem(value, kind)
        if text is not None:
            return _add(findings, text)
        fits = fits or kind in (Kind.QUANTITY, Kind.INT_OR_STRING)
    return None if fits else _wrong_type(value, schema, place, findings)


def _problem(value: Any, kind: Kind) -> str | None:
    """What the type's own reader says about a value; types with such a reader do not name the field."""
    if kind is Kind.QUANTITY:
        return _quantity_problem(value)
    if kind is Kind.INT_OR_STRING:
        fits = isinstance(value, str) or (type(value) is int and -(2**31) <= value < 2**31)
        return None if fits else f"json: cannot unmarshal {json_type(value)} into Go value of type int32"
    if kind in (Kind.TIME, Kind.MICRO_TIME):
        if not isinstance(value, str):
            return f"json: cannot unmarshal {json_type(value)} into Go value of type string"
        return None if utc_time(value) is not None else _time_problem(value, kind)
    if kind is Kind.BYTES and isinstance(value, str):
        return _base64_problem(value)
    return None


def _quantity_problem(value: Any) -> str | None:
    if isinstance(value, str) and _COMMON_QUANTITY.fullmatch(value):
        return None
    try:
        to_quantity(value)
    except QuantityError:
        return _QUANTITY_FORMAT
    return None


def _time_problem(value: str, kind: Kind) -> str:
    layout = "2006-01-02T15:04:05Z07:00" if kind is Kind.TIME else "2006-01-02T15:04:05.000000Z07:00"
    shown = _shown(value)
    return f'parsing time "{shown}" as "{layout}": cannot parse "{shown}" as "2006"'


def _base64_problem(value: str) -> str | None:
    try:
        base64.b64decode(value.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        bad = _NO_BASE64.search(value)
        return f"illegal base64 data at input byte {bad.start() if bad else len(value)}"
    return None


# --- words ---


def _wrong_type(value: Any, schema: Schema, place: _Place, findings: _Findings) -> None:
    if value is None:
        findings.untidy = True
        return None
    struct = _struct(place)
    field = f"struct field {struct}.{_fields(place)}" if struct else "value"
    # Go tells the number itself only where a number was expected.
    type_ = _number(value) if schema.kind in (Kind.INTEGER, Kind.NUMBER) else json_type(value)
    return _add(findings, f"json: cannot unmarshal {type_} into Go {field} of type {_go_type(schema)}")


def _add(findings: _Findings, text: str) -> None:
    if len(findings.wrong) < FINDINGS_MAX:
        findings.wrong.append(text)


def _too_deep(findings: _Findings) -> None:
    if not findings.wrong:
        findings.wrong.append(f"nested too deeply: expected at most {DEPTH_MAX} levels")


def _number(value: Any) -> str:
    short = isinstance(value, float) or (type(value) is int and value.bit_length() < 256)
    return f"number {value}" if short else json_type(value)


def json_type(value: Any) -> str:
    """What a value is called in JSON."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _go_type(schema: Schema) -> str:
    kind = schema.kind
    if kind is Kind.OBJECT:
        return ".".join(schema.definition.split(".")[-2:]) or "struct"
    if kind is Kind.MAP:
        return f"map[string]{_go_type(schema.additional)}" if schema.additional is not None else "map[string]string"
    if kind is Kind.LIST:
        return f"[]{_go_type(schema.items)}" if schema.items is not None else "[]interface {}"
    if kind is Kind.INTEGER:
        return schema.format if schema.format in _INTEGERS else "int"
    return _GO_SCALARS[kind]


def _struct(place: _Place) -> str:
    while place is not None:
        above, _, node = place
        if node is not None and node.kind is Kind.OBJECT:
            return str(node.name)
        place = above
    return ""


def _fields(place: _Place) -> str:
    """Names of struct fields only, as Go's decoder remembers them."""
    names = []
    while place is not None:
        above, step, node = place
        if node is not None and node.kind is Kind.OBJECT:
            names.append(str(step))
        place = above
    return ".".join(reversed(names))


def _path(place: _Place) -> str:
    steps = []
    while place is not None:
        place, step, _ = place
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return _shown("".join(reversed(steps)).removeprefix("."))


def _shown(text: str) -> str:
    shown = text if len(text) <= _TEXT_LENGTH_MAX else text[:_TEXT_LENGTH_MAX] + "..."
    return shown.encode(errors="backslashreplace").decode()
