"""Merges the findings of the two validators into what the API server reports.

A declarative finding at stage beta counts only while DeclarativeValidationBeta is on, and then replaces the handwritten
findings for the same problem: same type, same rule, same field (v1beta1's paths are compared as those of v1).
"""

from __future__ import annotations

import re

from allot.core.features import FeatureGates
from allot.core.validation.fields import INVALID, FieldError, Finding, Findings

_FLAT_REQUEST = re.compile(
    r"(spec\.devices\.requests\[\d+\])\."
    r"(deviceClassName|selectors|allocationMode|count|adminAccess|tolerations|derivedAttributes)"
)
_BASIC_DEVICE = re.compile(r"(spec\.devices\[\d+\])\.basic\.")


def _as_in_v1(path: str) -> str:
    normalized = _FLAT_REQUEST.sub(r"\1.exactly.\2", path)
    return normalized if normalized != path else _BASIC_DEVICE.sub(r"\1.", path)


def _identity(found: Finding, path: str) -> tuple[str, str, str]:
    return found.error.type, path, found.origin


def merge(handwritten: Findings, declarative: Findings, gates: FeatureGates) -> tuple[FieldError, ...]:
    """The errors to report: handwritten ones in code order, then declarative ones, without duplicates."""
    enforced = [found for found in declarative if not found.beta or "DeclarativeValidationBeta" in gates]
    replaced = set()
    for found in enforced:
        # Without a named rule, an invalid value cannot be distinguished from another problem of the same field.
        if found.beta and (found.origin or found.error.type != INVALID):
            replaced.add(_identity(found, found.error.field))
            replaced.add(_identity(found, _as_in_v1(found.error.field)))
    kept = [
        found.error for found in handwritten if not (found.covered and _identity(found, found.error.field) in replaced)
    ]
    return tuple(dict.fromkeys(kept)) + tuple(found.error for found in enforced)
