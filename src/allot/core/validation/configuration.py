"""Opaque driver configuration in classes, claims and allocations, and other raw JSON."""

from __future__ import annotations

from allot.core.model.meta import RawJSON
from allot.core.model.resource_v1 import OPAQUE_PARAMETERS_LENGTH_MAX, OpaqueDeviceConfiguration
from allot.core.validation.fields import Findings, child, invalid, required, too_long
from allot.core.validation.names import check_driver_name


def check_configuration(opaque: OpaqueDeviceConfiguration | None, path: str, *, stored: bool = False) -> Findings:
    """The one-of of a configuration entry; `opaque` is its only member. `stored` parameters may be of any size."""
    where = child(path, "opaque")
    if opaque is None:
        return [required(where)]
    found = check_driver_name(opaque.driver, child(where, "driver"), covered=True)
    parameters_path = child(where, "parameters")
    return found + check_raw_json(opaque.parameters, parameters_path, OPAQUE_PARAMETERS_LENGTH_MAX, stored=stored)


def check_raw_json(raw: RawJSON | None, path: str, length_max: int, *, stored: bool = False) -> Findings:
    """Raw JSON must be an object of bounded size."""
    if raw is None or raw.data == b"null":
        return [required(path)]
    if not stored and len(raw.data) > length_max:
        return [too_long(path, length_max)]
    if not raw.data.startswith(b"{"):
        return [invalid(path, "<value omitted>", "must be a valid JSON object")]
    return []
