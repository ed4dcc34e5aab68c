"""Published chips, and the containers' edits. Names and values as in Google's driver."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import msgspec

from allot.devices.tpu.chips import Chip
from allot.devices.tpu.topology import bounds_text, chip_count, chips_per_host, host_bounds, single_host_topology
from allot.driver import Device, DeviceNode, Edits, Mount, device
from allot.driver.declare import AttributeValue

DRIVER_NAME = "tpu.google.com"
BRAND = "Google"
CONTAINER_LOGS = "/tmp/tpu_logs"
VFIO_DEVICE = "/dev/vfio/vfio"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, DRIVER_NAME)


class Slice(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's environment variables for its slice; empty for a single machine."""

    topology: str = ""
    accelerator: str = ""
    worker_id: int = 0
    worker_hostnames: tuple[str, ...] = ("localhost",)


def devices(chips: Sequence[Chip], node: str, part_of: Slice) -> tuple[Device, ...]:
    """A device for each existing chip."""
    topology = part_of.topology or single_host_topology(len(chips))
    # The chips of a machine share their name.
    identity = f"tpu-{uuid.uuid5(_NAMESPACE, node)}"
    return tuple(_device(chip, len(chips), identity, topology, part_of) for chip in chips if chip.is_present)


def _device(chip: Chip, count: int, identity: str, topology: str, part_of: Slice) -> Device:
    attributes: dict[str, AttributeValue] = {
        "index": chip.index,
        "uuid": identity,
        "tpuGen": chip.generation.attribute,
        "brand": BRAND,
        "accelerator": part_of.accelerator or chip.generation.accelerator,
        "chipCount": count,
    }
    if topology:
        attributes["topology"] = topology
    return device(chip.name, attributes=attributes)


def accelerator_type(chip: Chip, topology: str) -> str:
    """A slice's type, as TPU programs name it: `v6e-4`, `v5p-8` (some generations count cores)."""
    return f"{chip.generation.attribute}-{chip_count(topology) * chip.generation.cores}"


def common_edits(chips: Sequence[Chip], part_of: Slice, logs: str) -> Edits:
    """What every container with chips gets. TopologyError if the machine cannot be part of the slice."""
    if not chips:
        return Edits()
    topology = part_of.topology or single_host_topology(len(chips))
    env = {
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_CHIPS_PER_HOST_BOUNDS": bounds_text(chips_per_host(len(chips))),
        "TPU_HOST_BOUNDS": bounds_text(host_bounds(topology, len(chips))),
        "TPU_TOPOLOGY": topology,
        "TPU_ACCELERATOR_TYPE": accelerator_type(chips[0], topology),
        "TPU_WORKER_ID": str(part_of.worker_id),
        "TPU_WORKER_HOSTNAMES": ",".join(part_of.worker_hostnames),
    }
    return Edits(env=env, mounts=(Mount(host_path=logs, container_path=CONTAINER_LOGS, options=("rw", "rbind")),))


def chip_edits(chip: Chip, claim_uid: str) -> Edits:
    """What a container gets with a chip."""
    nodes: list[DeviceNode] = []
    if chip.device_file:
        nodes.append(DeviceNode(path=chip.device_file, permissions="mrw"))
        if chip.device_file.startswith("/dev/vfio/"):
            nodes.append(DeviceNode(path=VFIO_DEVICE, permissions="mrw"))
    return Edits(env={f"TPU_DEVICE_{chip.name}_RESOURCE_CLAIM": claim_uid}, device_nodes=tuple(nodes))
