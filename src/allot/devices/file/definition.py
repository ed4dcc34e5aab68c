"""The format of a device file. Everything else is an error that names the line.

    driver: fpga.example.com
    nodeSelector: {rack: a}            # of simulated nodes; without it they are on all
    devices:
    - name: fpga-{index}
      count: 4
      attributes: {model: U280, slot: {int: "{index}"}}
      capacity: {memory: 8Gi}
      edits: {deviceNodes: [{path: "/dev/fpga{index}"}]}
    configuration:
    - {apiVersion: fpga.example.com/v1, kind: FpgaConfig, schema: {...}, env: {BITSTREAM: bitstream}}
    deviceClasses:
    - {name: fpga.example.com}         # the default

Devices are checked by the API server's rules, CDI edits by those of container runtimes, schemas by those of custom resources.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec

from allot.core import cdi
from allot.core.advice.nearest import did_you_mean
from allot.core.customresources.definition import check_schema
from allot.core.features import ALL_GATES
from allot.core.lifecycle.slice_publishing import Pool, check_pools
from allot.core.model.codec import encode
from allot.core.model.decoding import DecodeError
from allot.core.model.meta import ObjectMeta, RawJSON
from allot.core.model.resource_v1 import (
    CELDeviceSelector,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceSelector,
    DeviceTaint,
    OpaqueDeviceConfiguration,
)
from allot.core.quantity import QuantityError
from allot.core.validation import formats
from allot.core.validation.validate import check_object
from allot.devices.file.expansion import ExpansionError, expand
from allot.devices.structured_files import Field, Lines, parse_document, read_bytes
from allot.driver import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    ConfigKind,
    Version,
    amount,
    counter_set,
    device,
    quantity,
)
from allot.driver.cdi import CdiError, Edits, build_spec
from allot.driver.configuration import ConfigError, decode_parameters
from allot.driver.declare import AttributeValue

COUNT_MAX = 4096
# Sockets and directories are named after the driver.
_NAME_LENGTH_MAX = 63
_EXAMPLE_NODE = "node"

Scalar = str | int | bool
Amount = str | int


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A part of a file."""


class TypedAttribute(_Part, frozen=True, kw_only=True):
    """An attribute with an explicit type: a version, or a number from `{index}`. Exactly one is set."""

    int_: str | int | None = msgspec.field(default=None, name="int")
    string: str | None = None
    version: str | None = None
    versions: tuple[str, ...] | None = None


class Range(_Part, frozen=True, kw_only=True):
    """Amounts that may be requested."""

    min: Amount
    max: Amount | None = None
    step: Amount | None = None


class RequestPolicy(_Part, frozen=True, kw_only=True):
    """As in the API: which amounts of a capacity may be requested."""

    default: Amount | None = None
    valid_values: tuple[Amount, ...] = ()
    valid_range: Range | None = None


class SharedAmount(_Part, frozen=True, kw_only=True):
    """A capacity with the amounts that may be requested of it."""

    value: Amount
    request_policy: RequestPolicy | None = None


class Taint(_Part, frozen=True, kw_only=True):
    """A taint of a device."""

    key: str
    effect: str
    value: str = ""


class EditsEntry(_Part, frozen=True, kw_only=True):
    """What a container gets. env_lists: a value per device, joined by commas for all devices of the claim."""

    env: Mapping[str, Amount] = {}
    env_lists: Mapping[str, Amount] = {}
    device_nodes: tuple[cdi.DeviceNode, ...] = ()
    mounts: tuple[cdi.Mount, ...] = ()
    hooks: tuple[cdi.Hook, ...] = ()
    net_devices: tuple[cdi.NetDevice, ...] = ()
    additional_gids: tuple[int, ...] = ()

    @property
    def edits(self) -> Edits:
        """The edits without the lists, which depend on a claim."""
        return Edits(
            env={name: str(value) for name, value in self.env.items()},
            device_nodes=self.device_nodes,
            mounts=self.mounts,
            hooks=self.hooks,
            net_devices=self.net_devices,
            additional_gids=self.additional_gids,
        )


