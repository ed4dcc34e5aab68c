"""The ResourceSlices that publish a driver's pools, and the writes that create them.

A driver names devices and counters; here they are split into slices that the API accepts, compared with existing slices, and
turned into deletes, updates and creates. Names and generations follow Kubernetes' Go helper (resourceslice controller, 1.37), so
that either can take over the slices of the other: a slice's name starts with its index, a pool keeps its generation while one
write is enough, and otherwise all its slices get the next one.

Knows: the limits of the API. Does not know how writes are executed, or what hardware is behind a device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from allot.core.features import ALL_GATES, FeatureGates
from allot.core.model.codec import encode
from allot.core.model.core_v1 import NodeSelector
from allot.core.model.meta import ObjectMeta, OwnerReference
from allot.core.model.resource_v1 import (
    SLICE_COUNTER_SETS_MAX,
    SLICE_DEVICES_MAX,
    SLICE_DEVICES_WITH_FEATURES_MAX,
    CounterSet,
    Device,
    DeviceTaint,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from allot.core.validation.device import has_list_attribute
from allot.core.validation.validate import check_object

INDEX_DIGITS_MIN = 5
# A pool with more slices is a mistake; the scheduler would have to read them all.
SLICES_MAX = 4096
_INDEX = re.compile(r"([0-9a-f]+)-")
_PROBLEMS_MAX = 20


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """Devices that belong together, and their shared counters. Without a node selection it is local to this node."""

    name: str
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()
    # At least this generation, for drivers that keep their own count.
    generation: int = 0


class Update(msgspec.Struct, frozen=True):
    """New content for a slice."""

    slice: ResourceSlice
    spec: ResourceSliceSpec


class Writes(msgspec.Struct, frozen=True, kw_only=True):
    """What to do, in this order."""

    deletes: tuple[ResourceSlice, ...] = ()
    updates: tuple[Update, ...] = ()
    creates: tuple[ResourceSlice, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing needs to be written."""
        return not (self.deletes or self.updates or self.creates)


# What was written to a slice and what the server stored, by slice name: fields of disabled features are dropped.
Accepted = Mapping[str, tuple[ResourceSliceSpec, ResourceSliceSpec]]


# --- cutting ---


def cut(driver: str, pool: Pool) -> tuple[ResourceSliceSpec, ...]:
    """The slices of a pool, in order of preference; counters in separate slices (a slice has either), at least one slice, so that
    a pool without devices is known to be empty. Generation is left 0.
    """
    contents: list[tuple[tuple[CounterSet, ...] | None, tuple[Device, ...] | None]] = []
    for first in range(0, len(pool.counter_sets), SLICE_COUNTER_SETS_MAX):
        contents.append((pool.counter_sets[first : first + SLICE_COUNTER_SETS_MAX], None))
    contents.extend((None, chunk) for chunk in _chunks(pool.devices))
    if not contents:
        contents.append((None, ()))
    return tuple(
        ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool.name, resource_slice_count=len(contents)),
            node_name=pool.node_name,
            node_selector=pool.node_selector,
            all_nodes=pool.all_nodes,
            per_device_node_selection=pool.per_device_node_selection,
            devices=devices,
            shared_counters=counters,
            partition_type_attribute=_partition_type(pool, devices),
            skip_node_operations=pool.skip_node_operations,
        )
        for counters, devices in contents
    )


def _chunks(devices: Sequence[Device]) -> list[tuple[Device, ...]]:
    """As many devices per slice as the API allows: fewer if one of them uses an expensive feature."""
    chunks: list[tuple[Device, ...]] = []
    chunk: list[Device] = []
    is_demanding = False
    for device in devices:
        demands = is_demanding or _demands(device)
        maximum = SLICE_DEVICES_WITH_FEATURES_MAX if demands else SLICE_DEVICES_MAX
        if len(chunk) >= maximum:
            chunks.append(tuple(chunk))
            chunk, demands = [], _demands(device)
        chunk.append(device)
        is_demanding = demands
    if chunk:
        chunks.append(tuple(chunk))
    return chunks


