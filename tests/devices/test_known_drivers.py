"""What `allot convert` knows of drivers is what the drivers here publish and take."""

from __future__ import annotations

import msgspec
import pytest

from allot.cli.linting.knowledge import profiles_snapshot
from allot.core.advice.convert.drivers import DRIVERS, driver_named, driver_of_class, driver_of_extended_resource
from allot.core.model.resource_v1 import Device, ResourceSlice
from allot.devices.gpu import config
from allot.devices.gpu.classes import device_classes as gpu_classes
from allot.devices.gpu.classes import mig_profile_class
from allot.devices.tpu.classes import device_classes as tpu_classes


def published(driver: str, *profiles: str) -> list[Device]:
    slices = profiles_snapshot(profiles).of(ResourceSlice)
    return [device for found in slices if found.spec.driver == driver for device in found.spec.devices]


@pytest.mark.parametrize(
    ("driver", "profile"),
    [
        ("gpu.nvidia.com", "h100x8"),
        ("gpu.nvidia.com", "t4"),
        ("gpu.amd.com", "mi300xx8"),
        ("gpu.intel.com", "max1550x6"),
    ],
)
def test_every_attribute_and_capacity_is_known_with_its_type(driver: str, profile: str) -> None:
    known = driver_named(driver)
    devices = published(driver, profile)
    assert devices
    for device in devices:
        for name, value in device.attributes.items():
            if "/" not in name:
                assert list(msgspec.to_builtins(value)) == [known.attributes[name].value]
        assert {name for name in device.capacity if "/" not in name} <= set(known.capacities)


def test_classes_are_those_that_the_drivers_bring() -> None:
    for class_ in (*gpu_classes(), *tpu_classes()):
        driver = driver_of_class(class_.metadata.name)
        assert driver is not None
        if driver.class_name == class_.metadata.name:
            (selector,) = class_.spec.selectors
            assert selector.cel is not None
            assert selector.cel.expression == driver.class_expression


def test_extended_resources_and_configuration_are_those_of_the_gpu_driver() -> None:
    known = driver_named("gpu.nvidia.com")
    assert known.config_api_version == config.API_VERSION
    for class_ in (*gpu_classes(), mig_profile_class("1g.5gb")):
        if class_.spec.extended_resource_name is not None:
            assert driver_of_extended_resource(class_.spec.extended_resource_name) is not None
    assert driver_of_extended_resource("nvidia.com/mig-1g.5gb") == (known, "1g.5gb")
    assert driver_of_extended_resource("nvidia.com/mig-") is None
    assert driver_of_extended_resource("example.com/gpu") is None


def test_drivers_are_found_by_one_name_each() -> None:
    names = [driver.name for driver in DRIVERS]
    assert len(names) == len(set(names))
