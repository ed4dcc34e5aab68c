"""Files that define simulated nodes: `allot node --nodes FILE`, `allot up --node FILE`.

    nodes:
      - name: t4                            # the default comes from the profile
        profile: Standard_NC4as_T4_v3
        count: 3                            # then they are t4-0, t4-1 and t4-2
        labels: {zone: a}
        taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
        drivers:                            # settings; which ones there are follows from the profile
          gpu: {featureGates: {DynamicMIG: true}}
          cpu: {}
        devices: []                         # more drivers, each as in a device file (`devices/file/definition.py`)

YAML or JSON. Unknown fields are errors that name the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from allot.core.scheduling import HOSTNAME
from allot.core.validation import formats
from allot.devices.catalogue import NODES_MAX, Profile, UnknownProfile, find_profile
from allot.devices.file.definition import DeviceFile, check_device_file
from allot.devices.profiles.nvlink import rack_labels
from allot.devices.simulation import Settings, SettingsError, SimulatedDrivers
from allot.devices.structured_files import Field, Lines, parse_document, read_bytes
from allot.reading.errors import Unreadable

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_LENGTH_MAX = 253


class Taint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A taint of a node."""

    key: Annotated[str, msgspec.Meta(min_length=1)]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Equal nodes."""

    profile: str
    name: str = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=NODES_MAX)] = 1
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    drivers: Settings = Settings()
    devices: tuple[DeviceFile, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes."""
        first = self.name or default_name(self.profile)
        return (first,) if self.count == 1 else tuple(f"{first}-{index}" for index in range(self.count))

    def labels_by_node(self, profile: Profile) -> Mapping[str, Mapping[str, str]]:
        """Labels that differ between the nodes: the rack of each, where NVLink joins machines."""
        machines = profile.machine.nvlink_domain_machines if profile.machine is not None else 1
        return rack_labels(self.name or default_name(self.profile), self.names, machines)

    def resolved(self) -> tuple[Profile, SimulatedDrivers]:
        """The nodes' profile and drivers; UnknownProfile, SettingsError."""
        profile = find_profile(self.profile)
        return profile, SimulatedDrivers(profile, self.drivers, self.devices)


class NodeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    nodes: tuple[NodeSet, ...] = ()


def default_name(profile: str) -> str:
    """The default name of a profile's nodes."""
    return re.sub(r"[^a-z0-9.]+", "-", profile.lower()).strip("-.")


def read_node_file(path: Path) -> NodeFile:
    """The node sets of a file; Unreadable names the line."""
    return parse_node_file(read_bytes(path, "node file"), str(path))


def parse_node_file(data: bytes, source: str) -> NodeFile:
    """The node sets of a text; Unreadable names the line."""
    lines = parse_document(data, source, "with a list `nodes`")
    value = lines.value
    entries = value.get("nodes") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise Unreadable(f"{source}: expected a list `nodes`", "see `allot node --help`")
    for key in value:
        if key != "nodes":
            raise lines.at((key,), f"unknown field {key!r}, expected nodes")
    sets: list[NodeSet] = []
    names: set[str] = set()
    for index, entry in enumerate(entries):
        found = _node_set(entry, ("nodes", index), lines)
        for name in found.names:
            if name in names:
                raise lines.at(("nodes", index, "name"), f"two nodes are called {name!r}")
            names.add(name)
        sets.append(found)
    if len(names) > NODES_MAX:
        raise Unreadable(f"{source}: {len(names)} nodes, expected at most {NODES_MAX}")
    return NodeFile(tuple(sets))


def _node_set(entry: Any, field: Field, lines: Lines) -> NodeSet:
    found = lines.convert(entry, NodeSet, field)
    for name in found.names:
        if len(name) > NAME_LENGTH_MAX or not NAME.fullmatch(name):
            text = f"node name {name!r}: expected lower-case letters, digits, '-' and '.'"
            raise lines.at((*field, "name"), text)
    for below, text in _bad_labels(found):
        raise lines.at((*field, *below), text)
    for index, definition in enumerate(entry.get("devices", ())):
        check_device_file(definition, (*field, "devices", index), lines)
    try:
        found.resolved()
    except UnknownProfile as error:
        raise lines.at((*field, "profile"), str(error), hint_for(error)) from None
    except SettingsError as error:
        below = error.field if error.field[0] == "devices" else ("drivers", *error.field)
        raise lines.at((*field, *below), str(error)) from None
    return found


def with_device_file(sets: Sequence[NodeSet], file: DeviceFile) -> tuple[NodeSet, ...]:
    """The same nodes; those that the file selects get its devices, instead of an earlier file of that driver. Unreadable if they
    already have such a driver."""
    found = []
    for each in sets:
        labels = {**find_profile(each.profile).labels, **each.labels}
        if each.count == 1:
            labels = {HOSTNAME: each.names[0], **labels}
        if file.selects(labels):
            others = (other for other in each.devices if other.driver != file.driver)
            each = msgspec.structs.replace(each, devices=(*others, file))
            try:
                each.resolved()
            except SettingsError as error:
                raise Unreadable(f"device file of driver {file.driver}: node {each.names[0]}: {error}") from None
        found.append(each)
    return tuple(found)


def _bad_labels(found: NodeSet) -> Iterator[tuple[Field, str]]:
    """Labels that the API server would refuse, so that the nodes would never exist."""
    for key, value in found.labels.items():
        for why in (*formats.label_key(key), *formats.label_value(value)):
            yield ("labels", key), f"label {key!r}: {value!r}: {why}"
    for index, taint in enumerate(found.taints):
        for why in (*formats.label_key(taint.key), *formats.label_value(taint.value)):
            yield ("taints", index), f"taint {taint.key!r}: {taint.value!r}: {why}"


def hint_for(error: UnknownProfile) -> str:
    """A hint for an unknown profile."""
    if error.nearest:
        return f"did you mean {' or '.join(error.nearest)}?"
    return "a machine type of GKE, AWS or AKS, or a model and a number such as h100x8 or v6ex4"
