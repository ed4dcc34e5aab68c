"""Which unit is next if there are queues: pods that name none first, in their own order; then those for which others were evicted, as what
they will get is kept for them anyway; then queue by queue, by `order`.

Without queues it is the order beneath, and costs nothing.
"""

from __future__ import annotations

from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.queueing.queue_order import QueueOrder
from allot.core.scheduling.queueing.waiting import Heap, Waiting
from allot.core.scheduling.queues.amounts import total
from allot.core.scheduling.queues.book import QueueBook
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.order import Candidate, Standings


class FairOrder:
    """Keeps the port `QueueOrder`. beneath: for pods without a queue."""

    def __init__(self, book: QueueBook, beneath: QueueOrder) -> None:
        self._book = book
        self._beneath = beneath
        self._heaps: dict[str, Heap] = {}
        # The queue in whose heap a unit is, by key.
        self._queues: dict[str, str] = {}
        self._standings = Standings(book.tree, self._candidate)
        # Units for which something is kept: before they have it, others would be tried in vain.
        self._promised: dict[str, None] = {}
        self._promised_heap = Heap()
        # Queues with units that take none: these are refused, with the reason. As of this shape of the tree.
        self._lost: dict[str, None] = {}
        self._shape = -1

    def push(self, unit: Waiting) -> None:
        """By queue; in it by priority, then age."""
        queue = self._queue_of(unit) if self._book else ""
        if not queue:
            self._beneath.push(unit)
            return
        created = min(member.pod.metadata.creation_timestamp or "" for member in unit.members.values())
        if any(self._book.reserves(member.pod) for member in unit.members.values()):
            self._promised[unit.key] = None
            self._promised_heap.push((-unit.priority, created, unit.key), unit)
            return
        self._queues[unit.key] = queue
        heap = self._heaps.get(queue)
        if heap is None:
            heap = self._heaps[queue] = Heap()
            if self._book.tree.refusal(queue):
                self._lost[queue] = None
        heap.push((-unit.priority, created, unit.key), unit)
        self._touch(queue)

    def discard(self, unit: Waiting) -> None:
        """The entry is passed over when it comes up."""
        queue = self._queues.pop(unit.key, "")
        if unit.key in self._promised:
            del self._promised[unit.key]
            self._promised_heap.discard()
        elif queue:
            self._heaps[queue].discard()
            self._touch(queue)
        else:
            self._beneath.discard(unit)

    def first(self) -> Waiting | None:
        """The next one, which stays."""
        found = self._beneath.first()
        if found is None and self._promised:
            found = self._promised_heap.first()
        if found is None and self._queues:
            found = self._of_queues()
        return found

    def _touch(self, name: str) -> None:
        queue = self._book.tree.find(name)
        if queue is not None:
            self._standings.touch(queue)

    def _of_queues(self) -> Waiting | None:
        book = self._book
        book.settle_total()
        if self._shape != book.tree.shape:
            self._shape = book.tree.shape
            self._lost = {name: None for name in sorted(self._heaps) if book.tree.refusal(name)}
        for name in self._lost:
            head = self._heaps[name].first()
            if head is not None:
                return head
        found = self._standings.first()
        return self._heaps[found.queue.name].first() if found is not None else None

    def _candidate(self, queue: QueueShares) -> Candidate | None:
        heap = self._heaps.get(queue.name)
        head = heap.first() if heap is not None else None
        if head is None:
            return None
        charged = self._book.charged
        return Candidate(queue, total(charged(member.pod) for member in head.members.values()))

    def placed(self, pod: PodInfo) -> None:
        """For the order beneath; the book is notified separately."""
        self._beneath.placed(pod)

    def left(self, pod: PodInfo) -> None:
        """As `placed`."""
        self._beneath.left(pod)

    def _queue_of(self, unit: Waiting) -> str:
        member = next(iter(unit.members.values()), None)
        return self._book.queue_of(member.pod) if member is not None else ""
