"""What well-known drivers publish and accept, as far as old manifests refer to it.

A table of names, not of hardware: attributes and capacities with their types, the names that older versions of a
driver and authors used for them, device classes, parameter groups of the time before 1.31, and the extended resources of device
plugins that the driver replaces. Manifests for other drivers can be converted with fewer checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

IDENTIFIER_LENGTH_MAX = 32
_NOT_IDENTIFIER = re.compile(r"[^A-Za-z0-9_]")


class Type(StrEnum):
    """The type of an attribute; a capacity is a quantity."""

    TEXT = "string"
    BOOL = "bool"
    INT = "int"
    VERSION = "version"
    QUANTITY = "quantity"


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """One driver."""

    name: str
    attributes: Mapping[str, Type] = {}
    capacities: tuple[str, ...] = ()
    # Whether these are all its attributes and capacities.
    is_complete: bool = False
    # What authors and older versions of the driver call an attribute or capacity, in lower case without - and _.
    aliases: Mapping[str, str] = {}
    # The class of whole devices, and its condition besides the driver.
    class_name: str = ""
    class_condition: str = ""
    # Groups of the parameter kinds of the time before 1.31.
    parameter_groups: tuple[str, ...] = ()
    # The unit of a memory amount without one in those parameters.
    memory_unit: str = ""
    # The group and version of its configuration now.
    config_api_version: str = ""
    # Extended resources of device plugins: the name, or a prefix followed by a star.
    extended_resources: tuple[str, ...] = ()

    def attribute_named(self, written: str) -> str | None:
        """The driver's name for what an author wrote; None if it publishes nothing like it."""
        if written in self.attributes or written in self.capacities:
            return written
        plain = re.sub(r"[-_.]", "", written).lower()
        for name in (*self.attributes, *self.capacities):
            if name.lower() == plain:
                return name
        found = self.aliases.get(plain)
        return found if found is not None or self.is_complete else identifier(written)

    @property
    def offers(self) -> str:
        """The names of everything that it publishes, for messages."""
        return ", ".join([*self.attributes, *(f"{name} (capacity)" for name in self.capacities)])

    @property
    def class_expression(self) -> str:
        """The selector of its class of whole devices."""
        # Exactly as in the charts, so that nothing changes if their class is already installed.
        own = f"device.driver == '{self.name}'" if self.class_condition else f'device.driver == "{self.name}"'
        return f"{own} && {self.class_condition}" if self.class_condition else own


_NVIDIA = Driver(
    name="gpu.nvidia.com",
    attributes={
        "type": Type.TEXT,
        "uuid": Type.TEXT,
        "parentUUID": Type.TEXT,
        "profile": Type.TEXT,
        "productName": Type.TEXT,
        "brand": Type.TEXT,
        "architecture": Type.TEXT,
        "cudaComputeCapability": Type.VERSION,
        "driverVersion": Type.VERSION,
        "cudaDriverVersion": Type.VERSION,
        "addressingMode": Type.TEXT,
        "deviceID": Type.TEXT,
        "vendorID": Type.TEXT,
        "numa": Type.INT,
        "iommuFDEnabled": Type.BOOL,
    },
    capacities=(
        "memory",
        "multiprocessors",
        "copyEngines",
        "decoders",
        "encoders",
        "jpegEngines",
        "ofaEngines",
        "addressableMemory",
    ),
    is_complete=True,
    aliases={
        "model": "productName",
        "product": "productName",
        "gpumodel": "productName",
        "computecapability": "cudaComputeCapability",
        "gpumemory": "memory",
        "vram": "memory",
        "migprofile": "profile",
    },
    class_name="gpu.nvidia.com",
    class_condition="device.attributes['gpu.nvidia.com'].type == 'gpu'",
    parameter_groups=("gpu.resource.nvidia.com", "gpu.nvidia.com", "resource.nvidia.com"),
    config_api_version="resource.nvidia.com/v1beta1",
    extended_resources=("nvidia.com/gpu", "nvidia.com/mig-*"),
)