def _demands(device: Device) -> bool:
    return bool(device.taints or device.consumes_counters or has_list_attribute(device))


def _partition_type(pool: Pool, devices: tuple[Device, ...] | None) -> str | None:
    consumes = any(device.consumes_counters for device in devices or ())
    return pool.partition_type_attribute if consumes else None


# --- checking ---


def check_pools(driver: str, pools: Sequence[Pool], gates: FeatureGates = ALL_GATES) -> tuple[str, ...]:
    """Everything that the API server would refuse, and what it would accept although no scheduler could use it. At most 20 texts:
    a mistake in one device is usually in all of them.
    """
    found: list[str] = []
    names: set[str] = set()
    for pool in pools:
        if pool.name in names:
            found.append(f"pool {pool.name!r}: named twice")
        names.add(pool.name)
        found += _check_pool(driver, pool, gates)
        if len(found) >= _PROBLEMS_MAX:
            break
    return tuple(found[:_PROBLEMS_MAX])


def _check_pool(driver: str, pool: Pool, gates: FeatureGates) -> list[str]:
    where = f"driver {driver!r}, pool {pool.name!r}"
    specs = cut(driver, pool)
    if len(specs) > SLICES_MAX:
        return [f"{where}: {len(specs)} slices, expected at most {SLICES_MAX}"]
    found = [f"{where}: device {name!r} named twice" for name in _repeated(device.name for device in pool.devices)]
    found += [
        f"{where}: counter set {name!r} named twice" for name in _repeated(each.name for each in pool.counter_sets)
    ]
    found += [f"{where}: {text}" for text in _unknown_counters(pool)]
    for spec in specs:
        candidate = ResourceSlice(metadata=ObjectMeta(name="slice"), spec=spec)
        for error in check_object(encode(candidate), gates=gates):
            found.append(f"{where}: {_named(error.field, spec)}{error}")
        if len(found) >= _PROBLEMS_MAX:
            break
    return found


def _repeated(names: Iterable[str]) -> list[str]:
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for name in names:
        if name in seen:
            repeated[name] = None
        seen.add(name)
    return list(repeated)


_DEVICE_FIELD = re.compile(r"spec\.devices\[([0-9]+)\]")


def _named(field: str, spec: ResourceSliceSpec) -> str:
    """The device of a field error: its position in a slice means nothing to the author of a device list."""
    match = _DEVICE_FIELD.match(field)
    if match is None or spec.devices is None or int(match[1]) >= len(spec.devices):
        return ""
    return f"device {spec.devices[int(match[1])].name!r}: "


def _unknown_counters(pool: Pool) -> list[str]:
    sets = {counters.name: counters.counters for counters in pool.counter_sets}
    found = []
    for device in pool.devices:
        for consumed in device.consumes_counters:
            known = sets.get(consumed.counter_set)
            if known is None:
                found.append(f"device {device.name!r}: counter set {consumed.counter_set!r} is not in the pool")
                continue
            for name in consumed.counters:
                if name not in known:
                    found.append(
                        f"device {device.name!r}: counter set {consumed.counter_set!r} has no counter {name!r}"
                    )
    return found


# --- comparing ---


def plan_writes(
    driver: str,
    pool: Pool,
    existing: Sequence[ResourceSlice],
    owner: OwnerReference | None,
    accepted: Accepted | None = None,
) -> Writes:
    """The writes that bring the slices of one pool to the desired state."""
    specs = cut(driver, pool)
    generation = max((slice_.spec.pool.generation for slice_ in existing), default=0)
    digits = max(INDEX_DIGITS_MIN, len(f"{len(specs) - 1:x}"))
    current, obsolete = _matched(existing, len(specs), generation, digits)
    changed = {
        index
        for index, slice_ in current.items()
        if not _is_as_wanted(slice_, _in_generation(specs[index], generation), accepted or {})
    }
    is_bumped = True
    if pool.generation > generation:
        generation = pool.generation
    elif len(current) == len(specs) and len(changed) <= 1:
        is_bumped = False
    else:
        generation += 1
    wanted = [_in_generation(spec, generation) for spec in specs]
    return Writes(
        deletes=tuple(obsolete),
        updates=tuple(
            Update(slice_, _with_times(wanted[index], slice_.spec))
            for index, slice_ in sorted(current.items())
            if is_bumped or index in changed
        ),
        creates=tuple(
            _new_slice(index, digits, spec, owner) for index, spec in enumerate(wanted) if index not in current
        ),
    )


