"""Metrics of a driver."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from allot.process.metrics import Counter, Gauge, Histogram, Labels, exponential

_SECONDS = exponential(0.001, 2, 16)


class DriverMetrics:
    """Metrics of one driver."""

    def __init__(self, registry: CollectorRegistry, driver: str) -> None:
        self._driver = driver
        self._registry = registry
        self._durations = Histogram(
            registry,
            "allot_driver_operation_duration_seconds",
            "Time to prepare or unprepare a claim.",
            ("driver_name", "operation", "is_error"),
            buckets=_SECONDS,
        )
        self._slice_writes = Counter(
            registry, "allot_driver_slice_writes", "Writes of ResourceSlices.", ("driver_name", "operation")
        )
        self._problems = Counter(
            registry, "allot_driver_problems", "Background failures by what failed.", ("driver_name", "area")
        )

    def observe(self, operation: str, seconds: float, is_error: bool) -> None:
        """A claim was prepared or unprepared, or that failed."""
        self._durations.observe(seconds, self._driver, operation, "true" if is_error else "false")

    def wrote_slice(self, operation: str) -> None:
        """A slice was created, updated or deleted."""
        self._slice_writes.add(self._driver, operation)

    def problem(self, area: str) -> None:
        """A background task failed and is retried."""
        self._problems.add(self._driver, area)

    def watch_claims(self, read: Callable[[], int]) -> None:
        """Report the number of prepared claims."""

        def values() -> Mapping[Labels, float]:
            return {(self._driver,): float(read())}

        Gauge(self._registry, "allot_driver_prepared_claims", "Claims that are prepared.", ("driver_name",), values)

    def watch_devices(self, read: Callable[[], int]) -> None:
        """Report the number of published devices."""

        def values() -> Mapping[Labels, float]:
            return {(self._driver,): float(read())}

        Gauge(self._registry, "allot_driver_devices", "Devices that are published.", ("driver_name",), values)
