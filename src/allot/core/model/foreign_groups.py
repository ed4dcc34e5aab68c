"""PodGroups of other schedulers, as far as a decision depends on them: scheduling.x-k8s.io/v1alpha1 (scheduler-plugins), scheduling.volcano.sh/v1beta1
(Volcano), scheduling.run.ai/v2alpha2 (KAI). They are custom resources."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.meta import EMPTY, Int32, ObjectMeta, PartialStruct, Time
from allot.core.quantity import Quantity

COSCHEDULING = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"
KAI = "scheduling.run.ai"


class CoschedulingSpec(PartialStruct, frozen=True, kw_only=True):
    """How many pods start together, what they need at least, and how long they may wait for each other."""

    min_member: Int32 = 0
    min_resources: Mapping[str, Quantity] = EMPTY
    schedule_timeout_seconds: Int32 | None = None


class CoschedulingStatus(PartialStruct, frozen=True, kw_only=True):
    """How far a group has come."""

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
    queue: str = ""
    priority_class_name: str = ""


class VolcanoPodGroup(PartialStruct, frozen=True, kw_only=True):
    """PodGroup of scheduling.volcano.sh/v1beta1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoSpec = VolcanoSpec()


class KaiTopologyConstraint(PartialStruct, frozen=True, kw_only=True):
    """Levels of a Topology, by the node label of each."""

    topology: str = ""
    required_topology_level: str = ""
    preferred_topology_level: str = ""


class KaiSpec(PartialStruct, frozen=True, kw_only=True):
    """How many pods start together, in which queue, near to each other or not."""

    min_member: Int32 | None = None
    queue: str = ""
    priority_class_name: str = ""
    preemptibility: str = ""
    topology_constraint: KaiTopologyConstraint | None = None


class KaiPodGroup(PartialStruct, frozen=True, kw_only=True):
    """PodGroup of scheduling.run.ai/v2alpha2."""

    metadata: ObjectMeta = ObjectMeta()
    spec: KaiSpec = KaiSpec()
