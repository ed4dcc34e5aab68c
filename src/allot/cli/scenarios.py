"""Scenario lines: one JSON object per line with everything for one allocation, and one answer per line.

`node`, `classes`, `slices`, `claims` (to allocate, in order, for one pod), `allocated` (claims that already hold devices)
and `features` (a list of names, "all" or "default"). Objects are used unchanged, without defaults or validation, so that
the allocator can be tried on objects that no API server would store. An unreadable line also gets an answer:
an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from allot.cli.errors import Unreadable
from allot.cli.output import talk
from allot.core.allocation import (
    ALL_FEATURES,
    DEFAULT_FEATURES,
    Allocated,
    AllocationError,
    ClaimID,
    Features,
    Inventory,
    Policy,
    Unallocatable,
    UnknownFeature,
    allocate,
    claim_id,
)
from allot.core.model import core_v1, resource_v1
from allot.core.model.codec import DecodeError, decode
from allot.core.model.convert import ConversionError, to_hub
from allot.core.model.kinds import UnknownKind
from allot.core.model.meta import APIStruct
from allot.reading.documents import parse_documents

T = TypeVar("T", bound=APIStruct)

_MEMBERS = ("name", "note", "features", "node", "classes", "slices", "claims", "allocated", "taintRules", "expect")


class Scenario(msgspec.Struct, frozen=True):
    """One decoded line."""

    name: str
    features: Features | None
    node: core_v1.Node
    classes: tuple[resource_v1.DeviceClass, ...]
    slices: tuple[resource_v1.ResourceSlice, ...]
    claims: tuple[resource_v1.ResourceClaim, ...]
    allocated: tuple[resource_v1.ResourceClaim, ...]
    taint_rules: tuple[resource_v1.DeviceTaintRule, ...]


class ScenarioResult(msgspec.Struct, frozen=True):
    """The answer to one line."""

    name: str | None
    results: tuple[resource_v1.AllocationResult, ...] | None = None
    error: str | None = None
    refusal: Unallocatable | None = None
    # False if the line could not be read, so the allocator was not called.
    readable: bool = True


def holds_scenarios(data: bytes, source: str) -> bool:
    """Whether a file has scenario lines rather than manifests."""
    if source.endswith(".jsonl"):
        return True
    first = data.lstrip().partition(b"\n")[0]
    if not first.startswith(b"{"):
        return False
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and "kind" not in value and "claims" in value


def answer_lines(data: bytes, source: str, features: Features | None, policy: Policy) -> Iterator[ScenarioResult]:
    """An answer for each non-blank line. `features` overrides those of the lines."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            yield _answer(line, f"{source} line {number}", features, policy)


def _answer(line: bytes, place: str, features: Features | None, policy: Policy) -> ScenarioResult:
    name: str | None = None
    try:
        value = _line_value(line, place)
        name = _name(value)
        scenario = _scenario(value, place)
    except Unreadable as error:
        return ScenarioResult(name, error=error.message, readable=False)
    inventory = Inventory(features=features or scenario.features or DEFAULT_FEATURES)
    for class_ in scenario.classes:
        inventory.put_class(class_)
    # A scenario may give several slices or holders the same name; they are still different objects.
    for number, slice_ in enumerate(scenario.slices):
        inventory.put_slice(slice_, key=f"{slice_.metadata.name}#{number}")
    for rule in scenario.taint_rules:
        inventory.put_taint_rule(rule)
    holders: set[ClaimID] = set()
    for number, claim in enumerate(scenario.allocated):
        holder = claim_id(claim)
        if holder in holders:
            holder = ClaimID(holder.namespace, f"{holder.name}#{number}")
        holders.add(holder)
        if claim.status.allocation is not None:
            inventory.hold(holder, claim.status.allocation)
    try:
        answer = allocate(inventory, scenario.node, scenario.claims, policy)
    except AllocationError as error:
        return ScenarioResult(scenario.name, error=error.message)
    if isinstance(answer, Allocated):
        # No claims, no results: null, as for claims that do not fit.
        return ScenarioResult(scenario.name, results=answer.results or None)
    return ScenarioResult(scenario.name, refusal=answer)


def _line_value(line: bytes, place: str) -> dict[str, Any]:
    values = [document.value for document in parse_documents(line, place)]
    if len(values) != 1 or not isinstance(values[0], dict):
        raise Unreadable(f"{place}: expected one JSON object")
    for unknown in sorted(values[0].keys() - set(_MEMBERS)):
        talk(f"warning: {place}: member {unknown!r} is unknown and ignored: expected some of {', '.join(_MEMBERS)}")
    return values[0]


def _name(value: dict[str, Any]) -> str:
    name = value.get("name", "")
    return name if isinstance(name, str) else json.dumps(name)


def _scenario(value: dict[str, Any], place: str) -> Scenario:
    return Scenario(
        name=_name(value),
        features=_features(value.get("features"), place),
        node=_object(value.get("node"), core_v1.Node, f"{place}: node"),
        classes=_objects(value, "classes", resource_v1.DeviceClass, place),
        slices=_objects(value, "slices", resource_v1.ResourceSlice, place),
        claims=_objects(value, "claims", resource_v1.ResourceClaim, place),
        allocated=_objects(value, "allocated", resource_v1.ResourceClaim, place),
        taint_rules=_objects(value, "taintRules", resource_v1.DeviceTaintRule, place),
    )


def _features(value: Any, place: str) -> Features | None:
    if value is None:
        return None
    if isinstance(value, str):
        return parse_features(value)
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise Unreadable(f'{place}: features: expected a list of names, "all" or "default"')
    return parse_features(",".join(value))


def parse_features(text: str) -> Features:
    """Allocator features from `all`, `default` or a comma-separated list of names, which may include the first two."""
    names: dict[str, None] = {}
    for name in filter(None, (part.strip() for part in text.split(","))):
        known = {"all": ALL_FEATURES, "default": DEFAULT_FEATURES}.get(name)
        names.update(dict.fromkeys(known.names() if known is not None else (name,)))
    try:
        return Features.from_names(names)
    except UnknownFeature as error:
        raise Unreadable(str(error)) from None


def _objects(value: dict[str, Any], member: str, type_: type[T], place: str) -> tuple[T, ...]:
    found = value.get(member)
    if found is None:
        return ()
    if not isinstance(found, list):
        raise Unreadable(f"{place}: {member}: expected a list of objects")
    return tuple(_object(item, type_, f"{place}: {member}[{index}]") for index, item in enumerate(found))


def _object(value: Any, type_: type[T], place: str) -> T:
    if not isinstance(value, dict):
        raise Unreadable(f"{place}: expected a {type_.__name__} object")
    try:
        return decode(to_hub(value) if "apiVersion" in value and "kind" in value else value, type_).object
    except (DecodeError, ConversionError, UnknownKind) as error:
        raise Unreadable(f"{place}: {error}") from None