def plan_removal(existing: Sequence[ResourceSlice]) -> Writes:
    """The writes that remove a pool."""
    return Writes(deletes=tuple(existing))


def _matched(
    existing: Sequence[ResourceSlice], count: int, generation: int, digits: int
) -> tuple[dict[int, ResourceSlice], list[ResourceSlice]]:
    current: dict[int, ResourceSlice] = {}
    obsolete = []
    for slice_ in sorted(existing, key=lambda each: each.metadata.name):
        match = _INDEX.match(slice_.metadata.name)
        index = int(match[1], 16) if match is not None and len(match[1]) == digits else -1
        is_current = slice_.spec.pool.generation == generation and 0 <= index < count and index not in current
        if is_current:
            current[index] = slice_
        else:
            obsolete.append(slice_)
    return current, obsolete


def _in_generation(spec: ResourceSliceSpec, generation: int) -> ResourceSliceSpec:
    return msgspec.structs.replace(spec, pool=msgspec.structs.replace(spec.pool, generation=generation))


def _is_as_wanted(slice_: ResourceSlice, wanted: ResourceSliceSpec, accepted: Accepted) -> bool:
    present = slice_.spec
    if _without_times(present, wanted) == wanted:
        return True
    # The server dropped something the last time; writing it again would change nothing, forever.
    written = accepted.get(slice_.metadata.name)
    return written is not None and written[0] == wanted and written[1] == present


def _without_times(present: ResourceSliceSpec, wanted: ResourceSliceSpec) -> ResourceSliceSpec:
    """The existing slice, without the times that the server set on taints for which the driver has none."""
    if not present.devices or not any(device.taints for device in present.devices):
        return present
    times = {
        (device.name, taint.key, taint.effect): taint.time_added
        for device in wanted.devices or ()
        for taint in device.taints
    }

    def stripped(device: Device, taint: DeviceTaint) -> DeviceTaint:
        known = times.get((device.name, taint.key, taint.effect))
        return msgspec.structs.replace(taint, time_added=None) if known is None else taint

    return _with_taints(present, stripped)


def _with_times(wanted: ResourceSliceSpec, present: ResourceSliceSpec) -> ResourceSliceSpec:
    """The desired slice, with the times that existing taints have."""
    times = {
        (device.name, taint.key, taint.value, taint.effect): taint.time_added
        for device in present.devices or ()
        for taint in device.taints
    }
    if not times:
        return wanted

    def timed(device: Device, taint: DeviceTaint) -> DeviceTaint:
        if taint.time_added is not None:
            return taint
        added = times.get((device.name, taint.key, taint.value, taint.effect))
        return msgspec.structs.replace(taint, time_added=added)

    return _with_taints(wanted, timed)


def _with_taints(spec: ResourceSliceSpec, change: Callable[[Device, DeviceTaint], DeviceTaint]) -> ResourceSliceSpec:
    devices = tuple(
        msgspec.structs.replace(device, taints=tuple(change(device, taint) for taint in device.taints))
        if device.taints
        else device
        for device in spec.devices or ()
    )
    return msgspec.structs.replace(spec, devices=devices)


def _new_slice(index: int, digits: int, spec: ResourceSliceSpec, owner: OwnerReference | None) -> ResourceSlice:
    name = f"{index:0{digits}x}-{spec.driver}-" + (f"{owner.name}-" if owner is not None else "")
    metadata = ObjectMeta(generate_name=name, owner_references=(owner,) if owner is not None else ())
    return ResourceSlice(metadata=metadata, spec=spec)
