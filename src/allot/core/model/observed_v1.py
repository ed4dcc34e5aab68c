"""Kinds that are read only for advice: events and quotas of core/v1, autoscalers of autoscaling/v2, and queue managers' kinds."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.core_v1 import ObjectReference, PodResourceClaim
from allot.core.model.meta import EMPTY, Condition, Int32, LabelSelector, ObjectMeta, PartialStruct
from allot.core.quantity import Quantity


class EventSeries(PartialStruct, frozen=True, kw_only=True):
    """How often an event was seen again."""

    count: Int32 = 0
    last_observed_time: str | None = None


class Event(PartialStruct, frozen=True, kw_only=True):
    """What happened to an object. Times are kept as written: some have microseconds."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = ""
    count: Int32 = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    series: EventSeries | None = None
    reporting_component: str = ""

    @property
    def seen_at(self) -> str:
        """When it was last seen; empty if unknown."""
        series = self.series.last_observed_time if self.series is not None else None
        return series or self.last_timestamp or self.event_time or self.metadata.creation_timestamp or ""


class ResourceQuotaStatus(PartialStruct, frozen=True, kw_only=True):
    """Limits and current usage of a namespace."""

    hard: Mapping[str, Quantity] = EMPTY
    used: Mapping[str, Quantity] = EMPTY


class ScopedResourceSelectorRequirement(PartialStruct, frozen=True, kw_only=True):
    """Which objects a quota is for."""

    scope_name: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class ScopeSelector(PartialStruct, frozen=True, kw_only=True):
    """Which objects a quota is for: those that meet all of these."""

    match_expressions: tuple[ScopedResourceSelectorRequirement, ...] = ()


class ResourceQuotaSpec(PartialStruct, frozen=True, kw_only=True):
    """Limits of a namespace, and the objects they apply to."""

    hard: Mapping[str, Quantity] = EMPTY
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class ResourceQuota(PartialStruct, frozen=True, kw_only=True):
    """Limits of a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceQuotaSpec = ResourceQuotaSpec()
    status: ResourceQuotaStatus = ResourceQuotaStatus()


class LimitRangeItem(PartialStruct, frozen=True, kw_only=True):
    """Bounds for one type: Container, Pod or PersistentVolumeClaim."""

    type: str = ""
    max: Mapping[str, Quantity] = EMPTY
    min: Mapping[str, Quantity] = EMPTY
    # The limits of containers that have none.
    default: Mapping[str, Quantity] = EMPTY


class LimitRangeSpec(PartialStruct, frozen=True, kw_only=True):
    """All bounds of a namespace."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(PartialStruct, frozen=True, kw_only=True):
    """Bounds that each pod or container of a namespace must keep to."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()


# --- what pods refer to, by name only ---


class ConfigMap(PartialStruct, frozen=True, kw_only=True):
    """Which keys a ConfigMap has. Its values are not read."""

    metadata: ObjectMeta = ObjectMeta()
    keys: tuple[str, ...] = ()
    # The exception: the cluster autoscaler's own status.
    autoscaler_status: str = ""


class Secret(PartialStruct, frozen=True, kw_only=True):
    """Which keys a Secret has. Its values are not read."""

    metadata: ObjectMeta = ObjectMeta()
    keys: tuple[str, ...] = ()


class NetworkAttachmentDefinition(PartialStruct, frozen=True, kw_only=True):
    """k8s.cni.cncf.io's further network, which pods name in an annotation."""

    metadata: ObjectMeta = ObjectMeta()


# --- leases ---


class LeaseSpec(PartialStruct, frozen=True, kw_only=True):
    """The holder, and when it last renewed the lease. Times are kept as written: they have microseconds."""

    holder_identity: str = ""
    lease_duration_seconds: Int32 = 0
    renew_time: str | None = None


class Lease(PartialStruct, frozen=True, kw_only=True):
    """A coordination.k8s.io Lease: a heartbeat."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()

    @property
    def seen_at(self) -> str:
        """When it was last renewed; empty if unknown."""
        return self.spec.renew_time or ""


# --- autoscalers ---


class CrossVersionObjectReference(PartialStruct, frozen=True, kw_only=True):
    """What is scaled."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


