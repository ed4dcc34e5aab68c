"""PodGroups of other schedulers, as far as scheduling depends on them: scheduling.x-k8s.io/v1alpha1 (scheduler-plugins),
scheduling.volcano.sh/v1beta1 (Volcano), scheduling.run.ai/v2alpha2 (KAI). They are custom resources."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model.meta import EMPTY, Int32, ObjectMeta, PartialStruct, Time
from allot.core.quantity import Quantity

COSCHEDULING = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
KAI = "scheduling.run.ai"
KAI_TOPOLOGY = "kai.scheduler"
KUEUE = "kueue.x-k8s.io"


class CoschedulingSpec(PartialStruct, frozen=True, kw_only=True):
    """How many pods start together, what they need at least, and how long they may wait for each other."""

    min_member: Int32 = 0
    min_resources: Mapping[str, Quantity] = EMPTY
    schedule_timeout_seconds: Int32 | None = None


class CoschedulingStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a group."""

    phase: str = ""
    occupied_by: str = ""
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0
    schedule_start_time: Time | None = None


class CoschedulingPodGroup(PartialStruct, frozen=True, kw_only=True):
    """PodGroup of scheduling.x-k8s.io/v1alpha1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CoschedulingSpec = CoschedulingSpec()
    status: CoschedulingStatus = CoschedulingStatus()


class VolcanoSpec(PartialStruct, frozen=True, kw_only=True):
    """How many pods start together."""

    min_member: Int32 = 0
    min_resources: Mapping[str, Quantity] = EMPTY
    # By task name, which pods carry as an annotation.
    min_task_member: Mapping[str, Int32] = EMPTY
    queue: str = ""
    priority_class_name: str = ""


class VolcanoCondition(PartialStruct, frozen=True, kw_only=True):
    """Scheduled or Unschedulable."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: Time | None = None


class VolcanoStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a group."""

    phase: str = ""
    conditions: tuple[VolcanoCondition, ...] = ()
    running: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


class VolcanoPodGroup(PartialStruct, frozen=True, kw_only=True):
    """PodGroup of scheduling.volcano.sh/v1beta1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoSpec = VolcanoSpec()
    status: VolcanoStatus = VolcanoStatus()


class KaiTopologyConstraint(PartialStruct, frozen=True, kw_only=True):
    """Levels of a Topology, by the node label of each."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSubGroup(PartialStruct, frozen=True, kw_only=True):
    """A subgroup: of pods, or of other subgroups that name it as their parent."""

    name: str = ""
    parent: str | None = None
    min_member: Int32 | None = None
    min_sub_group: Int32 | None = None
    topology_constraint: KaiTopologyConstraint | None = None


class KaiSpec(PartialStruct, frozen=True, kw_only=True):
    """How many pods start together, in which queue, and under which topology constraint."""

    min_member: Int32 | None = None
    min_sub_group: Int32 | None = None
    sub_groups: tuple[KaiSubGroup, ...] = ()
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopologyConstraint | None = None
    # Go's durations.
    preemption_delay: str = ""
    staleness_grace_period: str = ""


class KaiReason(PartialStruct, frozen=True, kw_only=True):
    """One of the reasons why a group waits."""

    reason: str = ""
    message: str = ""


class KaiSchedulingCondition(PartialStruct, frozen=True, kw_only=True):
    """Whether a group can be scheduled on the nodes of a pool."""

    type: str = ""
    node_pool: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    reasons: tuple[KaiReason, ...] = ()
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: Time | None = None


class KaiResourcesStatus(PartialStruct, frozen=True, kw_only=True):
    """What the pods of a group or queue request and have."""

    allocated: Mapping[str, Quantity] = EMPTY
    allocated_non_preemptible: Mapping[str, Quantity] = EMPTY
    requested: Mapping[str, Quantity] = EMPTY


class KaiStatus(PartialStruct, frozen=True, kw_only=True):
    """Observed status of a group."""

    scheduling_conditions: tuple[KaiSchedulingCondition, ...] = ()
    resources_status: KaiResourcesStatus = KaiResourcesStatus()


class KaiPodGroup(PartialStruct, frozen=True, kw_only=True):
    """PodGroup of scheduling.run.ai/v2alpha2."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiSpec = KaiSpec()
    status: KaiStatus = KaiStatus()


class KaiTopologyLevel(PartialStruct, frozen=True, kw_only=True):
    """A node label; alias: another name for it in constraints."""

    node_label: str = ""
    alias: str = ""


class KaiTopologySpec(PartialStruct, frozen=True, kw_only=True):
    """The levels of a cluster, outermost first."""

    levels: tuple[KaiTopologyLevel, ...] = ()


class KaiTopology(PartialStruct, frozen=True, kw_only=True):
    """Topology of kai.scheduler/v1alpha1, which was derived from that of kueue.x-k8s.io."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiTopologySpec = KaiTopologySpec()
