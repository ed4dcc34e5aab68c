"""The CDI devices of this machine, from files in some directories, read again when they change.

An invalid file affects only its own devices. If two directories define a device, the later directory wins; if one directory defines it
twice, it is unknown.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allot.core.cdi import Device, DeviceNode, InvalidSpec, Spec, parse_name, parse_spec
from allot.node.cdi.edits import Merged, merge_devices
from allot.yaml_values.reader import read_yaml

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
FILE_BYTES_MAX = 8 * 1024 * 1024
_SUFFIXES = (".json", ".yaml")
_ERRORS_TOLD_MAX = 3


class Unresolvable(Exception):
    """CDI devices that are unknown, or that two files claim."""


class _File(msgspec.Struct, frozen=True):
    """A file as it was read."""

    path: Path
    version: tuple[int, int, int]
    priority: int
    spec: Spec | None
    error: str


class _Found(msgspec.Struct, frozen=True):
    """Where a device is."""

    file: _File
    device: Device


class CdiRegistry:
    """Devices by their qualified names. Directories with lower priority come first; a missing one is empty."""

    def __init__(self, folders: Sequence[Path] = FOLDERS) -> None:
        self._folders = tuple(folders)
        self._files: dict[Path, _File] = {}
        self._devices: dict[str, _Found] = {}
        self._conflicts: dict[str, tuple[Path, ...]] = {}

    @property
    def errors(self) -> Mapping[Path, str]:
        """Files that cannot be used, and why."""
        return {file.path: file.error for file in self._files.values() if file.error}

    @property
    def conflicts(self) -> Mapping[str, tuple[Path, ...]]:
        """Devices that several files of one folder claim."""
        return self._conflicts

    @property
    def devices(self) -> tuple[str, ...]:
        """The qualified names of all devices that can be used."""
        return tuple(sorted(self._devices))

    def resolve(self, names: Sequence[str]) -> Merged:
        """A container's edits for devices, in the requested order; Unresolvable. Files are checked again."""
        self.refresh()
        found: list[tuple[Spec, Device]] = []
        missing: list[str] = []
        for name in dict.fromkeys(names):
            place = self._devices.get(name)
            if place is None or place.file.spec is None:
                missing.append(name)
            else:
                found.append((place.file.spec, place.device))
        if missing:
            raise Unresolvable(self._why(missing))
        merged = merge_devices(found)
        try:
            nodes = tuple(map(complete, merged.device_nodes))
        except OSError as error:
            raise Unresolvable(f"CDI devices {', '.join(names)}: {error}") from error
        return msgspec.structs.replace(merged, device_nodes=nodes)

    def refresh(self) -> None:
        """Read what has changed."""
        files: dict[Path, _File] = {}
        has_changed = False
        for priority, folder in enumerate(self._folders):
            for path, version in _spec_files(folder):
                known = self._files.get(path)
                if known is None or known.version != version or known.priority != priority:
                    known = _read(path, version, priority)
                    has_changed = True
                files[path] = known
        if has_changed or files.keys() != self._files.keys():
            self._files = files
            self._index()

    def _index(self) -> None:
        found: dict[str, list[_Found]] = {}
        for file in self._files.values():
            if file.spec is not None:
                for device in file.spec.devices:
                    found.setdefault(file.spec.qualified(device), []).append(_Found(file, device))
        self._devices, self._conflicts = {}, {}
        for name, places in found.items():
            highest = max(place.file.priority for place in places)
            best = [place for place in places if place.file.priority == highest]
            if len(best) == 1:
                self._devices[name] = best[0]
            else:
                self._conflicts[name] = tuple(place.file.path for place in best)

    def _why(self, missing: Sequence[str]) -> str:
        text = f"unresolvable CDI devices {', '.join(missing)}"
        reasons: list[str] = []
        for name in missing:
            try:
                parse_name(name)
            except InvalidSpec as error:
                reasons.append(str(error))
            if name in self._conflicts:
                reasons.append(f"{name} conflicts in {' and '.join(map(str, self._conflicts[name]))}")
        reasons += [f"{path}: {error}" for path, error in self.errors.items()]
        if reasons:
            more = len(reasons) - _ERRORS_TOLD_MAX
            text += f" ({'; '.join(reasons[:_ERRORS_TOLD_MAX])}{f'; {more} more' if more > 0 else ''})"
        return text


def _spec_files(folder: Path) -> list[tuple[Path, tuple[int, int, int]]]:
    found = []
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return []
    for entry in entries:
        if not entry.name.endswith(_SUFFIXES):
            continue
        try:
            status = entry.stat()
        except OSError:
            continue  # it has just disappeared
        if stat.S_ISREG(status.st_mode):
            found.append((Path(entry.path), (status.st_ino, status.st_mtime_ns, status.st_size)))
    return found


def _read(path: Path, version: tuple[int, int, int], priority: int) -> _File:
    try:
        if version[2] > FILE_BYTES_MAX:
            raise InvalidSpec(f"has {version[2]} bytes, at most {FILE_BYTES_MAX} are read")
        return _File(path, version, priority, parse_spec(_decode(path)), "")
    except (InvalidSpec, OSError) as error:
        return _File(path, version, priority, None, str(error))


def _decode(path: Path) -> Any:
    content = path.read_bytes()
    try:
        if path.suffix == ".json":
            return json.loads(content)
        return read_yaml(content)
    except (ValueError, RecursionError) as error:
        raise InvalidSpec(" ".join(str(error).split())) from error


def complete(node: DeviceNode) -> DeviceNode:
    """Complete a device node from the host's file; OSError if it does not exist or is not a device."""
    if node.type and (node.major or node.type == "p"):
        return node
    status = Path(node.source).stat()
    kind = next((letter for letter, test in _TESTS.items() if test(status.st_mode)), "")
    if not kind:
        raise OSError(f"{node.source}: not a device node")
    if node.type and kind != node.type.replace("u", "c"):
        raise OSError(f"{node.source}: is a device of type {kind!r}, expected {node.type!r}")
    if kind == "p":
        return msgspec.structs.replace(node, type=kind)
    return msgspec.structs.replace(
        node, type=node.type or kind, major=os.major(status.st_rdev), minor=os.minor(status.st_rdev)
    )


_TESTS = {"b": stat.S_ISBLK, "c": stat.S_ISCHR, "p": stat.S_ISFIFO}
