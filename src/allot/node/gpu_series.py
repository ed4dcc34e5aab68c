"""Metrics of simulated GPUs as from DCGM's exporter: its names and labels, and those of the pod and of the claim.

A GPU shared by several pods is as busy as all of them together, and has a series for each. A MIG instance has its own memory and its
own share of the processors; it has no utilization in percent (as with DCGM), only the ratio GR_ENGINE_ACTIVE.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from allot.core.lifecycle.preparation import ClaimRecord
from allot.core.metrics.declared_usage import PodLoad
from allot.core.metrics.exposition import Sample
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import Device

_MIB = 2**20
_NUMBER = re.compile(r"gpu-([0-9]+)(?:-mig-.*-([0-9]+))?", re.ASCII)
TYPES = {
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_FB_FREE": "gauge",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gauge",
}
# Driver, pool and device.
DeviceName = tuple[str, str, str]


class DeviceFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a GPU or a part of one. uuid: of the whole. profile, part, part_uuid: of a MIG instance."""

    number: str = ""
    uuid: str = ""
    bus: str = ""
    model: str = ""
    memory_bytes: int = 0
    profile: str = ""
    part: str = ""
    part_uuid: str = ""


class Holder(msgspec.Struct, frozen=True):
    """A pod with its load, and its claims with the first container that names each."""

    pod: Pod
    load: PodLoad
    claims: Sequence[tuple[str, ClaimRecord]]


def facts_of(device: Device) -> DeviceFacts | None:
    """Facts about a device; None if it is not a GPU."""
    kind = _text(device, "type")
    if kind not in ("gpu", "mig"):
        return None
    memory = next((each.value for name, each in device.capacity.items() if name.rpartition("/")[2] == "memory"), None)
    number = _NUMBER.fullmatch(device.name)
    facts = DeviceFacts(
        number=number.group(1) if number is not None else "",
        uuid=_text(device, "uuid"),
        bus=_text(device, "pciBusID"),
        model=_text(device, "productName"),
        memory_bytes=memory.nano // 10**9 if memory is not None else 0,
    )
    if kind == "gpu":
        return facts
    return msgspec.structs.replace(
        facts,
        uuid=_text(device, "parentUUID"),
        profile=_text(device, "profile"),
        part=number.group(2) or "" if number is not None else "",
        part_uuid=facts.uuid,
    )


def _text(device: Device, name: str) -> str:
    for key, value in device.attributes.items():
        if key.rpartition("/")[2] == name and value.string is not None:
            return value.string
    return ""


def gpu_series(node: str, holders: Iterable[Holder], facts: Mapping[DeviceName, DeviceFacts]) -> Iterator[Sample]:
    """The series of a node. facts: about its GPUs and their parts."""
    uses: list[tuple[Holder, str, ClaimRecord, DeviceName]] = []
    busy: dict[DeviceName, float] = {}
    memory: dict[DeviceName, int] = {}
    for holder in holders:
        for device, (container, claim) in _devices(holder).items():
            if device in facts:
                uses.append((holder, container, claim, device))
                busy[device] = busy.get(device, 0.0) + holder.load.gpu_percent
                used = holder.load.gpu_memory_bytes
                if used is None:
                    used = int(facts[device].memory_bytes * holder.load.gpu_percent / 100)
                memory[device] = memory.get(device, 0) + used
    for holder, container, claim, device in uses:
        known = facts[device]
        percent = min(busy[device], 100.0)
        total = known.memory_bytes // _MIB
        held = min(memory[device] // _MIB, total)
        labels = _labels(node, known) | _pod_labels(holder.pod, container, claim, device, known)
        if not known.profile:
            yield Sample("DCGM_FI_DEV_GPU_UTIL", labels, percent)
        yield Sample("DCGM_FI_DEV_FB_USED", labels, held)
        yield Sample("DCGM_FI_DEV_FB_FREE", labels, total - held)
        yield Sample("DCGM_FI_PROF_GR_ENGINE_ACTIVE", labels, percent / 100)


def _devices(holder: Holder) -> dict[DeviceName, tuple[str, ClaimRecord]]:
    """Each device of a pod once, whichever containers have it, so that its load counts once."""
    found: dict[DeviceName, tuple[str, ClaimRecord]] = {}
    for container, claim in holder.claims:
        for driver, part in sorted(claim.drivers.items()):
            for device in part.devices:
                found.setdefault((driver, device.pool, device.device), (container, claim))
    return found


def _labels(node: str, known: DeviceFacts) -> dict[str, str]:
    labels = {
        "gpu": known.number,
        "UUID": known.uuid,
        "pci_bus_id": known.bus,
        "device": f"nvidia{known.number}",
        "modelName": known.model,
    }
    if known.profile:
        labels |= {"GPU_I_PROFILE": known.profile, "GPU_I_ID": known.part}
    return {**labels, "hostname": node}


def _pod_labels(pod: Pod, container: str, claim: ClaimRecord, device: DeviceName, known: DeviceFacts) -> dict[str, str]:
    driver, pool, name = device
    labels = {
        "pod": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "container": container,
        "dra_claim_name": claim.name,
        "dra_claim_namespace": claim.namespace,
        "dra_driver_name": driver,
        "dra_pool_name": pool,
        "dra_device_name": name,
    }
    if known.profile:
        labels["dra_mig_profile"] = known.profile
    if known.part_uuid:
        labels["dra_mig_device_uuid"] = known.part_uuid
    return labels
