"""The driver's device classes."""

from __future__ import annotations

from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from allot.devices.gpu.inventory import DRIVER_NAME, GPU, MIG, VFIO

EXTENDED_RESOURCE_NAME = "nvidia.com/gpu"


def device_class(name: str, condition: str, extended_resource_name: str | None = None) -> DeviceClass:
    """A class of devices of this driver; condition: CEL about them."""
    expression = f"device.driver == '{DRIVER_NAME}' && {condition}"
    return DeviceClass(
        metadata=ObjectMeta(name=name),
        spec=DeviceClassSpec(
            selectors=(DeviceSelector(cel=CELDeviceSelector(expression=expression)),),
            extended_resource_name=extended_resource_name,
        ),
    )


def _of_type(type_: str) -> str:
    return f"device.attributes['{DRIVER_NAME}'].type == '{type_}'"


def mig_profile_class(profile: str) -> DeviceClass:
    """A class of MIG instances of one profile, also as an extended resource: `nvidia.com/mig-1g.12gb`."""
    condition = f"{_of_type(MIG)} && device.attributes['{DRIVER_NAME}'].profile == '{profile}'"
    text = profile.replace("+", ".")
    return device_class(f"mig-{text}.nvidia.com", condition, f"nvidia.com/mig-{text}")


def device_classes() -> tuple[DeviceClass, ...]:
    """The classes of NVIDIA's chart."""
    return (
        device_class("gpu.nvidia.com", _of_type(GPU), EXTENDED_RESOURCE_NAME),
        device_class("mig.nvidia.com", _of_type(MIG)),
        device_class("vfio.gpu.nvidia.com", _of_type(VFIO)),
    )
