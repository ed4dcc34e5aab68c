"""Which of the units that may be tried is the next one: the port, and kube-scheduler's order.

The queue hands every unit that may be tried to its order, and asks it for the first. An order that only compares units
(`PriorityOrder`) needs no more. One that shares a cluster fairly ranks a unit by what its tenant uses already, so taking one
unit moves others: `placed` and `left` tell it of every pod that begins or ceases to count on a node, whether by the API or by
a decision, before it is asked again. It may keep a heap for each tenant and compare only their heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.queueing.waiting import Heap, Waiting


class QueueOrder(Protocol):
    """Units that may be tried. Called by the queue only; must be a function of the calls, so that it can be replayed."""

    def push(self, unit: Waiting) -> None:
        """A unit may be tried from now on. `unit.token` changes with each push, so that an entry can tell that it is stale."""

    def discard(self, unit: Waiting) -> None:
        """A unit that was pushed is not to be tried now: it is being decided, is gone, or is about to be pushed again because
        its priority changed. Its token is 0 by then."""

    def first(self) -> Waiting | None:
        """The next unit to try, which stays; None if there is none."""

    def placed(self, pod: PodInfo) -> None:
        """A pod counts on a node from now on: bound, or by a decision that is not written yet."""

    def left(self, pod: PodInfo) -> None:
        """A pod no longer counts on its node: it has ended, is gone, or its placement was reverted."""


class PriorityOrder:
    """Highest priority first, then the longest wait: kube-scheduler's PrioritySort."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap = Heap()

    def push(self, unit: Waiting) -> None:
        """By priority, then by time."""
        self._heap.push((-unit.priority, unit.since), unit)

    def discard(self, _unit: Waiting) -> None:
        """The entry is passed over when it comes up."""
        self._heap.discard()

    def first(self) -> Waiting | None:
        """The most important, or among equals the oldest."""
        return self._heap.first()

    def placed(self, pod: PodInfo) -> None:
        """Makes no difference here."""

    def left(self, pod: PodInfo) -> None:
        """Makes no difference here."""


PRIORITY_SORT = "PrioritySort"
# By plugin name, as in a scheduler's configuration (`plugins.queueSort`).
QUEUE_ORDERS: Mapping[str, Callable[[], QueueOrder]] = {PRIORITY_SORT: PriorityOrder}
