"""The scheduler's metrics, under kube-scheduler's names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry

from allot.core.model.resource_v1 import ResourceClaim
from allot.core.scheduling.plan import Decision
from allot.core.scheduling.queueing.waiting import Place
from allot.process.metrics import Counter, Gauge, Histogram, exponential

SCHEDULED = "scheduled"
UNSCHEDULABLE = "unschedulable"
ERROR = "error"
# Largest number of attempts in a label; more share one value, so that a pod that never fits does not create new series forever.
_ATTEMPTS_MAX = 15
_DRA = "DynamicResources"
_SHORT_S = exponential(0.001, 2, 15)


class SchedulerMetrics:
    """Counts what happens to pods."""

    def __init__(
        self,
        registry: CollectorRegistry,
        places: Callable[[], Mapping[Place, int]],
        refused: Callable[[], Mapping[str, int]],
        sizes: Callable[[], Mapping[str, int]],
    ) -> None:
        """places: how many units wait where; refused: how many each plugin keeps waiting; sizes: nodes, pods and assumed pods
        in the cache."""
        self.registry = registry
        self._measure_pods(registry)
        self._measure_groups(registry)
        self._measure_claims(registry)
        Gauge(
            registry,
            "scheduler_pending_pods",
            "Number of pending pods, by the queue type.",
            ("queue",),
            lambda: {(place.value,): float(count) for place, count in places().items() if place.value},
        )
        Gauge(
            registry,
            "scheduler_unschedulable_pods",
            "The number of unschedulable pods by the plugins that refused them.",
            ("plugin",),
            lambda: {(plugin,): float(count) for plugin, count in refused().items()},
        )
        Gauge(
            registry,
            "scheduler_cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache.",
            ("type",),
            lambda: {(kind,): float(count) for kind, count in sizes().items()},
        )

    def _measure_pods(self, registry: CollectorRegistry) -> None:
        self.attempts = Counter(
            registry,
            "scheduler_schedule_attempts",
            "Number of attempts to schedule pods, by the result.",
            ("result", "profile"),
        )
        self._attempt_s = Histogram(
            registry,
            "scheduler_scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (decision and binding).",
            ("result", "profile"),
            buckets=_SHORT_S,
        )
        self._algorithm_s = Histogram(
            registry,
            "scheduler_scheduling_algorithm_duration_seconds",
            "Decision latency in seconds.",
            buckets=_SHORT_S,
        )
        self._point_s = Histogram(
            registry,
            "scheduler_framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point.",
            ("extension_point", "status", "profile"),
            buckets=exponential(0.0001, 2, 12),
        )
        self._plugin_s = Histogram(
            registry,
            "scheduler_plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point.",
            ("plugin", "extension_point", "status"),
            buckets=exponential(0.00001, 1.5, 20),
        )
        self._sli_s = Histogram(
            registry,
            "scheduler_pod_scheduling_sli_duration_seconds",
            "Latency from the time a pod enters the queue until it is bound, over all attempts.",
            ("attempts",),
            buckets=exponential(0.01, 2, 20),
        )
        self._pod_attempts = Histogram(
            registry,
            "scheduler_pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod.",
            buckets=exponential(1, 2, 5),
        )
        self._victims = Histogram(
            registry,
            "scheduler_preemption_victims",
            "Number of selected preemption victims.",
            buckets=exponential(1, 2, 7),
        )
        self._preemptions = Counter(registry, "scheduler_preemption_attempts", "Total preemption attempts.")
        self._evaluations = Counter(
            registry,
            "scheduler_plugin_evaluation",
            "Number of attempts to schedule pods by each plugin and the extension point.",
            ("plugin", "extension_point", "profile"),
        )
        self._incoming = Counter(
            registry,
            "scheduler_queue_incoming_pods",
            "Number of units moved to the active or back-off queue, by event.",
            ("queue", "event"),
        )

    def _measure_groups(self, registry: CollectorRegistry) -> None:
        self._groups = Counter(
            registry,
            "scheduler_podgroup_schedule_attempts",
            "Number of attempts to schedule pod groups, by the result.",
            ("result", "profile"),
        )
        self._group_s = Histogram(
            registry,
            "scheduler_podgroup_scheduling_attempt_duration_seconds",
            "Pod group scheduling attempt latency in seconds, by the result.",
            ("result", "profile"),
            buckets=_SHORT_S,
        )
        self._group_algorithm_s = Histogram(
            registry,
            "scheduler_podgroup_scheduling_algorithm_duration_seconds",
            "Decision latency of pod groups in seconds.",
            buckets=_SHORT_S,
        )
        self._workload_preemptions = Counter(
            registry, "scheduler_workload_preemption_attempts", "Total preemption attempts of pod groups."
        )
        self._workload_victims = Histogram(
            registry,
            "scheduler_workload_preemption_victims",
            "Number of victims that a pod group preempted.",
            buckets=exponential(1, 2, 7),
        )

    def _measure_claims(self, registry: CollectorRegistry) -> None:
        self._bindings = Counter(
            registry,
            "scheduler_dra_bindingconditions_allocations",
            "Claims whose devices had to become ready, by the result.",
            ("profile", "driver", "status"),
        )
        self._binding_s = Histogram(
            registry,
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "How long pods waited for devices to become ready.",
            ("profile", "driver", "status"),
            buckets=exponential(0.1, 2, 14),
        )
        self._claims = Counter(
            registry,
            "dynamic_resource_allocation_resourceclaim_creates",
            "Number of ResourceClaims created for extended resources.",
            ("status", "admin_access", "owner_api_group", "owner_api_kind"),
        )

    def decided(self, decision: Decision, seconds: float) -> None:
        """A unit was decided."""
        if decision.given_up:
            # No pod was tried.
            return
        profile = _profile(decision)
        self._algorithm_s.observe(seconds)
        if decision.group is not None:
            result = SCHEDULED if decision.group.status == "True" else UNSCHEDULABLE
            self._groups.add(result, profile)
            self._group_s.observe(seconds, result, profile)
            self._group_algorithm_s.observe(seconds)
        for placement in decision.placements:
            if placement.pod.spec.resource_claims or placement.extended is not None:
                self._evaluations.add(_DRA, "Filter", profile)
        for refusal in decision.refusals:
            if _DRA in refusal.plugins:
                self._evaluations.add(_DRA, "Filter", profile)
            result = ERROR if refusal.verdict == "Error" else UNSCHEDULABLE
            self.attempts.add(result, profile)
            self._attempt_s.observe(seconds, result, profile)
            if any(victim.by for victim in refusal.victims):
                self._workload_preemptions.add()
                self._workload_victims.observe(len(refusal.victims))
            elif refusal.victims:
                self._preemptions.add()
                self._victims.observe(len(refusal.victims))

    def bound(self, profile: str, attempt_s: float, bind_s: float, attempts: int, sli_s: float) -> None:
        """A pod has its node."""
        self.attempts.add(SCHEDULED, profile)
        self._attempt_s.observe(attempt_s, SCHEDULED, profile)
        self._point_s.observe(bind_s, "Bind", "Success", profile)
        self._pod_attempts.observe(attempts)
        self._sli_s.observe(sli_s, str(min(attempts, _ATTEMPTS_MAX)))

    def failed(self, profile: str, attempt_s: float) -> None:
        """A placement could not be written."""
        self.attempts.add(ERROR, profile)
        self._attempt_s.observe(attempt_s, ERROR, profile)

    def claims_written(self, seconds: float, *, success: bool) -> None:
        """The claims of a pod were allocated, reserved and ready, or could not be."""
        self._plugin_s.observe(seconds, _DRA, "PreBind", "Success" if success else "Error")

    def requeued(self, event: str, units: int) -> None:
        """An event moved units back to be retried."""
        self._incoming.add("active", event, amount=units)

    def devices_waited(
        self, claim: ResourceClaim, status: str, seconds: float, profile: str = "default-scheduler"
    ) -> None:
        """The wait for devices to become ready is over."""
        for driver in _drivers(claim):
            self._bindings.add(profile, driver, status)
            self._binding_s.observe(seconds, profile, driver, status)

    def claim_created(self, *, success: bool) -> None:
        """A claim for extended resources was created, or could not be."""
        self._claims.add("success" if success else "failure", "false", "", "Pod")


def _profile(decision: Decision) -> str:
    """The scheduler's name: the same for all pods of a unit."""
    decided = decision.placements[0] if decision.placements else decision.refusals[0]
    return decided.pod.spec.scheduler_name


def _drivers(claim: ResourceClaim) -> Iterable[str]:
    allocation = claim.status.allocation
    results = allocation.devices.results if allocation is not None else ()
    return sorted({result.driver for result in results if result.binding_conditions})
