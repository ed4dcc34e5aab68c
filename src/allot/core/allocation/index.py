"""How many free devices each node has for a signature, kept up to date change by change.

An upper bound that is cheap to maintain: a node that is not listed cannot serve the request; one that is listed may still turn out
not to (an incomplete pool, other constraints). Devices that are not bound to one node count for every node.
With an attribute, it counts devices that have the same value of it (the most frequent one of the node), or
the number of different values: the best case for matchAttribute and distinctAttribute.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from allot.core.allocation import capacity as capacities
from allot.core.allocation.constraints import AttributeReader, Value
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.plan import ConstraintPlan
from allot.core.allocation.pools import SliceEntry
from allot.core.allocation.signature import BLOCKED, REJECTED, SelectorFailure, Signature


class _Groups:
    """Free devices of a node by value of an attribute, and how many the largest group has."""

    __slots__ = ("_sizes", "counts", "largest")

    def __init__(self) -> None:
        self.counts: dict[Value, int] = {}
        # How many groups there are of each size.
        self._sizes: dict[int, int] = {}
        self.largest = 0

    def change(self, value: Value, by: int) -> None:
        """One device more or less."""
        before = self.counts.get(value, 0)
        after = before + by
        sizes = self._sizes
        if before:
            sizes[before] -= 1
        if after:
            self.counts[value] = after
            sizes[after] = sizes.get(after, 0) + 1
        else:
            del self.counts[value]
        if after > self.largest or not sizes.get(self.largest):
            self.largest = after


class AvailabilityIndex:
    """Free devices per node for one signature, by one attribute if there is a constraint on it."""

    __slots__ = (
        "_by_count",
        "_counts",
        "_failing",
        "_groups",
        "_shareable",
        "_taken",
        "_unlisted",
        "constraint",
        "is_watched",
        "most_needed",
        "reader",
        "shared",
        "signature",
    )

    def __init__(self, signature: Signature, constraint: ConstraintPlan | None, reader: AttributeReader) -> None:
        self.signature = signature
        self.constraint = constraint
        self.reader = reader
        # Free devices that are not bound to one node.
        self.shared = 0
        # The most that was needed so far: a change beyond that makes no difference, unless something watches the
        # devices themselves.
        self.most_needed = 0
        self.is_watched = False
        # In slices with a matching device: devices that do not match, and devices that are not free. Usually few.
        self._unlisted: set[DeviceEntry] = set()
        self._taken: set[DeviceEntry] = set()
        self._counts: dict[str, int] = {}
        # By node: free devices by value of the attribute; only if there is a constraint.
        self._groups: dict[str, _Groups] = {}
        # Nodes by number of free devices. Ordered, and the first is taken again and again, which is slow in
        # a plain dict: it steps over everything that was deleted before.
        self._by_count: dict[int, OrderedDict[str, None]] = {}
        self._shareable = 0
        # By node: devices that end the attempt when they are checked.
        self._failing: dict[str | None, set[DeviceEntry]] = {}

    @property
    def has_shareable(self) -> bool:
        """Whether any device can serve several requests."""
        return self._shareable > 0

    def add(self, slice_: SliceEntry) -> None:
        """A slice has been published."""
        verdicts = slice_.judge(self.signature)
        if verdicts is None:
            return
        slice_.indexes.append(self)
        free = 0
        for entry, verdict in zip(slice_.devices, verdicts, strict=True):
            if verdict in (REJECTED, BLOCKED):
                self._unlisted.add(entry)
                continue
            if entry.shareable:
                self._shareable += 1
            if isinstance(verdict, SelectorFailure):
                self._failing.setdefault(_node_of(entry), set()).add(entry)
            state = entry.state
            if self.constraint is None and not (state.claims or state.consumed or state.counters):
                free += 1
            else:
                self._taken.add(entry)
                self.refresh(entry)
        node = slice_.slice.spec.node_name or None
        if free and node is not None:
            before = self._counts.get(node, 0)
            self._count(node, before, before + free)
        else:
            self.shared += free

    def remove(self, slice_: SliceEntry) -> None:
        """A slice is gone."""
        for entry in slice_.devices if self in slice_.indexes else ():
            if entry in self._unlisted:
                self._unlisted.discard(entry)
                continue
            if entry in self._taken:
                self._taken.discard(entry)
            else:
                self._change(entry, -1)
            node = _node_of(entry)
            failing = self._failing.get(node)
            if failing is not None:
                failing.discard(entry)
                if not failing:
                    del self._failing[node]
            self._shareable -= entry.shareable
        if self in slice_.indexes:
            slice_.indexes.remove(self)
        for entry in slice_.devices:
            self.signature.forget(entry)

    def refresh(self, entry: DeviceEntry) -> None:
        """Something about the device's availability has changed."""
        if entry in self._unlisted:
            return
        free = self._is_free(entry)
        if free != (entry in self._taken):
            return
        if free:
            self._taken.discard(entry)
            self._change(entry, 1)
        else:
            self._taken.add(entry)
            self._change(entry, -1)

    def _is_free(self, entry: DeviceEntry) -> bool:
        signature, state = self.signature, entry.state
        if signature.admin_access:
            return True
        if state.claims:
            return False
        if state.consumed:
            try:
                taken = signature.consumption(entry)
            except capacities.CapacityError:
                return True  # evaluating it is an error that the attempt must report
            if taken is not None and not capacities.fits(taken, entry.capacity, state.consumed):
                return False
        if state.counters and not (entry.shareable and state.shares):
            for pool, consumer in state.counters:
                if consumer is entry and pool.shortage(entry) is not None:
                    return False
        return True

    def _change(self, entry: DeviceEntry, by: int) -> None:
        node = _node_of(entry)
        if node is None:
            self.shared += by
            return
        before = self._counts.get(node, 0)
        after = before + by if self.constraint is None else self._regroup(node, entry, by, self.constraint)
        if after == before:
            return
        self._count(node, before, after)

    def _count(self, node: str, before: int, after: int) -> None:
        """The node now has this many free devices."""
        self._counts[node] = after
        if before:
            bucket = self._by_count[before]
            del bucket[node]
            if not bucket:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, OrderedDict())[node] = None
        else:
            del self._counts[node]

    def _regroup(self, node: str, entry: DeviceEntry, by: int, constraint: ConstraintPlan) -> int:
        """Count the device under its values. Returns how many devices of the node can then be used together."""
        groups = self._groups.get(node)
        if groups is None:
            groups = self._groups[node] = _Groups()
        found = self.reader.read_published(entry, constraint.attribute)
        values = found.values if found is not None else frozenset()
        if not constraint.match:
            # At most one device per value: let it stand for one of its values.
            values = frozenset(sorted(values, key=repr)[:1])
        for value in values:
            groups.change(value, by)
        if not groups.counts:
            del self._groups[node]
            return 0
        return groups.largest if constraint.match else len(groups.counts)

    def count(self, node: str) -> int:
        """An upper bound on the devices that are free for the node."""
        return self._counts.get(node, 0) + self.shared

    def notices(self, entry: DeviceEntry) -> bool:
        """Whether it may matter that a device that is not bound to one node has just been taken or freed."""
        return (self.is_watched or self.shared <= self.most_needed) and entry not in self._unlisted

    def has_selector_failure_on(self, node: str) -> bool:
        """Whether evaluating the devices of the node may end the attempt with an error."""
        return node in self._failing or None in self._failing

    @property
    def has_selector_failures(self) -> bool:
        """Whether there is any such node."""
        return bool(self._failing)

    def size(self, needed: int) -> int:
        """How many nodes have at least this many free devices of their own."""
        return sum(len(nodes) for count, nodes in self._by_count.items() if count >= needed)

    def nodes(self, needed: int) -> Iterator[str]:
        """Nodes with at least this many free devices of their own, those with the fewest first.

        Nothing may be allocated or released before the last one has been taken.
        """
        for count in sorted(self._by_count):
            if count >= needed:
                yield from self._by_count[count]


def _node_of(entry: DeviceEntry) -> str | None:
    """The node of the slice; None if its devices are not bound to one."""
    return entry.slice.spec.node_name or None