class DeviceEntry(_Part, frozen=True, kw_only=True):
    """One device, or `count` of them. shared: several claims may share it. consumes: counters, by counter set."""

    name: str
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 1
    attributes: Mapping[str, Scalar | tuple[Scalar, ...] | TypedAttribute] = {}
    capacity: Mapping[str, Amount | SharedAmount] = {}
    consumes: Mapping[str, Mapping[str, Amount]] = {}
    shared: bool = False
    taints: tuple[Taint, ...] = ()
    edits: EditsEntry = EditsEntry()

    def numbered(self, node: str) -> Iterator[DeviceEntry]:
        """One entry per device; ExpansionError."""
        plain = msgspec.to_builtins(self)
        for index in range(self.count):
            yield msgspec.convert({**expand(plain, index, node), "count": 1}, DeviceEntry)

    def device(self) -> Device:
        """The published form; ValueError for an invalid value."""
        return device(
            self.name,
            attributes={name: _attribute(name, value) for name, value in self.attributes.items()},
            capacity={
                name: amount(value.value, _policy(value.request_policy))
                if isinstance(value, SharedAmount)
                else amount(value)
                for name, value in self.capacity.items()
            },
            consumes=self.consumes,
            taints=tuple(DeviceTaint(key=each.key, value=each.value, effect=each.effect) for each in self.taints),
            shared=self.shared,
        )


class CounterEntry(_Part, frozen=True, kw_only=True):
    """One counter set, or `count` of them."""

    name: str
    counters: Mapping[str, Amount]
    count: Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)] = 1

    def counter_sets(self, node: str) -> Iterator[CounterSet]:
        """All counter sets; ExpansionError, QuantityError."""
        plain = msgspec.to_builtins(self)
        for index in range(self.count):
            filled = expand(plain, index, node)
            yield counter_set(filled["name"], filled["counters"])


class ConfigurationEntry(_Part, frozen=True, kw_only=True):
    """Parameters for classes and claims. env: variables for containers, each with the field that it takes its value from."""

    api_version: str
    kind: str
    schema: Mapping[str, Any]
    env: Mapping[str, str] = {}

    @property
    def config_kind(self) -> ConfigKind:
        """The SDK's form."""
        return ConfigKind(self.api_version, self.kind, dict, self.schema)


