"""Field errors: what is wrong with which field, in the Kubernetes API's wording.

Knows field paths, the error types of `Status.details.causes` and how Go prints the offending value. Does not know any
kind or rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from allot.core.quantity import Quantity
from allot.core.quoting import html_escaped, quoted

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
FORBIDDEN = "FieldValueForbidden"
TOO_MANY = "FieldValueTooMany"
TOO_LONG = "FieldValueTooLong"
DUPLICATE = "FieldValueDuplicate"
NOT_SUPPORTED = "FieldValueNotSupported"
NOT_FOUND = "FieldValueNotFound"
INTERNAL = "InternalError"


class FieldError(msgspec.Struct, frozen=True):
    """One cause in a Status of reason Invalid."""

    field: str
    type: str
    # What follows the field path in the Status message, e.g. `Invalid value: "x": must not contain dots`.
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Finding(msgspec.Struct, frozen=True):
    """A field error with the data needed to merge the two validators (see `outcome`)."""

    error: FieldError
    # The rule, in upstream's terms, e.g. "format=k8s-long-name"; empty where upstream has none.
    origin: str = ""
    # Handwritten findings: a declarative rule checks the same thing.
    covered: bool = False
    # Declarative findings: only enforced while the gate DeclarativeValidationBeta is on.
    beta: bool = False


Findings = list[Finding]


# --- paths ---


def child(path: str, *names: str) -> str:
    """The path of a field; a leading empty path is the object itself."""
    return ".".join((path, *names)) if path else ".".join(names)


def index(path: str, position: int) -> str:
    """The path of a list item."""
    return f"{path}[{position}]"


def key(path: str, name: str) -> str:
    """The path of a map entry."""
    return f"{path}[{name}]"


# --- how Go prints values ---

# Longer than the longest valid expression in quotes. Upstream prints everything, but an object with errors in a
# hundred thousand places must not produce gigabytes of output.
VALUE_TEXT_LENGTH_MAX = 32 * 1024


class GoValue(msgspec.Struct, frozen=True):
    """A value that is already in printed form, e.g. a Go struct rendered as JSON."""

    text: str


def quote(text: str) -> str:
    """The text as Go's %q prints it."""
    return quoted(text)


def go_json(value: Any) -> str:
    """The value as Go's encoding/json prints it: compact, with the HTML characters escaped."""
    return html_escaped(msgspec.json.encode(_encodable(value))).decode()


def _encodable(value: Any) -> Any:
    """The value without what JSON cannot carry: quantities become text, lone surrogates are replaced."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode() if not value.isascii() else value
        case Quantity():
            return str(value)
        case dict():
            return {_encodable(name): _encodable(item) for name, item in value.items()}
        case list() | tuple():
            return [_encodable(item) for item in value]
        case _:
            return value


def render(value: Any) -> str:
    """A bad value as it appears in an error message; long ones are truncated."""
    text = _rendered(value)
    return text if len(text) <= VALUE_TEXT_LENGTH_MAX else text[:VALUE_TEXT_LENGTH_MAX] + "..."


def _rendered(value: Any) -> str:
    match value:
        case GoValue():
            return value.text
        case str():
            return quote(value)
        case Quantity():
            return quote(str(value))
        case _:
            return go_json(value)


# --- constructors ---


def required(path: str, detail: str = "", *, origin: str = "", covered: bool = False, beta: bool = False) -> Finding:
    """A value is missing."""
    message = f"Required value: {detail}" if detail else "Required value"
    return Finding(FieldError(path, REQUIRED, message), origin, covered, beta)


def invalid(
    path: str, value: Any, detail: str, *, origin: str = "", covered: bool = False, beta: bool = False
) -> Finding:
    """A value breaks a rule."""
    return Finding(FieldError(path, INVALID, f"Invalid value: {render(value)}: {detail}"), origin, covered, beta)


def invalid_whole(path: str, detail: str) -> Finding:
    """A value breaks a rule; the message does not repeat the value."""
    return Finding(FieldError(path, INVALID, f"Invalid value: {detail}"))


def forbidden(path: str, detail: str = "", *, origin: str = "", covered: bool = False, beta: bool = False) -> Finding:
    """A value must not be there (now, or for this caller)."""
    message = f"Forbidden: {detail}" if detail else "Forbidden"
    return Finding(FieldError(path, FORBIDDEN, message), origin, covered, beta)


def too_many(path: str, count: int, maximum: int, *, covered: bool = False, beta: bool = False) -> Finding:
    """A list or map has too many entries."""
    detail = f"must have at most {maximum} item{'' if maximum == 1 else 's'}"
    return Finding(FieldError(path, TOO_MANY, f"Too many: {count}: {detail}"), "maxItems", covered, beta)


def too_long(
    path: str, maximum: int, *, unit: str = "bytes", origin: str = "", covered: bool = False, beta: bool = False
) -> Finding:
    """A text is too long; `unit` is bytes or characters."""
    return Finding(
        FieldError(path, TOO_LONG, f"Too long: may not be more than {maximum} {unit}"), origin, covered, beta
    )


def duplicate(path: str, value: Any, *, covered: bool = False, beta: bool = False) -> Finding:
    """A list item, or its key, occurs twice."""
    return Finding(FieldError(path, DUPLICATE, f"Duplicate value: {render(value)}"), "", covered, beta)


def not_supported(
    path: str, value: Any, supported: Iterable[str], *, covered: bool = False, beta: bool = False
) -> Finding:
    """A value is not one of a fixed set; the supported ones are listed in order."""
    listed = ", ".join(quote(name) for name in sorted(supported))
    # Upstream's enumerations are named string types, which Go prints as JSON instead of with %q.
    message = f"Unsupported value: {go_json(value)}: supported values: {listed}"
    return Finding(FieldError(path, NOT_SUPPORTED, message), "", covered, beta)


def not_found(path: str, value: Any, detail: str = "") -> Finding:
    """A value refers to something that does not exist."""
    message = f"Not found: {render(value)}" + (f": {detail}" if detail else "")
    return Finding(FieldError(path, NOT_FOUND, message))


def byte_length(text: str) -> int:
    """Length as Kubernetes counts it: UTF-8 bytes, whatever the text holds."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
