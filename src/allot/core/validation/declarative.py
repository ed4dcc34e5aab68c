"""Declarative validation: an engine that applies rule tables to typed objects.

Upstream generates this half of validation from tags on the Go types; here the tags are data (`rules_resource`,
`rules_scheduling`) and this module interprets them. Knows the checks, their order, which of them stop the others, and
ratcheting: an update does not recheck unchanged values. Does not know any kind.

Rules at stage alpha have no effect upstream and are not in the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from allot.core.features import FeatureGates
from allot.core.validation.declarative_formats import Format
from allot.core.validation.fields import (
    Finding,
    Findings,
    byte_length,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    required,
    too_long,
    too_many,
)
from allot.core.validation.struct_defaults import defaults_of

NO_SET = "NoSet"
NO_UNSET = "NoUnset"
NO_MODIFY = "NoModify"
NO_ADD_ITEM = "NoAddItem"
NO_REMOVE_ITEM = "NoRemoveItem"

# Nothing in the API nests deeper; a table that recursed forever would be a bug.
_DEPTH_MAX = 64


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one field. A field that is not required is optional: if unset, nothing else is checked."""

    required: bool = False
    # The field must be unset while this gate is off.
    gate: str = ""
    immutable: bool = False
    update: tuple[str, ...] = ()
    max_items: int | None = None
    # Attributes that identify a list item; () means the item itself. None: the list may contain duplicates.
    unique: tuple[str, ...] | None = None
    format: Format | None = None
    key_format: Format | None = None
    item_format: Format | None = None
    enum: frozenset[str] | None = None
    item_enum: frozenset[str] | None = None
    minimum: int | None = None
    maximum: int | None = None
    max_bytes: int | None = None
    max_characters: int | None = None
    # Stage beta: enforced only while DeclarativeValidationBeta is on.
    beta: bool = True


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one type: by attribute, and a one-of over some attributes."""

    fields: Mapping[str, Rule]
    union: tuple[str, ...] = ()
    union_beta: bool = True


class Schema(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of an API group with the field names of one of its versions."""

    rules: Mapping[type, Rules]
    # Path segments of a field where they differ from its JSON name: () for a field whose members are inlined.
    segments: Mapping[tuple[type, str], tuple[str, ...]] = {}
    # A list item as the version prints it.
    item_text: Callable[[Any], Any]


class _Run(msgspec.Struct, frozen=True):
    schema: Schema
    gates: FeatureGates
    updating: bool


def check(schema: Schema, gates: FeatureGates, new: Any, old: Any | None = None, path: str = "") -> Findings:
    """All declarative findings for an object; `old` is given for updates."""
    return _check_struct(_Run(schema, gates, old is not None), path, new, old, 0)


def _is_set(value: Any, default: Any) -> bool:
    """Whether Go would call the field set: a nil pointer, an empty list or map and a zero value are not."""
    if value is None:
        return False
    if isinstance(value, tuple | Mapping):
        return len(value) > 0
    if isinstance(value, msgspec.Struct):
        return True
    return default is None or bool(value != default)


@cache
def _json_names(type_: type) -> Mapping[str, str]:
    assert issubclass(type_, msgspec.Struct)
    return dict(zip(type_.__struct_fields__, type_.__struct_encode_fields__, strict=True))


def _path(run: _Run, path: str, type_: type, attribute: str) -> str:
    segments = run.schema.segments.get((type_, attribute))
    if segments is None:
        segments = (_json_names(type_)[attribute],)
    return child(path, *segments) if segments else path


def _check_struct(run: _Run, path: str, new: Any, old: Any | None, depth: int) -> Findings:
    assert depth <= _DEPTH_MAX, f"{path}: rule tables nest too deep"
    type_ = type(new)
    rules = run.schema.rules.get(type_)
    if rules is None:
        return []
    found: Findings = []
    if rules.union:
        found += _check_union(path, new, old, rules)
    for attribute, rule in rules.fields.items():
        value = getattr(new, attribute)
        previous = None if old is None else getattr(old, attribute)
        if run.updating and old is not None and _same(value, previous):
            continue
        found += _check_field(run, _path(run, path, type_, attribute), rule, type_, attribute, value, previous, depth)
    return found


def _same(value: Any, previous: Any) -> bool:
    """Semantic equality: an absent list equals an empty one."""
    return bool(value == previous) or (value in (None, ()) and previous in (None, ()))


def _check_union(path: str, new: Any, old: Any | None, rules: Rules) -> Findings:
    type_: type = type(new)
    defaults, names = defaults_of(type_), _json_names(type_)
    chosen = [name for name in rules.union if _is_set(getattr(new, name), defaults[name])]
    if old is not None and chosen == [name for name in rules.union if _is_set(getattr(old, name), defaults[name])]:
        return []
    if len(chosen) == 1:
        return []
    every = ", ".join(f"`{names[name]}`" for name in rules.union)
    beta = rules.union_beta
    if not chosen:
        return [invalid(path, "", f"must specify one of: {every}", origin="union", beta=beta)]
    listed = ", ".join(names[name] for name in chosen)
    return [invalid(path, f"{{{listed}}}", f"must specify exactly one of: {every}", origin="union", beta=beta)]


def _check_field(
    run: _Run, path: str, rule: Rule, owner: type, attribute: str, value: Any, previous: Any, depth: int
) -> Findings:
    default = defaults_of(owner)[attribute]
    was_set, is_set = _is_set(previous, default), _is_set(value, default)
    found = _stopping(run, path, rule, value, previous, is_set, was_set)
    if found or not is_set:
        return found
    found = _value_findings(path, rule, value)
    match value:
        case tuple():
            found += _check_items(run, path, rule, value, previous or (), depth)
        case Mapping():
            found += _check_entries(run, path, rule, value, previous or {}, depth)
        case msgspec.Struct():
            found += _check_struct(run, path, value, previous, depth + 1)
    return found


