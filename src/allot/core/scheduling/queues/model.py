"""A queue, what it is entitled to, and what it has: the words of all dialects in one form.

`Queue` is what a user wrote. `Share` is one resource of one queue at work: what it may have, asks for and holds. A resource
that a queue says nothing about is not restricted there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

import msgspec

from allot.core.scheduling.queues.amounts import UNLIMITED, lower

DEFAULT_PRIORITY = 100


class Quota(msgspec.Struct, frozen=True):
    """One resource of a queue. deserved: guaranteed; limit: never more; weight: of its part in what others leave."""

    deserved: int = UNLIMITED
    limit: int = UNLIMITED
    weight: Fraction = Fraction(1)


UNRESTRICTED = Quota()


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as its user wrote it. parent: empty at the top; created: decides between equals, earlier first."""

    name: str
    parent: str = ""
    priority: int = DEFAULT_PRIORITY
    quotas: Mapping[str, Quota] = {}
    created: str = ""
    # How long a pod may run before it can be evicted; None: inherited.
    preempt_min_runtime_s: float | None = None
    reclaim_min_runtime_s: float | None = None
    # Whether others may reclaim what it has beyond its share.
    is_reclaimable: bool = True
    # Why nothing new starts in it; empty if it is open.
    closed: str = ""
    # Display name; empty: its name.
    title: str = ""


class Share(msgspec.Struct):
    """One resource of one queue, its subtree included."""

    deserved: int = UNLIMITED
    limit: int = UNLIMITED
    weight: Fraction = Fraction(1)
    # allocated and pending
    request: int = 0
    allocated: int = 0
    # The non-preemptible part of `allocated`.
    allocated_firmly: int = 0
    fair_share: int = 0
    # Of the cluster in the past, 0 to 1.
    usage: Fraction = Fraction(0)

    @property
    def requestable(self) -> int:
        """What it asks for, as far as it may have it."""
        return lower(self.limit, self.request)

    @property
    def allocatable(self) -> int:
        """What it may have without others being entitled to it."""
        deserved, fair, limit = self.deserved, self.fair_share, self.limit
        if deserved == UNLIMITED:
            return limit
        # Written out: queues are compared by it at every decision.
        part = fair if fair > deserved else deserved
        return part if limit == UNLIMITED or part < limit else limit


class QueueShares:
    """A queue at work: its place in the tree and a `Share` for each resource that is counted."""

    __slots__ = ("age", "children", "name", "parent", "queue", "shares", "version")

    def __init__(self, queue: Queue, parent: QueueShares | None = None) -> None:
        self.queue = queue
        # Unique.
        self.name = queue.name
        # Older first, then by name.
        self.age = (queue.created, queue.name)
        self.parent = parent
        # In the order in which they are served when nothing else decides.
        self.children: list[QueueShares] = []
        self.shares: dict[str, Share] = {}
        # Goes up with every change of what it holds.
        self.version = 0

    @property
    def title(self) -> str:
        """Its display name."""
        return self.queue.title or self.queue.name

    def path(self) -> Iterator[QueueShares]:
        """The queue and its ancestors, itself first."""
        found: QueueShares | None = self
        while found is not None:
            yield found
            found = found.parent
