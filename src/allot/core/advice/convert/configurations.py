"""Opaque configuration: sharing in the forms that NVIDIA's driver accepted before `resource.nvidia.com/v1beta1`."""

from __future__ import annotations

from typing import Any

from allot.core.advice.convert.changes import Notebook, shown
from allot.core.advice.convert.drivers import Driver
from allot.core.advice.convert.objects import mapping, text, without
from allot.core.advice.places import Path

RULE = "driver-config"
_STRATEGIES = ("TimeSlicing", "MPS")
_OLD_GROUPS = ("gpu.resource.nvidia.com", "gpu.nvidia.com")
_NEW_VERSION = "resource.nvidia.com/v1beta1"
_KINDS = frozenset(("GpuConfig", "MigDeviceConfig"))


def sharing_config(value: Any, driver: Driver, *, is_mig: bool) -> tuple[dict[str, Any] | None, str]:
    """Driver parameters for the requested sharing; or None and the reason."""
    sharing = {"strategy": value} if isinstance(value, str) else value
    if not driver.config_api_version:
        return None, f"the configuration format of driver {driver.name} is unknown"
    if not isinstance(sharing, dict) or sharing.get("strategy") not in _STRATEGIES:
        return None, f"expected a strategy: {' or '.join(_STRATEGIES)}"
    unknown = sorted(set(sharing) - {"strategy", "timeSlicingConfig", "mpsConfig"})
    if unknown:
        return None, f"unknown {', '.join(unknown)}"
    kind = "MigDeviceConfig" if is_mig else "GpuConfig"
    return {"apiVersion": driver.config_api_version, "kind": kind, "sharing": _with_interval(sharing)}, ""


def _with_interval(sharing: dict[str, Any]) -> dict[str, Any]:
    slicing = mapping(sharing.get("timeSlicingConfig"))
    if "timeSlice" not in slicing or "interval" in slicing:
        return sharing
    renamed = {"interval" if key == "timeSlice" else key: item for key, item in slicing.items()}
    return {**sharing, "timeSlicingConfig": renamed}


def convert_configs(value: Any, path: Path, book: Notebook) -> Any:
    """The list `config` of a claim or class, with renamed driver parameters updated."""
    if not isinstance(value, list):
        return value
    return [_converted(entry, (*path, index), book) for index, entry in enumerate(value)]


def _converted(entry: Any, path: Path, book: Notebook) -> Any:
    opaque = mapping(mapping(entry).get("opaque"))
    parameters = mapping(opaque.get("parameters"))
    api_version, kind = text(parameters.get("apiVersion")), text(parameters.get("kind"))
    is_old = api_version.partition("/")[0] in _OLD_GROUPS and kind in _KINDS
    is_new = api_version == _NEW_VERSION and kind in _KINDS
    if not is_old and not is_new:
        return entry
    changed = without(parameters, "apiVersion", "kind")
    where = (*path, "opaque", "parameters")
    if is_old:
        why = "NVIDIA's driver reads this version of its configuration"
        book.change((*where, "apiVersion"), api_version, _NEW_VERSION, why, rule=RULE)
    sharing = mapping(changed.get("sharing"))
    renamed = _with_interval(sharing)
    if renamed != sharing:
        old, new = sharing["timeSlicingConfig"], renamed["timeSlicingConfig"]
        why = "timeSlice is now called interval"
        book.change((*where, "sharing", "timeSlicingConfig"), shown(old), shown(new), why, rule=RULE)
        changed["sharing"] = renamed
    parameters = {"apiVersion": _NEW_VERSION, "kind": kind, **changed}
    return {**entry, "opaque": {**opaque, "parameters": parameters}}
