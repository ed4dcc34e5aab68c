"""The published devices of cards: names, attributes, capacities and counters as in NVIDIA's driver.

A card is a whole device, or its existing MIG instances, or (dynamic MIG) all its possible instances: then all of these share
the counters of the card, so that the scheduler can only choose what fits. A card without MIG is always published whole.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator

import msgspec

from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import CounterSet, Device, DeviceTaint
from allot.devices.gpu.faults import taints_of
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.hardware import Gpu, MigInstance
from allot.devices.profiles.gpus import VENDOR_ID
from allot.devices.profiles.mig import MEMORY_SLICES, MigProfile, Placement, placements
from allot.driver.declare import AttributeValue, Version, counter_set, device

DRIVER_NAME = "gpu.nvidia.com"
GPU, MIG, VFIO = "gpu", "mig", "vfio"
_NUMBER = re.compile(r"[0-9]+")


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A published device, and what it is on the card."""

    device: Device
    type: str
    gpu_uuid: str
    profile: MigProfile | None = None
    placement: Placement | None = None
    # An existing MIG instance that the driver must not destroy.
    instance: MigInstance | None = None


def gpu_name(gpu: Gpu) -> str:
    """The name of a whole GPU."""
    return f"gpu-{gpu.minor}"


def mig_name(gpu: Gpu, profile: MigProfile, placement: Placement) -> str:
    """The name of an existing or possible MIG instance, by its placement."""
    text = profile.name.replace(".", "").replace("+", "-")
    return f"gpu-{gpu.minor}-mig-{text}-{profile.id}-{placement.start}"


def vfio_name(gpu: Gpu) -> str:
    """The name of a GPU that can be passed through."""
    return f"gpu-vfio-{gpu.minor}"


def pool(node: str, offers: Iterable[Offer], gpus: Iterable[Gpu]) -> Pool:
    """The pool of a node."""
    offered = tuple(offers)
    used = {consumed.counter_set for offer in offered for consumed in offer.device.consumes_counters}
    sets = (counters(gpu) for gpu in gpus if counter_set_name(gpu) in used)
    devices = tuple(offer.device for offer in offered)
    return Pool(name=node, node_name=node, devices=devices, counter_sets=tuple(sets))


def offers(gpus: Iterable[Gpu], gates: Gates, held: Collection[str] = ()) -> Iterator[Offer]:
    """Everything that is published. held: devices of prepared claims; other forms of the same card are left out."""
    for gpu in gpus:
        if gates.dynamic_mig and _can_be_cut(gpu):
            if not gpu.mig_mode_needs_reset:
                yield _whole(gpu, gates, counted=True)
            yield from _possible(gpu, gates)
        elif gpu.mig_mode:
            yield from (_existing(gpu, instance, gates) for instance in gpu.mig_instances)
        else:
            if vfio_name(gpu) not in held:
                yield _whole(gpu, gates)
            if gates.passthrough_support and gpu_name(gpu) not in held:
                yield _passed_through(gpu)


def _can_be_cut(gpu: Gpu) -> bool:
    """Whether MIG instances can be created: the card supports MIG, and needs no reset to enable it."""
    if gpu.mig_mode is None or not gpu.mig_profiles:
        return False
    return gpu.mig_mode or not gpu.mig_mode_needs_reset


# --- kinds of devices ---


def _whole(gpu: Gpu, gates: Gates, counted: bool = False) -> Offer:
    declared = device(
        gpu_name(gpu),
        attributes={"type": GPU, "uuid": gpu.uuid, **_shared_attributes(gpu)},
        capacity={"memory": f"{gpu.memory_mib}Mi"},
        consumes={counter_set_name(gpu): _totals(gpu)} if counted else None,
        taints=_taints(gpu, gates),
    )
    return Offer(device=declared, type=GPU, gpu_uuid=gpu.uuid)


def _existing(gpu: Gpu, instance: MigInstance, gates: Gates) -> Offer:
    slices = {f"memorySlice{index}": 1 for index in instance.placement.slices}
    declared = device(
        mig_name(gpu, instance.profile, instance.placement),
        attributes={"uuid": instance.uuid, **_mig_attributes(gpu, instance.profile)},
        capacity={**_capacities(instance.profile), **slices},
        taints=_taints(gpu, gates),
    )
    return Offer(
        device=declared,
        type=MIG,
        gpu_uuid=gpu.uuid,
        profile=instance.profile,
        placement=instance.placement,
        instance=instance,
    )