class HorizontalPodAutoscalerSpec(PartialStruct, frozen=True, kw_only=True):
    """What is scaled, and between which numbers."""

    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: Int32 | None = None
    max_replicas: Int32 = 0


class HorizontalPodAutoscalerCondition(PartialStruct, frozen=True, kw_only=True):
    """A condition of an autoscaler."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class HorizontalPodAutoscalerStatus(PartialStruct, frozen=True, kw_only=True):
    """What an autoscaler has found and decided."""

    current_replicas: Int32 = 0
    desired_replicas: Int32 = 0
    conditions: tuple[HorizontalPodAutoscalerCondition, ...] = ()


class HorizontalPodAutoscaler(PartialStruct, frozen=True, kw_only=True):
    """Scales a workload by metrics."""

    metadata: ObjectMeta = ObjectMeta()
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()
    status: HorizontalPodAutoscalerStatus = HorizontalPodAutoscalerStatus()


# --- queue managers ---


class QueuedPodSpec(PartialStruct, frozen=True, kw_only=True):
    """The claims of the pods in a queue."""

    resource_claims: tuple[PodResourceClaim, ...] = ()


class QueuedPodTemplate(PartialStruct, frozen=True, kw_only=True):
    """The template of pods in a queue."""

    spec: QueuedPodSpec = QueuedPodSpec()


class PodSet(PartialStruct, frozen=True, kw_only=True):
    """Pods of one template."""

    name: str = ""
    template: QueuedPodTemplate = QueuedPodTemplate()


class KueueWorkloadSpec(PartialStruct, frozen=True, kw_only=True):
    """Where a workload waits, and whether it may be admitted at all."""

    pod_sets: tuple[PodSet, ...] = ()
    queue_name: str = ""
    active: bool | None = None
    priority: Int32 | None = None


class AdmissionCheckState(PartialStruct, frozen=True, kw_only=True):
    """The result of an admission check after quota: Pending, Ready, Retry or Rejected."""

    name: str = ""
    state: str = ""
    message: str = ""


class RequeueState(PartialStruct, frozen=True, kw_only=True):
    """When a workload that was evicted is tried again."""

    count: Int32 = 0
    requeue_at: str | None = None


class PodSetAssignment(PartialStruct, frozen=True, kw_only=True):
    """The flavor of each resource of a set of pods, and how much of it they use."""

    name: str = ""
    flavors: Mapping[str, str] = EMPTY
    resource_usage: Mapping[str, Quantity] = EMPTY


class Admission(PartialStruct, frozen=True, kw_only=True):
    """In which queue, and with which flavors, a workload was admitted."""

    cluster_queue: str = ""
    pod_set_assignments: tuple[PodSetAssignment, ...] = ()


class PodSetRequest(PartialStruct, frozen=True, kw_only=True):
    """What a set of pods asks for, as Kueue counts it."""

    name: str = ""
    resources: Mapping[str, Quantity] = EMPTY


class KueueWorkloadStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a workload."""

    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None
    admission_checks: tuple[AdmissionCheckState, ...] = ()
    # Only while it waits.
    resource_requests: tuple[PodSetRequest, ...] = ()
    requeue_state: RequeueState | None = None


class LocalQueueSpec(PartialStruct, frozen=True, kw_only=True):
    """Where the workloads of a namespace go."""

    cluster_queue: str = ""
    stop_policy: str = ""


class FlavorTotal(PartialStruct, frozen=True, kw_only=True):
    """How much of a resource is used in one flavor."""

    name: str = ""
    total: Quantity = Quantity.ZERO


class FlavorUse(PartialStruct, frozen=True, kw_only=True):
    """A flavor and its usage."""

    name: str = ""
    resources: tuple[FlavorTotal, ...] = ()


class QueueStatus(PartialStruct, frozen=True, kw_only=True):
    """Whether a queue is active, and its usage."""

    conditions: tuple[Condition, ...] = ()
    flavors_reservation: tuple[FlavorUse, ...] = ()
    flavors_usage: tuple[FlavorUse, ...] = ()


