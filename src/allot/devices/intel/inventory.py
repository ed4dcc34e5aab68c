"""The published devices of Intel GPUs. Names and values as in Intel's driver."""

from __future__ import annotations

from collections.abc import Sequence

from allot.devices.intel.hardware import Gpu
from allot.driver import Device, DeviceTaint, device
from allot.driver.declare import AttributeValue

DRIVER_NAME = "gpu.intel.com"
HEALTHY, UNHEALTHY, UNKNOWN = "Healthy", "Unhealthy", "Unknown"
WHOLE, FUNCTION = "gpu", "vf"
# Of every device.
_MILLICORES = "1k"
_UNBOUND = DeviceTaint(key="UnboundUnmanaged", effect="NoSchedule")


def gpu_name(gpu: Gpu) -> str:
    """`0000-04-00-0-0xe211`."""
    return f"{gpu.place.address.replace(':', '-').replace('.', '-')}-{gpu.pci_id}"


def as_device(gpu: Gpu, health: str = UNKNOWN, issues: Sequence[str] = ()) -> Device:
    """A published card or virtual function. issues: categories of its problems, if it is unhealthy."""
    attributes: dict[str, AttributeValue] = {
        "model": gpu.model,
        "family": gpu.family,
        "driver": gpu.kernel_driver,
        "type": FUNCTION if gpu.parent else WHOLE,
        "sriov": gpu.has_functions,
        "pciId": gpu.pci_id,
        "health": health,
        "pciAddress": gpu.place.address,
        "resource.kubernetes.io/pciBusID": gpu.place.address,
    }
    if gpu.place.root:
        attributes["pciRoot"] = gpu.place.root.rpartition(":")[2]
        attributes["resource.kubernetes.io/pcieRoot"] = gpu.place.root
    taints = []
    if health == UNHEALTHY:
        taints.append(DeviceTaint(key=f"HealthIssues-{'_'.join(issues)}"[:63].rstrip("-_"), effect="NoExecute"))
    if not gpu.kernel_driver:
        taints.append(_UNBOUND)
    capacity = {"memory": f"{gpu.memory_mib}Mi", "millicores": _MILLICORES}
    return device(gpu_name(gpu), attributes=attributes, capacity=capacity, taints=taints)
