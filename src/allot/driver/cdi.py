"""CDI specs: what a container gets with a device, in the words of the Container Device Interface, version 1.1.

Knows: names, the lowest version that a spec may claim, what makes a spec invalid. Does not know files (`cdi_files`) or claims.
A spec is written for runtimes of any age, so it claims the lowest version that its content needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_VENDOR_OR_CLASS = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
_PERMISSIONS = re.compile(r"(?!.*(.).*\1)[rwm]{0,3}", re.ASCII)
_ENVIRONMENT_NAME = re.compile(r"[^=\0]+")
_NODE_TYPES = ("b", "c", "u", "p")


class CdiError(ValueError):
    """A spec that no runtime would take."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of a spec, camelCase on disk, defaults left out."""


class DeviceNode(_Part, frozen=True, kw_only=True):
    """A device file in the container. What is not given is read from the file of the host."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(_Part, frozen=True, kw_only=True):
    """A file or directory of the host in the container."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Part, frozen=True, kw_only=True):
    """A program of the host that the runtime runs at a moment of the container's life."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(_Part, frozen=True, kw_only=True):
    """A network interface that moves from the host into the container."""

    host_interface_name: str
    name: str


class IntelRdt(_Part, frozen=True, kw_only=True):
    """Cache and memory bandwidth control."""

    clos_id: str = msgspec.field(default="", name="closID")
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False


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
        return not self.as_json()

    def as_json(self) -> dict[str, Any]:
        """As the spec says it."""
        parts: dict[str, Any] = {
            "env": [f"{name}={value}" for name, value in self.env.items()],
            "deviceNodes": _plain(self.device_nodes),
            "netDevices": _plain(self.net_devices),
            "mounts": _plain(self.mounts),
            "hooks": _plain(self.hooks),
            "intelRdt": msgspec.to_builtins(self.intel_rdt) if self.intel_rdt is not None else None,
            "additionalGids": list(self.additional_gids),
        }
        return {name: value for name, value in parts.items() if value}


def _plain(parts: Iterable[_Part]) -> list[Any]:
    return [msgspec.to_builtins(part) for part in parts]


def qualified(kind: str, name: str) -> str:
    """A device as a container runtime is told of it."""
    return f"{kind}={name}"


def build_spec(kind: str, devices: Mapping[str, Edits], common: Edits | None = None) -> dict[str, Any]:
    """A spec file's content; CdiError names everything that is wrong with it."""
    problems = [*_check_kind(kind), *_check_devices(devices)]
    if common is not None:
        problems += [f"containerEdits: {text}" for text in _check_edits(common)]
    if problems:
        raise CdiError(f"CDI spec {kind!r}: " + "; ".join(problems))
    spec: dict[str, Any] = {
        "cdiVersion": lowest_version(kind, devices, common),
        "kind": kind,
        "devices": [{"name": name, "containerEdits": edits.as_json()} for name, edits in devices.items()],
    }
    if common is not None and not common.is_empty:
        spec["containerEdits"] = common.as_json()
    return spec


def lowest_version(kind: str, devices: Mapping[str, Edits], common: Edits | None = None) -> str:
    """The lowest version in which the content is legal."""
    version = (0, 3)
    if "." in kind.partition("/")[2]:
        version = max(version, (0, 6))
    if any(name[:1].isdigit() for name in devices):
        version = max(version, (0, 5))
    for edits in (*devices.values(), *((common,) if common is not None else ())):
        version = max(version, _version_of(edits))
    return f"{version[0]}.{version[1]}.0"


def _version_of(edits: Edits) -> tuple[int, int]:
    rdt = edits.intel_rdt
    if edits.net_devices or (rdt is not None and (rdt.schemata or rdt.enable_monitoring)):
        return 1, 1
    if rdt is not None or edits.additional_gids:
        return 0, 7
    if any(node.host_path for node in edits.device_nodes):
        return 0, 5
    if any(mount.type for mount in edits.mounts):
        return 0, 4
    return 0, 3


# --- what makes a spec invalid ---


def check_kind(kind: str) -> None:
    """CdiError if the text is no `vendor/class`."""
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
        if _VENDOR_OR_CLASS.fullmatch(name) is None
    ]


def _check_devices(devices: Mapping[str, Edits]) -> list[str]:
    if not devices:
        return ["expected at least one device"]
    found = []
    for name, edits in devices.items():
        if _DEVICE.fullmatch(name) is None:
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
