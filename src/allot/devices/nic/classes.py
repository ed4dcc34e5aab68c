"""Device classes for interfaces: dranet leaves them to users; these are the two that its examples use."""

from __future__ import annotations

from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from allot.devices.nic.inventory import DRIVER_NAME

RDMA_CLASS = "mrdma.google.com"


def device_classes() -> tuple[DeviceClass, ...]:
    """All interfaces, and those with RDMA."""
    own = f'device.driver == "{DRIVER_NAME}"'
    return (_class(DRIVER_NAME, own), _class(RDMA_CLASS, f'{own} && device.attributes["{DRIVER_NAME}"].rdma'))


def _class(name: str, expression: str) -> DeviceClass:
    selector = DeviceSelector(cel=CELDeviceSelector(expression=expression))
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=(selector,)))