def _stopping(run: _Run, path: str, rule: Rule, value: Any, previous: Any, is_set: bool, was_set: bool) -> Findings:
    """The checks whose failure skips all others of the field."""
    found: Findings = []
    if rule.gate and rule.gate not in run.gates and is_set:
        found.append(forbidden(path, beta=rule.beta))
    if rule.required and not is_set:
        found.append(required(path, beta=rule.beta))
    if rule.max_items is not None and is_set and len(value) > rule.max_items:
        found.append(too_many(path, len(value), rule.max_items, beta=rule.beta))
    if run.updating:
        if rule.immutable:
            found.append(invalid(path, None, "field is immutable", origin="immutable", beta=rule.beta))
        for constraint in rule.update:
            found += _update_findings(path, rule, constraint, value, previous, is_set, was_set)
    return found


_UPDATE_TEXTS = {
    (NO_SET, False, True): "field cannot be set once created",
    (NO_UNSET, True, False): "field cannot be cleared once set",
    (NO_MODIFY, True, True): "field cannot be modified once set",
}


def _update_findings(
    path: str, rule: Rule, constraint: str, value: Any, previous: Any, is_set: bool, was_set: bool
) -> Findings:
    text = _UPDATE_TEXTS.get((constraint, was_set, is_set))
    if text is not None:
        return [invalid(path, None, text, origin="update", beta=rule.beta)]
    if constraint not in (NO_ADD_ITEM, NO_REMOVE_ITEM):
        return []
    assert rule.unique is not None, f"{path}: {constraint} needs a key"
    kept = {_item_key(item, rule.unique) for item in previous or ()}
    if constraint == NO_ADD_ITEM:
        return [
            forbidden(index(path, position), "item may not be added", origin="update", beta=rule.beta)
            for position, item in enumerate(value or ())
            if _item_key(item, rule.unique) not in kept
        ]
    present = {_item_key(item, rule.unique) for item in value or ()}
    return [
        forbidden(path, "item may not be removed", origin="update", beta=rule.beta)
        for item in previous or ()
        if _item_key(item, rule.unique) not in present
    ]


def _value_findings(path: str, rule: Rule, value: Any) -> Findings:
    beta = rule.beta
    found: Findings = []
    if rule.format is not None:
        found += rule.format(path, value, beta)
    if rule.enum is not None and value not in rule.enum:
        found.append(not_supported(path, value, rule.enum, beta=beta))
    if rule.minimum is not None and value < rule.minimum:
        detail = f"must be greater than or equal to {rule.minimum}"
        found.append(invalid(path, value, detail, origin="minimum", beta=beta))
    if rule.maximum is not None and value > rule.maximum:
        detail = f"must be less than or equal to {rule.maximum}"
        found.append(invalid(path, value, detail, origin="maximum", beta=beta))
    if rule.max_bytes is not None and byte_length(value) > rule.max_bytes:
        found.append(too_long(path, rule.max_bytes, origin="maxBytes", beta=beta))
    if rule.max_characters is not None and len(value) > rule.max_characters:
        found.append(too_long(path, rule.max_characters, unit="characters", origin="maxLength", beta=beta))
    return found


def _item_key(item: Any, attributes: tuple[str, ...]) -> Any:
    return tuple(getattr(item, attribute) for attribute in attributes) if attributes else item


def _check_items(
    run: _Run, path: str, rule: Rule, value: tuple[Any, ...], previous: tuple[Any, ...], depth: int
) -> Findings:
    found: Findings = []
    known: dict[Any, Any] = {}
    if rule.unique is not None:
        found += _duplicates(run, path, rule, value)
        for item in reversed(previous):
            known[_item_key(item, rule.unique)] = item
    for position, item in enumerate(value):
        old = known.get(_item_key(item, rule.unique)) if rule.unique is not None else None
        if run.updating and old is not None and old == item:
            continue
        found += _check_item(run, index(path, position), rule, item, old, depth)
    return found


def _duplicates(run: _Run, path: str, rule: Rule, value: tuple[Any, ...]) -> Findings:
    assert rule.unique is not None
    found: list[Finding] = []
    seen = set()
    for position, item in enumerate(value):
        identity = _item_key(item, rule.unique)
        if identity in seen:
            found.append(duplicate(index(path, position), run.schema.item_text(item), beta=rule.beta))
        seen.add(identity)
    return found


def _check_item(run: _Run, path: str, rule: Rule, item: Any, old: Any | None, depth: int) -> Findings:
    if isinstance(item, msgspec.Struct):
        return _check_struct(run, path, item, old, depth + 1)
    found: Findings = []
    if rule.item_format is not None:
        found += rule.item_format(path, item, rule.beta)
    if rule.item_enum is not None and item not in rule.item_enum:
        found.append(not_supported(path, item, rule.item_enum, beta=rule.beta))
    return found


def _check_entries(
    run: _Run, path: str, rule: Rule, value: Mapping[str, Any], previous: Mapping[str, Any], depth: int
) -> Findings:
    found: Findings = []
    for name, entry in value.items():
        old = previous.get(name)
        if rule.key_format is not None and not (run.updating and name in previous):
            found += rule.key_format(path, name, rule.beta)
        if isinstance(entry, msgspec.Struct) and not (run.updating and old is not None and old == entry):
            found += _check_struct(run, key(path, name), entry, old, depth + 1)
    return found
