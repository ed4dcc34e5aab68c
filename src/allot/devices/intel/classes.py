"""The driver's device classes."""

from __future__ import annotations

from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import CELDeviceSelector, DeviceClass, DeviceClassSpec, DeviceSelector
from allot.devices.intel.hardware import DRM_DRIVERS, VFIO_DRIVERS
from allot.devices.intel.inventory import DRIVER_NAME

EXTENDED_RESOURCE_NAME = "intel.com/gpu"
VFIO_CLASS = "gpu-vfio.intel.com"


def device_classes() -> tuple[DeviceClass, ...]:
    """The classes of Intel's chart without kernel driver binding: one for each kind of kernel driver."""
    gpu = DeviceClassSpec(selectors=(_driven_by(DRM_DRIVERS),), extended_resource_name=EXTENDED_RESOURCE_NAME)
    vfio = DeviceClassSpec(selectors=(_driven_by(VFIO_DRIVERS),))
    return (
        DeviceClass(metadata=ObjectMeta(name=DRIVER_NAME), spec=gpu),
        DeviceClass(metadata=ObjectMeta(name=VFIO_CLASS), spec=vfio),
    )


def _driven_by(kernel_drivers: tuple[str, ...]) -> DeviceSelector:
    names = ", ".join(f"'{name}'" for name in kernel_drivers)
    expression = f"device.driver == '{DRIVER_NAME}' && device.attributes['{DRIVER_NAME}'].driver in [{names}]"
    return DeviceSelector(cel=CELDeviceSelector(expression=expression))