class LocalQueue(PartialStruct, frozen=True, kw_only=True):
    """kueue.x-k8s.io's queue of a namespace."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LocalQueueSpec = LocalQueueSpec()
    status: QueueStatus = QueueStatus()


class FlavorResource(PartialStruct, frozen=True, kw_only=True):
    """How much of a resource a queue has in one flavor, and how much more it may borrow from, or lend to, its cohort; None: all."""

    name: str = ""
    nominal_quota: Quantity = Quantity.ZERO
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(PartialStruct, frozen=True, kw_only=True):
    """A flavor and its resources."""

    name: str = ""
    resources: tuple[FlavorResource, ...] = ()


class ResourceGroup(PartialStruct, frozen=True, kw_only=True):
    """Resources that are admitted in the same flavors."""

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class ResourceFlavorSpec(PartialStruct, frozen=True, kw_only=True):
    """The nodes of a flavor: Kueue gives the pods that it admits a nodeSelector with these labels."""

    node_labels: Mapping[str, str] = EMPTY


class ResourceFlavor(PartialStruct, frozen=True, kw_only=True):
    """kueue.x-k8s.io's kind of nodes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceFlavorSpec = ResourceFlavorSpec()


class ClusterQueuePreemption(PartialStruct, frozen=True, kw_only=True):
    """Whom a queue evicts for its workloads: in its cohort, to get back what was borrowed, and in itself. Never, LowerPriority, Any and
    others; empty means Never."""

    reclaim_within_cohort: str = ""
    within_cluster_queue: str = ""


class ClusterQueueSpec(PartialStruct, frozen=True, kw_only=True):
    """What a queue may admit. It borrows from others in its cohort."""

    resource_groups: tuple[ResourceGroup, ...] = ()
    # StrictFIFO or BestEffortFIFO; empty means the latter.
    queueing_strategy: str = ""
    stop_policy: str = ""
    cohort: str = ""
    cohort_name: str = ""
    preemption: ClusterQueuePreemption = ClusterQueuePreemption()


class ClusterQueue(PartialStruct, frozen=True, kw_only=True):
    """kueue.x-k8s.io's queue with a quota."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterQueueSpec = ClusterQueueSpec()
    status: QueueStatus = QueueStatus()


class KueueWorkload(PartialStruct, frozen=True, kw_only=True):
    """What Kueue admits: kueue.x-k8s.io's Workload, which is not scheduling.k8s.io's."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KueueWorkloadSpec = KueueWorkloadSpec()
    status: KueueWorkloadStatus = KueueWorkloadStatus()


class Webhook(PartialStruct, frozen=True, kw_only=True):
    """A webhook of the API server, and what happens if it does not answer."""

    name: str = ""
    failure_policy: str = ""
    namespace_selector: LabelSelector | None = None
    object_selector: LabelSelector | None = None


class MutatingWebhookConfiguration(PartialStruct, frozen=True, kw_only=True):
    """admissionregistration.k8s.io's webhooks that change objects."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


class ValidatingWebhookConfiguration(PartialStruct, frozen=True, kw_only=True):
    """admissionregistration.k8s.io's webhooks that refuse objects."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[Webhook, ...] = ()


class ServiceReference(PartialStruct, frozen=True, kw_only=True):
    """A Service that serves an API."""

    namespace: str = ""
    name: str = ""


class APIServiceSpec(PartialStruct, frozen=True, kw_only=True):
    """An API and the service behind it; without one, the API server serves it."""

    group: str = ""
    version: str = ""
    service: ServiceReference | None = None


class APIServiceStatus(PartialStruct, frozen=True, kw_only=True):
    """Whether the API is available."""

    conditions: tuple[Condition, ...] = ()


class APIService(PartialStruct, frozen=True, kw_only=True):
    """apiregistration.k8s.io's registration of an API."""

    metadata: ObjectMeta = ObjectMeta()
    spec: APIServiceSpec = APIServiceSpec()
    status: APIServiceStatus = APIServiceStatus()


class OtherObject(PartialStruct, frozen=True, kw_only=True):
    """An object of a kind that has no type here, of which only the metadata matters, and what its controller says."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    # Of its status.
    conditions: tuple[Condition, ...] = ()

    @property
    def keeps_others(self) -> bool:
        """Whether it is being deleted and stays until its finalizers are gone, as does what depends on it."""
        return self.metadata.deletion_timestamp is not None and bool(self.metadata.finalizers)