class ClassEntry(_Part, frozen=True, kw_only=True):
    """A device class. selectors: CEL, in addition to the driver. parameters: configuration of all its devices."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource_name: str | None = None
    parameters: tuple[Mapping[str, Any], ...] = ()

    def device_class(self, driver: str) -> DeviceClass:
        """The object."""
        own = f'device.driver == "{driver}"'
        opaque = (
            OpaqueDeviceConfiguration(driver=driver, parameters=RawJSON(msgspec.json.encode(each)))
            for each in self.parameters
        )
        return DeviceClass(
            metadata=ObjectMeta(name=self.name),
            spec=DeviceClassSpec(
                selectors=tuple(
                    DeviceSelector(cel=CELDeviceSelector(expression=each)) for each in (own, *self.selectors)
                ),
                config=tuple(DeviceClassConfiguration(opaque=each) for each in opaque),
                extended_resource_name=self.extended_resource_name,
            ),
        )


class DeviceFile(_Part, frozen=True, kw_only=True):
    """A whole file."""

    driver: str
    devices: tuple[DeviceEntry, ...]
    node_selector: Mapping[str, str] = {}
    counters: tuple[CounterEntry, ...] = ()
    edits: EditsEntry = EditsEntry()
    configuration: tuple[ConfigurationEntry, ...] = ()
    device_classes: tuple[ClassEntry, ...] | None = None

    def entries(self, node: str) -> Iterator[DeviceEntry]:
        """All devices of a node, one entry each."""
        return (each for entry in self.devices for each in entry.numbered(node))

    def counter_sets(self, node: str) -> tuple[CounterSet, ...]:
        """The counters that devices share."""
        return tuple(each for entry in self.counters for each in entry.counter_sets(node))

    @property
    def classes(self) -> tuple[DeviceClass, ...]:
        """The driver's classes: by default one for all its devices."""
        given = (ClassEntry(name=self.driver),) if self.device_classes is None else self.device_classes
        return tuple(each.device_class(self.driver) for each in given)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether nodes with these labels have the devices."""
        return all(labels.get(key) == value for key, value in self.node_selector.items())


def read_device_file(path: Path) -> DeviceFile:
    """A file; Unreadable names the line."""
    return parse_device_file(read_bytes(path, "device file"), str(path))


def parse_device_file(data: bytes, source: str) -> DeviceFile:
    """A text; Unreadable names the line."""
    lines = parse_document(data, source, "with `driver` and a list `devices`")
    return check_device_file(lines.value, (), lines)


def check_device_file(value: Any, field: Field, lines: Lines) -> DeviceFile:
    """A device file within a document; Unreadable names the line."""
    if isinstance(value, dict):
        _check_members(value, field, lines)
    found = lines.convert(value, DeviceFile, field)
    for text in formats.dns_subdomain(found.driver):
        raise lines.at(
            (*field, "driver"), f"driver {found.driver!r}: {text}", "a DNS name of yours such as fpga.example.com"
        )
    if len(found.driver) > _NAME_LENGTH_MAX:
        raise lines.at((*field, "driver"), f"driver {found.driver!r}: expected at most {_NAME_LENGTH_MAX} characters")
    _check_selector(found, field, lines)
    _check_counters(found, field, lines)
    _check_devices(found, field, lines)
    _check_edits(found.edits, (*field, "edits"), "all devices", found.driver, lines)
    _check_configuration(found, field, lines)
    _check_classes(found, field, lines)
    return found


_MEMBERS: Mapping[str, type[_Part]] = {
    "devices": DeviceEntry,
    "counters": CounterEntry,
    "configuration": ConfigurationEntry,
    "deviceClasses": ClassEntry,
}


def _check_members(value: Mapping[str, Any], field: Field, lines: Lines) -> None:
    """Check one by one, to know which is invalid."""
    for name, type_ in _MEMBERS.items():
        entries = value.get(name)
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            lines.convert(entry, type_, (*field, name, index))


def _check_selector(found: DeviceFile, field: Field, lines: Lines) -> None:
    for key, value in found.node_selector.items():
        for why in (*formats.label_key(key), *formats.label_value(value)):
            raise lines.at((*field, "nodeSelector", key), f"label {key!r}: {value!r}: {why}")


def _check_counters(found: DeviceFile, field: Field, lines: Lines) -> None:
    names: set[str] = set()
    for index, entry in enumerate(found.counters):
        place = (*field, "counters", index)
        try:
            sets = tuple(entry.counter_sets(_EXAMPLE_NODE))
        except (ExpansionError, QuantityError) as error:
            raise lines.at(place, f"counter set {entry.name!r}: {error}") from None
        for each in sets:
            if each.name in names:
                raise lines.at(place, f"counter set {each.name!r} named twice", _count_hint(entry.name, entry.count))
            names.add(each.name)
        # The first represents all: they differ only in their number.
        for text in check_pools(
            found.driver, (Pool(name=_EXAMPLE_NODE, node_name=_EXAMPLE_NODE, counter_sets=sets[:1]),)
        ):
            raise lines.at(place, text)


def _check_devices(found: DeviceFile, field: Field, lines: Lines) -> None:
    counters = found.counter_sets(_EXAMPLE_NODE)
    names: Counter[str] = Counter()
    for index, entry in enumerate(found.devices):
        place = (*field, "devices", index)
        try:
            entries = tuple(entry.numbered(_EXAMPLE_NODE))
            devices = tuple(each.device() for each in entries)
        except (ExpansionError, ValueError, TypeError) as error:
            raise lines.at(place, f"device {entry.name!r}: {error}") from None
        names.update(each.name for each in devices)
        twice = next((each.name for each in devices if names[each.name] > 1), None)
        if twice is not None:
            raise lines.at(place, f"device {twice!r} named twice", _count_hint(entry.name, entry.count))
        for each in devices:
            _check_consumed(each, counters, place, lines)
        # The first and the last represent all: they differ only in their number.
        shown = devices if len(devices) == 1 else (devices[0], devices[-1])
        pool = Pool(name=_EXAMPLE_NODE, node_name=_EXAMPLE_NODE, devices=shown, counter_sets=counters)
        for text in check_pools(found.driver, (pool,)):
            raise lines.at(place, text)
        for one in (entries[0], entries[-1]):
            _check_edits(one.edits, (*place, "edits"), f"device {one.name!r}", found.driver, lines)


def _check_consumed(device_: Device, counters: tuple[CounterSet, ...], place: Field, lines: Lines) -> None:
    known = {each.name: each.counters for each in counters}
    for consumed in device_.consumes_counters:
        there = known.get(consumed.counter_set)
        if there is None:
            text = f"device {device_.name!r}: counter set {consumed.counter_set!r} does not exist"
            raise lines.at((*place, "consumes"), text, did_you_mean(consumed.counter_set, known) or None)
        for name in consumed.counters:
            if name not in there:
                text = f"device {device_.name!r}: counter set {consumed.counter_set!r} has no counter {name!r}"
                raise lines.at((*place, "consumes", consumed.counter_set, name), text, did_you_mean(name, there))


def _count_hint(name: str, count: int) -> str | None:
    return "use {index} in the name to distinguish them" if count > 1 and "{" not in name else None


def _check_edits(entry: EditsEntry, place: Field, what: str, driver: str, lines: Lines) -> None:
    both = set(entry.env) & set(entry.env_lists)
    if both:
        raise lines.at((*place, "envLists", min(both)), f"{what}: {min(both)} is also in env")
    lists = {name: str(value) for name, value in entry.env_lists.items()}
    edits = msgspec.structs.replace(entry.edits, env={**entry.edits.env, **lists})
    if edits.is_empty:
        return
    try:
        build_spec(f"k8s.{driver}/claim", {"device": edits})
    except CdiError as error:
        raise lines.at(place, f"{what}: {error}") from None


def _check_configuration(found: DeviceFile, field: Field, lines: Lines) -> None:
    known: set[tuple[str, str]] = set()
    for index, entry in enumerate(found.configuration):
        place = (*field, "configuration", index)
        if (entry.api_version, entry.kind) in known:
            raise lines.at(place, f"{entry.kind} of {entry.api_version} is described twice")
        known.add((entry.api_version, entry.kind))
        for error in check_schema({"type": "object", **entry.schema}, "schema"):
            raise lines.at((*place, "schema"), f"{entry.kind}: {error}")
        for name, path in entry.env.items():
            _check_path(entry, path, (*place, "env", name), lines)


def _check_path(entry: ConfigurationEntry, path: str, place: Field, lines: Lines) -> None:
    """A variable's field must exist in the schema."""
    schema: Any = entry.schema
    for step in path.split("."):
        properties = schema.get("properties") or {}
        if step not in properties:
            raise lines.at(place, f"{entry.kind} has no field {path!r}", did_you_mean(step, properties) or None)
        schema = properties[step]


