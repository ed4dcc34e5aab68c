"""Metrics under upstream's names: counting a request costs a few dictionary lookups."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from allot.process.metrics import CONTENT_TYPE, Counter, Gauge, Histogram, Labels

__all__ = ["CONTENT_TYPE", "Metrics"]

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


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("verb", "group", "version", "resource", "subresource", "scope", "code")
        self._requests = Counter(
            self.registry,
            "apiserver_request",
            "Counter of apiserver requests broken out for each verb, group, version, resource, scope and HTTP code.",
            labels,
        )
        self._latency = Histogram(
            self.registry,
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, group, version, resource, subresource and scope.",
            labels[:-1],
            buckets=_LATENCY_BUCKETS_S,
        )
        self._long: dict[Labels, float] = {}
        self._running = Gauge(
            self.registry,
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope.",
            labels[:-1],
            lambda: self._long,
        )

        self._unavailable: dict[Labels, float] = {}
        self._api_services = Gauge(
            self.registry,
            "aggregator_unavailable_apiservice",
            "Gauge of APIServices which are marked as unavailable broken down by APIService name.",
            ("name",),
            lambda: self._unavailable,
        )
        self._lost = Counter(
            self.registry,
            "aggregator_unavailable_apiservice",
            "Counter of APIServices which are marked as unavailable broken down by APIService name and reason.",
            ("name", "reason"),
        )
        self._terminated = Counter(
            self.registry,
            "apiserver_request_terminations",
            "Number of requests which apiserver terminated in self-defense.",
            (*labels, "component"),
        )

        # Separate from the others, as upstream, so that they can be scraped more often.
        health = CollectorRegistry()
        self._checked = Counter(
            health,
            "kubernetes_healthchecks",
            "This metric records the results of all healthcheck.",
            ("name", "status", "type"),
        )
        self._healthy: dict[Labels, float] = {}
        self._health = Gauge(
            health,
            "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck.",
            ("name", "type"),
            lambda: self._healthy,
        )

    def observe(self, labels: Labels, code: int, seconds: float | None) -> None:
        """Count a request; seconds: how long it took, None for long-running ones."""
        self._requests.add(*labels, str(code))
        if seconds is not None:
            self._latency.observe(seconds, *labels)

    def running(self, labels: Labels, change: int) -> None:
        """A long-running request began (1) or ended (-1)."""
        self._long[labels] = self._long.get(labels, 0) + change

    def api_service_available(self, name: str, *, is_available: bool) -> None:
        """Whether an APIService is available now."""
        self._unavailable[(name,)] = float(not is_available)

    def api_service_lost(self, name: str, reason: str) -> None:
        """An APIService is no longer available."""
        self._lost.add(name, reason)

    def forget_api_service(self, name: str) -> None:
        """An APIService was deleted."""
        self._unavailable.pop((name,), None)

    def terminated(self, labels: Labels, code: int) -> None:
        """A request could not be passed on to an extension API server."""
        self._terminated.add(*labels, str(code), "aggregator")

    def checked(self, name: str, type_: str, *, is_healthy: bool) -> None:
        """A check of an endpoint (type_: healthz, livez, readyz) ran."""
        self._checked.add(name, "success" if is_healthy else "error", type_)
        self._healthy[name, type_] = float(is_healthy)

    def text(self) -> bytes:
        """Everything except health checks, in Prometheus' format."""
        return _text(self._requests, self._latency, self._running, self._api_services, self._lost, self._terminated)

    def health_text(self) -> bytes:
        """Health checks, from which service levels are measured."""
        return _text(self._health, self._checked)


def _text(*collectors: Counter | Gauge | Histogram) -> bytes:
    return "".join(line for each in collectors for line in each.lines()).encode()
