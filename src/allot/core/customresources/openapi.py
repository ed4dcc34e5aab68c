"""Whether a value fits an OpenAPI v3 schema, with upstream's messages.

Schemas are JSON values as custom resource definitions carry them. What a schema says that no value can break (a bad pattern,
a bound that is no number) was refused with the definition and is passed over here. Members are walked in order of their
names, where upstream's order is left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import re2

from allot.core.customresources.string_formats import has_format, is_known_format
from allot.core.validation.fields import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    FieldError,
    go_json,
    quote,
    render,
)

Schema = Mapping[str, Any]

TYPE_INVALID = "FieldValueTypeInvalid"
DEPTH_MAX = 100
ERRORS_MAX = 200
# Errors that have no place of their own are told about the whole object.
_NOWHERE = "<nil>"


def check_value(value: Any, schema: Schema, path: str = "") -> list[FieldError]:
    """Everything in which a value does not fit its schema; at most ERRORS_MAX errors."""
    return _check(value, schema, path, 0)[:ERRORS_MAX]


def _check(value: Any, schema: Schema, path: str, depth: int) -> list[FieldError]:
    if depth > DEPTH_MAX:
        return [FieldError(path or _NOWHERE, INVALID, f"Invalid value: nested too deeply, at most {DEPTH_MAX} levels")]
    errors = _check_type(value, schema, path)
    if value is None:
        return errors + _check_enum(value, schema, path)
    errors += _check_combinations(value, schema, path, depth)
    if isinstance(value, str):
        errors += _check_string(value, schema, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        errors += _check_number(value, schema, path)
    elif isinstance(value, list):
        errors += _check_list(value, schema, path, depth)
    errors += _check_enum(value, schema, path)
    if isinstance(value, dict):
        errors += _check_object(value, schema, path, depth)
    return errors


# --- errors ---


def _place(path: str) -> str:
    return path.removeprefix(".") or _NOWHERE


def _invalid(path: str, value: Any, text: str) -> FieldError:
    told = f"{path} in body {text}" if path else f" in body {text}"
    return FieldError(_place(path), INVALID, f"Invalid value: {render(value)}: {told}")


def _general(text: str) -> FieldError:
    return FieldError(_NOWHERE, INVALID, f'Invalid value: "": {text}')


def _wrong_type(path: str, expected: str, found: str) -> FieldError:
    message = f'Invalid value: "{found}": {path} in body must be of type {expected}: "{found}"'
    return FieldError(_place(path), TYPE_INVALID, message)


# --- types ---


def _types(schema: Schema) -> tuple[str, ...]:
    if schema.get("x-kubernetes-int-or-string") is True:
        return ("integer", "string")
    declared = schema.get("type")
    return (declared,) if isinstance(declared, str) and declared else ()


def type_of(value: Any) -> str:
    """The name of a value's type in schemas."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "array" if isinstance(value, list) else "object"


def _check_type(value: Any, schema: Schema, path: str) -> list[FieldError]:
    types = _types(schema)
    if not types:
        return []
    found = type_of(value)
    if value is None:
        return [] if schema.get("nullable") is True else [_wrong_type(path, ",".join(types), "null")]
    whole = found == "number" and float(value).is_integer() and "integer" in types
    if found in types or whole or (found == "integer" and "number" in types):
        return []
    # A string with a format is checked as that.
    numeric = "number" in types or "integer" in types
    if found in ("string", "array") and schema.get("format") and not numeric and is_known_format(schema["format"]):
        return []
    return [_wrong_type(path, ",".join(types), found)]


# --- combinations ---


def _check_combinations(value: Any, schema: Schema, path: str, depth: int) -> list[FieldError]:
    errors: list[FieldError] = []
    shown = quote(path)
    any_of = _schemas(schema.get("anyOf"))
    if any_of:
        results = [_check(value, one, path, depth + 1) for one in any_of]
        if all(results):
            errors += [_general(f"{shown} must validate at least one schema (anyOf)"), *_fewest(results)]
    one_of = _schemas(schema.get("oneOf"))
    if one_of:
        results = [_check(value, one, path, depth + 1) for one in one_of]
        valid = sum(1 for result in results if not result)
        if valid != 1:
            found = "Found none valid" if not valid else f"Found {valid} valid alternatives"
            errors.append(_general(f"{shown} must validate one and only one schema (oneOf). {found}"))
            if not valid:
                errors += _fewest(results)
    all_of = _schemas(schema.get("allOf"))
    if all_of:
        results = [_check(value, one, path, depth + 1) for one in all_of]
        for result in results:
            errors += result
        if any(results):
            none = ". None validated" if all(results) else ""
            errors.append(_general(f"{shown} must validate all the schemas (allOf){none}"))
    negated = schema.get("not")
    if isinstance(negated, dict) and not _check(value, negated, path, depth + 1):
        errors.append(_general(f"{shown} must not validate the schema (not)"))
    return errors


def _fewest(results: list[list[FieldError]]) -> list[FieldError]:
    """The errors of the alternative that fits best."""
    return min(results, key=lambda result: len(result))


def _schemas(value: Any) -> list[Schema]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


# --- scalars ---


