"""The Container Device Interface, version 1.1: the parts of a spec, strict parsing, and the minimum version of a spec.

Drivers write specs (`allot.driver.cdi`), agents read them (`allot.node.cdi`); this module touches neither files nor host devices.
The rules are those of the reference library that container runtimes use (container-device-interface 1.1): an unknown key, a bad name
or a version that is too low for the content makes the whole file unusable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
ANNOTATIONS_BYTES_MAX = 256 * 1024
_NODE_TYPES = ("", "b", "c", "u", "p")
_FLOOR = "0.3.0"
VENDOR_OR_CLASS = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
DEVICE_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
_RDT_NAME_MAX = 4096


class InvalidSpec(ValueError):
    """A spec that no runtime accepts, or an invalid name."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A part of a spec, camelCase on disk, defaults left out."""


class DeviceNode(_Part, frozen=True, kw_only=True):
    """A device file in the container; missing values are read from the host's file."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None

    @property
    def source(self) -> str:
        """The file on the host."""
        return self.host_path or self.path


class Mount(_Part, frozen=True, kw_only=True):
    """A host file or directory mounted into the container."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Part, frozen=True, kw_only=True):
    """A host program that runs at a stage of the container's lifecycle."""

    hook_name: str
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: int | None = None


class NetDevice(_Part, frozen=True, kw_only=True):
    """A host network interface that moves into the container."""

    host_interface_name: str
    name: str


class IntelRdt(_Part, frozen=True, kw_only=True):
    """Cache and memory bandwidth."""

    clos_id: str = msgspec.field(default="", name="closID")
    l3_cache_schema: str = ""
    mem_bw_schema: str = ""
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = False
    # Removed from the specification, but older writers still set them.
    enable_cmt: bool = msgspec.field(default=False, name="enableCMT")
    enable_mbm: bool = msgspec.field(default=False, name="enableMBM")


