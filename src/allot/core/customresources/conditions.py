"""Names and conditions of definitions: accepted names, whether the kind is served, and deletion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allot.core.customresources.definition import is_condition_true
from allot.core.validation.fields import quote

Object = Mapping[str, Any]

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
NAMES_ACCEPTED = "NamesAccepted"
ESTABLISHED = "Established"
TERMINATING = "Terminating"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _condition(type_: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def with_condition(definition: Object, condition: Mapping[str, Any], now: str) -> dict[str, Any]:
    """The definition with a condition set; the time of the last change stays if its status does."""
    status = dict(_mapping(definition.get("status")))
    present = [one for one in status.get("conditions") or [] if isinstance(one, dict)]
    before = next((one for one in present if one.get("type") == condition["type"]), None)
    changed = before is None or before.get("status") != condition["status"]
    since = now if changed or before is None else before.get("lastTransitionTime", now)
    new = {"lastTransitionTime": since, **condition}
    if before is None:
        conditions = [*present, new]
    else:
        conditions = [new if one is before else one for one in present]
    return {**definition, "status": {**status, "conditions": conditions}}


def with_accepted_names(definition: Object, others: Iterable[Object], now: str) -> dict[str, Any]:
    """The definition with the names that are free among the other definitions of its group, and what follows from that."""
    spec, status = _mapping(definition.get("spec")), _mapping(definition.get("status"))
    resources, kinds = _taken(others, spec.get("group"))
    wanted, accepted = _mapping(spec.get("names")), dict(_mapping(status.get("acceptedNames")))
    problem: tuple[str, str] | None = None
    for name, taken in (("plural", resources), ("singular", resources), ("kind", kinds), ("listKind", kinds)):
        asked = wanted.get(name)
        if asked != accepted.get(name) and asked in taken:
            problem = (f"{name[0].upper()}{name[1:]}Conflict", f"{quote(str(asked))} is already in use")
        else:
            accepted[name] = asked
    short, own = wanted.get("shortNames") or [], accepted.get("shortNames") or []
    conflicts = [f"{quote(str(one))} is already in use" for one in short if one not in own and one in resources]
    if conflicts:
        text = conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]"
        problem = problem or ("ShortNamesConflict", text)
    else:
        accepted["shortNames"] = short
    accepted["categories"] = wanted.get("categories") or []
    named = {name: value for name, value in accepted.items() if value}
    result = {**definition, "status": {**status, "acceptedNames": named}}
    if problem is not None:
        result = with_condition(result, _condition(NAMES_ACCEPTED, "False", *problem), now)
        if not is_condition_true(definition, ESTABLISHED):
            missing = _condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
            result = with_condition(result, missing, now)
        return result
    result = with_condition(result, _condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found"), now)
    established = ("InitialNamesAccepted", "the initial names have been accepted")
    return with_condition(result, _condition(ESTABLISHED, "True", *established), now)


def _taken(others: Iterable[Object], group: Any) -> tuple[set[str], set[str]]:
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        if _mapping(other.get("spec")).get("group") == group:
            names = _mapping(_mapping(other.get("status")).get("acceptedNames"))
            resources.update(str(names[name]) for name in ("plural", "singular") if names.get(name))
            resources.update(names.get("shortNames") or ())
            kinds.update(str(names[name]) for name in ("kind", "listKind") if names.get(name))
    return resources, kinds


def with_termination(definition: Object, now: str) -> dict[str, Any]:
    """A definition that was deleted: its objects go first."""
    meta = dict(_mapping(definition.get("metadata")))
    finalizers = list(meta.get("finalizers") or [])
    if CLEANUP_FINALIZER not in finalizers:
        meta["finalizers"] = [*finalizers, CLEANUP_FINALIZER]
    pending = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    condition = _condition(TERMINATING, "True", "InstanceDeletionPending", pending)
    return with_condition({**definition, "metadata": meta}, condition, now)


def without_cleanup(definition: Object) -> dict[str, Any]:
    """The definition when its objects are gone."""
    meta = dict(_mapping(definition.get("metadata")))
    meta["finalizers"] = [one for one in meta.get("finalizers") or [] if one != CLEANUP_FINALIZER]
    if not meta["finalizers"]:
        del meta["finalizers"]
    return {**definition, "metadata": meta}


def is_established(definition: Object) -> bool:
    """Whether the kind is served."""
    return is_condition_true(definition, ESTABLISHED)


def is_terminating(definition: Object) -> bool:
    """Whether the definition was deleted."""
    return bool(_mapping(definition.get("metadata")).get("deletionTimestamp"))
