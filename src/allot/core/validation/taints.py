"""Device taints and tolerations."""

from __future__ import annotations

from allot.core.model.resource_v1 import TOLERATION_EQUAL, TOLERATION_EXISTS, DeviceTaint, DeviceToleration
from allot.core.validation import formats
from allot.core.validation.fields import Findings, child, invalid, not_supported, required
from allot.core.validation.object_meta import check_label_key
from allot.core.validation.rules_resource import TAINT_EFFECTS, TOLERATION_OPERATORS


def check_taint(taint: DeviceTaint, path: str, old: DeviceTaint | None = None) -> Findings:
    """A taint; a stored effect remains valid."""
    found = check_label_key(taint.key, child(path, "key"))
    found += _check_label_value(taint.value, child(path, "value"))
    if old is not None and old.effect == taint.effect:
        return found
    if not taint.effect:
        found.append(required(child(path, "effect"), covered=True))
    elif taint.effect not in TAINT_EFFECTS:
        found.append(not_supported(child(path, "effect"), taint.effect, TAINT_EFFECTS, covered=True))
    return found


def check_toleration(toleration: DeviceToleration, path: str) -> Findings:
    """A toleration; upstream accepts an empty key with Equal, despite the documentation."""
    found: Findings = []
    if toleration.key:
        found += check_label_key(toleration.key, child(path, "key"), covered=True)
    match toleration.operator:
        case operator if operator == TOLERATION_EXISTS:
            if toleration.value:
                found.append(invalid(child(path, "value"), toleration.value, "must be empty for operator `Exists`"))
        case operator if operator == TOLERATION_EQUAL:
            found += _check_label_value(toleration.value, child(path, "value"))
        case "":
            found.append(required(child(path, "operator"), covered=True))
        case _:
            found.append(
                not_supported(child(path, "operator"), toleration.operator, TOLERATION_OPERATORS, covered=True)
            )
    if toleration.effect and toleration.effect not in TAINT_EFFECTS:
        found.append(not_supported(child(path, "effect"), toleration.effect, TAINT_EFFECTS, covered=True))
    return found


def _check_label_value(value: str, path: str) -> Findings:
    return [invalid(path, value, message) for message in formats.label_value(value)]
