"""scheduling.k8s.io as of Kubernetes 1.37: PodGroup and Workload (v1beta1, v1alpha3), CompositePodGroup (v1alpha3),
and PriorityClass (v1): every kind and every field.

v1beta1 and v1alpha3 of the shared kinds have equal schemas, so one set of types serves both.
"""

from __future__ import annotations

from allot.core.model.meta import APIStruct, Condition, Int32, ObjectMeta

GROUP = "scheduling.k8s.io"

# --- limits of the API ---
POD_GROUP_RESOURCE_CLAIMS_MAX = 4
POD_GROUP_TEMPLATES_MAX = 8
TEMPLATE_DEPTH_MAX = 4
TOPOLOGY_CONSTRAINTS_MAX = 1
PRIORITY_MAX = 1_000_000_000

# --- well-known strings ---
PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
PREEMPT_NEVER = "Never"
POD_GROUP_PROTECTION_FINALIZER = "scheduling.k8s.io/podgroup-protection"


class PriorityClass(APIStruct, frozen=True, kw_only=True):
    """A named priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None


# --- how a group is scheduled ---


class BasicSchedulingPolicy(APIStruct, frozen=True, kw_only=True):
    """Each member on its own; no fields."""


class GangSchedulingPolicy(APIStruct, frozen=True, kw_only=True):
    """Schedules a minimum number of pods at once, or none."""

    min_count: Int32 = 0


class PodGroupSchedulingPolicy(APIStruct, frozen=True, kw_only=True):
    """One-of: basic or gang."""

    basic: BasicSchedulingPolicy | None = None
    gang: GangSchedulingPolicy | None = None


class CompositeGangSchedulingPolicy(APIStruct, frozen=True, kw_only=True):
    """Schedules a minimum number of groups at once, or none."""

    min_group_count: Int32 = 0


class CompositePodGroupSchedulingPolicy(APIStruct, frozen=True, kw_only=True):
    """One-of: basic or gang."""

    basic: BasicSchedulingPolicy | None = None
    gang: CompositeGangSchedulingPolicy | None = None


class TopologyConstraint(APIStruct, frozen=True, kw_only=True):
    """A node label whose value all pods must share."""

    key: str = ""


class SchedulingConstraints(APIStruct, frozen=True, kw_only=True):
    """What the nodes of a group must have in common; the same for pod groups and composite ones."""

    topology: tuple[TopologyConstraint, ...] = ()


class DisruptionModeMember(APIStruct, frozen=True, kw_only=True):
    """A member of the disruption one-of; no fields."""


class DisruptionMode(APIStruct, frozen=True, kw_only=True):
    """One-of: members may be disrupted one by one, or only all together."""

    single: DisruptionModeMember | None = None
    all: DisruptionModeMember | None = None


# --- PodGroup ---


class PodGroupResourceClaim(APIStruct, frozen=True, kw_only=True):
    """One-of: a claim by name, or a template for the group's own claim."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class WorkloadReference(APIStruct, frozen=True, kw_only=True):
    """The template that a group was created from."""

    workload_name: str = ""
    template_name: str = ""


class PodGroupSpec(APIStruct, frozen=True, kw_only=True):
    """How a group of pods is scheduled."""

    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None


class PodGroupResourceClaimStatus(APIStruct, frozen=True, kw_only=True):
    """The claim made for an entry of spec.resourceClaims; no name means that none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class PodGroupStatus(APIStruct, frozen=True, kw_only=True):
    """Observed status of a group."""

    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodGroupResourceClaimStatus, ...] = ()


class PodGroup(APIStruct, frozen=True, kw_only=True):
    """Pods that are scheduled together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


# --- CompositePodGroup ---


class CompositePodGroupSpec(APIStruct, frozen=True, kw_only=True):
    """How a group of groups is scheduled."""

    parent_composite_pod_group_name: str | None = None
    workload_ref: WorkloadReference | None = None
    scheduling_policy: CompositePodGroupSchedulingPolicy = CompositePodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None


class CompositePodGroupStatus(APIStruct, frozen=True, kw_only=True):
    """Observed status of a group of groups."""

    conditions: tuple[Condition, ...] = ()


class CompositePodGroup(APIStruct, frozen=True, kw_only=True):
    """Groups that are scheduled together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CompositePodGroupSpec = CompositePodGroupSpec()
    status: CompositePodGroupStatus = CompositePodGroupStatus()


# --- Workload ---


class TypedLocalObjectReference(APIStruct, frozen=True, kw_only=True):
    """The object that a workload was created for."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class PodGroupTemplate(APIStruct, frozen=True, kw_only=True):
    """What pod groups made from a workload look like."""

    name: str = ""
    scheduling_policy: PodGroupSchedulingPolicy = PodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    resource_claims: tuple[PodGroupResourceClaim, ...] = ()
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None


class CompositePodGroupTemplate(APIStruct, frozen=True, kw_only=True):
    """What composite groups made from a workload look like; templates nest."""

    name: str = ""
    scheduling_policy: CompositePodGroupSchedulingPolicy = CompositePodGroupSchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: DisruptionMode | None = None
    priority_class_name: str = ""
    priority: Int32 | None = None
    preemption_policy: str | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()
    composite_pod_group_templates: tuple[CompositePodGroupTemplate, ...] = ()


class WorkloadSpec(APIStruct, frozen=True, kw_only=True):
    """The groups that a workload consists of."""

    controller_ref: TypedLocalObjectReference | None = None
    pod_group_templates: tuple[PodGroupTemplate, ...] = ()
    composite_pod_group_templates: tuple[CompositePodGroupTemplate, ...] = ()


class Workload(APIStruct, frozen=True, kw_only=True):
    """The shape of a job that runs as groups of pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
