"""The functions of the CEL standard library, with the overload ids of cel-go.

Order matters: of several overloads that fit, the first decides the result type.
"""

from __future__ import annotations

from allot.core.cel.checking.signatures import Library, functions
from allot.core.cel.checking.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    CelType,
    Kind,
    list_of,
    map_of,
)

_COMPARED = ("bool", "int64", "uint64", "double", "string", "bytes", "timestamp", "duration")
_NUMBERS = ("int64", "uint64", "double")
_TYPE_OF = {"int64": "int", "uint64": "uint"}


def _comparison(name: str) -> dict[str, str]:
    overloads: dict[str, str] = {}
    for left in _COMPARED:
        left_type = _TYPE_OF.get(left, left)
        overloads[f"{name}_{left}"] = f"{left_type}, {left_type} -> bool"
        if left in _NUMBERS:
            for right in ("double", "int64", "uint64"):
                if right != left:
                    overloads[f"{name}_{left}_{right}"] = f"{left_type}, {_TYPE_OF.get(right, right)} -> bool"
    return overloads


def _arithmetic(name: str, *numbers: str) -> dict[str, str]:
    overloads: dict[str, str] = {}
    for number in numbers:
        operand = _TYPE_OF.get(number, number)
        overloads[f"{name}_{number}"] = f"{operand}, {operand} -> {operand}"
    return overloads


def _conversion(target: str, *sources: str) -> dict[str, str]:
    result = _TYPE_OF.get(target, target)
    return {f"{source}_to_{target}": f"{_TYPE_OF.get(source, source)} -> {result}" for source in sources}


def _of_timestamp(part: str, zone_suffix: str = "_with_tz", duration: bool = False) -> dict[str, str]:
    overloads = {
        f"timestamp_to_{part}": "timestamp.() -> int",
        f"timestamp_to_{part}{zone_suffix}": "timestamp.(string) -> int",
    }
    if duration:
        overloads[f"duration_to_{part}"] = "duration.() -> int"
    return overloads


_IN = {"in_list": "A, list(A) -> bool", "in_map": "A, map(A, B) -> bool"}
_STRING_TEST = "string.(string) -> bool"

_STANDARD: Library = {
    "_?_:_": {"conditional": "bool, A, A -> A"},
    "_&&_": {"logical_and": "bool, bool -> bool"},
    "_||_": {"logical_or": "bool, bool -> bool"},
    "!_": {"logical_not": "bool -> bool"},
    "@not_strictly_false": {"not_strictly_false": "bool -> bool"},
    "_==_": {"equals": "A, A -> bool"},
    "_!=_": {"not_equals": "A, A -> bool"},
    "_+_": {
        "add_bytes": "bytes, bytes -> bytes",
        "add_double": "double, double -> double",
        "add_duration_duration": "duration, duration -> duration",
        "add_duration_timestamp": "duration, timestamp -> timestamp",
        "add_timestamp_duration": "timestamp, duration -> timestamp",
        "add_int64": "int, int -> int",
        "add_list": "list(A), list(A) -> list(A)",
        "add_string": "string, string -> string",
        "add_uint64": "uint, uint -> uint",
    },
    "_/_": _arithmetic("divide", "double", "int64", "uint64"),
    "_%_": _arithmetic("modulo", "int64", "uint64"),
    "_*_": _arithmetic("multiply", "double", "int64", "uint64"),
    "-_": {"negate_double": "double -> double", "negate_int64": "int -> int"},
    "_-_": {
        "subtract_double": "double, double -> double",
        "subtract_duration_duration": "duration, duration -> duration",
        "subtract_int64": "int, int -> int",
        "subtract_timestamp_duration": "timestamp, duration -> timestamp",
        "subtract_timestamp_timestamp": "timestamp, timestamp -> duration",
        "subtract_uint64": "uint, uint -> uint",
    },
    "_<_": _comparison("less"),
    "_<=_": _comparison("less_equals"),
    "_>_": _comparison("greater"),
    "_>=_": _comparison("greater_equals"),
    "_[_]": {"index_list": "list(A), int -> A", "index_map": "map(A, B), A -> B"},
    "@in": _IN,
    "size": {
        "size_bytes": "bytes -> int",
        "bytes_size": "bytes.() -> int",
        "size_list": "list(A) -> int",
        "list_size": "list(A).() -> int",
        "size_map": "map(A, B) -> int",
        "map_size": "map(A, B).() -> int",
        "size_string": "string -> int",
        "string_size": "string.() -> int",
    },
    "type": {"type": "A -> type(A)"},
    "bool": _conversion("bool", "bool", "string"),
    "bytes": _conversion("bytes", "bytes", "string"),
    "double": _conversion("double", "double", "int64", "string", "uint64"),
    "duration": _conversion("duration", "duration", "string"),
    "dyn": {"to_dyn": "A -> dyn"},
    "int": _conversion("int64", "int64", "double", "duration", "string", "timestamp", "uint64"),
    "string": _conversion("string", "string", "bool", "bytes", "double", "duration", "int64", "timestamp", "uint64"),
    "timestamp": _conversion("timestamp", "timestamp", "int64", "string"),
    "uint": _conversion("uint64", "uint64", "double", "int64", "string"),
    "contains": {"contains_string": _STRING_TEST},
    "endsWith": {"ends_with_string": _STRING_TEST},
    "startsWith": {"starts_with_string": _STRING_TEST},
    "matches": {"matches": "string, string -> bool", "matches_string": _STRING_TEST},
    "getFullYear": _of_timestamp("year"),
    "getMonth": _of_timestamp("month"),
    "getDayOfYear": _of_timestamp("day_of_year"),
    "getDayOfMonth": _of_timestamp("day_of_month"),
    "getDate": _of_timestamp("day_of_month_1_based"),
    "getDayOfWeek": _of_timestamp("day_of_week"),
    "getHours": _of_timestamp("hours", duration=True),
    "getMinutes": _of_timestamp("minutes", duration=True),
    # One id lacks "with"; it is upstream's.
    "getSeconds": _of_timestamp("seconds", "_tz", duration=True),
    "getMilliseconds": _of_timestamp("milliseconds", duration=True),
}
STANDARD = functions(_STANDARD)

# Names that denote types. A list or map without parameters holds anything.
STANDARD_TYPES = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "google.protobuf.Duration": DURATION,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "string": STRING,
    "google.protobuf.Timestamp": TIMESTAMP,
    "type": CelType(Kind.TYPE),
    "uint": UINT,
}
