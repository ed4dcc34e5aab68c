"""What the API server would refuse: kinds and versions it does not serve, unknown fields, invalid values.

Keeps the server's words and adds the place and a suggestion.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from allot.core.advice.convert.objects import at
from allot.core.advice.lint.claims import PodSpec, mappings
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.custom_pods import as_pod, at_its_place, claiming_pod
from allot.core.advice.lint.finding import Edit, Finding, Fix, Severity
from allot.core.advice.lint.old_forms import OldForms
from allot.core.advice.lint.shapes import (
    belongs,
    check_shapes,
    is_level_too_many,
    moved_into,
    owner_above,
    unwrapped,
)
from allot.core.advice.lint.source import Subject, path_text
from allot.core.advice.lint.unserved import CONVERT, check_unserved
from allot.core.advice.nearest import did_you_mean, nearest
from allot.core.advice.places import Path
from allot.core.advice.pod_templates import CONTAINERS
from allot.core.model.kinds import deprecation_of
from allot.core.schema import Schema, check_fields, prune
from allot.core.validation.fields import FORBIDDEN, INVALID, NOT_FOUND, REQUIRED, FieldError

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
# `shapes` says more about these.
_OF_A_FIELD = "into Go struct field "
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def check(context: Context, forms: OldForms) -> None:
    """Every object."""
    served = context.server.kinds()
    known = frozenset(served)
    for subject in context.subjects:
        before = len(context.findings)
        if (subject.group, subject.version, subject.kind) in known:
            _check_object(context, forms, subject)
        else:
            check_unserved(context, forms, subject, served)
        if any(finding.severity is Severity.ERROR for finding in context.findings[before:]):
            context.refused.add(id(subject))
    for spec in context.pods:
        subject = spec.subject
        if (subject.group, subject.version, subject.kind) not in known:
            _check_custom_pod(context, forms, spec)


def _check_object(context: Context, forms: OldForms, subject: Subject) -> None:
    warning = deprecation_of(subject.api_version, subject.kind)
    if warning is not None:
        context.report(subject, "old-api-version", ("apiVersion",), warning, CONVERT)
    schema = context.server.schema(subject.group, subject.version, subject.kind)
    if schema is None:
        _check_values(context, subject, subject.value, ())
    else:
        value, spoilt = _checked(context, forms, subject, schema)
        if value is not None:
            _check_values(context, subject, value, spoilt)


def _checked(
    context: Context, forms: OldForms, subject: Subject, schema: Schema
) -> tuple[dict[str, Any] | None, tuple[Path, ...]]:
    """The object with its known fields, and the places of unknown ones; None if a value does not have the shape of its field."""
    report = check_fields(subject.value, schema)
    for field in report.unknown:
        _report_unknown_field(context, forms, subject, schema, field)
    if report.wrong:
        check_shapes(context, subject, schema)
        for text in report.wrong:
            if _OF_A_FIELD not in text:
                context.report(subject, "invalid-value", (), text)
        return None, ()
    return prune(subject.value, schema), tuple(resolved(subject.value, field)[:-1] for field in report.unknown)


def _check_custom_pod(context: Context, forms: OldForms, spec: PodSpec) -> None:
    subject, schema = claiming_pod(spec), context.server.schema("", "v1", "Pod")
    if subject is None or schema is None:
        return
    before = len(context.findings)
    value, spoilt = _checked(context, forms, subject, schema)
    if value is not None:
        _check_values(context, subject, as_pod(value), spoilt)
    context.findings[before:] = [
        _in_its_object(found, path_text(at_its_place(subject, spec, resolved(subject.value, found.field))))
        for found in context.findings[before:]
    ]


def _in_its_object(found: Finding, field: str) -> Finding:
    message = found.message.replace(found.field, field) if found.field else found.message
    return msgspec.structs.replace(found, severity=Severity.WARNING, field=field, message=message)


# --- unknown fields ---


def _report_unknown_field(context: Context, forms: OldForms, subject: Subject, schema: Schema, field: str) -> None:
    path = resolved(subject.value, field)
    parent = _schema_at(schema, path[:-1])
    context.report(
        subject,
        "unknown-field",
        path,
        f'unknown field "{field}"',
        _unknown_field_fix(forms, subject, schema, parent, path),
    )


def _unknown_field_fix(
    forms: OldForms, subject: Subject, schema: Schema, parent: Schema | None, path: Path
) -> Fix | None:
    name = str(path[-1]) if path else ""
    known = tuple(parent.properties) if parent is not None else ()
    cased = next((each for each in known if each.lower() == name.lower()), None)
    if cased is not None:
        return _cased(subject, path, cased)
    if parent is not None and is_level_too_many(subject, path, parent):
        return Fix(f"{name} is nested in itself: remove one of the two levels", unwrapped(subject, path))
    inside = belongs(parent, path) if parent is not None else None
    if inside is not None and parent is not None:
        return _moved(subject, parent, path, inside)
    advice = forms.advice(subject, path)
    if advice:
        return Fix(advice)
    above = owner_above(schema, path)
    if above is not None:
        return Fix(f"{name} is a field of {path_text(above)}: move it there")
    meant = nearest(name, known)
    return Fix(f'did you mean "{meant}"?') if meant is not None else None


def _cased(subject: Subject, path: Path, meant: str) -> Fix:
    """The only field that differs just in case."""
    place = subject.exact_place(path)
    is_free = place is not None and place.key is not None and meant not in (subject.at(path[:-1]) or ())
    return Fix(f'write "{meant}"', (Edit(*place.key, meant),) if is_free and place and place.key else ())


def _moved(subject: Subject, parent: Schema, path: Path, inside: Path) -> Fix:
    """A field that belongs further down: reported for each, fixed at once for all that move to the same place."""
    above, wrapper = path[:-1], str(inside[0])
    beside = [str(name) for name in subject.at(above) or ()]
    together = [
        name
        for name in beside
        if name not in parent.properties and belongs(parent, (*above, name)) == (*inside[:-1], name)
    ]
    if subject.kind == "ResourceClaimTemplate" and inside == ("spec", "devices"):
        text = "a template has the spec of its claims in spec.spec: move it to spec.spec.devices"
    else:
        text = f"move it to {path_text((*above, *inside))}"
    edits = moved_into(subject, above, together, wrapper) if len(inside) == 2 and together[:1] == [path[-1]] else ()
    return Fix(text, edits)


def _schema_at(schema: Schema, path: Path) -> Schema | None:
    node: Schema | None = schema
    for part in path:
        if node is None:
            return None
        node = node.items if isinstance(part, int) else node.properties.get(part, node.additional)
    return node


# --- values ---


def _check_values(context: Context, subject: Subject, value: dict[str, Any], spoilt: tuple[Path, ...]) -> None:
    if "status" in value and "spec" not in value and subject.group in ("resource.k8s.io", "scheduling.k8s.io", ""):
        # A status alone updates an existing object and creates none.
        return
    answer = context.server.ask(value)
    for warning in answer.warnings:
        if deprecation_of(subject.api_version, subject.kind) != warning:
            context.report(subject, "server-warning", (), warning)
    for error in answer.errors:
        path = resolved(subject.value, error.field)
        if not _follows_from(path, error, spoilt):
            _report_value(context, subject, path, error)


def _follows_from(path: Path, error: FieldError, spoilt: tuple[Path, ...]) -> bool:
    """Whether the error is a consequence of an unknown field beside it."""
    missing = error.type in (REQUIRED, INVALID)
    return missing and any(
        path == parent or (error.type == REQUIRED and path[: len(parent)] == parent) for parent in spoilt
    )


def _report_value(context: Context, subject: Subject, path: Path, error: FieldError) -> None:
    message = f"{error.field}: {error.message}" if error.field else error.message
    if path[-1:] == ("expression",) and error.type == FORBIDDEN:
        context.report(subject, "cel-cost", path, message, "make it shorter, or split it into several selectors")
    elif path[-1:] == ("expression",) and "compilation failed" in error.message:
        # `selectors` reports these, with a suggestion.
        return
    else:
        context.report(subject, "invalid-value", path, message, _meant(subject, path, error))


def _meant(subject: Subject, path: Path, error: FieldError) -> str:
    given = _QUOTED.search(error.message)
    if given is None:
        return ""
    if error.type == NOT_FOUND and "claims" in path:
        lists = [name for name in CONTAINERS if name in path]
        claims = subject.at((*path[: path.index(lists[0])], "resourceClaims")) if lists else None
        return did_you_mean(given[1], _names(claims))
    if path[-2:-1] == ("requests",) and path[-4:-3] in (("constraints",), ("config",)):
        requests = subject.at((*path[:-4], "requests"))
        names = _names(requests)
        for _, request in mappings(requests):
            names += [f"{request.get('name')}/{each}" for each in _names(request.get("firstAvailable"))]
        return did_you_mean(given[1], names)
    return ""


def _names(value: Any) -> list[str]:
    return [each["name"] for _, each in mappings(value) if isinstance(each.get("name"), str)]


# --- paths ---


def resolved(value: Any, field: str) -> Path:
    """The path of a field that a message names, in the object as it was written.

    Messages speak of the current version: `exactly` around what older versions had in the request itself, and devices without
    `basic` around what they had there.
    """
    path: list[str | int] = []
    for index, name in _STEP.findall(field):
        step: str | int = index or name
        if isinstance(value, list):
            step = int(index) if index.isdecimal() else index
        elif isinstance(value, dict) and step not in value:
            if step == "exactly":
                continue
            if isinstance(value.get("basic"), dict) and step in value["basic"]:
                path.append("basic")
                value = value["basic"]
        path.append(step)
        value = at(value, (step,))
    return tuple(path)
