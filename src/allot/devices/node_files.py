"""Files that say which simulated nodes there are: `allot node --nodes FILE`, `allot up --node FILE`.

    nodes:
      - name: t4                            # the default is made of the profile
        profile: Standard_NC4as_T4_v3
        count: 3                            # then they are t4-0, t4-1 and t4-2
        labels: {zone: a}
        taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
        drivers:                            # settings; which ones there are follows from the profile
          gpu: {featureGates: {DynamicMIG: true}}
          cpu: {}

YAML or JSON. What is not known is an error that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from allot.core.advice.places import Places, nearest_place
from allot.core.validation import formats
from allot.devices.catalogue import Profile, UnknownProfile, find_profile
from allot.devices.profiles.nvlink import rack_labels
from allot.devices.simulation import Settings, SettingsError, SimulatedDrivers
from allot.reading.documents import parse_documents
from allot.reading.errors import Unreadable

NODES_MAX = 20_000
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
NAME_LENGTH_MAX = 253
_UNKNOWN_FIELD = re.compile(r"Object contains unknown field `([^`]*)`")
_AT = re.compile(r" - at `\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")

Field = tuple[str | int, ...]


class Taint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A taint of a node."""

    key: Annotated[str, msgspec.Meta(min_length=1)]
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeSet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Nodes that are alike."""

    profile: str
    name: str = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=NODES_MAX)] = 1
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    drivers: Settings = Settings()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all nodes."""
        first = self.name or default_name(self.profile)
        return (first,) if self.count == 1 else tuple(f"{first}-{index}" for index in range(self.count))

    def labels_by_node(self, profile: Profile) -> Mapping[str, Mapping[str, str]]:
        """What tells the nodes apart: the rack that each is in, where NVLink joins machines."""
        machines = profile.machine.nvlink_domain_machines if profile.machine is not None else 1
        return rack_labels(self.name or default_name(self.profile), self.names, machines)

    def resolved(self) -> tuple[Profile, SimulatedDrivers]:
        """What the nodes are; UnknownProfile, SettingsError."""
        profile = find_profile(self.profile)
        return profile, SimulatedDrivers(profile, self.drivers)


class NodeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole file."""

    nodes: tuple[NodeSet, ...] = ()


def default_name(profile: str) -> str:
    """What nodes of a profile are called, unless they are given a name."""
    return re.sub(r"[^a-z0-9.]+", "-", profile.lower()).strip("-.")


def read_node_file(path: Path) -> NodeFile:
    """The node sets of a file; Unreadable names the line."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"node file {path}: {(error.strerror or str(error)).lower()}") from None
    return parse_node_file(data, str(path))


def parse_node_file(data: bytes, source: str) -> NodeFile:
    """The node sets of a text; Unreadable names the line."""
    documents = parse_documents(data, source, places=True)
    if len(documents) != 1:
        raise Unreadable(f"{source}: {len(documents)} documents: expected one, with a list `nodes`")
    value, places = documents[0].value, documents[0].places
    entries = value.get("nodes") if isinstance(value, dict) else None
    if not isinstance(entries, list):
        raise Unreadable(f"{source}: expected a list `nodes`", "see `allot node --help`")
    for key in value:
        if key != "nodes":
            raise problem_at(source, places, (key,), f"unknown field {key!r}, expected nodes")
    sets: list[NodeSet] = []
    names: set[str] = set()
    for index, entry in enumerate(entries):
        found = _node_set(entry, ("nodes", index), source, places)
        for name in found.names:
            if name in names:
                raise problem_at(source, places, ("nodes", index, "name"), f"two nodes are called {name!r}")
            names.add(name)
        sets.append(found)
    if len(names) > NODES_MAX:
        raise Unreadable(f"{source}: {len(names)} nodes, expected at most {NODES_MAX}")
    return NodeFile(tuple(sets))


def _node_set(entry: Any, field: Field, source: str, places: Places) -> NodeSet:
    try:
        found = msgspec.convert(entry, NodeSet)
    except msgspec.ValidationError as error:
        below, text = reason_of(str(error))
        raise problem_at(source, places, (*field, *below), text) from None
    for name in found.names:
        if len(name) > NAME_LENGTH_MAX or not NAME.fullmatch(name):
            text = f"node name {name!r}: expected lower-case letters, digits, '-' and '.'"
            raise problem_at(source, places, (*field, "name"), text)
    for below, text in _bad_labels(found):
        raise problem_at(source, places, (*field, *below), text)
    try:
        found.resolved()
    except UnknownProfile as error:
        raise problem_at(source, places, (*field, "profile"), str(error), hint_for(error)) from None
    except SettingsError as error:
        raise problem_at(source, places, (*field, "drivers", *error.field), str(error)) from None
    return found


def _bad_labels(found: NodeSet) -> Iterator[tuple[Field, str]]:
    """What the API server would not take, so that the nodes would never be there."""
    for key, value in found.labels.items():
        for why in (*formats.label_key(key), *formats.label_value(value)):
            yield ("labels", key), f"label {key!r}: {value!r}: {why}"
    for index, taint in enumerate(found.taints):
        for why in (*formats.label_key(taint.key), *formats.label_value(taint.value)):
            yield ("taints", index), f"taint {taint.key!r}: {taint.value!r}: {why}"


def hint_for(error: UnknownProfile) -> str:
    """What to do about a profile that is not there."""
    if error.nearest:
        return f"did you mean {' or '.join(error.nearest)}?"
    return "a machine type of GKE, AWS or AKS, or a model and a number such as h100x8 or v6ex4"


def reason_of(text: str) -> tuple[Field, str]:
    """Where and what, from the words of the decoder."""
    at = _AT.search(text)
    steps = tuple(
        match[1] if match[1] is not None else int(match[2])
        for match in _STEP.finditer(at[1] if at is not None else "")
        if match[2] != "..."
    )
    text = text[: at.start()] if at is not None else text
    unknown = _UNKNOWN_FIELD.match(text)
    if unknown is not None:
        return (*steps, unknown[1]), f"unknown field {unknown[1]!r}"
    where = ".".join(map(str, steps))
    return steps, f"{where}: {text[0].lower()}{text[1:]}" if where else text[0].lower() + text[1:]


def problem_at(source: str, places: Places, field: Field, text: str, hint: str | None = None) -> Unreadable:
    return Unreadable(f"{source}: line {nearest_place(places, field).line}: {text}", hint)