def _check_enum(value: Any, schema: Schema, path: str) -> list[FieldError]:
    allowed = schema.get("enum")
    if not isinstance(allowed, list) or not allowed or any(_equal(value, one) for one in allowed):
        return []
    shown = ", ".join(quote(one if isinstance(one, str) else go_json(one)) for one in _sorted_texts(allowed))
    text = f"Unsupported value: {render(value)}: supported values: {shown}"
    return [FieldError(_place(path), NOT_SUPPORTED, text)]


def _sorted_texts(values: list[Any]) -> list[Any]:
    return sorted(values, key=lambda one: one if isinstance(one, str) else go_json(one))


def _equal(one: Any, other: Any) -> bool:
    """1 and true are different values in JSON."""
    return type_of(one) == type_of(other) and bool(one == other)


def _check_string(value: str, schema: Schema, path: str) -> list[FieldError]:
    errors = []
    longest, shortest, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if isinstance(longest, int) and len(value) > longest:
        errors.append(FieldError(_place(path), TOO_LONG, f"Too long: may not be more than {longest} bytes"))
    if isinstance(shortest, int) and len(value) < shortest:
        errors.append(_invalid(path, value, f"should be at least {shortest} chars long"))
    if isinstance(pattern, str) and pattern and not _matches(pattern, value):
        errors.append(_invalid(path, value, f"should match '{pattern}'"))
    format_ = schema.get("format")
    if isinstance(format_, str) and is_known_format(format_) and not has_format(format_, value):
        message = f"Invalid value: {render(value)}: {path} in body must be of type {format_}: {quote(value)}"
        errors.append(FieldError(_place(path), TYPE_INVALID, message))
    return errors


_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


def _matches(pattern: str, value: str) -> bool:
    try:
        return re2.search(pattern, value, options=_OPTIONS) is not None
    except re2.error:
        return True


def _check_number(value: float, schema: Schema, path: str) -> list[FieldError]:
    if isinstance(value, float) and not math.isfinite(value):
        return []
    errors = []
    factor, most, least = (_number(schema.get(name)) for name in ("multipleOf", "maximum", "minimum"))
    if factor is not None and factor > 0 and not float(value / factor).is_integer():
        errors.append(_invalid(path, value, f"should be a multiple of {_shown(factor)}"))
    if most is not None:
        exclusive = schema.get("exclusiveMaximum") is True
        if value > most or (exclusive and value == most):
            errors.append(
                _invalid(path, value, f"should be less than {'' if exclusive else 'or equal to '}{_shown(most)}")
            )
    if least is not None:
        exclusive = schema.get("exclusiveMinimum") is True
        if value < least or (exclusive and value == least):
            told = f"should be greater than {'' if exclusive else 'or equal to '}{_shown(least)}"
            errors.append(_invalid(path, value, told))
    return errors + _check_range(value, schema, path)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _shown(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e21 else repr(number)


_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


def _check_range(value: float, schema: Schema, path: str) -> list[FieldError]:
    bounds = _RANGES.get(str(schema.get("format"))) if schema.get("type") == "integer" else None
    if bounds is None or bounds[0] <= value <= bounds[1]:
        return []
    text = f"Checked value must be of type integer with format {schema.get('format')} in body"
    return [FieldError(_place(path), INVALID, f"Invalid value: {render(value)}: {text}")]


# --- lists and objects ---


def _check_list(value: list[Any], schema: Schema, path: str, depth: int) -> list[FieldError]:
    errors: list[FieldError] = []
    items = schema.get("items")
    if isinstance(items, dict):
        for position, item in enumerate(value):
            errors += _check(item, items, f"{path}[{position}]", depth + 1)
            if len(errors) >= ERRORS_MAX:
                break
    fewest, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(fewest, int) and len(value) < fewest:
        errors.append(_invalid(path, len(value), f"should have at least {fewest} items"))
    if isinstance(most, int) and len(value) > most:
        errors.append(_too_many(path, len(value), most))
    if schema.get("uniqueItems") is True and len({go_json(item) for item in value}) < len(value):
        errors.append(_invalid(path, "", "shouldn't contain duplicates"))
    return errors


def _too_many(path: str, count: int, most: int) -> FieldError:
    items = "item" if most == 1 else "items"
    return FieldError(_place(path), TOO_MANY, f"Too many: {count}: must have at most {most} {items}")


def _check_object(value: Mapping[str, Any], schema: Schema, path: str, depth: int) -> list[FieldError]:
    errors: list[FieldError] = []
    fewest, most = schema.get("minProperties"), schema.get("maxProperties")
    if isinstance(fewest, int) and len(value) < fewest:
        errors.append(_invalid(path, len(value), f"should have at least {fewest} properties"))
    if isinstance(most, int) and len(value) > most:
        errors.append(_too_many(path, len(value), most))
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
    additional = schema.get("additionalProperties")
    for name in sorted(value):
        below = known.get(name)
        if isinstance(below, dict):
            errors += _check(value[name], below, f"{path}.{name}" if path else name, depth + 1)
        elif isinstance(additional, dict):
            errors += _check(value[name], additional, f"{path}.{name}", depth + 1)
        elif additional is False:
            errors.append(_invalid(f"{path}.{name}", "", "is a forbidden property"))
        if len(errors) >= ERRORS_MAX:
            break
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in value:
            errors.append(FieldError(f"{path}.{name}".removeprefix("."), REQUIRED, "Required value"))
    return errors
