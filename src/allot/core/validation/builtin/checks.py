"""Checks that many kinds share: names, numbers, addresses, selectors, amounts, with Kubernetes' messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from allot.core.model.meta import Condition
from allot.core.quantity import Quantity, QuantityError
from allot.core.validation import formats
from allot.core.validation.builtin.values import Object, items, members, number, same, text, texts
from allot.core.validation.fields import (
    DUPLICATE,
    FieldError,
    Finding,
    Findings,
    byte_length,
    child,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    render,
    required,
)
from allot.core.validation.formats import Messages
from allot.core.validation.object_meta import IMMUTABLE_TEXT, NEGATIVE_TEXT, check_conditions, check_labels

__all__ = ["IMMUTABLE_TEXT", "NEGATIVE_TEXT", "check_labels"]

PROTOCOLS = ("SCTP", "TCP", "UDP")

_config_key = re.compile(r"[-._a-zA-Z0-9]+").fullmatch
_port_characters = re.compile(r"[-a-z0-9]+").fullmatch
_letter = re.compile(r"[a-z]").search
_percent = re.compile(r"[0-9]+%").fullmatch
_header = re.compile(r"[-A-Za-z0-9]+").fullmatch


# --- formats ---


def config_key(value: str) -> Messages:
    """A key of a config map or secret."""
    messages = ["must be no more than 253 characters"] if byte_length(value) > 253 else []
    if not _config_key(value):
        messages.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or "
            "'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
        )
    if value in (".", ".."):
        messages.append(f"must not be '{value}'")
    elif value.startswith(".."):
        messages.append("must not start with '..'")
    return messages


def env_name(value: str) -> Messages:
    """The name of an environment variable: printable ASCII without `=`."""
    if not value:
        return ["environment variable name must be non-empty"]
    if any(not " " <= character <= "~" or character == "=" for character in value):
        return ["a valid environment variable name must consist only of printable ASCII characters other than '='"]
    return []


def port_number(value: int) -> Messages:
    """A port that something can listen on."""
    return [] if 1 <= value <= 65535 else ["must be between 1 and 65535, inclusive"]


def port_name(value: str) -> Messages:
    """The name of a port."""
    messages = ["must be no more than 15 characters"] if byte_length(value) > 15 else []
    if not _port_characters(value):
        messages.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _letter(value):
        messages.append("must contain at least one letter (a-z)")
    if "--" in value:
        messages.append("must not contain consecutive hyphens")
    if value.startswith("-") or value.endswith("-"):
        messages.append("must not begin or end with a hyphen")
    return messages


def header_name(value: str) -> Messages:
    """The name of an HTTP header."""
    if _header(value):
        return []
    return [
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for "
        "validation is '[-A-Za-z0-9]+')"
    ]


# --- findings ---


def told(path: str, value: Any, messages: Iterable[str]) -> Findings:
    """A finding for each message about a value."""
    return [invalid(path, value, message) for message in messages]


def named(value: str, path: str, format_: Callable[[str], Messages]) -> Findings:
    """A required text with the right format."""
    return told(path, value, format_(value)) if value else [required(path)]


def one_of(object_: Object, name: str, supported: Iterable[str], path: str, *, needed: bool = False) -> Findings:
    """A field that, if set, must be one of a few texts."""
    value, where = object_.get(name), child(path, name)
    if value is None or value == "":
        return [required(where)] if needed else []
    return [] if value in supported else [not_supported(where, str(value), supported)]


def not_negative(object_: Object, path: str, *names: str) -> Findings:
    """Numbers that, if set, must be 0 or more."""
    found: Findings = []
    for name in names:
        value = number(object_, name)
        if value is not None and value < 0:
            found.append(invalid(child(path, name), value, NEGATIVE_TEXT))
    return found


def immutable(new: Any, old: Any, path: str) -> Findings:
    """An immutable value."""
    return [] if same(new, old) else [invalid(path, new, IMMUTABLE_TEXT)]


def frozen(new: Any, old: Any, path: str) -> Findings:
    """A value that is immutable by a declarative rule, which does not print it."""
    return [] if same(new, old) else [invalid(path, None, IMMUTABLE_TEXT)]


def duplicate_of(path: str, shown: Any, detail: str = "") -> Finding:
    """A duplicate with an explanation."""
    message = f"Duplicate value: {render(shown)}" + (f": {detail}" if detail else "")
    return Finding(FieldError(path, DUPLICATE, message))


def port_number_or_name(value: Any, path: str) -> Findings:
    """A port number or port name."""
    if isinstance(value, int) and not isinstance(value, bool):
        return told(path, value, port_number(value))
    if isinstance(value, str):
        return told(path, value, port_name(value))
    return told(path, 0, port_number(0))


def is_percent(value: Any) -> bool:
    """Whether it is a percentage such as 25%."""
    return isinstance(value, str) and _percent(value) is not None


def int_or_percent(value: Any, path: str) -> Findings:
    """A non-negative number, or a percentage."""
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int):
        return [invalid(path, value, NEGATIVE_TEXT)] if value < 0 else []
    if is_percent(value):
        return []
    detail = (
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used "
        "for validation is '[0-9]+%')"
    )
    return [invalid(path, value, detail)]


def at_most_all(value: Any, path: str) -> Findings:
    """A percentage of at most 100%."""
    if is_percent(value) and (len(value) > 9 or int(value[:-1]) > 100):
        return [invalid(path, value, "must not be greater than 100%")]
    return []


def quantity(amount: Any) -> Quantity | None:
    """An amount; None if invalid."""
    if isinstance(amount, bool) or not isinstance(amount, str | int | float):
        return None
    try:
        return Quantity.parse(str(amount))
    except QuantityError:
        return None


def amounts(value: Any) -> dict[str, Quantity]:
    """The amounts in a resource list."""
    found = {}
    for name, amount in (value if isinstance(value, dict) else {}).items():
        parsed = quantity(amount)
        if parsed is not None:
            found[name] = parsed
    return found


def json_conditions(conditions: Any, path: str) -> Findings:
    """A list of conditions, unique by type."""
    read = [
        Condition(
            type=text(each, "type"),
            status=text(each, "status"),
            observed_generation=number(each, "observedGeneration") or 0,
            last_transition_time=text(each, "lastTransitionTime") or None,
            reason=text(each, "reason"),
            message=text(each, "message"),
        )
        for each in items(conditions)
    ]
    return check_conditions(read, path)


def label_selector(selector: Any, path: str) -> Findings:
    """A label selector."""
    found = []
    pairs = {name: value for name, value in members(selector, "matchLabels").items() if isinstance(value, str)}
    for name, value in pairs.items():
        found += told(child(path, "matchLabels"), name, formats.label_key(name))
        found += told(key(child(path, "matchLabels"), name), value, formats.label_value(value))
    for position, requirement in enumerate(items(selector, "matchExpressions")):
        found += _requirement(requirement, index(child(path, "matchExpressions"), position))
    return found


def _requirement(requirement: Object, path: str) -> Findings:
    operator, values = text(requirement, "operator"), texts(requirement, "values")
    found: Findings = []
    if operator in ("In", "NotIn"):
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            found.append(required(child(path, "values"), detail))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(forbidden(child(path, "values"), detail))
    else:
        found.append(invalid(child(path, "operator"), operator, "not a valid selector operator"))
    found += told(child(path, "key"), text(requirement, "key"), formats.label_key(text(requirement, "key")))
    for position, value in enumerate(values):
        found += told(index(child(path, "values"), position), value, formats.label_value(value))
    return found


def selector_matches(selector: Any, labels: dict[str, Any]) -> bool:
    """Whether a selector, which may be invalid, matches labels."""
    if any(labels.get(name) != value for name, value in members(selector, "matchLabels").items()):
        return False
    for requirement in items(selector, "matchExpressions"):
        value, values = labels.get(text(requirement, "key")), texts(requirement, "values")
        holds = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds.get(text(requirement, "operator"), False):
            return False
    return True


def is_empty_selector(selector: Any) -> bool:
    """Whether a selector matches everything."""
    return not members(selector, "matchLabels") and not items(selector, "matchExpressions")
