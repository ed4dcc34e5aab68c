"""Parameters of GPUs: every value, and every refusal in NVIDIA's words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allot.core.quantity import Quantity
from allot.devices.gpu.config import (
    KINDS,
    GpuConfig,
    IommuConfig,
    MigDeviceConfig,
    MpsConfig,
    ParametersError,
    Sharing,
    Strategy,
    VfioDeviceConfig,
    check_iommu,
    normalized_sharing,
    pinned_memory_limits_mib,
)
from allot.devices.gpu.gates import GATE_NAMES, GateError, Gates, gates_of, parse_gates
from allot.driver.configuration import ConfigError, decode_parameters

ALL = Gates()
NONE = Gates(time_slicing_settings=False, mps_support=False)


def decoded(kind: str, sharing: dict[str, Any] | None = None, **more: Any) -> Any:
    value = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **more}
    if sharing is not None:
        value["sharing"] = sharing
    return decode_parameters(json.dumps(value).encode(), KINDS)


@pytest.mark.parametrize(("interval", "number"), [("Default", 0), ("Short", 1), ("Medium", 2), ("Long", 3)])
def test_each_interval_has_its_number(interval: str, number: int) -> None:
    config = decoded("GpuConfig", {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}})
    assert normalized_sharing(config, ALL) == Sharing(strategy=Strategy.TIME_SLICING, interval=number)


@pytest.mark.parametrize(
    "sharing", [{"strategy": "TimeSlicing"}, {"strategy": "TimeSlicing", "timeSlicingConfig": {}}, None]
)
def test_without_a_word_time_slices_are_the_default(sharing: dict[str, Any] | None) -> None:
    assert normalized_sharing(decoded("GpuConfig", sharing), ALL) == Sharing(strategy=Strategy.TIME_SLICING, interval=0)


def test_without_the_gate_nothing_is_set_by_default() -> None:
    assert normalized_sharing(GpuConfig(), NONE) == Sharing()
    assert normalized_sharing(MigDeviceConfig(), ALL) == Sharing()


def test_mps_takes_percentage_and_limits() -> None:
    config = decoded(
        "GpuConfig",
        {
            "strategy": "MPS",
            "mpsConfig": {
                "defaultActiveThreadPercentage": 50,
                "defaultPinnedDeviceMemoryLimit": "10Gi",
                "defaultPerDevicePinnedMemoryLimit": {"0": "5Gi"},
            },
        },
    )
    sharing = normalized_sharing(config, ALL)
    assert sharing.strategy is Strategy.MPS
    assert sharing.mps is not None
    assert sharing.mps.default_active_thread_percentage == 50
    assert pinned_memory_limits_mib(sharing.mps, ["GPU-a", "GPU-b"]) == {"GPU-a": 5120, "GPU-b": 10240}


@pytest.mark.parametrize("kind", ["GpuConfig", "MigDeviceConfig"])
@pytest.mark.parametrize("percentage", [0, 1, 100, None])
def test_percentages_from_0_to_100_are_taken(kind: str, percentage: int | None) -> None:
    config = {} if percentage is None else {"mpsConfig": {"defaultActiveThreadPercentage": percentage}}
    sharing = normalized_sharing(decoded(kind, {"strategy": "MPS", **config}), ALL)
    assert sharing.mps is not None
    assert sharing.mps.default_active_thread_percentage == percentage


@pytest.mark.parametrize(
    ("sharing", "gates", "text"),
    [
        ({"strategy": "Fast"}, ALL, "unknown GPU sharing strategy: Fast"),
        ({"strategy": ""}, ALL, "unknown GPU sharing strategy: "),
        ({}, ALL, "unknown GPU sharing strategy: "),
        (
            {"strategy": "TimeSlicing"},
            NONE,
            "unknown GPU sharing strategy: TimeSlicing (feature gate TimeSlicingSettings is disabled)",
        ),
        ({"strategy": "MPS"}, NONE, "unknown GPU sharing strategy: MPS (feature gate MPSSupport is disabled)"),
        ({"strategy": "Fabric"}, ALL, "fabric GPU sharing strategy is not enabled"),
        (
            {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Huge"}},
            ALL,
            "unknown time-slice interval: Huge",
        ),
        ({"strategy": "TimeSlicing", "mpsConfig": {}}, ALL, "cannot use MpsConfig with the 'TimeSlicing' strategy"),
        ({"strategy": "MPS", "timeSlicingConfig": {}}, ALL, "cannot use TimeSlicingConfig with the 'MPS' strategy"),
        (
            {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": -1}},
            ALL,
            "active thread percentage must not be negative",
        ),
        (
            {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101}},
            ALL,
            "active thread percentage must not be greater than 100",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(sharing: dict[str, Any], gates: Gates, text: str) -> None:
    with pytest.raises(ParametersError) as caught:
        normalized_sharing(decoded("GpuConfig", sharing), gates)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            MpsConfig(default_pinned_device_memory_limit=Quantity.parse("1Ki")),
            "invalid limit: default value set too low: 1Ki",
        ),
        (
            MpsConfig(default_per_device_pinned_memory_limit={"0": Quantity.parse("0")}),
            "invalid limit: value set too low: 0: 0",
        ),
        (
            MpsConfig(default_per_device_pinned_memory_limit={"GPU-x": Quantity.parse("1Gi")}),
            "invalid device: unable to parse key as an integer: GPU-x",
        ),
        (
            MpsConfig(default_per_device_pinned_memory_limit={"2": Quantity.parse("1Gi")}),
            "invalid device: invalid device index: 2",
        ),
        (
            MpsConfig(default_per_device_pinned_memory_limit={"-1": Quantity.parse("1Gi")}),
            "invalid device: invalid device index: -1",
        ),
    ],
)
def test_limits_that_make_no_sense_are_refused(config: MpsConfig, text: str) -> None:
    with pytest.raises(ParametersError) as caught:
        pinned_memory_limits_mib(config, ["GPU-a", "GPU-b"])
    assert str(caught.value) == text


def test_a_limit_may_name_a_device_by_its_uuid() -> None:
    config = MpsConfig(default_per_device_pinned_memory_limit={"GPU-b": Quantity.parse("1500M")})
    assert pinned_memory_limits_mib(config, ["GPU-a", "GPU-b"]) == {"GPU-b": 1430}


@pytest.mark.parametrize(
    ("kind", "more", "text"),
    [
        ("GpuConfig", {"sharin": {}}, 'GpuConfig: strict decoding error: unknown field "sharin"'),
        (
            "GpuConfig",
            {"sharing": {"strategy": "MPS", "mpsConfig": {"threads": 5}}},
            'GpuConfig: strict decoding error: unknown field "sharing.mpsConfig.threads"',
        ),
        (
            "MigDeviceConfig",
            {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}},
            'MigDeviceConfig: strict decoding error: unknown field "sharing.timeSlicingConfig"',
        ),
    ],
)
def test_unknown_fields_are_refused_by_name(kind: str, more: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decoded(kind, **more)
    assert str(caught.value) == text


def test_an_unknown_kind_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError) as caught:
        decoded("NpuConfig")
    assert "kind 'NpuConfig'" in str(caught.value)
    assert "GpuConfig of resource.nvidia.com/v1beta1" in str(caught.value)


def test_an_amount_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        decoded("GpuConfig", {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "lots"}})
    assert "defaultPinnedDeviceMemoryLimit" in str(caught.value)


def test_passed_through_devices_have_an_iommu_policy() -> None:
    assert check_iommu(VfioDeviceConfig()) == IommuConfig(backend_policy="LegacyOnly", enable_api_device=False)
    given = decoded("VfioDeviceConfig", iommu={"backendPolicy": "PreferIommuFD", "enableAPIDevice": True})
    assert check_iommu(given) == IommuConfig(backend_policy="PreferIommuFD", enable_api_device=True)
    with pytest.raises(
        ParametersError, match="unknown IOMMU backend policy: Fast, expected LegacyOnly or PreferIommuFD"
    ):
        check_iommu(decoded("VfioDeviceConfig", iommu={"backendPolicy": "Fast"}))


# --- feature gates ---


def test_gates_have_nvidias_names() -> None:
    assert GATE_NAMES == (
        "TimeSlicingSettings",
        "MPSSupport",
        "DynamicMIG",
        "PassthroughSupport",
        "DeviceMetadata",
        "NVMLDeviceHealthCheck",
    )
    assert parse_gates("DynamicMIG=true, MPSSupport=False,") == Gates(dynamic_mig=True, mps_support=False)
    assert parse_gates("") == Gates()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Magic=true", "feature gate 'Magic': expected one of TimeSlicingSettings, MPSSupport"),
        ("DynamicMIG", "feature gate DynamicMIG: value '', expected true or false"),
        ("DynamicMIG=yes", "feature gate DynamicMIG: value 'yes', expected true or false"),
        (
            "DynamicMIG=true,PassthroughSupport=true",
            "feature gates DynamicMIG and PassthroughSupport exclude each other",
        ),
    ],
)
def test_gates_that_make_no_sense_are_refused(text: str, error: str) -> None:
    with pytest.raises(GateError) as caught:
        parse_gates(text)
    assert str(caught.value).startswith(error)


def test_gates_by_name() -> None:
    assert gates_of({"DynamicMIG": True}).dynamic_mig


def test_the_interval_of_a_mig_instance_cannot_be_chosen() -> None:
    config = decoded("MigDeviceConfig", {"strategy": "TimeSlicing"})
    assert normalized_sharing(config, ALL) == Sharing(strategy=Strategy.TIME_SLICING, interval=None)
