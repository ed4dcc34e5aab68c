"""The autoscaler's options: those of Cluster Autoscaler, with its names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import msgspec

from allot.autoscaler.provider import GroupOptions
from allot.core.autoscaling.evictable import Rules


class AutoscalerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds. profiles: the hardware profile of a group's nodes, by group, for providers that do not name it."""

    scan_interval_s: float = 10.0
    expander: tuple[str, ...] = ("price",)
    max_nodes_total: int = 0
    max_nodes_per_scaleup: int = 1000
    new_pod_scale_up_delay_s: float = 0.0
    max_node_provision_time_s: float = 900.0
    backoff_initial_s: float = 300.0
    backoff_max_s: float = 1800.0
    backoff_reset_s: float = 10_800.0
    scale_down_enabled: bool = True
    scale_down_unneeded_time_s: float = 600.0
    scale_down_delay_after_add_s: float = 600.0
    scale_down_delay_after_delete_s: float = 0.0
    scale_down_delay_after_failure_s: float = 180.0
    scale_down_unready_time_s: float = 1200.0
    scale_down_utilization_threshold: Fraction = Fraction(1, 2)
    scale_down_gpu_utilization_threshold: Fraction = Fraction(1, 2)
    # How many nodes are marked or unmarked as unneeded in one round.
    max_bulk_soft_taint_count: int = 10
    max_scale_down_parallelism: int = 10
    max_drain_parallelism: int = 1
    max_graceful_termination_s: float = 600.0
    max_pod_eviction_time_s: float = 120.0
    rules: Rules = Rules()
    status_namespace: str = "kube-system"
    status_name: str = "cluster-autoscaler-status"
    profiles: Mapping[str, str] = {}
    prices: Mapping[str, int] = {}
    seed: int = 0
    # How fast the provider's clock runs: minutes in ComputeClasses are divided by it.
    time_factor: float = 1.0

    @property
    def of_groups(self) -> GroupOptions:
        """The default options of groups."""
        return GroupOptions(
            utilization_threshold=float(self.scale_down_utilization_threshold),
            gpu_utilization_threshold=float(self.scale_down_gpu_utilization_threshold),
            unneeded_s=self.scale_down_unneeded_time_s,
            unready_s=self.scale_down_unready_time_s,
            provision_s=self.max_node_provision_time_s,
        )
