"""Feature gates of the driver, by NVIDIA's names. Gates that do not change what is published are enabled by default."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class GateError(ValueError):
    """An unknown gate, or mutually exclusive gates."""


class Gates(msgspec.Struct, frozen=True, kw_only=True):
    """The enabled parts of the driver."""

    time_slicing_settings: bool = msgspec.field(default=True, name="TimeSlicingSettings")
    mps_support: bool = msgspec.field(default=True, name="MPSSupport")
    dynamic_mig: bool = msgspec.field(default=False, name="DynamicMIG")
    passthrough_support: bool = msgspec.field(default=False, name="PassthroughSupport")
    device_metadata: bool = msgspec.field(default=False, name="DeviceMetadata")
    nvml_device_health_check: bool = msgspec.field(default=True, name="NVMLDeviceHealthCheck")


GATE_NAMES = Gates.__struct_encode_fields__


def parse_gates(text: str) -> Gates:
    """`DynamicMIG=true,MPSSupport=false`; GateError names what is wrong."""
    given: dict[str, bool] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = part.partition("=")
        _check_name(name)
        if not equals or value.lower() not in ("true", "false"):
            raise GateError(f"feature gate {name}: value {value!r}, expected true or false")
        given[name] = value.lower() == "true"
    return gates_of(given)


def gates_of(given: Mapping[str, bool]) -> Gates:
    """Gates by name, with defaults for the others; GateError."""
    for name in given:
        _check_name(name)
    gates = msgspec.convert(given, Gates)
    if gates.dynamic_mig and gates.passthrough_support:
        raise GateError("feature gates DynamicMIG and PassthroughSupport exclude each other")
    return gates


def _check_name(name: str) -> None:
    if name not in GATE_NAMES:
        raise GateError(f"feature gate {name!r}: expected one of {', '.join(GATE_NAMES)}")