def _check_classes(found: DeviceFile, field: Field, lines: Lines) -> None:
    kinds = tuple(each.config_kind for each in found.configuration)
    for index, entry in enumerate(found.device_classes or ()):
        place = (*field, "deviceClasses", index)
        try:
            errors = check_object(encode(entry.device_class(found.driver)), gates=ALL_GATES)
        except DecodeError as error:
            raise lines.at(place, f"device class {entry.name!r}: {error}") from None
        for each in errors:
            raise lines.at(place, f"device class {entry.name!r}: {each}")
        for number, parameters in enumerate(entry.parameters):
            try:
                decode_parameters(msgspec.json.encode(parameters), kinds)
            except ConfigError as error:
                raise lines.at((*place, "parameters", number), f"device class {entry.name!r}: {error}") from None


def _attribute(name: str, value: Scalar | tuple[Scalar, ...] | TypedAttribute) -> AttributeValue:
    if isinstance(value, tuple):
        # Mixed lists are refused by `device`.
        return cast(Sequence[str], value)
    if not isinstance(value, TypedAttribute):
        return value
    given = {key: each for key, each in msgspec.structs.asdict(value).items() if each is not None}
    if len(given) != 1:
        raise ValueError(f"attribute {name!r}: expected one of int, string, version, versions")
    if value.int_ is not None:
        try:
            return int(value.int_)
        except ValueError:
            raise ValueError(f"attribute {name!r}: {value.int_!r}, expected a whole number") from None
    if value.versions is not None:
        return DeviceAttribute(versions=value.versions)
    return Version(value.version) if value.version is not None else str(value.string)


def _policy(policy: RequestPolicy | None) -> CapacityRequestPolicy | None:
    if policy is None:
        return None
    range_ = policy.valid_range
    return CapacityRequestPolicy(
        default=quantity(policy.default) if policy.default is not None else None,
        valid_values=tuple(quantity(each) for each in policy.valid_values),
        valid_range=CapacityRequestPolicyRange(
            min=quantity(range_.min),
            max=quantity(range_.max) if range_.max is not None else None,
            step=quantity(range_.step) if range_.step is not None else None,
        )
        if range_ is not None
        else None,
    )