def _possible(gpu: Gpu, gates: Gates) -> Iterator[Offer]:
    taints = _taints(gpu, gates)
    for profile in gpu.mig_profiles:
        attributes, capacities = _mig_attributes(gpu, profile), _capacities(profile)
        for placement in placements(profile):
            consumed = {
                **{_kebab(name): value for name, value in capacities.items()},
                **{f"memory-slice-{index}": 1 for index in placement.slices},
            }
            declared = device(
                mig_name(gpu, profile, placement),
                attributes=attributes,
                capacity=capacities,
                consumes={counter_set_name(gpu): consumed},
                taints=taints,
            )
            yield Offer(device=declared, type=MIG, gpu_uuid=gpu.uuid, profile=profile, placement=placement)


def _passed_through(gpu: Gpu) -> Offer:
    attributes: dict[str, AttributeValue] = {
        "type": VFIO,
        "uuid": str(uuid.uuid5(uuid.NAMESPACE_OID, gpu.pci_address)),
        "productName": gpu.product_name,
        "deviceID": gpu.pci_device_id,
        "vendorID": VENDOR_ID,
        "numa": gpu.numa_node,
        "iommuFDEnabled": gpu.has_iommu_fd,
        **_bus_attributes(gpu),
    }
    capacity = {"addressableMemory": f"{gpu.memory_mib}Mi"}
    return Offer(device=device(vfio_name(gpu), attributes=attributes, capacity=capacity), type=VFIO, gpu_uuid=gpu.uuid)


# --- attributes ---


def _shared_attributes(gpu: Gpu) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "cudaComputeCapability": semantic_version(gpu.cuda_compute_capability),
        "driverVersion": semantic_version(gpu.driver_version),
        "cudaDriverVersion": semantic_version(gpu.cuda_driver_version),
        **_bus_attributes(gpu),
    }
    if gpu.addressing_mode:
        attributes["addressingMode"] = gpu.addressing_mode
    return attributes


def _bus_attributes(gpu: Gpu) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"resource.kubernetes.io/pciBusID": gpu.pci_address}
    if gpu.pcie_root:
        attributes["resource.kubernetes.io/pcieRoot"] = gpu.pcie_root
    return attributes


def _mig_attributes(gpu: Gpu, profile: MigProfile) -> dict[str, AttributeValue]:
    return {"type": MIG, "parentUUID": gpu.uuid, "profile": profile.name, **_shared_attributes(gpu)}


def semantic_version(text: str) -> Version:
    """A version with three numbers and no leading zeros: `580.95.05` is 580.95.5, `8.0` is 8.0.0."""
    numbers = [str(int(number)) for number in _NUMBER.findall(text)[:3]]
    return Version(".".join([*numbers, "0", "0", "0"][:3]))


def _taints(gpu: Gpu, gates: Gates) -> tuple[DeviceTaint, ...]:
    return taints_of(gpu.faults) if gates.nvml_device_health_check else ()


# --- counters ---


def counter_set_name(gpu: Gpu) -> str:
    """The counters that everything on a card shares."""
    return f"gpu-{gpu.minor}-counter-set"


def counters(gpu: Gpu) -> CounterSet:
    """The resources of a card, as counters."""
    return counter_set(counter_set_name(gpu), _totals(gpu))


def _totals(gpu: Gpu) -> dict[str, str | int]:
    """The maximum of each resource over all profiles, and all memory slices."""
    totals: dict[str, str | int] = {
        "memory": f"{max(profile.memory_mib for profile in gpu.mig_profiles)}Mi",
        "multiprocessors": max(profile.multiprocessors for profile in gpu.mig_profiles),
        "copy-engines": max(profile.copy_engines for profile in gpu.mig_profiles),
        "decoders": max(profile.decoders for profile in gpu.mig_profiles),
        "encoders": max(profile.encoders for profile in gpu.mig_profiles),
        "jpeg-engines": max(profile.jpeg_engines for profile in gpu.mig_profiles),
        "ofa-engines": max(profile.ofa_engines for profile in gpu.mig_profiles),
    }
    return totals | {f"memory-slice-{index}": 1 for index in range(MEMORY_SLICES)}


def _capacities(profile: MigProfile) -> dict[str, str | int]:
    return {
        "memory": f"{profile.memory_mib}Mi",
        "multiprocessors": profile.multiprocessors,
        "copyEngines": profile.copy_engines,
        "decoders": profile.decoders,
        "encoders": profile.encoders,
        "jpegEngines": profile.jpeg_engines,
        "ofaEngines": profile.ofa_engines,
    }


def _kebab(name: str) -> str:
    return re.sub(r"([A-Z])", lambda match: f"-{match[1].lower()}", name)
