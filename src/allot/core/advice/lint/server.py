"""What the API server would say: kinds and versions it does not serve, fields it does not know, values it refuses.

The server's own words are kept; what is added is where it is, and what was perhaps meant.
"""

from __future__ import annotations

import re
from typing import Any

from allot.core.advice.convert.objects import at
from allot.core.advice.lint.context import Context
from allot.core.advice.lint.finding import Edit, Fix, Severity
from allot.core.advice.lint.old_forms import OldForms
from allot.core.advice.lint.source import Subject
from allot.core.advice.lint.unserved import CONVERT, check_unserved
from allot.core.advice.nearest import did_you_mean, nearest
from allot.core.advice.places import Path
from allot.core.model.kinds import deprecation_of
from allot.core.schema import Schema, check_fields, prune
from allot.core.validation.fields import FORBIDDEN, INVALID, NOT_FOUND, REQUIRED, FieldError

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_WRONG_TYPE = re.compile(r"cannot unmarshal (\w+) into Go struct field \w+\.(\S+) of type (\S+)")
_GO_TYPES = {"bool": "bool", "number": "int", "string": "str", "object": "dict", "array": "list"}
_PLAIN_SCALAR = re.compile(r"[A-Za-z0-9.+-]+")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


def check(context: Context, forms: OldForms) -> None:
    """Every object."""
    for subject in context.subjects:
        before = len(context.findings)
        _check_object(context, forms, subject)
        if any(finding.severity is Severity.ERROR for finding in context.findings[before:]):
            context.refused.add(id(subject))


def _check_object(context: Context, forms: OldForms, subject: Subject) -> None:
    served = context.server.kinds()
    if (subject.group, subject.version, subject.kind) not in served:
        check_unserved(context, forms, subject, served)
        return
    warning = deprecation_of(subject.api_version, subject.kind)
    if warning is not None:
        context.report(subject, "old-api-version", ("apiVersion",), warning, CONVERT)
    schema = context.server.schema(subject.group, subject.version, subject.kind)
    value = subject.value
    unknown: tuple[str, ...] = ()
    if schema is not None:
        report = check_fields(subject.value, schema)
        unknown = report.unknown
        for field in unknown:
            _report_unknown_field(context, forms, subject, schema, field)
        for text in report.wrong:
            _report_wrong_type(context, subject, text)
        if report.wrong:
            return
        value = prune(subject.value, schema)
    _check_values(context, subject, value, tuple(resolved(subject.value, field)[:-1] for field in unknown))


# --- unknown fields ---


def _report_unknown_field(context: Context, forms: OldForms, subject: Subject, schema: Schema, field: str) -> None:
    path = resolved(subject.value, field)
    name = str(path[-1]) if path else field
    parent = _schema_at(schema, path[:-1])
    known = tuple(parent.properties) if parent is not None else ()
    meant = next((each for each in known if each.lower() == name.lower()), None) or nearest(name, known)
    context.report(
        subject,
        "unknown-field",
        path,
        f'unknown field "{field}"',
        _unknown_field_fix(forms, subject, path, name, meant),
    )


def _unknown_field_fix(forms: OldForms, subject: Subject, path: Path, name: str, meant: str | None) -> Fix | None:
    advice = forms.advice(subject, path)
    if advice:
        return Fix(advice)
    if meant is None:
        return None
    place = subject.exact_place(path)
    parent = subject.at(path[:-1])
    # Only the case differs, so it is clear what was meant.
    if meant.lower() == name.lower() and place is not None and place.key is not None and meant not in (parent or ()):
        return Fix(f'write "{meant}"', (Edit(*place.key, meant),))
    return Fix(f'did you mean "{meant}"?')


def _schema_at(schema: Schema, path: Path) -> Schema | None:
    node: Schema | None = schema
    for part in path:
        if node is None:
            return None
        node = node.items if isinstance(part, int) else node.properties.get(part, node.additional)
    return node


