"""Node pools of a simulated cloud: `allot up --pool`, `allot plan --pools`, as text or as a file.

    a100-80=a2-ultragpu-1g,min=1,max=2,price=5.07

    pools:
      - name: a100-80
        machine: a2-ultragpu-1g               # a profile; labels, taints, drivers and devices as in a file of nodes
        min: 1
        max: 2
        price: 5.07                           # per hour; the default is an estimate for many machines
        spot: true
        computeClass: fungible                # its nodes have the label and the taint of this ComputeClass
        provisioning: {boot: 40s, driver: 20s}
        stock: 3                              # at all, or in windows: ["10m-25m: 0"]
        faults: {failing: 0.1, silent: 0, deaf: 0, reclaimsPerHour: 2}
    cloud: {seed: 1, timeFactor: 20, quota: 8, reservations: {paid: {machine: a3-highgpu-8g, count: 2}}}

Unknown fields are errors that name the line and the nearest known field.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import msgspec

from allot.core.advice.nearest import did_you_mean
from allot.core.autoscaling.daemons import ClaimTemplates, with_daemons
from allot.core.autoscaling.pools import Pool, PriceError, parse_price
from allot.core.autoscaling.templates import Template
from allot.core.cel.data.times import SECOND, parse_duration
from allot.core.model.apps_v1 import DaemonSet
from allot.core.model.compute_classes import CLASS_LABEL, NODE_POOL, SPOT
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import DeviceClass, ResourceSlice
from allot.core.selectors import is_label_value
from allot.devices.catalogue import UnknownProfile, find_profile
from allot.devices.file.definition import DeviceFile, check_device_file
from allot.devices.node_files import NAME, NodeSet, Taint, hint_for, with_device_file
from allot.devices.node_templates import objects_of
from allot.devices.simulation import Settings, SettingsError
from allot.devices.structured_files import parse_document, read_bytes, worded
from allot.process.data_files import read_data_file
from allot.reading.errors import Unreadable

POOLS_MAX = 1000
# Instead of a pool: only create pools for ComputeClasses.
AUTO = "auto"
SIZE_MAX = 10_000
_NAME_LENGTH_MAX = 40
_WINDOW = re.compile(r"([0-9a-z.]+)-([0-9a-z.]+): *([0-9]{1,6})")
_Part = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Size = Annotated[int, msgspec.Meta(ge=0, le=SIZE_MAX)]


class Provisioning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long a node takes to register, and then to publish its devices."""

    boot: str = "40s"
    driver: str = "20s"

    @property
    def boot_s(self) -> float:
        """In seconds."""
        return seconds_of(self.boot)

    @property
    def driver_s(self) -> float:
        """In seconds."""
        return seconds_of(self.driver)


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """Faults of machines: the fractions that break, never register, or whose drivers never publish."""

    failing: _Part = 0.0
    silent: _Part = 0.0
    deaf: _Part = 0.0
    reclaims_per_hour: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 0.0


