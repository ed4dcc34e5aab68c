"""The kubelet's checkpoint of devices (1.37): who holds which device, and which resources plugins have served.

The file can be read by the kubelet and was perhaps written by it: a node can move between the two. Its checksum is over the data as Go's
spew prints it, which is done here for this one type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from google.protobuf.message import DecodeError

from allot.core.lifecycle.plugin_devices import Device, Holding, Ledger
from allot.node.deviceplugins.messages import answer_of, edits_of
from allot.node.state_file import CheckpointCorrupt
from allot.wire import device_plugin_v1beta1_pb2 as wire

FILE = "kubelet_internal_checkpoint"
# The kubelet's number for devices without a NUMA node.
_NO_NUMA_NODE = -1
_FNV_OFFSET, _FNV_PRIME = 0x811C9DC5, 0x01000193


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: Mapping[int, Sequence[str] | None] | None = msgspec.field(name="DeviceIDs", default=None)
    alloc_resp: str | None = None


class _Data(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    pod_device_entries: tuple[_Entry, ...] | None = None
    registered_devices: Mapping[str, Sequence[str] | None] | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    data: _Data
    checksum: int


class Checkpoint(msgspec.Struct, frozen=True):
    """The content of the file."""

    ledger: Ledger
    resources: tuple[str, ...]


def encode(ledger: Ledger, resources: Iterable[str]) -> bytes:
    """The file's content. The kubelet also lists the devices of each resource, but never reads them; plugins report them again."""
    data = _Data(
        pod_device_entries=tuple(
            _Entry(
                pod_uid=uid,
                container_name=container,
                resource_name=resource,
                device_ids=_by_numa_node(holding.devices),
                alloc_resp=base64.b64encode(answer_of(holding.edits).SerializeToString(deterministic=True)).decode(),
            )
            for uid, container, resource, holding in ledger
        ),
        registered_devices=dict.fromkeys(sorted(resources), ()),
    )
    return msgspec.json.encode(_File(data=data, checksum=_checksum(data)))


def _by_numa_node(devices: Sequence[Device]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for device in devices:
        for node in device.numa_nodes or (_NO_NUMA_NODE,):
            found.setdefault(node, []).append(device.id)
    return found


def decode(path: Path, content: bytes) -> Checkpoint:
    """Who holds what; CheckpointCorrupt if the content is damaged: a device could be given to a second container."""
    try:
        file = msgspec.json.decode(content, type=_File)
        checksum = _checksum(file.data)
        if checksum != file.checksum:
            raise ValueError(f"its checksum is {file.checksum}, that of its content {checksum}")
        ledger = Ledger()
        for entry in file.data.pod_device_entries or ():
            ledger.hold(entry.pod_uid, entry.container_name, entry.resource_name, _holding(entry))
    except (ValueError, DecodeError, RecursionError) as error:
        raise CheckpointCorrupt(
            path,
            str(error),
            lost="the devices that containers on this node hold are unknown",
            first="end the pods that use devices of device plugins",
        ) from error
    return Checkpoint(ledger, tuple(sorted(file.data.registered_devices or ())))


def _holding(entry: _Entry) -> Holding:
    numa_nodes: dict[str, list[int]] = {}
    for node, ids in sorted((entry.device_ids or {}).items()):
        for id_ in ids or ():
            numa_nodes.setdefault(id_, []).extend(() if node == _NO_NUMA_NODE else (node,))
    answer = wire.ContainerAllocateResponse.FromString(_bytes(entry))
    devices = tuple(Device(id=id_, numa_nodes=tuple(nodes)) for id_, nodes in sorted(numa_nodes.items()))
    return Holding(devices=devices, edits=edits_of(answer))


def _bytes(entry: _Entry) -> bytes:
    try:
        return base64.b64decode(entry.alloc_resp or "", validate=True)
    except binascii.Error as error:
        raise ValueError(f"AllocResp of pod {entry.pod_uid}: {error}") from error


# --- the checksum ---


def _checksum(data: _Data) -> int:
    """FNV-1a of 32 bits, over the printed data."""
    found = _FNV_OFFSET
    for byte in _printed(data).encode():
        found = (found ^ byte) * _FNV_PRIME & 0xFFFFFFFF
    return found


def _printed(data: _Data) -> str:
    entries, registered = data.pod_device_entries, data.registered_devices
    devices = "<nil>" if registered is None else _printed_map(dict(sorted(registered.items(), key=_as_bytes)))
    pods = "<nil>" if entries is None else f"[{' '.join(map(_printed_entry, entries))}]"
    return (
        f"(checkpoint.checkpointData){{PodDeviceEntries:([]checkpoint.PodDevicesEntry){pods} "
        f"RegisteredDevices:(map[string][]string){devices}}}"
    )


def _as_bytes(item: tuple[str, object]) -> bytes:
    return item[0].encode()


def _printed_entry(entry: _Entry) -> str:
    ids = "<nil>" if entry.device_ids is None else _printed_map(dict(sorted(entry.device_ids.items())))
    answer = "<nil>" if entry.alloc_resp is None else f"[{' '.join(map(str, _bytes(entry)))}]"
    return (
        f"{{PodUID:(string){entry.pod_uid} ContainerName:(string){entry.container_name} "
        f"ResourceName:(string){entry.resource_name} DeviceIDs:(checkpoint.DevicesPerNUMA){ids} AllocResp:([]uint8){answer}}}"
    )


def _printed_map(lists: Mapping[int, Sequence[str] | None] | Mapping[str, Sequence[str] | None]) -> str:
    shown = (f"{key}:{'<nil>' if each is None else '[' + ' '.join(each) + ']'}" for key, each in lists.items())
    return f"map[{' '.join(shown)}]"
