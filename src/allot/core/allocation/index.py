"""How many free devices each node has for a signature, kept up to date change by change.

An upper bound that is cheap to keep: a node that is not listed cannot serve the request; one that is listed may still turn out
not to (an incomplete pool, a constraint). Devices that are not bound to one node count for every node.
"""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.allocation import capacity as capacities
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.pools import SliceEntry
from allot.core.allocation.signature import BLOCKED, REJECTED, Signature


class AvailabilityIndex:
    """Free devices per node for one signature."""

    __slots__ = ("_by_count", "_counts", "_free", "_node_of", "_shareable", "shared", "signature")

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        # Free devices that are not bound to one node.
        self.shared = 0
        self._node_of: dict[DeviceEntry, str | None] = {}
        self._free: set[DeviceEntry] = set()
        self._counts: dict[str, int] = {}
        # Nodes by number of free devices; a dict serves as a set that keeps its order.
        self._by_count: dict[int, dict[str, None]] = {}
        self._shareable = 0

    @property
    def has_shareable(self) -> bool:
        """Whether any device can serve several requests."""
        return self._shareable > 0

    def add(self, slice_: SliceEntry) -> None:
        """A slice has been published."""
        verdicts = slice_.judge(self.signature)
        if verdicts is None:
            return
        node = slice_.slice.spec.node_name or None
        for entry, verdict in zip(slice_.devices, verdicts, strict=True):
            if verdict not in (REJECTED, BLOCKED):
                self._node_of[entry] = node
                entry.indexes.append(self)
                self._shareable += entry.shareable
                self.refresh(entry)

    def remove(self, slice_: SliceEntry) -> None:
        """A slice is gone."""
        for entry in slice_.devices:
            if entry in self._node_of:
                if entry in self._free:
                    self._free.discard(entry)
                    self._change(self._node_of[entry], -1)
                del self._node_of[entry]
                self._shareable -= entry.shareable
                entry.indexes.remove(self)
            self.signature.forget(entry)

    def refresh(self, entry: DeviceEntry) -> None:
        """Something about the device's availability has changed."""
        free = self._is_free(entry)
        if free == (entry in self._free):
            return
        if free:
            self._free.add(entry)
            self._change(self._node_of[entry], 1)
        else:
            self._free.discard(entry)
            self._change(self._node_of[entry], -1)

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
                return True  # looking at it is an error that the attempt has to report
            if taken is not None and not capacities.fits(taken, entry.capacity, state.consumed):
                return False
        if state.counters and not (entry.shareable and state.shares):
            for pool, consumer in state.counters:
                if consumer is entry and pool.shortage(entry) is not None:
                    return False
        return True

    def _change(self, node: str | None, by: int) -> None:
        if node is None:
            self.shared += by
            return
        before = self._counts.get(node, 0)
        after = before + by
        self._counts[node] = after
        if before:
            bucket = self._by_count[before]
            del bucket[node]
            if not bucket:
                del self._by_count[before]
        if after:
            self._by_count.setdefault(after, {})[node] = None
        else:
            del self._counts[node]

    def count(self, node: str) -> int:
        """At most how many devices are free for the node."""
        return self._counts.get(node, 0) + self.shared

    def size(self, needed: int) -> int:
        """How many nodes have that many devices of their own."""
        return sum(len(nodes) for count, nodes in self._by_count.items() if count >= needed)

    def nodes(self, needed: int) -> Iterator[str]:
        """Nodes with at least so many free devices of their own, those with the fewest first."""
        for count in sorted(self._by_count):
            if count >= needed:
                # A copy: allocations made while iterating move nodes between buckets.
                yield from tuple(self._by_count[count]) if count in self._by_count else ()
