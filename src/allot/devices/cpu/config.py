"""The driver's parameters: `{apiVersion: v1alpha1, cpuConfig: {cpuset: 0-3}}`, the CPUs themselves, where a device is the
whole machine."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allot.devices.sysfs import CpuListError, parse_cpu_list
from allot.driver import AllocatedDevice, ConfigKind

FROM_CLAIM = "FromClaim"


class ParametersError(ValueError):
    """Parameters with invalid values for the device."""


class CpuConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The CPUs, in the kernel's format."""

    cpuset: str


class Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The parameters of a claim."""

    cpu_config: CpuConfig

    def __post_init__(self) -> None:
        if not parse_cpu_list(self.cpu_config.cpuset):
            raise CpuListError("cpuConfig.cpuset: expected at least one CPU")


KINDS = (ConfigKind("v1alpha1", "", Parameters),)


def asked_cpus(device: AllocatedDevice, is_machine: bool, offered: Sequence[int], count: int) -> tuple[int, ...] | None:
    """The CPUs named in the claim, None without any; ParametersError."""
    given = [config for config in device.configs if isinstance(config.value, Parameters)]
    if not given:
        return None
    if not is_machine:
        raise ParametersError(f"request {device.request}: cpuConfig is only for CPUs that are grouped by machine")
    if len(given) > 1:
        raise ParametersError(f"request {device.request}: {len(given)} configs, expected exactly one")
    if given[0].source != FROM_CLAIM:
        raise ParametersError(f"request {device.request}: cpuConfig of a device class, expected it in the claim")
    cpus = parse_cpu_list(given[0].value.cpu_config.cpuset)
    unknown = sorted(set(cpus) - set(offered))
    if unknown:
        raise ParametersError(
            f"request {device.request}: cpuset {given[0].value.cpu_config.cpuset!r}: CPU {unknown[0]} is not available"
        )
    if len(cpus) != count:
        raise ParametersError(
            f"request {device.request}: cpuset {given[0].value.cpu_config.cpuset!r} has {len(cpus)} CPUs, "
            f"the claim was allocated {count}"
        )
    return cpus
