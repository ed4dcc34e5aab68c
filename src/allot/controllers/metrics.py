"""What controllers measure, under kube-controller-manager's names: one registry for all of a process."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_QUEUE_BUCKETS_S = (1e-08, 1e-07, 1e-06, 1e-05, 1e-04, 1e-03, 1e-02, 0.1, 1, 10)


class QueueMetrics:
    """The measures of one queue (`client.workqueue.QueueMetrics`)."""

    __slots__ = ("_adds", "_depth", "_duration", "_retries", "_work")

    def __init__(self, adds: Counter, depth: Gauge, duration: Histogram, work: Histogram, retries: Counter) -> None:
        self._adds = adds
        self._depth = depth
        self._duration = duration
        self._work = work
        self._retries = retries

    def added(self, depth: int) -> None:
        """An item waits."""
        self._adds.inc()
        self._depth.set(depth)

    def taken(self, depth: int, waited_s: float) -> None:
        """A worker has an item that had waited."""
        self._depth.set(depth)
        self._duration.observe(waited_s)

    def done(self, worked_s: float) -> None:
        """A worker is done with an item."""
        self._work.observe(worked_s)

    def retried(self) -> None:
        """An item comes again after a failure."""
        self._retries.inc()


class ControllerMetrics:
    """The measures that all controllers of a process share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._adds = Counter(
            "workqueue_adds", "Total number of adds handled by workqueue", ("name",), registry=registry
        )
        self._depth = Gauge("workqueue_depth", "Current depth of workqueue", ("name",), registry=registry)
        self._duration = Histogram(
            "workqueue_queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
            ("name",),
            buckets=_QUEUE_BUCKETS_S,
            registry=registry,
        )
        self._work = Histogram(
            "workqueue_work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
            ("name",),
            buckets=_QUEUE_BUCKETS_S,
            registry=registry,
        )
        self._retries = Counter(
            "workqueue_retries", "Total number of retries handled by workqueue", ("name",), registry=registry
        )

    def queue(self, name: str) -> QueueMetrics:
        """Those of the queue of that name."""
        return QueueMetrics(
            self._adds.labels(name),
            self._depth.labels(name),
            self._duration.labels(name),
            self._work.labels(name),
            self._retries.labels(name),
        )
