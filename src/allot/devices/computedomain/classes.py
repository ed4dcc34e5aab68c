"""The devices of each node, and the driver's device classes."""

from __future__ import annotations

from allot.core.model.compute_domains import CHANNEL_CLASS, DAEMON_CLASS, DRIVER
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from allot.driver import Device, device

CHANNEL, DAEMON = "channel", "daemon"


def published_devices() -> tuple[Device, ...]:
    """One channel, because a node can be in only one domain; the others come with it (`All`)."""
    return tuple(device(f"{type_}-0", attributes={"type": type_, "id": 0}) for type_ in (CHANNEL, DAEMON))


def device_classes() -> tuple[DeviceClass, ...]:
    """The classes of NVIDIA's chart."""
    attributes = f"device.attributes['{DRIVER}']"
    return (
        _device_class(DAEMON_CLASS, f"{attributes}.type == '{DAEMON}'"),
        _device_class(CHANNEL_CLASS, f"{attributes}.type == '{CHANNEL}' && {attributes}.id == 0"),
    )


def _device_class(name: str, condition: str) -> DeviceClass:
    selector = DeviceSelector(cel=CELDeviceSelector(expression=f"device.driver == '{DRIVER}' && {condition}"))
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=(selector,)))
