"""Who is next where there are queues: pods that name none first, as their own order says; then queue by queue, as `order` says.

Without queues it is the order beneath, and costs nothing.
"""

from __future__ import annotations

from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.queueing.queue_order import QueueOrder
from allot.core.scheduling.queueing.waiting import Heap, Waiting
from allot.core.scheduling.queues.amounts import total
from allot.core.scheduling.queues.book import QueueBook
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.order import Candidate, Ranks, descend


class FairOrder:
    """Keeps the port `QueueOrder`. beneath: for pods without a queue."""

    def __init__(self, book: QueueBook, beneath: QueueOrder) -> None:
        self._book = book
        self._beneath = beneath
        self._heaps: dict[str, Heap] = {}
        # The queue in whose heap a unit is, by key.
        self._queues: dict[str, str] = {}
        self._ranks = Ranks()

    def push(self, unit: Waiting) -> None:
        """By queue; in it by priority, then age."""
        queue = self._queue_of(unit) if self._book else ""
        if not queue:
            self._beneath.push(unit)
            return
        self._queues[unit.key] = queue
        created = min(member.pod.metadata.creation_timestamp or "" for member in unit.members.values())
        self._heaps.setdefault(queue, Heap()).push((-unit.priority, created, unit.key), unit)

    def discard(self, unit: Waiting) -> None:
        """The entry is passed over when it comes up."""
        queue = self._queues.pop(unit.key, "")
        if queue:
            self._heaps[queue].discard()
        else:
            self._beneath.discard(unit)

    def first(self) -> Waiting | None:
        """The next one, which stays."""
        found = self._beneath.first()
        if found is not None or not self._queues:
            return found
        return self._of_queues()

    def _of_queues(self) -> Waiting | None:
        book = self._book
        book.settle_total()
        heads: dict[str, Waiting] = {}
        for name in list(self._heaps):
            head = self._heaps[name].first()
            if head is not None:
                heads[name] = head
            else:
                del self._heaps[name]
        tree = book.tree
        lost = [name for name in sorted(heads) if tree.refusal(name)]
        if lost:
            # It is refused, with the reason.
            return heads[lost[0]]

        def candidate(queue: QueueShares) -> Candidate | None:
            head = heads.get(queue.name)
            if head is None:
                return None
            pods = [member.pod for member in head.members.values()]
            return Candidate(queue, total(book.charged(pod) for pod in pods), stamp=(head.key, len(pods)))

        top = tree.top()
        self._ranks.begin(tree.epoch)
        leaf = descend(top, candidate, tree.total, ranks=self._ranks)
        return heads[leaf.name] if leaf is not None else None

    def placed(self, pod: PodInfo) -> None:
        """For the order beneath; the book hears of it by itself."""
        self._beneath.placed(pod)

    def left(self, pod: PodInfo) -> None:
        """As `placed`."""
        self._beneath.left(pod)

    def _queue_of(self, unit: Waiting) -> str:
        member = next(iter(unit.members.values()), None)
        return self._book.queue_of(member.pod) if member is not None else ""
