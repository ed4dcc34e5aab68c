"""The kubelet's metrics of device plugins, by its names."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from allot.process.metrics import Counter, Histogram

# Prometheus' defaults, which the kubelet uses.
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class DevicePluginMetrics:
    """The metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registrations = Counter(
            registry,
            "kubelet_device_plugin_registration",
            "Cumulative number of device plugin registrations. Broken down by resource name.",
            ("resource_name",),
        )
        self.allocations = Histogram(
            registry,
            "kubelet_device_plugin_alloc_duration_seconds",
            "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
            ("resource_name",),
            buckets=BUCKETS_S,
        )
