"""The devices that can be used from one node, in the order in which they are tried.

Knows generations, incomplete and invalid pools, node selection, and upstream's order: pools by driver and name (those with
binding conditions last), slices by name, devices as listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from allot.core.allocation.counters import PoolCounters
from allot.core.allocation.devices import DeviceEntry, are_simple
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.features import Features
from allot.core.allocation.signature import BLOCKED, REJECTED, USABLE, SelectorFailure, Signature, Verdict
from allot.core.model.core_v1 import Node, NodeSelector
from allot.core.model.resource_v1 import CounterSet, ResourceSlice
from allot.core.selectors import SelectorError
from allot.core.selectors import matches as matches_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from allot.core.allocation.index import AvailabilityIndex

OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"


class PoolID(NamedTuple):
    """A driver's pool."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class SliceEntry:
    """One published slice and the verdicts on its devices."""

    __slots__ = ("_is_simple", "_usable", "devices", "grouped", "indexes", "pool", "slice", "verdicts")

    def __init__(self, slice_: ResourceSlice, devices: tuple[DeviceEntry, ...]) -> None:
        self.slice = slice_
        self.devices = devices
        self.pool = PoolID(slice_.spec.driver, slice_.spec.pool.name)
        self.grouped = any(c.compatibility_groups for d in slice_.spec.devices or () for c in d.consumes_counters)
        # By signature number; None if no device of the slice passes.
        self.verdicts: dict[int, list[Verdict] | None] = {}
        self._usable: dict[int, tuple[DeviceEntry, ...] | None] = {}
        # Indexes of free devices that list some of these.
        self.indexes: list[AvailabilityIndex] = []
        for entry in devices:
            entry.indexes = self.indexes
        self._is_simple: bool | None = None

    @property
    def is_simple(self) -> bool:
        """Whether its devices differ only in what selectors read."""
        if self._is_simple is None:
            self._is_simple = not self.slice.spec.skip_node_operations and are_simple(self.devices)
        return self._is_simple

    def judge(self, signature: Signature) -> list[Verdict] | None:
        """Verdicts on the devices of this slice, computed on first use."""
        try:
            return self.verdicts[signature.number]
        except KeyError:
            verdicts = signature.verdicts(self.devices, are_simple=self.is_simple)
            found = verdicts if any(verdict != REJECTED for verdict in verdicts) else None
            self.verdicts[signature.number] = found
            return found

    def usable(self, signature: Signature) -> tuple[DeviceEntry, ...] | None:
        """The usable devices of this slice; None if that depends on the node or evaluating them may fail."""
        try:
            return self._usable[signature.number]
        except KeyError:
            found: tuple[DeviceEntry, ...] | None = None
            spec = self.slice.spec
            verdicts = self.judge(signature) or ()
            depends_on_node = spec.per_device_node_selection or spec.skip_node_operations
            if not depends_on_node and not any(isinstance(verdict, SelectorFailure) for verdict in verdicts):
                found = tuple(e for e, v in zip(self.devices, verdicts, strict=False) if v == USABLE)
            self._usable[signature.number] = found
            return found

    def forget(self, signature: Signature) -> None:
        """The signature is no longer in use."""
        self.verdicts.pop(signature.number, None)
        self._usable.pop(signature.number, None)


class PoolView:
    """A pool as seen from one node."""

    __slots__ = ("complete", "counters", "id", "invalid", "slices")

    def __init__(self, id_: PoolID) -> None:
        self.id = id_
        self.complete = True
        # Why nothing can be allocated from the pool, if anything.
        self.invalid = ""
        self.slices: tuple[SliceEntry, ...] = ()
        self.counters: PoolCounters | None = None


class Candidates(NamedTuple):
    """Devices that a signature may use from a node, in order; evaluating those in `failures` ends the attempt."""

    devices: tuple[DeviceEntry, ...]
    failures: Mapping[DeviceEntry, SelectorFailure]


class AllDevices(NamedTuple):
    """What an "All" request means on a node."""

    devices: tuple[DeviceEntry, ...]
    # Devices that are never available, because of a taint or a missing feature.
    blocked: tuple[DeviceEntry, ...]
    # Why "All" cannot be determined: the first broken pool, or the first device with a selector failure.
    problem: PoolView | SelectorFailure | None


