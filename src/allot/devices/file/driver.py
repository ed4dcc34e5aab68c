"""The driver of a device file.

A real device exists while its device files exist. A simulated one exists unless it was removed (`lost_devices`); instead of its
device files containers get plain files that belong to their claim, and hooks and network interfaces are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from allot.devices.file.definition import DeviceEntry, DeviceFile, EditsEntry
from allot.devices.lost_devices import read_lost
from allot.driver import (
    AllocatedDevice,
    Claim,
    DeviceHealth,
    DeviceNode,
    Driver,
    Edits,
    Health,
    Mount,
    Pool,
    Prepared,
    PreparedClaim,
    PrepareError,
)
from allot.driver.files import remove_folder

_CLAIMS = "claims"


class FileDriver(Driver):
    """Created by `driver_of`: the SDK reads names from the class. folder: of a simulated node, for simulated device files."""

    rescan_s = 10.0

    def __init__(self, definition: DeviceFile, folder: Path | None = None) -> None:
        self._definition = definition
        self._folder = folder
        self._known: dict[str, DeviceEntry] = {}

    def _entries(self) -> Mapping[str, DeviceEntry]:
        if not self._known:
            self._known = {each.name: each for each in self._definition.entries(self.node.name)}
        return self._known

    def _missing(self) -> dict[str, str]:
        """The missing devices, with their missing files."""
        if self._folder is not None:
            return dict.fromkeys(read_lost(self._folder), "the device is gone")
        found = {}
        for entry in self._entries().values():
            absent = [node.source for node in entry.edits.device_nodes if not Path(node.source).exists()]
            if absent:
                found[entry.name] = f"the device file {absent[0]} is missing"
        return found

    def devices(self) -> Pool:
        """The existing devices."""
        missing = self._missing()
        return Pool(
            name=self.node.name,
            devices=tuple(each.device() for each in self._entries().values() if each.name not in missing),
            counter_sets=self._definition.counter_sets(self.node.name),
        )

    def health(self) -> Iterable[DeviceHealth]:
        """A missing device is unhealthy."""
        missing = self._missing()
        for name in self._entries():
            state = Health.UNHEALTHY if name in missing else Health.HEALTHY
            yield DeviceHealth(name=name, health=state, message=missing.get(name, ""))

    def prepare(self, claim: Claim) -> Iterable[Prepared]:
        """The file's edits, with the values of parameters."""
        missing = self._missing()
        entries = [self._entry(each, missing) for each in claim.devices]
        common = self._definition.edits
        lists = _joined_lists([common, *(entry.edits for entry in entries)])
        found = []
        for position, (allocated, entry) in enumerate(zip(claim.devices, entries, strict=True)):
            own = _merged(common.edits, entry.edits.edits)
            env = {**own.env, **lists, **self._parameters(allocated)}
            edits = msgspec.structs.replace(own, env=env)
            if self._folder is not None:
                edits = _simulated(edits, self._folder / _CLAIMS / claim.uid / str(position))
            found.append(Prepared(allocated, edits))
        return found

    def _entry(self, allocated: AllocatedDevice, missing: Mapping[str, str]) -> DeviceEntry:
        entry = self._entries().get(allocated.name)
        if entry is None:
            raise PrepareError(f"device {allocated.name} is not in the device file")
        if allocated.name in missing:
            raise PrepareError(f"device {allocated.name}: {missing[allocated.name]}")
        return entry

    def _parameters(self, allocated: AllocatedDevice) -> dict[str, str]:
        """Variables with the values of parameters; the claim's override the class's."""
        found = {}
        for config in allocated.configs:
            for kind in self._definition.configuration:
                if (kind.api_version, kind.kind) == (config.value.get("apiVersion"), config.value.get("kind")):
                    values = ((name, _value_at(config.value, path)) for name, path in kind.env.items())
                    found.update({name: _text(value) for name, value in values if value is not None})
        return found

    def unprepare(self, claim: PreparedClaim) -> None:
        """Remove simulated device files."""
        if self._folder is not None:
            remove_folder(self._folder / _CLAIMS / claim.uid)


def driver_of(definition: DeviceFile, folder: Path | None = None) -> FileDriver:
    """The driver that a file describes. folder: see `FileDriver`."""
    configs = tuple(each.config_kind for each in definition.configuration)
    kind: type[FileDriver] = type("FileDriver", (FileDriver,), {"name": definition.driver, "configs": configs})
    return kind(definition, folder)


def _merged(first: Edits, second: Edits) -> Edits:
    return Edits(
        env={**first.env, **second.env},
        device_nodes=(*first.device_nodes, *second.device_nodes),
        mounts=(*first.mounts, *second.mounts),
        hooks=(*first.hooks, *second.hooks),
        net_devices=(*first.net_devices, *second.net_devices),
        additional_gids=(*first.additional_gids, *second.additional_gids),
    )


def _joined_lists(edits: Iterable[EditsEntry]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for each in edits:
        for name, value in each.env_lists.items():
            found.setdefault(name, []).append(str(value))
    return {name: ",".join(values) for name, values in found.items()}


def _simulated(edits: Edits, folder: Path) -> Edits:
    """The edits without hardware: files instead of devices, and only mounts whose source exists."""
    mounts = [each for each in edits.mounts if Path(each.host_path).exists()]
    for number, node in enumerate(edits.device_nodes):
        folder.mkdir(parents=True, exist_ok=True)
        mounts.append(_stand_in(node, folder / str(number)))
    return msgspec.structs.replace(edits, device_nodes=(), hooks=(), net_devices=(), mounts=tuple(mounts))


def _stand_in(node: DeviceNode, path: Path) -> Mount:
    path.touch()
    path.chmod(0o666)
    return Mount(host_path=str(path), container_path=node.path, options=("rw", "rbind"))


def _value_at(value: Any, path: str) -> Any:
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
