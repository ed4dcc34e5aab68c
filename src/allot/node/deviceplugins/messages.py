"""Messages of device plugins as values, and back."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from allot.core.lifecycle.plugin_devices import Device, Edits, HostPath
from allot.wire import device_plugin_v1beta1_pb2 as wire

_log = logging.getLogger("allot.node.deviceplugins")

ID_CHARACTERS_MAX = 1024
_HEALTHY = "Healthy"


def devices_of(resource: str, listed: Iterable[wire.Device]) -> dict[str, Device]:
    """The devices of a list by id; the last of several with one id counts, as in the kubelet."""
    found = {}
    for each in listed:
        if not 0 < len(each.ID) <= ID_CHARACTERS_MAX:
            _log.warning(
                "device plugin of %s: device %r is ignored: expected an id of 1 to %d characters",
                resource,
                each.ID[:100],
                ID_CHARACTERS_MAX,
            )
            continue
        nodes = tuple(sorted({node.ID for node in each.topology.nodes}))
        found[each.ID] = Device(id=each.ID, is_healthy=each.health == _HEALTHY, numa_nodes=nodes)
    return found


def edits_of(answer: wire.ContainerAllocateResponse) -> Edits:
    """What a plugin adds to a container."""
    return Edits(
        environment=dict(sorted(answer.envs.items())),
        mounts=tuple(
            HostPath(host_path=each.host_path, container_path=each.container_path, read_only=each.read_only)
            for each in answer.mounts
        ),
        devices=tuple(
            HostPath(host_path=each.host_path, container_path=each.container_path, permissions=each.permissions)
            for each in answer.devices
        ),
        annotations=dict(sorted(answer.annotations.items())),
        cdi_devices=tuple(each.name for each in answer.cdi_devices),
    )


def answer_of(edits: Edits) -> wire.ContainerAllocateResponse:
    """The message again, for the checkpoint."""
    return wire.ContainerAllocateResponse(
        envs=edits.environment,
        mounts=[
            wire.Mount(host_path=each.host_path, container_path=each.container_path, read_only=each.read_only)
            for each in edits.mounts
        ],
        devices=[
            wire.DeviceSpec(host_path=each.host_path, container_path=each.container_path, permissions=each.permissions)
            for each in edits.devices
        ],
        annotations=edits.annotations,
        cdi_devices=[wire.CDIDevice(name=name) for name in edits.cdi_devices],
    )