class ContainerEdits(_Part, frozen=True, kw_only=True):
    """Changes to a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    net_devices: tuple[NetDevice, ...] = ()
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = None
    additional_gids: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return self == ContainerEdits()


class Device(_Part, frozen=True, kw_only=True):
    """A device, named within the spec."""

    name: str
    annotations: Mapping[str, str] = {}
    container_edits: ContainerEdits = ContainerEdits()


class Spec(_Part, frozen=True, kw_only=True):
    """A CDI spec file."""

    cdi_version: str
    kind: str
    annotations: Mapping[str, str] = {}
    devices: tuple[Device, ...] = ()
    container_edits: ContainerEdits = ContainerEdits()

    def qualified(self, device: Device) -> str:
        """The name by which a container requests a device."""
        return f"{self.kind}={device.name}"


# --- names ---


def parse_name(name: str) -> tuple[str, str, str]:
    """Vendor, class and device of a qualified name."""
    kind, sign, device = name.partition("=")
    vendor, slash, class_ = kind.partition("/")
    if not sign or not slash or not vendor or not class_ or not device:
        raise InvalidSpec(f"unqualified device {name!r}, expected vendor/class=device")
    check_kind(kind)
    if not DEVICE_NAME.fullmatch(device):
        raise InvalidSpec(f"invalid device name {device!r} in {name!r}")
    return vendor, class_, device


def check_kind(kind: str) -> None:
    vendor, slash, class_ = kind.partition("/")
    if not slash:
        raise InvalidSpec(f"invalid kind {kind!r}, expected vendor/class")
    if not VENDOR_OR_CLASS.fullmatch(vendor):
        raise InvalidSpec(f"invalid vendor {vendor!r} in kind {kind!r}")
    if not VENDOR_OR_CLASS.fullmatch(class_):
        raise InvalidSpec(f"invalid class {class_!r} in kind {kind!r}")


# --- reading ---


def parse_spec(value: Any) -> Spec:
    """A spec from the decoded content of a file; InvalidSpec."""
    try:
        spec = msgspec.convert(_without_nulls(value), Spec)
    except msgspec.ValidationError as error:
        raise InvalidSpec(str(error)) from error
    check_kind(spec.kind)
    _check_annotations(spec.annotations)
    _check_edits(spec.container_edits, "containerEdits")
    if not spec.devices:
        raise InvalidSpec("invalid spec, no devices")
    names: set[str] = set()
    for device in spec.devices:
        if not DEVICE_NAME.fullmatch(device.name):
            raise InvalidSpec(f"invalid device name {device.name!r}")
        if device.name in names:
            raise InvalidSpec(f"invalid spec, multiple device {device.name!r}")
        names.add(device.name)
        if device.container_edits.is_empty:
            raise InvalidSpec(f"device {device.name!r}: invalid device, empty device edits")
        _check_annotations(device.annotations)
        _check_edits(device.container_edits, f"device {device.name!r}")
    _check_version(spec)
    return spec


def _without_nulls(value: Any, depth: int = 0) -> Any:
    """null means absent, as in Go."""
    if depth > 16:
        raise InvalidSpec("nested too deeply")
    if isinstance(value, dict):
        return {name: _without_nulls(each, depth + 1) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each, depth + 1) for each in value]
    return value


def _check_annotations(annotations: Mapping[str, str]) -> None:
    size = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    if size > ANNOTATIONS_BYTES_MAX:
        raise InvalidSpec(f"annotations size {size} is larger than limit {ANNOTATIONS_BYTES_MAX}")


def _check_edits(edits: ContainerEdits, where: str) -> None:
    for problem in _problems(edits):
        raise InvalidSpec(f"{where}: {problem}")


def _problems(edits: ContainerEdits) -> Iterator[str]:
    yield from _bad_variables(edits.env)
    for node in edits.device_nodes:
        if not node.path:
            yield "invalid (empty) device path"
        if node.type not in _NODE_TYPES:
            yield f"device {node.path!r}: invalid type {node.type!r}"
        if set(node.permissions) - set("rwm") or len(set(node.permissions)) < len(node.permissions):
            yield f"device {node.path!r}: invalid permissions {node.permissions!r}"
    for mount in edits.mounts:
        if not mount.host_path:
            yield "invalid mount, empty host path"
        if not mount.container_path:
            yield "invalid mount, empty container path"
    for hook in edits.hooks:
        if hook.hook_name not in HOOK_NAMES:
            yield f"invalid hook name {hook.hook_name!r}"
        if not hook.path:
            yield f"hook {hook.hook_name!r}: invalid hook, empty path"
        yield from _bad_variables(hook.env)
    interfaces: set[str] = set()
    for device in edits.net_devices:
        if not device.host_interface_name or not device.name:
            yield "invalid linux net device, empty HostInterfaceName or Name"
        if device.host_interface_name in interfaces:
            yield f"invalid linux net device, duplicate HostInterfaceName {device.host_interface_name!r}"
        interfaces.add(device.host_interface_name)
    if edits.intel_rdt is not None:
        name = edits.intel_rdt.clos_id
        if len(name) >= _RDT_NAME_MAX or name in (".", "..") or "/" in name or "\n" in name:
            yield "intelRdt: invalid closID"
    if any(not 0 <= gid < 1 << 32 for gid in edits.additional_gids):
        yield "additionalGids: expected 32-bit numbers"


def _bad_variables(variables: tuple[str, ...]) -> Iterator[str]:
    for variable in variables:
        if variable.find("=") < 1:
            yield f"invalid environment variable {variable!r}"


# --- versions ---


def _check_version(spec: Spec) -> None:
    if spec.cdi_version not in VERSIONS:
        raise InvalidSpec(f"invalid version {spec.cdi_version!r}, expected one of {', '.join(VERSIONS)}")
    needed = minimum_version(spec)
    # Versions below the floor are read as the floor: nothing distinguishes the first versions.
    if VERSIONS.index(spec.cdi_version) < VERSIONS.index(needed) and needed != _FLOOR:
        raise InvalidSpec(f"the spec version must be at least v{needed} for its content, it says {spec.cdi_version}")


def minimum_version(spec: Spec) -> str:
    """The lowest version that supports everything in a spec."""
    parts = [spec.container_edits, *(device.container_edits for device in spec.devices)]
    class_ = spec.kind.partition("/")[2]
    if any(_is_new(each) for each in parts):
        return "1.1.0"
    if any(each.intel_rdt is not None or each.additional_gids for each in parts):
        return "0.7.0"
    if spec.annotations or any(device.annotations for device in spec.devices) or "." in class_:
        return "0.6.0"
    if any(device.name[:1].isdigit() for device in spec.devices) or any(
        node.host_path for each in parts for node in each.device_nodes
    ):
        return "0.5.0"
    if any(mount.type for each in parts for mount in each.mounts):
        return "0.4.0"
    return _FLOOR


def _is_new(edits: ContainerEdits) -> bool:
    rdt = edits.intel_rdt
    return bool(edits.net_devices) or (rdt is not None and bool(rdt.schemata or rdt.enable_monitoring))
