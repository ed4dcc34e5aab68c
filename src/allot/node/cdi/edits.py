"""Combines the edits of several devices for one container. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from allot.core.cdi import ContainerEdits, Device, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What a container gets: variables by name, mounts in the order in which to create them."""

    environment: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    additional_gids: tuple[int, ...] = ()
    intel_rdt: IntelRdt | None = None


def merge_devices(devices: Iterable[tuple[Spec, Device]]) -> Merged:
    """In the requested order; edits for all devices of a spec apply once, before its first device."""
    edits: list[ContainerEdits] = []
    seen: list[Spec] = []
    for spec, device in devices:
        if not any(each is spec for each in seen):
            seen.append(spec)
            edits.append(spec.container_edits)
        edits.append(device.container_edits)
    return merge(edits)


def merge(edits: Iterable[ContainerEdits]) -> Merged:
    """Later edits win where only one is possible: a variable, a path."""
    environment: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    nodes: dict[str, DeviceNode] = {}
    interfaces: dict[str, NetDevice] = {}
    hooks: list[Hook] = []
    gids: dict[int, None] = {}
    rdt: IntelRdt | None = None
    for each in edits:
        for variable in each.env:
            name, _, value = variable.partition("=")
            environment[name] = value
        for mount in each.mounts:
            # In its new place: later mounts are created later.
            mounts.pop(mount.container_path, None)
            mounts[mount.container_path] = mount
        nodes |= {node.path: node for node in each.device_nodes}
        interfaces |= {device.host_interface_name: device for device in each.net_devices}
        hooks += each.hooks
        # 0 is root's group, which no container gets this way.
        gids |= dict.fromkeys(gid for gid in each.additional_gids if gid)
        rdt = each.intel_rdt or rdt
    return Merged(
        environment=environment,
        mounts=tuple(sorted(mounts.values(), key=lambda mount: _depth(mount.container_path))),
        device_nodes=tuple(nodes.values()),
        net_devices=tuple(interfaces.values()),
        hooks=tuple(hooks),
        additional_gids=tuple(gids),
        intel_rdt=rdt,
    )


def _depth(path: str) -> int:
    return len([part for part in path.split("/") if part])
