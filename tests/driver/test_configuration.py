"""Parameters are decoded strictly, for each device, and the claim's win over the class's."""

from __future__ import annotations

import msgspec
import pytest

from allot.core.model.meta import RawJSON
from allot.core.model.resource_v1 import DeviceAllocationConfiguration, OpaqueDeviceConfiguration
from allot.core.quantity import Quantity
from allot.driver.claims import AllocatedDevice
from allot.driver.configuration import ConfigError, ConfigKind, configs_for, decode_configs, decode_parameters

DRIVER = "gpu.example.com"


class Sharing(msgspec.Struct):
    strategy: str = "TimeSlicing"
    limit: Quantity | None = None


class GpuConfig(msgspec.Struct):
    sharing: Sharing | None = None
    count: int = 1

    def __post_init__(self) -> None:
        if self.count > 10:
            raise ValueError(f"count {self.count}, expected at most 10")


class Bare(msgspec.Struct):
    mtu: int = 0


KINDS = (ConfigKind("gpu.example.com/v1", "GpuConfig", GpuConfig),)


def parameters(**fields: object) -> bytes:
    return msgspec.json.encode({"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", **fields})


def entry(source: str, count: int, *requests: str, driver: str = DRIVER) -> DeviceAllocationConfiguration:
    value = RawJSON({"apiVersion": "gpu.example.com/v1", "kind": "GpuConfig", "count": count})
    opaque = OpaqueDeviceConfiguration(driver=driver, parameters=value)
    return DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)


def counts(request: str, *entries: DeviceAllocationConfiguration) -> list[int]:
    return [config.value.count for config in configs_for(request, decode_configs(DRIVER, entries, KINDS))]


def test_parameters_become_the_drivers_type() -> None:
    value = decode_parameters(parameters(sharing={"strategy": "MPS", "limit": "1Gi"}), KINDS)
    assert value == GpuConfig(sharing=Sharing("MPS", Quantity.parse("1Gi")))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (parameters(bogus=1), 'GpuConfig: strict decoding error: unknown field "bogus"'),
        (parameters(sharing={"bogus": 1}), 'GpuConfig: strict decoding error: unknown field "sharing.bogus"'),
        (parameters(count="x"), "GpuConfig: count: Expected `int`, got `str`"),
        (parameters(count=11), "GpuConfig: count 11, expected at most 10"),
        (parameters(sharing={"limit": "many"}), "GpuConfig: sharing.limit: "),
        (
            b'{"kind": "Other", "apiVersion": "v1"}',
            "kind 'Other' of apiVersion 'v1': expected GpuConfig of gpu.example",
        ),
        (b"{}", "kind '' of apiVersion ''"),
        (b"[1]", "cannot be read"),
        (b"{", "cannot be read"),
        (b"null", "cannot be read"),
    ],
)
def test_what_the_driver_does_not_know_is_named(data: bytes, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_parameters(data, KINDS)
    assert text in str(caught.value)


def test_parameters_without_a_kind_are_for_drivers_that_have_none() -> None:
    assert decode_parameters(b'{"mtu": 9000}', (ConfigKind("", "", Bare),)) == Bare(9000)


def test_the_claims_parameters_come_after_the_classes() -> None:
    assert counts("a", entry("FromClaim", 2), entry("FromClass", 1), entry("FromClaim", 3)) == [1, 2, 3]


def test_parameters_are_for_the_requests_that_they_name() -> None:
    entries = (entry("FromClaim", 1), entry("FromClaim", 2, "a"), entry("FromClaim", 3, "b"))
    assert counts("a", *entries) == [1, 2]


def test_an_alternative_has_the_parameters_of_its_request_and_its_own() -> None:
    entries = (entry("FromClaim", 1, "a"), entry("FromClaim", 2, "a/x"), entry("FromClaim", 3, "a/y"))
    assert counts("a/y", *entries) == [1, 3]


def test_parameters_of_other_drivers_are_not_looked_at() -> None:
    assert counts("a", entry("FromClaim", 99, driver="other.example.com")) == []


def test_an_error_says_which_parameters() -> None:
    with pytest.raises(ConfigError, match=r"config 1 \(FromClass\): GpuConfig: count 99"):
        decode_configs(DRIVER, (entry("FromClaim", 1), entry("FromClass", 99)), KINDS)


def test_a_device_answers_the_parameters_that_win_by_type() -> None:
    configs = decode_configs(DRIVER, (entry("FromClass", 1), entry("FromClaim", 2)), KINDS)
    device = AllocatedDevice(request="a", pool="p", name="d", configs=configs)
    assert device.config(GpuConfig, GpuConfig(count=9)).count == 2
    assert device.config(Bare, Bare(7)).mtu == 7
