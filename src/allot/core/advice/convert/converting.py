"""The entry point: runs every object of the input, including list items, through the conversions for its kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from allot.core.advice.convert.changes import Change, Notebook, Notes, Problem, Severity
from allot.core.advice.convert.claims import convert_claim
from allot.core.advice.convert.classes import convert_class
from allot.core.advice.convert.device_plugins import migrate
from allot.core.advice.convert.gangs import convert_gangs, convert_groups
from allot.core.advice.convert.misplaced import mend_quotes, move_names
from allot.core.advice.convert.objects import RESOURCE_GROUP, Object, members, text, without
from allot.core.advice.convert.pods import convert_pods, require_nodes
from allot.core.advice.convert.slices import convert_slice
from allot.core.advice.convert.surroundings import CLAIM_PARAMETERS, CLASS_PARAMETERS, Surroundings
from allot.core.advice.convert.taint_rules import convert_taint_rule
from allot.core.advice.pod_templates import pod_spec_paths

_GONE = frozenset(("PodSchedulingContext", "PodScheduling"))
_VENDOR_PARAMETERS = ("ClaimParameters", "ClassParameters")


class Options(msgspec.Struct, frozen=True):
    """Optional conversions of forms that still work."""

    # Extended resources of device plugins to claims.
    migrate: bool = False
    # Pod groups of other schedulers to scheduling.k8s.io.
    gangs: bool = False


class ConvertedDocument(msgspec.Struct, frozen=True):
    """A document of the result, and the index of its input document; none if it is new."""

    value: Any
    origin: int | None


class Converted(msgspec.Struct, frozen=True):
    """The result in input order, with changes and problems. New documents precede the documents that need them."""

    documents: tuple[ConvertedDocument, ...]
    changes: tuple[Change, ...]
    problems: tuple[Problem, ...]

    @property
    def errors(self) -> tuple[Problem, ...]:
        """Problems that leave no usable result."""
        return tuple(problem for problem in self.problems if problem.severity is Severity.ERROR)


def convert(documents: Sequence[Any], options: Options = Options()) -> Converted:  # noqa: B008 - immutable
    """Every document in its current form. Documents that are not objects stay unchanged."""
    notes = Notes()
    read = [_objects(value, index, notes) for index, value in enumerate(documents)]
    objects = [found for group in read for found in group]
    for found in objects:
        move_names(found)
        if _is_ours(found):
            mend_quotes(found)
    around = Surroundings(objects)
    for found in objects:
        _convert(found, around)
    for found in objects:
        if found.value is not None:
            convert_pods(found)
    require_nodes(around)
    convert_gangs(objects, wanted=options.gangs)
    if options.migrate:
        migrate(objects)
    for found in objects:
        _drop_folded(found, around)
    made = [part for index, value in enumerate(documents) for part in _assembled(value, index, read[index])]
    return Converted(tuple(made), tuple(_ordered(notes.changes)), tuple(_ordered(notes.problems)))


def _ordered(noted: list[Any]) -> list[Any]:
    """By document, then in the order of discovery."""
    return sorted(noted, key=lambda note: note.document)


# --- documents and their objects ---


def _objects(value: Any, document: int, notes: Notes) -> list[Object]:
    """The object of a document, or the items of its list."""
    if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
        return []
    if not _is_list(value):
        return [Object(value, Notebook(notes, document, ()))]
    kind = (
        {}
        if value["kind"] == "List"
        else {"apiVersion": value.get("apiVersion"), "kind": value["kind"].removesuffix("List")}
    )
    return [
        Object({**kind, **item}, Notebook(notes, document, ("items", index)))
        for index, item in enumerate(members(value.get("items")))
        if isinstance(item, dict)
    ]


def _is_list(value: dict[str, Any]) -> bool:
    return value["kind"].endswith("List") and isinstance(value.get("items"), list)


def _assembled(value: Any, index: int, objects: list[Object]) -> list[ConvertedDocument]:
    if not objects:
        return [ConvertedDocument(value, index)]
    if not _is_list(value):
        (found,) = objects
        new = [ConvertedDocument(needed, None) for needed in found.needs]
        return new if found.value is None else [*new, ConvertedDocument(found.value, index)]
    items = [item for found in objects for item in (*found.needs, found.value) if item is not None]
    if items == value["items"]:
        return [ConvertedDocument(value, index)]
    if not items:
        return []
    # A typed list determines the kind of its items; items of a plain list have their own.
    head = (
        {"apiVersion": "v1", "kind": "List"} if text(value.get("apiVersion")).startswith(f"{RESOURCE_GROUP}/") else {}
    )
    return [ConvertedDocument({**without(value, "listMeta"), **head, "items": items}, index)]


# --- one object ---


def _is_ours(found: Object) -> bool:
    return found.group == RESOURCE_GROUP or any(True for _ in pod_spec_paths(found.present))


def _convert(found: Object, around: Surroundings) -> None:
    if found.group != RESOURCE_GROUP:
        convert_groups(found)
        return
    match found.kind:
        case "ResourceClass" | "DeviceClass":
            convert_class(found, around)
        case "ResourceClaim" | "ResourceClaimTemplate":
            convert_claim(found, around)
        case "ResourceSlice":
            convert_slice(found)
        case "DeviceTaintRule":
            convert_taint_rule(found)
        case kind if kind in _GONE:
            why = "the scheduler no longer uses it to talk to drivers; it created and removed these objects itself"
            found.book.change((), kind, None, why, rule="removed-kind")
            found.value = None


def _drop_folded(found: Object, around: Surroundings) -> None:
    """Parameters, which are now part of claims and classes."""
    is_core = found.group == RESOURCE_GROUP and found.kind in (CLAIM_PARAMETERS, CLASS_PARAMETERS)
    if around.is_folded(found):
        why = "what it says is part of the claims and classes that referred to it"
        found.book.change((), str(found), None, why, rule="folded-parameters")
        found.value = None
    elif is_core or (found.kind.endswith(_VENDOR_PARAMETERS) and ".nvidia.com" in found.group):
        found.book.error(
            (),
            f"{found} is not referred to in the input, but parameters are part of claims now",
            rule="folded-parameters",
            hint="add the file with the claims or classes that refer to it",
        )