class NodeView:
    """Everything that can be allocated from one node. Valid until one of its slices changes."""

    __slots__ = ("_all", "_candidates", "counters", "node", "pools", "usable")

    def __init__(self, node: Node, pools: tuple[PoolView, ...]) -> None:
        self.node = node
        self.pools = pools
        self.usable = tuple(pool for pool in pools if pool.complete and not pool.invalid)
        self.counters: dict[DeviceEntry, PoolCounters] = {}
        for pool in self.usable:
            if pool.counters is not None and pool.counters.devices:
                for slice_ in pool.slices:
                    for entry in slice_.devices:
                        if entry.device.consumes_counters:
                            self.counters[entry] = pool.counters
        self._candidates: dict[int, Candidates] = {}
        self._all: dict[int, AllDevices] = {}

    def detach(self) -> None:
        """The view is out of date: stop following the ledger."""
        for pool in self.pools:
            if pool.counters is not None:
                pool.counters.detach()

    def devices(self) -> Iterable[DeviceEntry]:
        """Devices of usable pools in order."""
        for pool in self.usable:
            for slice_ in pool.slices:
                yield from slice_.devices

    def candidates(self, signature: Signature) -> Candidates:
        """Devices that requests of this signature may use, whether free or not."""
        found = self._candidates.get(signature.number)
        if found is None:
            found = self._candidates[signature.number] = self._collect(signature)
        return found

    def _collect(self, signature: Signature) -> Candidates:
        parts: list[tuple[DeviceEntry, ...]] = []
        failures: dict[DeviceEntry, SelectorFailure] = {}
        for pool in self.usable:
            for slice_ in pool.slices:
                usable = slice_.usable(signature)
                if usable is None:
                    judged = [
                        (e, v)
                        for e, v in self._judged(signature, slice_)
                        if v == USABLE or isinstance(v, SelectorFailure)
                    ]
                    usable = tuple(entry for entry, _ in judged)
                    failures.update(
                        (entry, verdict) for entry, verdict in judged if isinstance(verdict, SelectorFailure)
                    )
                if usable:
                    parts.append(usable)
        # One slice, as on most nodes: share its list instead of copying it.
        return Candidates(parts[0] if len(parts) == 1 else tuple(e for part in parts for e in part), failures)

    def all_devices(self, signature: Signature) -> AllDevices:
        """For an "All" request: every matching device, whether free or not."""
        found = self._all.get(signature.number)
        if found is None:
            found = self._all[signature.number] = self._collect_all(signature)
        return found

    def _collect_all(self, signature: Signature) -> AllDevices:
        devices: list[DeviceEntry] = []
        blocked: list[DeviceEntry] = []
        for pool in self.pools:
            # "All" is unknown until every pool is complete, even those that the request could never use, as upstream.
            if not pool.complete or pool.invalid:
                return AllDevices((), (), pool)
            for entry, verdict in (found for slice_ in pool.slices for found in self._judged(signature, slice_)):
                if isinstance(verdict, SelectorFailure):
                    return AllDevices((), (), verdict)
                devices.append(entry)
                if verdict == BLOCKED:
                    blocked.append(entry)
        return AllDevices(tuple(devices), tuple(blocked), None)

    def _judged(self, signature: Signature, slice_: SliceEntry) -> Iterable[tuple[DeviceEntry, Verdict]]:
        """Devices of a slice that are not rejected, considering the node."""
        verdicts = slice_.judge(signature)
        if verdicts is None:
            return
        spec = slice_.slice.spec
        lacking = bool(spec.skip_node_operations) and OPTIONAL_NODE_OPERATIONS not in self.node.status.declared_features
        for entry, verdict in zip(slice_.devices, verdicts, strict=True):
            if verdict == REJECTED:
                continue
            if isinstance(verdict, int):
                if spec.per_device_node_selection and not device_on_node(entry, self.node):
                    continue
                if lacking:
                    yield entry, BLOCKED
                    continue
            yield entry, verdict


def device_on_node(entry: DeviceEntry, node: Node) -> bool:
    """Whether a device of a slice with per-device node selection can be used from the node."""
    device = entry.device
    try:
        return _on_node(node, device.node_name, device.all_nodes, device.node_selector)
    except SelectorError as error:
        where = f"device {entry.id} in slice {entry.slice.metadata.name}"
        raise _no_selection(where, error) from error


def _no_selection(where: str, error: SelectorError) -> AllocationError:
    return AllocationError(
        f"gather pool information: failed to perform node selection for {where}: failed to parse node selector: {error}"
    )


def _on_node(node: Node, name: str | None, all_nodes: bool | None, selector: NodeSelector | None) -> bool:
    if name:
        return node.metadata.name == name
    if all_nodes:
        return True
    if selector is not None:
        return matches_node(selector, node)
    return False


def is_relevant(slice_: SliceEntry, node: Node) -> bool:
    """Whether a slice has anything for the node."""
    spec = slice_.slice.spec
    try:
        if spec.node_name or spec.all_nodes or spec.node_selector is not None:
            return _on_node(node, spec.node_name, spec.all_nodes, spec.node_selector)
        if spec.per_device_node_selection:
            return any(device_on_node(entry, node) for entry in slice_.devices)
    except SelectorError as error:
        raise _no_selection(f"slice {slice_.slice.metadata.name}", error) from error
    return False  # some future kind of node selection