DRIVERS: tuple[Driver, ...] = (
    _NVIDIA,
    Driver(
        name="gpu.example.com",
        attributes={"index": Type.INT, "uuid": Type.TEXT, "model": Type.TEXT, "driverVersion": Type.VERSION},
        capacities=("memory", "compute"),
        aliases={"productname": "model", "product": "model"},
        class_name="gpu.example.com",
        parameter_groups=("gpu.resource.example.com",),
        config_api_version="gpu.resource.example.com/v1alpha1",
    ),
    Driver(
        name="gpu.amd.com",
        attributes={
            "type": Type.TEXT,
            "deviceID": Type.TEXT,
            "productName": Type.TEXT,
            "driverVersion": Type.VERSION,
            "partitionProfile": Type.TEXT,
            "numaNode": Type.INT,
        },
        capacities=("memory", "computeUnits", "simdUnits"),
        class_name="gpu.amd.com",
        class_condition="device.attributes['gpu.amd.com'].type == 'amdgpu'",
        extended_resources=("amd.com/gpu",),
    ),
    Driver(
        name="gpu.intel.com",
        attributes={
            "model": Type.TEXT,
            "family": Type.TEXT,
            "driver": Type.TEXT,
            "type": Type.TEXT,
            "sriov": Type.BOOL,
            "pciId": Type.TEXT,
            "health": Type.TEXT,
            "pciAddress": Type.TEXT,
            "pciRoot": Type.TEXT,
        },
        capacities=("memory", "millicores"),
        class_name="gpu.intel.com",
        parameter_groups=("gpu.resource.intel.com", "gpu.dra.intel.com"),
        memory_unit="Mi",
        extended_resources=("gpu.intel.com/i915", "gpu.intel.com/xe"),
    ),
    Driver(
        name="tpu.google.com",
        attributes={
            "index": Type.INT,
            "uuid": Type.TEXT,
            "tpuGen": Type.TEXT,
            "brand": Type.TEXT,
            "accelerator": Type.TEXT,
            "chipCount": Type.INT,
            "topology": Type.TEXT,
        },
        class_name="tpu.google.com",
        extended_resources=("google.com/tpu",),
    ),
)

_BY_NAME = {driver.name: driver for driver in DRIVERS}
_BY_GROUP = {group: driver for driver in DRIVERS for group in driver.parameter_groups}
# Classes that charts of known drivers install besides the class of whole devices.
_OTHER_CLASSES = {
    "mig.nvidia.com": _NVIDIA,
    "vfio.gpu.nvidia.com": _NVIDIA,
    "gpu-vfio.intel.com": _BY_NAME["gpu.intel.com"],
}
_BY_CLASS = {driver.class_name: driver for driver in DRIVERS if driver.class_name} | _OTHER_CLASSES


def driver_named(name: str) -> Driver:
    """What is known about a driver; for most, only the name."""
    return _BY_NAME.get(name) or Driver(name=name)


def driver_of_class(name: str) -> Driver | None:
    """The driver whose chart installs a class of that name."""
    return _BY_CLASS.get(name)


def driver_of_group(group: str) -> Driver | None:
    """The driver that parameters of an API group were for."""
    return _BY_GROUP.get(group)


def driver_of_extended_resource(name: str) -> tuple[Driver, str] | None:
    """The driver that replaces a device plugin's resource, and what the star in its name stands for."""
    for driver in DRIVERS:
        for known in driver.extended_resources:
            if known == name:
                return driver, ""
            if known.endswith("*") and name.startswith(known[:-1]) and len(name) >= len(known):
                return driver, name[len(known) - 1 :]
    return None


def identifier(name: str) -> str:
    """An attribute name of 1.30, a DNS subdomain, as the identifier that is now required."""
    changed = _NOT_IDENTIFIER.sub("_", name)
    changed = f"_{changed}" if changed[:1].isdigit() else changed
    return changed[:IDENTIFIER_LENGTH_MAX]
