"""MutatingAdmissionPolicies: their changes to an object.

A mutation is an expression. It makes either an `Object`, which is merged into the object as server-side apply merges, without an
owner of its fields, or a list of `JSONPatch`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.cel.checking.types import list_of
from allot.core.cel.data.text import seconds_text
from allot.core.cel.data.times import timestamp_text
from allot.core.cel.data.values import Duration, Message, Timestamp, decoded_key, is_list, is_map, type_name
from allot.core.json_objects import mapping
from allot.core.model.decoding import DEPTH_MAX
from allot.core.patching.errors import PatchError
from allot.core.patching.json_patch import TestFailed, json_patch
from allot.core.patching.typed import atomic_paths, merged, type_problem
from allot.core.policies.conditions import Conditions, EvaluationFailed, Expression, objects
from allot.core.policies.environment import APPLIED, PATCH
from allot.core.quoting import quoted
from allot.core.schema import Schema

Object = dict[str, Any]

JSON_PATCH = "JSONPatch"
# What one mutation may make. Lists of an expression may have the same list in them many times over.
_PARTS_MAX = 300_000
_TEXT_LENGTH_MAX = 3 * 1024 * 1024
# The largest whole number that JSON can carry as a number everywhere.
_SAFE_INTEGER_MAX = 2**53 - 1


class Mutation(msgspec.Struct, frozen=True):
    """One of a policy's mutations."""

    patch_type: str
    expression: Expression


class MutatingPolicy(Conditions):
    """A policy ready to be applied."""

    def __init__(self, policy: Mapping[str, Any]) -> None:
        super().__init__(policy)
        self.is_reinvoked = self.spec.get("reinvocationPolicy") == "IfNeeded"
        self.mutations = tuple(self._mutation(one) for one in objects(self.spec.get("mutations")))

    def _mutation(self, one: Mapping[str, Any]) -> Mutation:
        type_ = str(one.get("patchType") or "")
        used, made = ("jsonPatch", list_of(PATCH)) if type_ == JSON_PATCH else ("applyConfiguration", APPLIED)
        return Mutation(type_, self.compiled(mapping(one.get(used)).get("expression"), (made,), patches=True))

    def mutated(self, mutation: Mutation, bindings: Mapping[str, Any], schema: Schema) -> Object:
        """The object of the bindings after a mutation; EvaluationFailed with upstream's text if that cannot be."""
        object_: Object = bindings["object"]
        made = self.asking(bindings).value(mutation.expression)
        if mutation.patch_type == JSON_PATCH:
            return _patched(object_, made)
        return _applied(object_, made, schema)


def _applied(object_: Object, made: Message, schema: Schema) -> Object:
    # First: what it has let pass is small enough to be walked.
    configuration = _Conversion().value(made)
    _check_names(made)
    configuration |= {name: object_[name] for name in ("apiVersion", "kind") if name in object_}
    problem = type_problem(configuration, schema)
    if problem:
        raise EvaluationFailed(f"error applying patch: failed to convert patch object to typed object: {problem}")
    atomic = atomic_paths(configuration, schema)
    if atomic:
        told = f"may not mutate atomic arrays, maps or structs: {', '.join(atomic)}"
        raise EvaluationFailed(f"error applying patch: invalid ApplyConfiguration: {told}")
    after: Object = merged(object_, configuration, schema)
    return after


def _patched(object_: Object, made: Sequence[Message]) -> Object:
    conversion = _Conversion(for_patch=True)
    operations = []
    for one in made:
        operation = {"op": one.fields.get("op", ""), "path": one.fields.get("path", "")}
        if one.fields.get("from"):
            operation["from"] = one.fields["from"]
        if "value" in one.fields:
            value = one.fields["value"]
            operation["value"] = conversion.value(value)
            if isinstance(value, Message):
                _check_names(value)
        operations.append(operation)
    try:
        return json_patch(object_, operations)
    except TestFailed:
        return object_
    except PatchError as error:
        raise EvaluationFailed(f"JSON Patch: {error.cause}") from error


def _check_names(made: Message) -> None:
    """The name of an object's type says where it is, and has to be right."""
    problems = list(_wrong_names(made, made.name))
    if problems:
        raise EvaluationFailed("type mismatch: " + "\n".join(problems))


def _wrong_names(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, Message):
        if value.name != path:
            told = f"expected {quoted(path)}, which matches field name path from root Object type"
            yield f"unexpected type name {quoted(value.name)}, {told}"
        for name, field in value.fields.items():
            yield from _wrong_names(field, f"{path}.{name}")
    elif is_list(value):
        for element in value:
            yield from _wrong_names(element, path)
    elif is_map(value):
        for element in value.values():
            yield from _wrong_names(element, path)


class _Conversion:
    """Values of an expression as JSON, within bounds."""

    def __init__(self, *, for_patch: bool = False) -> None:
        self._for_patch = for_patch
        self._parts_left = _PARTS_MAX
        self._text_left = _TEXT_LENGTH_MAX

    def value(self, value: Any, depth: int = 0) -> Any:
        """A value with all that is in it."""
        self._parts_left -= 1
        if self._parts_left < 0:
            raise EvaluationFailed(f"the expression makes more than {_PARTS_MAX} values")
        if depth > DEPTH_MAX:
            raise EvaluationFailed(f"the expression nests values more than {DEPTH_MAX} levels deep")
        if isinstance(value, Message):
            return {name: self.value(field, depth + 1) for name, field in value.fields.items()}
        if is_list(value):
            return [self.value(element, depth + 1) for element in value]
        if is_map(value):
            return {self._key(key): self.value(element, depth + 1) for key, element in value.items()}
        return self._scalar(value)

    def _key(self, encoded: Any) -> str:
        key = decoded_key(encoded)
        if not isinstance(key, str):
            raise EvaluationFailed(f"map key {key} is of type {type_name(key)}, not string")
        return self._text(key)

    def _scalar(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            # Upstream makes patches by way of doubles.
            number = int(value)
            return str(number) if self._for_patch and abs(number) > _SAFE_INTEGER_MAX else number
        if isinstance(value, bytes):
            return self._text(base64.b64encode(value).decode())
        if isinstance(value, Timestamp):
            return timestamp_text(value)
        if isinstance(value, Duration):
            return seconds_text(value)
        raise EvaluationFailed(f"a value of type {type_name(value)} cannot be part of an object")

    def _text(self, text: str) -> str:
        self._text_left -= len(text)
        if self._text_left < 0:
            raise EvaluationFailed(f"the expression makes more than {_TEXT_LENGTH_MAX} characters")
        return text
