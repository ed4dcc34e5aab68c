"""Builds CDI specs: what a container gets with a device. Reports all errors at once.

The parts are those of `allot.core.cdi`. Does not know files (`cdi_files`) or claims.
A spec is written for runtimes of any age, so it claims the lowest version that its content needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from allot.core.cdi import (
    DEVICE_NAME,
    HOOK_NAMES,
    VENDOR_OR_CLASS,
    ContainerEdits,
    Device,
    DeviceNode,
    Hook,
    IntelRdt,
    Mount,
    NetDevice,
    Spec,
    minimum_version,
)

_PERMISSIONS = re.compile(r"(?!.*(.).*\1)[rwm]{0,3}", re.ASCII)
_ENVIRONMENT_NAME = re.compile(r"[^=\0]+")
_NODE_TYPES = ("b", "c", "u", "p")


class CdiError(ValueError):
    """A spec that no runtime would accept."""


class Edits(msgspec.Struct, frozen=True, kw_only=True):
    """What changes in a container that gets a device."""

    env: Mapping[str, str] = {}
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes; a CDI device must change something."""
        return self.as_spec().is_empty

    def as_spec(self) -> ContainerEdits:
        """The spec form."""
        return ContainerEdits(
            env=tuple(f"{name}={value}" for name, value in self.env.items()),
            device_nodes=self.device_nodes,
            net_devices=self.net_devices,
            mounts=self.mounts,
            hooks=self.hooks,
            intel_rdt=self.intel_rdt,
            additional_gids=self.additional_gids,
        )


def qualified(kind: str, name: str) -> str:
    """A device for container runtimes."""
    return f"{kind}={name}"


def build_spec(kind: str, devices: Mapping[str, Edits], common: Edits | None = None) -> dict[str, Any]:
    """A spec file's content; CdiError lists all problems."""
    problems = [*_check_kind(kind), *_check_devices(devices)]
    if common is not None:
        problems += [f"containerEdits: {text}" for text in _check_edits(common)]
    if problems:
        raise CdiError(f"CDI spec {kind!r}: " + "; ".join(problems))
    spec = Spec(
        cdi_version="",
        kind=kind,
        devices=tuple(Device(name=name, container_edits=edits.as_spec()) for name, edits in devices.items()),
        container_edits=common.as_spec() if common is not None else ContainerEdits(),
    )
    plain: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(spec, cdi_version=minimum_version(spec)))
    return plain


# --- what makes a spec invalid ---


def check_kind(kind: str) -> None:
    """CdiError if the text is not `vendor/class`."""
    problems = _check_kind(kind)
    if problems:
        raise CdiError(f"CDI kind {kind!r}: " + "; ".join(problems))


def _check_kind(kind: str) -> list[str]:
    vendor, slash, class_ = kind.partition("/")
    if not slash:
        return ["expected vendor/class"]
    rule = "expected a letter, then letters, digits, '_', '-', '.', and a letter or digit at the end"
    return [
        f"{what} {name!r}: {rule}"
        for what, name in (("vendor", vendor), ("class", class_))
        if VENDOR_OR_CLASS.fullmatch(name) is None
    ]


def _check_devices(devices: Mapping[str, Edits]) -> list[str]:
    if not devices:
        return ["expected at least one device"]
    found = []
    for name, edits in devices.items():
        if DEVICE_NAME.fullmatch(name) is None:
            found.append(
                f"device {name!r}: expected letters, digits, '_', '-', '.', ':', and a letter or digit at both ends"
            )
        if edits.is_empty:
            found.append(f"device {name!r}: changes nothing")
        found += [f"device {name!r}: {text}" for text in _check_edits(edits)]
    return found


def _check_edits(edits: Edits) -> list[str]:
    found = [
        f"env name {name!r}: expected text without '='" for name in edits.env if not _ENVIRONMENT_NAME.fullmatch(name)
    ]
    found += [f"env {name}: value contains a NUL" for name, value in edits.env.items() if "\0" in value]
    for node in edits.device_nodes:
        if not node.path.startswith("/"):
            found.append(f"device node {node.path!r}: expected an absolute path")
        if node.type and node.type not in _NODE_TYPES:
            found.append(f"device node {node.path!r}: type {node.type!r}, expected one of b, c, u, p")
        if _PERMISSIONS.fullmatch(node.permissions) is None:
            found.append(f"device node {node.path!r}: permissions {node.permissions!r}, expected r, w, m once each")
    for mount in edits.mounts:
        if not mount.host_path or not mount.container_path:
            found.append(f"mount {mount.host_path!r} on {mount.container_path!r}: expected two paths")
    for hook in edits.hooks:
        if hook.hook_name not in HOOK_NAMES:
            found.append(f"hook {hook.hook_name!r}: expected one of {', '.join(HOOK_NAMES)}")
        if not hook.path:
            found.append(f"hook {hook.hook_name!r}: expected a path")
    for device in edits.net_devices:
        if not device.host_interface_name or not device.name:
            found.append(f"net device {device.host_interface_name!r} as {device.name!r}: expected two names")
    return found
