"""The driver's device class."""

from __future__ import annotations

from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from allot.devices.cpu.inventory import DRIVER_NAME


def device_classes() -> tuple[DeviceClass, ...]:
    """The class of the driver's chart."""
    selector = DeviceSelector(cel=CELDeviceSelector(expression=f'device.driver == "{DRIVER_NAME}"'))
    return (DeviceClass(metadata=ObjectMeta(name=DRIVER_NAME), spec=DeviceClassSpec(selectors=(selector,))),)
