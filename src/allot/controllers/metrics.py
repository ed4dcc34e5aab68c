"""What controllers measure, under kube-controller-manager's names: one registry for all of a process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

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
        """An item waits."""
        self.depth = depth
        self._shared.adds.add(self._name)

    def taken(self, depth: int, waited_s: float) -> None:
        """A worker has an item that had waited."""
        self.depth = depth
        self._shared.waits.observe(waited_s, self._name)

    def done(self, worked_s: float) -> None:
        """A worker is done with an item."""
        self._shared.works.observe(worked_s, self._name)

    def retried(self) -> None:
        """An item comes again after a failure."""
        self._shared.retries.add(self._name)


class ControllerMetrics:
    """The measures that all controllers of a process share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._queues: dict[str, QueueMetrics] = {}
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

    def queue(self, name: str) -> QueueMetrics:
        """Those of the queue of that name."""
        return self._queues.setdefault(name, QueueMetrics(self, name))

    def _depths(self) -> dict[Labels, float]:
        return {(name,): queue.depth for name, queue in self._queues.items()}
