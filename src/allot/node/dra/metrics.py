"""The kubelet's metrics of dynamic resource allocation, by its names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry

from allot.core.lifecycle.preparation import Records
from allot.process.metrics import Counter, Gauge, Histogram, Labels, exponential

# The kubelet's: 15 bounds from 0.1 to 40 seconds.
BUCKETS_S = exponential(0.1, 400 ** (1 / 14), 15)
ANY_DRIVER = "<any>"


class DraMetrics:
    """The metrics. records: the claims in use, read on demand."""

    def __init__(self, registry: CollectorRegistry, records: Callable[[], Records]) -> None:
        self.operations = Histogram(
            registry,
            "dra_operations_duration_seconds",
            "How long it took to handle all ResourceClaims of a pod that starts or stops",
            ("operation_name", "is_error"),
            buckets=BUCKETS_S,
        )
        self.calls = Histogram(
            registry,
            "dra_grpc_operations_duration_seconds",
            "Duration in seconds of the DRA gRPC operations",
            ("driver_name", "method_name", "grpc_status_code"),
            buckets=BUCKETS_S,
        )
        self.prepare_skips = Counter(
            registry, "dra_node_prepare_skips", "Calls of NodePrepareResources that were not needed", ("driver_name",)
        )
        self.unprepare_skips = Counter(
            registry,
            "dra_node_unprepare_skips",
            "Calls of NodeUnprepareResources that were not needed",
            ("driver_name",),
        )
        Gauge(
            registry,
            "dra_resource_claims_in_use",
            "The number of ResourceClaims that are currently in use on the node, by driver name (driver_name label value) "
            f"and across all drivers (special value {ANY_DRIVER} for driver_name)",
            ("driver_name",),
            lambda: claims_in_use(records()),
        )


def claims_in_use(records: Records) -> Mapping[Labels, float]:
    """Prepared claims by driver, and all of them."""
    counts: dict[Labels, float] = {(ANY_DRIVER,): 0}
    for record in records.values():
        if record.is_prepared:
            for driver in (ANY_DRIVER, *record.drivers):
                counts[driver,] = counts.get((driver,), 0) + 1
    return counts
