"""The driver's device class."""

from __future__ import annotations

from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from allot.devices.amd.inventory import DRIVER_NAME

EXTENDED_RESOURCE_NAME = "amd.com/gpu"


def device_classes() -> tuple[DeviceClass, ...]:
    """The class of AMD's chart."""
    selector = DeviceSelector(cel=CELDeviceSelector(expression=f"device.driver == '{DRIVER_NAME}'"))
    spec = DeviceClassSpec(selectors=(selector,), extended_resource_name=EXTENDED_RESOURCE_NAME)
    return (DeviceClass(metadata=ObjectMeta(name=DRIVER_NAME), spec=spec),)