def gather(
    node: Node,
    slices: Iterable[SliceEntry],
    whole_pool: Callable[[PoolID], Iterable[SliceEntry]],
    features: Features,
) -> NodeView:
    """The view of a node.

    slices: those of the node and those without a node name. whole_pool: all slices of a pool in the cluster.
    """
    relevant: dict[PoolID, list[SliceEntry]] = {}
    for slice_ in slices:
        if _ignored(slice_, features) or not is_relevant(slice_, node):
            continue
        same = relevant.setdefault(slice_.pool, [])
        if same:
            newest = same[0].slice.spec.pool.generation
            if slice_.slice.spec.pool.generation < newest:
                continue
            if slice_.slice.spec.pool.generation > newest:
                same.clear()
        same.append(slice_)
    plain: list[PoolView] = []
    conditional: list[PoolView] = []
    for id_ in sorted(relevant):
        pool = _view_pool(id_, relevant[id_], whole_pool, features)
        if pool is None:
            continue
        conditional_pool = any(entry.device.binding_conditions for slice_ in pool.slices for entry in slice_.devices)
        (conditional if conditional_pool else plain).append(pool)
    return NodeView(node, (*plain, *conditional))


def _ignored(slice_: SliceEntry, features: Features) -> bool:
    spec = slice_.slice.spec
    if not features.partitionable_devices and (spec.per_device_node_selection is not None or spec.shared_counters):
        return True
    return slice_.grouped and not features.compatibility_groups


def _view_pool(
    id_: PoolID,
    relevant: list[SliceEntry],
    whole_pool: Callable[[PoolID], Iterable[SliceEntry]],
    features: Features,
) -> PoolView | None:
    view = PoolView(id_)
    expected = relevant[0].slice.spec.pool.resource_slice_count
    elsewhere: list[SliceEntry] = []
    if len(relevant) != expected:
        # Slices for other nodes were left out above, so completeness needs a look at the whole pool.
        generation = relevant[0].slice.spec.pool.generation
        everything = list(whole_pool(id_))
        if any(slice_.slice.spec.pool.generation > generation for slice_ in everything):
            return None  # the driver is replacing what this node sees
        current = [slice_ for slice_ in everything if slice_.slice.spec.pool.generation == generation]
        if not features.compatibility_groups:
            current = [slice_ for slice_ in current if not slice_.grouped]
        if len(current) != expected:
            view.complete = False
            return view
        elsewhere = [slice_ for slice_ in current if all(slice_ is not mine for mine in relevant)]
    relevant = sorted(relevant, key=lambda slice_: slice_.slice.metadata.name)
    here = [slice_ for slice_ in relevant if not _has_counters(slice_, features)]
    view.invalid = _duplicate_device(here)
    if view.invalid or not features.partitionable_devices:
        view.slices = () if view.invalid else tuple(here)
        return view
    sets: dict[str, CounterSet] = {}
    for slice_ in (*relevant, *elsewhere):
        for counter_set in slice_.slice.spec.shared_counters or ():
            if counter_set.name in sets:
                view.invalid = f"duplicate counter set name {counter_set.name}"
                return view
            sets[counter_set.name] = counter_set
    devices = [entry for slice_ in here for entry in slice_.devices]
    devices += [entry for slice_ in elsewhere if not _has_counters(slice_, features) for entry in slice_.devices]
    view.invalid = _unknown_counter(sets, devices)
    if view.invalid:
        return view
    view.slices = tuple(here)
    if sets:
        view.counters = PoolCounters(sets, devices)
        view.counters.attach()
    return view


def _has_counters(slice_: SliceEntry, features: Features) -> bool:
    return features.partitionable_devices and bool(slice_.slice.spec.shared_counters)


def _duplicate_device(slices: list[SliceEntry]) -> str:
    seen: set[str] = set()
    for slice_ in slices:
        for entry in slice_.devices:
            if entry.id.device in seen:
                return f"duplicate device name {entry.id.device}"
            seen.add(entry.id.device)
    return ""


def _unknown_counter(sets: Mapping[str, CounterSet], devices: list[DeviceEntry]) -> str:
    for entry in devices:
        for consumed in entry.device.consumes_counters:
            counter_set = sets.get(consumed.counter_set)
            if counter_set is None:
                return f"counter set {consumed.counter_set} not found"
            for counter in consumed.counters:
                if counter not in counter_set.counters:
                    return f"counter {counter} not found in counter set {consumed.counter_set}"
    return ""
