"""Metrics of controllers, under kube-controller-manager's names: one registry per process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry

from allot.client.workqueue import WorkQueue
from allot.process.metrics import Counter, Gauge, Histogram, Labels, exponential

_QUEUE_BUCKETS_S = exponential(1e-8, 10, 10)


class QueueMetrics:
    """The measures of one queue (`client.workqueue.QueueMetrics`)."""

    __slots__ = ("_name", "_shared", "depth")

    def __init__(self, shared: ControllerMetrics, name: str) -> None:
        self._shared = shared
        self._name = name
        self.depth = 0

    def added(self, depth: int) -> None:
        """Count a queued item."""
        self.depth = depth
        self._shared.adds.add(self._name)

    def taken(self, depth: int, waited_s: float) -> None:
        """Record that a worker has taken an item from the queue."""
        self.depth = depth
        self._shared.waits.observe(waited_s, self._name)

    def done(self, worked_s: float) -> None:
        """Record that a worker has finished an item."""
        self._shared.works.observe(worked_s, self._name)

    def retried(self) -> None:
        """Count an item queued again after a failure."""
        self._shared.retries.add(self._name)


class ControllerMetrics:
    """The measures that all controllers of a process share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._queues: dict[str, QueueMetrics] = {}
        self._watched: dict[str, WorkQueue[Any]] = {}
        names = ("name",)
        self.adds = Counter(registry, "workqueue_adds", "Total number of adds handled by workqueue", names)
        self.retries = Counter(registry, "workqueue_retries", "Total number of retries handled by workqueue", names)
        self.waits = Histogram(
            registry,
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            names,
            buckets=_QUEUE_BUCKETS_S,
        )
        self.works = Histogram(
            registry,
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            names,
            buckets=_QUEUE_BUCKETS_S,
        )
        Gauge(registry, "workqueue_depth", "Current depth of workqueue", names, self._depths)
        Gauge(
            registry,
            "workqueue_unfinished_work_seconds",
            "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
            names,
            lambda: self._working(sum),
        )
        Gauge(
            registry,
            "workqueue_longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running.",
            names,
            lambda: self._working(max),
        )

    def queue(self, name: str) -> QueueMetrics:
        """The metrics of the queue of that name."""
        return self._queues.setdefault(name, QueueMetrics(self, name))

    def watch(self, name: str, queue: WorkQueue[Any]) -> None:
        """Also report the work in progress on a queue."""
        self._watched[name] = queue

    def _working(self, combine: Callable[[Iterable[float]], float]) -> dict[Labels, float]:
        return {(name,): combine((0.0, *queue.working_s())) for name, queue in self._watched.items()}

    def _depths(self) -> dict[Labels, float]:
        return {(name,): queue.depth for name, queue in self._queues.items()}