# --- values ---


def _report_wrong_type(context: Context, subject: Subject, text: str) -> None:
    match = _WRONG_TYPE.search(text)
    if match is None:
        context.report(subject, "invalid-value", (), text)
        return
    given, field, wanted = match.groups()
    paths = [path for path, value in _all_at(subject.value, field) if _GO_TYPES.get(given) == type(value).__name__]
    for path in paths or [()]:
        fix = _quoting(subject, path) if wanted == "string" and given in ("bool", "number") else None
        context.report(subject, "invalid-value", path, f"{_a(given)} where {_a(wanted)} is expected: {text}", fix)


def _a(type_: str) -> str:
    return f"{'an' if type_[:1] in 'aeio' else 'a'} {type_}"


def _all_at(value: Any, field: str) -> list[tuple[Path, Any]]:
    """Everything that a path without indices, as Go's decoder writes it, may mean."""
    found: list[tuple[Path, Any]] = [((), value)]
    for name in field.split("."):
        inside = [each for path, value in found for each in _members(path, value)]
        found = [((*path, name), value[name]) for path, value in inside if isinstance(value, dict) and name in value]
    inside = [each for path, value in found for each in _members(path, value)]
    # Of the values of a map it names only the map.
    return inside + [
        ((*path, key), each) for path, value in inside if isinstance(value, dict) for key, each in value.items()
    ]


def _members(path: Path, value: Any) -> list[tuple[Path, Any]]:
    return [((*path, index), each) for index, each in enumerate(value)] if isinstance(value, list) else [(path, value)]


def _quoting(subject: Subject, path: Path) -> Fix | None:
    """A word or number that YAML does not take for text."""
    place = subject.exact_place(path)
    raw = subject.source.text[slice(*place.value)] if place is not None else ""
    if place is None or _PLAIN_SCALAR.fullmatch(raw) is None:
        return None
    return Fix(f'{raw} is no text to YAML: write "{raw}"', (Edit(*place.value, f'"{raw}"'),))


def _check_values(context: Context, subject: Subject, value: dict[str, Any], spoilt: tuple[Path, ...]) -> None:
    if "status" in value and "spec" not in value and subject.group in ("resource.k8s.io", "scheduling.k8s.io", ""):
        # A status alone is written to an object that is there; nothing new is made.
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
    """Whether the error is there because an unknown field beside it does not count."""
    missing = error.type in (REQUIRED, INVALID)
    return missing and any(
        path == parent or (error.type == REQUIRED and path[: len(parent)] == parent) for parent in spoilt
    )


def _report_value(context: Context, subject: Subject, path: Path, error: FieldError) -> None:
    message = f"{error.field}: {error.message}" if error.field else error.message
    if path[-1:] == ("expression",) and error.type == FORBIDDEN:
        context.report(subject, "cel-cost", path, message, "make it shorter, or ask for fewer things in one selector")
    elif path[-1:] == ("expression",) and "compilation failed" in error.message:
        # `selectors` reports these, with what would be right.
        return
    else:
        context.report(subject, "invalid-value", path, message, _meant(subject, path, error))


def _meant(subject: Subject, path: Path, error: FieldError) -> str:
    if error.type == NOT_FOUND and "claims" in path:
        claims = subject.at((*path[: path.index("containers")], "resourceClaims")) if "containers" in path else None
        given = _QUOTED.search(error.message)
        names = [each["name"] for each in claims or () if isinstance(each, dict) and isinstance(each.get("name"), str)]
        return did_you_mean(given[1], names) if given else ""
    return ""


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
            step = int(index) if index.isdigit() else index
        elif isinstance(value, dict) and step not in value:
            if step == "exactly":
                continue
            if isinstance(value.get("basic"), dict) and step in value["basic"]:
                path.append("basic")
                value = value["basic"]
        path.append(step)
        value = at(value, (step,))
    return tuple(path)
