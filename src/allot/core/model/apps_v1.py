"""The parts of apps/v1 that scheduling and the workload controllers read. Templates are kept as written: controllers copy
and compare them, and read no more in them than in pods."""

from __future__ import annotations

from allot.core.model.meta import (
    APIStruct,
    Int32,
    Int64,
    IntOrString,
    LabelSelector,
    ObjectMeta,
    PartialStruct,
    RawJSON,
    Time,
)

GROUP = "apps"


class WorkloadCondition(APIStruct, frozen=True, kw_only=True):
    """A condition of a ReplicaSet, StatefulSet or DaemonSet."""

    type: str = ""
    status: str = ""
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


# --- Deployment ---


class DeploymentCondition(APIStruct, frozen=True, kw_only=True):
    """A condition of a Deployment."""

    type: str = ""
    status: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None
    reason: str = ""
    message: str = ""


class RollingUpdateDeployment(PartialStruct, frozen=True, kw_only=True):
    """How many pods may be unavailable or surplus during an update; numbers or percentages."""

    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DeploymentStrategy(PartialStruct, frozen=True, kw_only=True):
    """How old pods are replaced by new ones."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDeployment | None = None


class DeploymentSpec(PartialStruct, frozen=True, kw_only=True):
    """The desired pods, and how to roll them out."""

    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: RawJSON | None = None
    strategy: DeploymentStrategy = DeploymentStrategy()
    min_ready_seconds: Int32 = 0
    revision_history_limit: Int32 | None = None
    paused: bool = False
    progress_deadline_seconds: Int32 | None = None


class DeploymentStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a Deployment."""

    observed_generation: Int64 = 0
    replicas: Int32 = 0
    updated_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    unavailable_replicas: Int32 = 0
    terminating_replicas: Int32 | None = None
    conditions: tuple[DeploymentCondition, ...] = ()
    collision_count: Int32 | None = None


class Deployment(PartialStruct, frozen=True, kw_only=True):
    """Identical pods that are replaced gradually when their template changes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()


# --- ReplicaSet ---


class ReplicaSetSpec(PartialStruct, frozen=True, kw_only=True):
    """Which pods are replicas, and how many there should be."""

    replicas: Int32 | None = None
    min_ready_seconds: Int32 = 0
    selector: LabelSelector | None = None
    template: RawJSON | None = None


class ReplicaSetStatus(PartialStruct, frozen=True, kw_only=True):
    """How many pods there are."""

    replicas: Int32 = 0
    fully_labeled_replicas: Int32 = 0
    ready_replicas: Int32 = 0
    available_replicas: Int32 = 0
    terminating_replicas: Int32 | None = None
    observed_generation: Int64 = 0
    conditions: tuple[WorkloadCondition, ...] = ()


class ReplicaSet(PartialStruct, frozen=True, kw_only=True):
    """A number of identical pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()
    status: ReplicaSetStatus = ReplicaSetStatus()


# --- StatefulSet ---


class RollingUpdateStatefulSet(PartialStruct, frozen=True, kw_only=True):
    """Which pods are updated, and how many at a time."""

    partition: Int32 | None = None
    max_unavailable: IntOrString | None = None


class StatefulSetUpdateStrategy(PartialStruct, frozen=True, kw_only=True):
    """How old pods are replaced by new ones."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateStatefulSet | None = None


class StatefulSetRetentionPolicy(PartialStruct, frozen=True, kw_only=True):
    """What happens to volume claims when the set is deleted or scaled down: Retain or Delete."""

    when_deleted: str = "Retain"
    when_scaled: str = "Retain"


class StatefulSetOrdinals(PartialStruct, frozen=True, kw_only=True):
    """How pods are numbered."""

    start: Int32 = 0


class StatefulSetSpec(PartialStruct, frozen=True, kw_only=True):
    """The desired pods and their volumes."""

    replicas: Int32 | None = None
    selector: LabelSelector | None = None
    template: RawJSON | None = None
    volume_claim_templates: tuple[RawJSON, ...] = ()
    service_name: str = ""
    pod_management_policy: str = "OrderedReady"
    update_strategy: StatefulSetUpdateStrategy = StatefulSetUpdateStrategy()
    revision_history_limit: Int32 | None = None
    min_ready_seconds: Int32 = 0
    persistent_volume_claim_retention_policy: StatefulSetRetentionPolicy | None = None
    ordinals: StatefulSetOrdinals | None = None


class StatefulSetStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a StatefulSet."""

    observed_generation: Int64 = 0
    replicas: Int32 = 0
    ready_replicas: Int32 = 0
    current_replicas: Int32 = 0
    updated_replicas: Int32 = 0
    current_revision: str = ""
    update_revision: str = ""
    collision_count: Int32 | None = None
    available_replicas: Int32 = 0


class StatefulSet(PartialStruct, frozen=True, kw_only=True):
    """Pods with stable names and their own volumes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()


# --- DaemonSet ---


class RollingUpdateDaemonSet(PartialStruct, frozen=True, kw_only=True):
    """On how many nodes pods may be unavailable or surplus during an update; numbers or percentages."""

    max_unavailable: IntOrString | None = None
    max_surge: IntOrString | None = None


class DaemonSetUpdateStrategy(PartialStruct, frozen=True, kw_only=True):
    """How old pods are replaced by new ones."""

    type: str = "RollingUpdate"
    rolling_update: RollingUpdateDaemonSet | None = None


class DaemonSetSpec(PartialStruct, frozen=True, kw_only=True):
    """What runs on each node."""

    selector: LabelSelector | None = None
    template: RawJSON | None = None
    update_strategy: DaemonSetUpdateStrategy = DaemonSetUpdateStrategy()
    min_ready_seconds: Int32 = 0
    revision_history_limit: Int32 | None = None


class DaemonSetStatus(PartialStruct, frozen=True, kw_only=True):
    """On how many nodes it runs."""

    current_number_scheduled: Int32 = 0
    number_misscheduled: Int32 = 0
    desired_number_scheduled: Int32 = 0
    number_ready: Int32 = 0
    observed_generation: Int64 = 0
    updated_number_scheduled: Int32 = 0
    number_available: Int32 = 0
    number_unavailable: Int32 = 0
    collision_count: Int32 | None = None


class DaemonSet(PartialStruct, frozen=True, kw_only=True):
    """One pod on each node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()
    status: DaemonSetStatus = DaemonSetStatus()


# --- ControllerRevision ---


class ControllerRevision(PartialStruct, frozen=True, kw_only=True):
    """A numbered revision of a set's template."""

    metadata: ObjectMeta = ObjectMeta()
    data: RawJSON | None = None
    revision: Int64 = 0


# Keys of labels and annotations that users see.
POD_TEMPLATE_HASH = "pod-template-hash"
CONTROLLER_REVISION_HASH = "controller-revision-hash"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
POD_INDEX_LABEL = "apps.kubernetes.io/pod-index"
REVISION_HASH = "controller.kubernetes.io/hash"