class PoolSpec(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """A pool of a simulated cloud."""

    name: str
    machine: str
    min: _Size = 0
    max: _Size = 10
    initial: _Size | None = None
    price: str | float | int | None = None
    spot: bool = False
    compute_class: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    drivers: Settings = Settings()
    devices: tuple[DeviceFile, ...] = ()
    provisioning: Provisioning = Provisioning()
    stock: _Size | None = None
    windows: tuple[str, ...] = ()
    faults: Faults = Faults()

    def nodes(self, name: str) -> NodeSet:
        """A node of the pool, labelled as in GKE."""
        labels = {NODE_POOL: self.name}
        taints = self.taints
        if self.spot:
            labels[SPOT] = "true"
        if self.compute_class:
            labels[CLASS_LABEL] = self.compute_class
            taints = (*taints, Taint(key=CLASS_LABEL, value=self.compute_class, effect="NoSchedule"))
        labels |= self.labels
        return NodeSet(
            profile=self.machine, name=name, labels=labels, taints=taints, drivers=self.drivers, devices=self.devices
        )

    def with_device_file(self, file: DeviceFile) -> PoolSpec:
        """The pool; its nodes get the devices of a file if it selects them. Unreadable if they already have such a driver."""
        (nodes,) = with_device_file((self.nodes(self.name),), file)
        return msgspec.structs.replace(self, devices=nodes.devices)

    @property
    def price_millionths(self) -> int:
        """The price of a node per hour; by default from the table."""
        if self.price is not None:
            return parse_price(str(self.price))
        return parse_price(price_table().get(self.machine, "0"))

    def stock_windows(self) -> Iterator[tuple[float, float, int]]:
        """Windows: from, to, stock. ValueError."""
        for text in self.windows:
            found = _WINDOW.fullmatch(text)
            if found is None:
                raise ValueError(f"window {text!r}: expected two times and a number such as '10m-25m: 0'")
            yield seconds_of(found[1]), seconds_of(found[2]), int(found[3])


class Reservation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Machines reserved for ComputeClasses that name them."""

    machine: str
    count: _Size


class Cloud(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"):
    """Settings of all pools. auto: there may be only pools created for ComputeClasses."""

    seed: int = 0
    time_factor: Annotated[float, msgspec.Meta(gt=0, le=1_000_000)] = 1.0
    quota: _Size | None = None
    auto: bool = False
    reservations: Mapping[str, Reservation] = {}


class PoolFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Pools, and their cloud."""

    pools: tuple[PoolSpec, ...] = ()
    cloud: Cloud = Cloud()

    @property
    def is_used(self) -> bool:
        """Whether there is a cloud at all."""
        return bool(self.pools) or self.cloud.auto


@cache
def price_table() -> Mapping[str, str]:
    """Estimates by machine."""
    return read_data_file("allot.devices.profiles", "prices.yaml", dict[str, str])


def seconds_of(text: str) -> float:
    """The seconds of a duration such as 1m30s. ValueError."""
    found = parse_duration(text)
    if found is None or found.nanoseconds < 0:
        raise ValueError(f"{text!r} is not a duration such as 40s or 1m30s")
    return found.nanoseconds / SECOND


def parse_pools(texts: Sequence[str], option: str) -> PoolFile:
    """The pools of `--pool`, each NAME=MACHINE,min=1,… or a file. Unreadable."""
    pools: list[PoolSpec] = []
    cloud = Cloud()
    for text in texts:
        if text.endswith((".yaml", ".yml", ".json")) or ("/" in text and "=" not in text):
            found = read_pool_file(Path(text))
            pools += found.pools
            cloud = found.cloud if found.cloud != Cloud() else cloud
        elif text == AUTO:
            cloud = msgspec.structs.replace(cloud, auto=True)
        else:
            pools.append(_parse(text, option))
    _check_names(pools, lambda _index, problem: Unreadable(f"{option}: {problem}"))
    return PoolFile(pools=tuple(pools), cloud=cloud)


def _parse(text: str, option: str) -> PoolSpec:
    head, *rest = text.split(",")
    name, equals, machine = head.partition("=")
    if not equals or not name or not machine:
        raise Unreadable(f"{option} {text}: expected NAME=MACHINE,min=0,max=10,price=5.07 or a file of pools")
    fields: dict[str, Any] = {"name": name, "machine": machine}
    numbers = ("min", "max", "initial", "stock")
    known = (*numbers, "price", "spot", "computeClass", "boot", "driver")
    for each in rest:
        key, equals, value = each.partition("=")
        if key not in known or not (equals or key == "spot"):
            raise Unreadable(f"{option} {text}: {each!r} is unknown", did_you_mean(key, known))
        if key in numbers:
            if not (value.isascii() and value.isdigit()):
                raise Unreadable(f"{option} {text}: {key}: {value!r} is not a number of nodes")
            fields[key] = int(value)
        elif key in ("boot", "driver"):
            fields.setdefault("provisioning", {})[key] = value
        else:
            fields[key] = value != "false" if key == "spot" else value
    try:
        found = msgspec.convert(fields, PoolSpec)
    except msgspec.ValidationError as error:
        raise Unreadable(f"{option} {text}: {worded(error)}") from None
    for _field, problem, hint in _problems(found):
        raise Unreadable(f"{option} {text}: {problem}", hint)
    return found


def read_pool_file(path: Path) -> PoolFile:
    """The pools of a file; Unreadable names the line."""
    lines = parse_document(read_bytes(path, "pool file"), str(path), "with a list `pools`")
    if not isinstance(lines.value, dict):
        raise Unreadable(f"{path}: expected one document with a list `pools`", "see `allot up --help`")
    found = lines.convert(lines.value, PoolFile, ())
    for index, pool in enumerate(found.pools):
        for number, definition in enumerate(lines.value["pools"][index].get("devices", ())):
            check_device_file(definition, ("pools", index, "devices", number), lines)
        for field, problem, hint in _problems(pool):
            raise lines.at(("pools", index, *field), problem, hint)
    for name, kept in found.cloud.reservations.items():
        try:
            find_profile(kept.machine)
        except UnknownProfile as error:
            text = f"machine {kept.machine!r}: unknown machine shape"
            raise lines.at(("cloud", "reservations", name, "machine"), text, hint_for(error)) from None
    _check_names(found.pools, lambda index, text: lines.at(("pools", index, "name"), text))
    return found


def _check_names(pools: Sequence[PoolSpec], problem: Any) -> None:
    names: set[str] = set()
    for index, pool in enumerate(pools):
        if pool.name in names:
            raise problem(index, f"two pools are called {pool.name!r}")
        names.add(pool.name)
    if len(pools) > POOLS_MAX:
        raise problem(0, f"{len(pools)} pools, expected at most {POOLS_MAX}")


def _problems(pool: PoolSpec) -> Iterator[tuple[tuple[str, ...], str, str | None]]:
    """Problems: where, what, and how to fix it."""
    if len(pool.name) > _NAME_LENGTH_MAX or not NAME.fullmatch(pool.name):
        text = f"pool name {pool.name!r}: expected at most {_NAME_LENGTH_MAX} lower-case letters, digits, '-' and '.'"
        yield ("name",), text, None
    if pool.compute_class and not is_label_value(pool.compute_class):
        yield ("computeClass",), f"computeClass {pool.compute_class!r} is not the value of a label", None
    if pool.min > pool.max:
        yield ("min",), f"min {pool.min} is above max {pool.max}", f"max={pool.min} or more, or min={pool.max} or less"
    if pool.initial is not None and not pool.min <= pool.initial <= pool.max:
        nearest = min(max(pool.initial, pool.min), pool.max)
        yield (
            ("initial",),
            f"initial {pool.initial} is not between min {pool.min} and max {pool.max}",
            f"initial={nearest}",
        )
    try:
        _ = pool.price_millionths
    except PriceError as error:
        yield ("price",), str(error), None
    for name in ("boot", "driver"):
        try:
            seconds_of(getattr(pool.provisioning, name))
        except ValueError as error:
            yield ("provisioning", name), f"{name}: {error}", None
    try:
        list(pool.stock_windows())
    except ValueError as error:
        yield ("windows",), str(error), None
    try:
        pool.nodes("x").resolved()
    except UnknownProfile as error:
        yield ("machine",), f"machine {pool.machine!r}: unknown machine shape", hint_for(error)
    except SettingsError as error:
        yield error.field if error.field[0] == "devices" else ("drivers", *error.field), str(error), None


# --- for the autoscaler ---


def template_of(pool: PoolSpec) -> tuple[Template, tuple[DeviceClass, ...]]:
    """The node template of a pool, and the device classes of its drivers."""
    found = list(objects_of(pool.nodes(f"{pool.name}-template")))
    (node,) = (each for each in found if isinstance(each, Node))
    slices = tuple(each for each in found if isinstance(each, ResourceSlice))
    classes = tuple(each for each in found if isinstance(each, DeviceClass))
    return Template(node=node, slices=slices, source=f"profile {pool.machine}"), classes


def as_pool(
    pool: PoolSpec,
    size: int = 0,
    daemons: Sequence[DaemonSet] = (),
    claim_templates: ClaimTemplates | None = None,
) -> Pool:
    """A pool as decisions see it. daemons, claim_templates: those of the cluster."""
    return Pool(
        name=pool.name,
        template=with_daemons(template_of(pool)[0], daemons, claim_templates),
        size=size,
        min_size=pool.min,
        max_size=pool.max,
        price=pool.price_millionths,
    )
