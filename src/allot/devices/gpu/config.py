"""The driver's parameters (`resource.nvidia.com/v1beta1`): GpuConfig, MigDeviceConfig and VfioDeviceConfig.

Types are as loose as NVIDIA's; `normalized_sharing` fills in defaults and refuses in NVIDIA's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from allot.core.quantity import Quantity
from allot.devices.gpu.gates import Gates
from allot.driver.configuration import ConfigKind

API_VERSION = "resource.nvidia.com/v1beta1"

TIME_SLICING = "TimeSlicing"
MPS = "MPS"
FABRIC = "Fabric"
INTERVALS = {"Default": 0, "Short": 1, "Medium": 2, "Long": 3}
LEGACY_ONLY = "LegacyOnly"
PREFER_IOMMUFD = "PreferIommuFD"
_MIB = 1024 * 1024


class ParametersError(ValueError):
    """Parameters with invalid values."""


class _Parameters(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Parameters, camelCase."""


class TimeSlicingConfig(_Parameters, frozen=True, kw_only=True):
    """How programs take turns."""

    interval: str | None = None


class MpsConfig(_Parameters, frozen=True, kw_only=True):
    """The share of a card that each program may use."""

    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: Quantity | None = None
    default_per_device_pinned_memory_limit: Mapping[str, Quantity] = {}


class GpuSharing(_Parameters, frozen=True, kw_only=True):
    """How a whole GPU is shared."""

    strategy: str = ""
    time_slicing_config: TimeSlicingConfig | None = None
    mps_config: MpsConfig | None = None


class MigDeviceSharing(_Parameters, frozen=True, kw_only=True):
    """How a MIG instance is shared."""

    strategy: str = ""
    mps_config: MpsConfig | None = None


class GpuConfig(_Parameters, frozen=True, kw_only=True):
    """Parameters of a whole GPU."""

    sharing: GpuSharing | None = None


class MigDeviceConfig(_Parameters, frozen=True, kw_only=True):
    """Parameters of a MIG instance."""

    sharing: MigDeviceSharing | None = None


class IommuConfig(_Parameters, frozen=True, kw_only=True):
    """The kernel interface that a virtual machine monitor uses."""

    backend_policy: str = LEGACY_ONLY
    enable_api_device: bool = msgspec.field(default=False, name="enableAPIDevice")


class VfioDeviceConfig(_Parameters, frozen=True, kw_only=True):
    """Parameters of a GPU that is passed through."""

    iommu: IommuConfig | None = None


KINDS = (
    ConfigKind(API_VERSION, "GpuConfig", GpuConfig),
    ConfigKind(API_VERSION, "MigDeviceConfig", MigDeviceConfig),
    ConfigKind(API_VERSION, "VfioDeviceConfig", VfioDeviceConfig),
)


class Strategy(StrEnum):
    """How a device is shared."""

    # Leave the card as it is.
    NONE = ""
    TIME_SLICING = TIME_SLICING
    MPS = MPS


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How a device is shared, with defaults."""

    strategy: Strategy = Strategy.NONE
    interval: int | None = None
    mps: MpsConfig | None = None


def normalized_sharing(config: GpuConfig | MigDeviceConfig, gates: Gates) -> Sharing:
    """The sharing that parameters request; ParametersError."""
    sharing = config.sharing
    if sharing is None:
        if gates.time_slicing_settings and isinstance(config, GpuConfig):
            return Sharing(strategy=Strategy.TIME_SLICING, interval=0)
        return Sharing()
    if sharing.strategy == TIME_SLICING and gates.time_slicing_settings:
        return _time_slicing(sharing)
    if sharing.strategy == MPS and gates.mps_support:
        return _mps(sharing)
    if sharing.strategy == FABRIC:
        raise ParametersError("fabric GPU sharing strategy is not enabled")
    raise ParametersError(f"unknown GPU sharing strategy: {sharing.strategy}{_gate_hint(sharing.strategy)}")


def _gate_hint(strategy: str) -> str:
    gate = {TIME_SLICING: "TimeSlicingSettings", MPS: "MPSSupport"}.get(strategy)
    return f" (feature gate {gate} is disabled)" if gate else ""


def _time_slicing(sharing: GpuSharing | MigDeviceSharing) -> Sharing:
    if sharing.mps_config is not None:
        raise ParametersError(f"cannot use MpsConfig with the '{TIME_SLICING}' strategy")
    if isinstance(sharing, MigDeviceSharing):
        # The interval of a MIG instance cannot be chosen.
        return Sharing(strategy=Strategy.TIME_SLICING)
    chosen = sharing.time_slicing_config.interval if sharing.time_slicing_config is not None else None
    interval = "Default" if chosen is None else chosen
    if interval not in INTERVALS:
        raise ParametersError(f"unknown time-slice interval: {interval}")
    return Sharing(strategy=Strategy.TIME_SLICING, interval=INTERVALS[interval])


def _mps(sharing: GpuSharing | MigDeviceSharing) -> Sharing:
    if isinstance(sharing, GpuSharing) and sharing.time_slicing_config is not None:
        raise ParametersError(f"cannot use TimeSlicingConfig with the '{MPS}' strategy")
    config = sharing.mps_config or MpsConfig()
    percentage = config.default_active_thread_percentage
    if percentage is not None and percentage < 0:
        raise ParametersError("active thread percentage must not be negative")
    if percentage is not None and percentage > 100:
        raise ParametersError("active thread percentage must not be greater than 100")
    return Sharing(strategy=Strategy.MPS, mps=config)


def pinned_memory_limits_mib(config: MpsConfig, uuids: Sequence[str]) -> dict[str, int]:
    """A program's memory limit on each device; ParametersError."""
    limits: dict[str, int] = {}
    if config.default_pinned_device_memory_limit is not None and uuids:
        mebibytes = config.default_pinned_device_memory_limit.value() // _MIB
        if mebibytes <= 0:
            raise ParametersError(
                f"invalid limit: default value set too low: {config.default_pinned_device_memory_limit}"
            )
        limits = dict.fromkeys(uuids, mebibytes)
    for key, limit in config.default_per_device_pinned_memory_limit.items():
        uuid = _device(key, uuids)
        mebibytes = limit.value() // _MIB
        if mebibytes <= 0:
            raise ParametersError(f"invalid limit: value set too low: {key}: {limit}")
        limits[uuid] = mebibytes
    return limits


def _device(key: str, uuids: Sequence[str]) -> str:
    if key in uuids:
        return key
    if not (key.isascii() and key.removeprefix("-").isdigit() and len(key) < 10):
        raise ParametersError(f"invalid device: unable to parse key as an integer: {key}")
    index = int(key)
    if not 0 <= index < len(uuids):
        raise ParametersError(f"invalid device: invalid device index: {index}")
    return uuids[index]


def check_iommu(config: VfioDeviceConfig) -> IommuConfig:
    """Parameters of a passed-through GPU; ParametersError."""
    iommu = config.iommu or IommuConfig()
    if iommu.backend_policy not in (LEGACY_ONLY, PREFER_IOMMUFD):
        raise ParametersError(
            f"unknown IOMMU backend policy: {iommu.backend_policy}, expected {LEGACY_ONLY} or {PREFER_IOMMUFD}"
        )
    return iommu
