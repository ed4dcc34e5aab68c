"""Binding conditions of devices and of allocation results: the same rules in both places."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.model.resource_v1 import BINDING_CONDITIONS_MAX
from allot.core.validation.fields import Findings, child, duplicate, index, invalid
from allot.core.validation.lists import check_list
from allot.core.validation.object_meta import check_label_key

_OVERLAP = "bindingFailureConditions must not overlap with bindingConditions"


def check_binding_conditions(conditions: Sequence[str], failures: Sequence[str], path: str) -> Findings:
    """Both lists or none; label keys, unique and disjoint."""
    conditions_path, failures_path = child(path, "bindingConditions"), child(path, "bindingFailureConditions")
    found: Findings = []
    for values, where in ((conditions, conditions_path), (failures, failures_path)):
        found += check_list(values, where, check_label_key, maximum=BINDING_CONDITIONS_MAX, size_covered=True)
    found += _duplicates(conditions, conditions_path)
    found += _duplicates(failures, failures_path)
    wanted = frozenset(conditions)
    for position, condition in enumerate(failures):
        if condition in wanted:
            found.append(invalid(index(failures_path, position), condition, _OVERLAP))
    if failures and not conditions:
        detail = "bindingConditions are required to use bindingFailureConditions"
        found.append(invalid(conditions_path, None, detail))
    if conditions and not failures:
        detail = "bindingFailureConditions are required to use bindingConditions"
        found.append(invalid(failures_path, None, detail))
    return found


def _duplicates(values: Sequence[str], path: str) -> Findings:
    found: Findings = []
    seen = set()
    for position, value in enumerate(values):
        if value in seen:
            found.append(duplicate(index(path, position), value))
        seen.add(value)
    return found
