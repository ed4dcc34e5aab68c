"""What is published about AMD GPUs. Names and values as in AMD's driver."""

from __future__ import annotations

import re

from allot.devices.amd.hardware import Gpu
from allot.driver import Device, Version, device
from allot.driver.declare import AttributeValue

DRIVER_NAME = "gpu.amd.com"
WHOLE, PARTITION = "amdgpu", "amdgpu-partition"
# What AMD's driver assumes if the kernel does not report the memory.
_MEMORY_UNKNOWN = {WHOLE: "80Gi", PARTITION: "20Gi"}
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})")


def gpu_name(gpu: Gpu) -> str:
    """`gpu-0-128`."""
    return f"gpu-{gpu.card}-{gpu.render}"


def as_device(gpu: Gpu) -> Device:
    """A card or partition as published."""
    type_ = PARTITION if gpu.is_partition else WHOLE
    attributes: dict[str, AttributeValue] = {
        "type": type_,
        "productName": re.sub(r"[()\[\]]", "", gpu.product_name).replace(" ", "_") or "unknown",
        "driverVersion": Version(_semantic(gpu.driver_version)),
        "deviceID": gpu.device_id,
        "numaNode": gpu.numa_node,
    }
    if gpu.partition_profile:
        attributes["partitionProfile"] = gpu.partition_profile
    if gpu.place.address:
        attributes["resource.kubernetes.io/pciBusID"] = gpu.place.address
    if gpu.place.root:
        attributes["resource.kubernetes.io/pcieRoot"] = gpu.place.root
    return device(
        gpu_name(gpu),
        attributes=attributes,
        capacity={
            "memory": f"{gpu.memory_mib}Mi" if gpu.memory_mib else _MEMORY_UNKNOWN[type_],
            "computeUnits": gpu.compute_units,
            "simdUnits": gpu.simd_units,
        },
    )


def _semantic(version: str) -> str:
    """Distributions' modules have four-part versions, which slices do not allow (ROCm/gpu-operator, issue 609); some have none."""
    match = _VERSION.match(version)
    return ".".join(str(int(part)) for part in match.groups()) if match is not None else "0.0.0"
