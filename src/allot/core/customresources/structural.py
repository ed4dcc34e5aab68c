"""Structural schemas: what the schema of a custom resource must look like, so that it can be pruned and given defaults.

A schema is structural if every field has a type and is described outside of anyOf, oneOf, allOf and not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import re2

from allot.core.validation.fields import FieldError, Finding, forbidden, invalid, required

Schema = Mapping[str, Any]

DEPTH_MAX = 100
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_ROOT, _ITEM, _FIELD = "at the root", "for specified array items", "for specified object fields"
_NAMES = {"name", "generateName"}
# In combinations only what restricts values is allowed, not what describes them.
_FORBIDDEN_NESTED: Mapping[str, str] = {
    "additionalProperties": "must be undefined to be structural",
    "default": "must be undefined to be structural",
    "description": "must be empty to be structural",
    "nullable": "must be false to be structural",
    "title": "must be empty to be structural",
    "type": "must be empty to be structural",
    "x-kubernetes-embedded-resource": "must be false to be structural",
    "x-kubernetes-int-or-string": "must be false to be structural",
    "x-kubernetes-list-map-keys": "must be empty to be structural",
    "x-kubernetes-list-type": "must be undefined to be structural",
    "x-kubernetes-map-type": "must be undefined to be structural",
    "x-kubernetes-preserve-unknown-fields": "must be false to be structural",
    "x-kubernetes-validations": "must be empty to be structural",
}


def check_structural(schema: Schema, path: str) -> list[FieldError]:
    """Everything in which a schema is not structural, ordered by text."""
    found = [finding.error for finding in [*_invariants(schema, _ROOT, path, 0), *_completeness(schema, path)]]
    return sorted(dict.fromkeys(found), key=str)


def below(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas of members and items, with their places."""
    properties = schema.get("properties")
    for name, one in sorted(properties.items()) if isinstance(properties, dict) else ():
        if isinstance(one, dict):
            yield f"properties[{name}]", one
    for member in ("items", "additionalProperties"):
        one = schema.get(member)
        if isinstance(one, dict):
            yield member, one


