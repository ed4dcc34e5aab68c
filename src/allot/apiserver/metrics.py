"""Metrics under upstream's names, kept cheap: counting a request costs a few dictionary look-ups."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_LATENCY_BUCKETS_S = (
    0.005,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
    1.25,
    1.5,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    15,
    20,
    30,
    45,
    60,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("verb", "group", "version", "resource", "subresource", "scope", "code")
        self._requests = Counter(
            "apiserver_request",
            "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP code.",
            labels,
            registry=self.registry,
        )
        self._latency = Histogram(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, group, version, resource, subresource and scope.",
            labels[:-1],
            buckets=_LATENCY_BUCKETS_S,
            registry=self.registry,
        )
        self._running = Gauge(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope.",
            labels[:-1],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "apiserver_current_inflight_requests",
            "Maximal number of currently used inflight request limit of this apiserver.",
            ("request_kind",),
            registry=self.registry,
        )
        # Looking up a child by its labels costs more than counting.
        self._counters: dict[tuple[str, ...], Counter] = {}
        self._histograms: dict[tuple[str, ...], Histogram] = {}

    def observe(self, labels: tuple[str, str, str, str, str, str], code: int, seconds: float | None) -> None:
        """Count a request; seconds: how long it took, None for long-running ones."""
        key = (*labels, str(code))
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._requests.labels(*key)
        counter.inc()
        if seconds is None:
            return
        histogram = self._histograms.get(labels)
        if histogram is None:
            histogram = self._histograms[labels] = self._latency.labels(*labels)
        histogram.observe(seconds)

    def running(self, labels: tuple[str, str, str, str, str, str], change: int) -> None:
        """A long-running request began (1) or ended (-1)."""
        self._running.labels(*labels).inc(change)

    def text(self) -> bytes:
        """Everything, as Prometheus reads it."""
        return generate_latest(self.registry)
