"""The cost of placements in their queues while something is tried.

For alternatives and different devices it is known only then, and limits, rules and reservations all need it: it is computed
once for each placement and passed on.
"""

from __future__ import annotations

from allot.core.scheduling.plan import Placement
from allot.core.scheduling.queues.amounts import Amounts
from allot.core.scheduling.queues.book import QueueBook
from allot.core.scheduling.queues.jobs import Job
from allot.core.scheduling.queues.limits import excess


class Costs:
    """Of the placements of one round; what is charged to others does not change meanwhile."""

    def __init__(self, book: QueueBook) -> None:
        self._book = book
        # With the placement itself, so that no other gets its id.
        self._known: dict[int, tuple[Placement, Amounts]] = {}

    def of(self, placement: Placement) -> Amounts:
        """What a pod will be charged for if it is placed so."""
        known = self._known.get(id(placement))
        if known is None:
            known = self._known[id(placement)] = (placement, self._book.cost_of(placement))
        return known[1]

    def are_allowed(self, job: Job, placement: Placement) -> bool:
        """Whether the queue of a job may have what a placement of it costs."""
        if not placement.claims:
            # As much as it asks for, which was allowed before.
            return True
        queue = self._book.tree.get(job.queue)
        assert queue is not None, f"{job.key} is in a queue that is there"
        return excess(queue, self.of(placement), is_preemptible=job.is_preemptible) is None

    def count(self, placement: Placement) -> None:
        """A placement is applied tentatively: it counts for what it really takes."""
        if placement.claims:
            self._book.tried(placement, self.of(placement))