def combinations(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas that are combined with this one, with their places."""
    for member in ("anyOf", "allOf", "oneOf"):
        listed = schema.get(member)
        for position, one in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(one, dict):
                yield f"{member}[{position}]", one
    negated = schema.get("not")
    if isinstance(negated, dict):
        yield "not", negated


def any_schema(schema: Schema, test: Callable[[Schema], bool]) -> bool:
    """Whether a schema or one inside it passes a test."""
    if test(schema):
        return True
    inside = [one for _, one in below(schema)] + [one for _, one in combinations(schema)]
    return any(any_schema(one, test) for one in inside)


# --- invariants ---


def _invariants(schema: Schema, level: str, path: str, depth: int) -> list[Finding]:
    if depth > DEPTH_MAX:
        return [forbidden(path, f"must not be nested more than {DEPTH_MAX} levels deep")]
    found: list[Finding] = []
    type_ = _text(schema, "type")
    if type_ == "array" and not isinstance(schema.get("items"), dict):
        found.append(required(f"{path}.items", "must be specified"))
    for place, one in below(schema):
        inner = _ITEM if place == "items" else _FIELD
        found += _invariants(one, inner, f"{path}.{place}", depth + 1)
    found += _check_additional(schema, level, path) + _check_extensions(schema, path)
    found += _check_type(schema, type_, level, path)
    embedded = schema.get("x-kubernetes-embedded-resource") is True
    found += _check_identity(schema, level, path, checked=embedded or level == _ROOT)
    preserves = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if embedded and not preserves and not schema.get("properties"):
        text = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        found.append(required(f"{path}.properties", text))
    return found + _check_validation(schema, path, depth, int_or_string=_is_int_or_string(schema))


def _text(schema: Schema, name: str) -> str:
    value = schema.get(name)
    return value if isinstance(value, str) else ""


def _check_additional(schema: Schema, level: str, path: str) -> list[Finding]:
    if schema.get("additionalProperties") is None:
        return []
    place = f"{path}.additionalProperties"
    if level == _ROOT:
        return [forbidden(place, "must not be used at the root")]
    if schema.get("x-kubernetes-embedded-resource") is True:
        return [forbidden(place, "must not be used if x-kubernetes-embedded-resource is set")]
    return []


def _check_extensions(schema: Schema, path: str) -> list[Finding]:
    if schema.get("x-kubernetes-int-or-string") is not True:
        return []
    names = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource")
    text = "must be false if x-kubernetes-int-or-string is true"
    return [invalid(f"{path}.{name}", True, text) for name in names if schema.get(name) is True]


def _check_type(schema: Schema, type_: str, level: str, path: str) -> list[Finding]:
    found: list[Finding] = []
    place = f"{path}.type"
    open_ = any(
        schema.get(name) is True for name in ("x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields")
    )
    if schema.get("x-kubernetes-embedded-resource") is True and type_ != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        found.append(invalid(place, type_, text) if type_ else required(place, text))
    elif not type_ and not open_:
        found.append(required(place, f"must not be empty {level}"))
    if level == _ROOT and type_ and type_ != "object":
        found.append(invalid(place, type_, "must be object at the root"))
    return found


def _check_identity(schema: Schema, level: str, path: str, *, checked: bool) -> list[Finding]:
    """apiVersion, kind and metadata of objects are what they are."""
    found: list[Finding] = []
    properties = schema.get("properties")
    known: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
    for name in ("kind", "apiVersion") if checked else ():
        one = known.get(name)
        if isinstance(one, dict) and one.get("type") != "string":
            found.append(invalid(f"{path}.properties[{name}].type", _text(one, "type"), "must be string"))
    meta = known.get("metadata")
    if not isinstance(meta, dict):
        return found
    place = f"{path}.properties[metadata]"
    if checked and meta.get("type") != "object":
        found.append(invalid(f"{place}.type", _text(meta, "type"), "must be object"))
    names = meta.get("properties")
    odd = set(names if isinstance(names, dict) else ()) - _NAMES or set(meta) - {"type", "properties", "default"}
    if level == _ROOT and odd:
        text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        found.append(forbidden(place, text))
    return found


def _is_int_or_string(schema: Schema) -> str:
    """Where the one allowed description of int-or-string inside combinations is, if it is there."""
    if schema.get("anyOf") == _INT_OR_STRING:
        return "anyOf"
    all_of = schema.get("allOf")
    first = all_of[0] if isinstance(all_of, list) and all_of else None
    return "allOf" if isinstance(first, dict) and first.get("anyOf") == _INT_OR_STRING else ""


def _check_validation(schema: Schema, path: str, depth: int, *, int_or_string: str = "") -> list[Finding]:
    if depth > DEPTH_MAX:
        return [forbidden(path, f"must not be nested more than {DEPTH_MAX} levels deep")]
    found: list[Finding] = []
    for place, one in combinations(schema):
        if int_or_string == "anyOf" and place.startswith("anyOf"):
            continue
        inner = "anyOf" if int_or_string == "allOf" and place == "allOf[0]" else ""
        found += _check_nested(one, f"{path}.{place}", depth + 1, int_or_string=inner)
    pattern = _text(schema, "pattern")
    if pattern:
        try:
            re2.compile(pattern, options=_OPTIONS)
        except re2.error as error:
            text = f"must be a valid regular expression, but isn't: error parsing regexp: {error}"
            found.append(invalid(f"{path}.pattern", pattern, text))
    return found


def _check_nested(schema: Schema, path: str, depth: int, *, int_or_string: str = "") -> list[Finding]:
    found = _check_validation(schema, path, depth, int_or_string=int_or_string)
    for place, one in below(schema):
        if place != "additionalProperties":
            found += _check_nested(one, f"{path}.{place}", depth + 1)
    for name, text in _FORBIDDEN_NESTED.items():
        if schema.get(name) not in (None, False, "", []):
            found.append(forbidden(f"{path}.{name}", text))
    properties = schema.get("properties")
    if isinstance(properties, dict) and "metadata" in properties:
        found.append(forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context"))
    return found


# --- completeness ---


def _completeness(schema: Schema, path: str) -> list[Finding]:
    """What combinations speak about has to be described outside of them, too."""
    found: list[Finding] = []
    for place, one in combinations(schema):
        found += _complete(one, schema, path, f"{path}.{place}", 0)
    return found


def _complete(nested: Schema, schema: Schema, path: str, nested_path: str, depth: int) -> list[Finding]:
    found: list[Finding] = []
    if depth > DEPTH_MAX:
        return found
    for place, one in combinations(nested):
        found += _complete(one, schema, path, f"{nested_path}.{place}", depth + 1)
    described = dict(below(schema))
    for place, one in below(nested):
        if place == "additionalProperties":
            continue
        if place not in described:
            found.append(required(f"{path}.{place}", f"because it is defined in {nested_path}.{place}"))
        else:
            found += _complete(one, described[place], f"{path}.{place}", f"{nested_path}.{place}", depth + 1)
    return found
