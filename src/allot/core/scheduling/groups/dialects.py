"""Groups of other schedulers, read into the model of scheduling.k8s.io: what a decision needs is the same in all of them.

An adapter says how pods name their group and what a group's object means. What is written back stays in the dialect's own words
(`controllers/coscheduling`). Pods belong to a dialect's groups only where its kind is served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import (
    COSCHEDULING,
    KAI,
    VOLCANO,
    CoschedulingPodGroup,
    KaiPodGroup,
    VolcanoPodGroup,
)
from allot.core.model.meta import EMPTY, APIStruct, ObjectMeta
from allot.core.model.scheduling_v1 import (
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    SchedulingConstraints,
    TopologyConstraint,
)
from allot.core.quantity import Quantity

# How long coscheduling's pods wait for each other where their group does not say.
_WAITING_S = 60.0


class ForeignGroup(PodGroup, frozen=True, kw_only=True):
    """A group of another dialect, as scheduling.k8s.io would say it, and what that has no word for."""

    # The API group that its object belongs to.
    dialect: str = ""
    # How long it may be tried in vain before that is told once more; 0: it may wait for ever.
    timeout_s: float = 0.0
    # What all nodes together must have free before it is tried.
    min_resources: Mapping[str, Quantity] = EMPTY
    # The queue of its team, and whether its pods may be made to leave; empty: their labels and priority say so.
    queue: str = ""
    preemptibility: str = ""


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler's groups. api_group, version: of its kind PodGroup."""

    api_group: str
    version: str
    type: type[APIStruct]
    # Labels and annotations of pods that name their group, the first that is there counts.
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    # What its scheduler and its plugin for groups are called.
    scheduler: str
    plugin: str
    read: Callable[[Any], ForeignGroup]
    # What is said of a pod whose group is not there, and of one that is not tried as too few pods are: name of the pod, pods,
    # minimum.
    unknown: str
    too_few: str

    def name_in(self, pod: Pod) -> str:
        """The group that a pod names; empty if none."""
        metadata = pod.metadata
        for label in self.labels:
            if metadata.labels.get(label):
                return metadata.labels[label]
        for annotation in self.annotations:
            if metadata.annotations.get(annotation):
                return metadata.annotations[annotation]
        return ""

    def named(self, metadata: ObjectMeta, name: str) -> ObjectMeta:
        """The metadata of a pod that names a group."""
        if self.labels:
            return msgspec.structs.replace(metadata, labels={**metadata.labels, self.labels[0]: name})
        return msgspec.structs.replace(metadata, annotations={**metadata.annotations, self.annotations[0]: name})


def _read_coscheduling(group: CoschedulingPodGroup) -> ForeignGroup:
    timeout = group.spec.schedule_timeout_seconds
    return ForeignGroup(
        metadata=group.metadata,
        spec=_gang(group.spec.min_member),
        dialect=COSCHEDULING,
        timeout_s=float(timeout) if timeout else _WAITING_S,
        min_resources=group.spec.min_resources,
    )


def _read_volcano(group: VolcanoPodGroup) -> ForeignGroup:
    return ForeignGroup(
        metadata=group.metadata,
        spec=_gang(group.spec.min_member),
        dialect=VOLCANO,
        min_resources=group.spec.min_resources,
        queue=group.spec.queue,
    )


def _read_kai(group: KaiPodGroup) -> ForeignGroup:
    near = group.spec.topology_constraint
    minimum = group.spec.min_member
    return ForeignGroup(
        metadata=group.metadata,
        spec=_gang(1 if minimum is None else minimum, near.required_topology_level if near is not None else ""),
        dialect=KAI,
        queue=group.spec.queue,
        preemptibility=group.spec.preemptibility,
    )


def _gang(minimum: int, key: str = "") -> PodGroupSpec:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=max(1, minimum)))
    near = SchedulingConstraints(topology=(TopologyConstraint(key=key),)) if key else None
    return PodGroupSpec(scheduling_policy=policy, scheduling_constraints=near)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        api_group=COSCHEDULING,
        version="v1alpha1",
        type=CoschedulingPodGroup,
        labels=("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"),
        scheduler="scheduler-plugins-scheduler",
        plugin="Coscheduling",
        unknown="PodGroup not found",
        too_few="pre-filter pod {pod} cannot find enough sibling pods, current pods number: {pods}, "
        "minMember of group: {minimum}",
        read=_read_coscheduling,
    ),
    Dialect(
        api_group=VOLCANO,
        version="v1beta1",
        type=VolcanoPodGroup,
        annotations=("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"),
        scheduler="volcano",
        plugin="gang",
        unknown="podgroup not found",
        too_few="pod group is not ready, {pods} Pending, {minimum} minAvailable",
        read=_read_volcano,
    ),
    Dialect(
        api_group=KAI,
        version="v2alpha2",
        type=KaiPodGroup,
        annotations=("pod-group-name",),
        scheduler="kai-scheduler",
        plugin="gang",
        unknown="PodGroup not found",
        too_few="Job is not ready for scheduling. Waiting for {minimum} pods, currently {pods} exist",
        read=_read_kai,
    ),
)


def coscheduling_group(pod: Pod) -> str:
    """The PodGroup of scheduling.x-k8s.io that a pod names; empty if none."""
    return DIALECTS[0].name_in(pod)


def group_key(group: PodGroup) -> str:
    """What a group is called beside groups of other dialects in its namespace."""
    return _key(group.dialect, group.metadata) if isinstance(group, ForeignGroup) else group.metadata.name


def _key(dialect: str, metadata: ObjectMeta) -> str:
    # No object has a colon in its name.
    return f"{dialect}:{metadata.name}"


def dialect_of(key: str) -> Dialect | None:
    """The dialect of a group, by its key or namespace/key; None if it is one of scheduling.k8s.io."""
    api_group, colon, _ = key.rpartition("/")[2].partition(":") if ":" in key else ("", "", "")
    return next((each for each in DIALECTS if each.api_group == api_group), None) if colon else None


class Membership:
    """Which group a pod belongs to. The one place that knows."""

    __slots__ = ("_served", "_uses_pod_groups")

    def __init__(self, *, uses_pod_groups: bool = True) -> None:
        """uses_pod_groups: whether pods may name groups of scheduling.k8s.io (GenericWorkload)."""
        self._uses_pod_groups = uses_pod_groups
        self._served: tuple[Dialect, ...] = ()

    def serve(self, api_group: str) -> None:
        """Pods may name groups of this dialect too."""
        found = [each for each in DIALECTS if each.api_group == api_group and each not in self._served]
        self._served = (*self._served, *found)

    def of(self, pod: Pod) -> tuple[str, str] | None:
        """The namespace and key of a pod's group; None if it is alone."""
        link = pod.spec.scheduling_group
        if link is not None and link.pod_group_name and self._uses_pod_groups:
            return pod.metadata.namespace, link.pod_group_name
        for dialect in self._served:
            name = dialect.name_in(pod)
            if name:
                return pod.metadata.namespace, f"{dialect.api_group}:{name}"
        return None

    def key(self, pod: Pod) -> str:
        """namespace/key of a pod's group; empty if it is alone."""
        found = self.of(pod)
        return f"{found[0]}/{found[1]}" if found is not None else ""
