"""Groups of other schedulers, read into the model of scheduling.k8s.io: what a decision needs is the same in all of them.

An adapter says how pods name their group and what a group's object means: one group, or a tree if it has parts (KAI's sub-groups,
Volcano's minimums of tasks). What is written back stays in the dialect's own words (`core.lifecycle`). Pods belong to a dialect's groups only where its kind is served.
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
    KaiSubGroup,
    KaiTopologyConstraint,
    VolcanoPodGroup,
)
from allot.core.model.go_durations import go_seconds
from allot.core.model.kai_words import LAST_EVICTION as KAI_LAST_EVICTION
from allot.core.model.kai_words import POD_GROUP_NAME as KAI_GROUP_NAME
from allot.core.model.kai_words import SUB_GROUP as KAI_SUB_GROUP
from allot.core.model.meta import EMPTY, APIStruct, ObjectMeta
from allot.core.model.scheduling_v1 import (
    CompositeGangSchedulingPolicy,
    CompositePodGroup,
    CompositePodGroupSchedulingPolicy,
    CompositePodGroupSpec,
    GangSchedulingPolicy,
    PodGroup,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from allot.core.quantity import Quantity

# How long coscheduling's pods wait for each other if their group does not specify it.
_WAITING_S = 60.0
# KAI's priority for groups that name no class, or one that does not exist.
KAI_PRIORITY = 50


class Near(msgspec.Struct, frozen=True, kw_only=True):
    """Levels of a Topology, or node labels if none is named, that the nodes of a group must share, and should share."""

    topology: str = ""
    required: str = ""
    preferred: str = ""


class ForeignGroup(PodGroup, frozen=True, kw_only=True):
    """A group of another dialect, or a part of one that has pods, in terms of scheduling.k8s.io, plus what that cannot express."""

    # The API group that its object belongs to.
    dialect: str = ""
    # The part of the group of that name, and the part above it; empty: the whole.
    part: str = ""
    parent: str | None = None
    near: Near | None = None
    # How long it may fail before that is reported again; 0: it may wait forever.
    timeout_s: float = 0.0
    # What must be free on all nodes together before it is tried.
    min_resources: Mapping[str, Quantity] = EMPTY
    # The queue of its team, and whether its pods may be evicted; empty: their labels and priority decide.
    queue: str = ""
    preemptibility: str = ""
    # How long it waits before others are evicted for it, since when (RFC 3339), and how long it may run with too few pods;
    # None: the scheduler's default.
    preemption_delay_s: float = 0.0
    waits_since: str = ""
    staleness_s: float | None = None


class ForeignTree(CompositePodGroup, frozen=True, kw_only=True):
    """A group of another dialect whose pods are in parts, or such a part, in terms of scheduling.k8s.io."""

    dialect: str = ""
    part: str = ""
    parent: str | None = None
    near: Near | None = None
    # How many pods must have a node in total, whatever its parts need.
    min_pods: int = 0


AnyForeign = ForeignGroup | ForeignTree


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One scheduler's groups. api_group, version: of its kind PodGroup."""

    api_group: str
    version: str
    type: type[APIStruct]
    # Labels and annotations of pods that name their group; the first one present counts.
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    # The same for the part of the group.
    part_label: str = ""
    part_annotation: str = ""
    # The names of its scheduler and of its plugin for groups.
    scheduler: str
    plugin: str
    # The group with its parts, each after its parent.
    read: Callable[[Any], tuple[AnyForeign, ...]]
    # The priority of groups that name no class; None: the lowest of their pods.
    default_priority: int | None = None
    # Messages for a pod whose group does not exist, and for one that is not tried because of too few pods: name of the pod, pods,
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

    def part_in(self, pod: Pod) -> str:
        """The part of its group that a pod names; empty if none."""
        metadata = pod.metadata
        return metadata.labels.get(self.part_label) or metadata.annotations.get(self.part_annotation) or ""

    def named(self, metadata: ObjectMeta, name: str) -> ObjectMeta:
        """The metadata of a pod that names a group."""
        if self.labels:
            return msgspec.structs.replace(metadata, labels={**metadata.labels, self.labels[0]: name})
        return msgspec.structs.replace(metadata, annotations={**metadata.annotations, self.annotations[0]: name})


def _read_coscheduling(group: CoschedulingPodGroup) -> tuple[AnyForeign, ...]:
    timeout = group.spec.schedule_timeout_seconds
    return (
        ForeignGroup(
            metadata=group.metadata,
            spec=_gang(max(1, group.spec.min_member)),
            dialect=COSCHEDULING,
            timeout_s=float(timeout) if timeout else _WAITING_S,
            min_resources=group.spec.min_resources,
        ),
    )


def _read_volcano(group: VolcanoPodGroup) -> tuple[AnyForeign, ...]:
    spec, tasks = group.spec, group.spec.min_task_member
    whole = ForeignGroup(
        metadata=group.metadata,
        spec=_gang(max(1, spec.min_member), spec.priority_class_name),
        dialect=VOLCANO,
        min_resources=spec.min_resources,
        queue=spec.queue,
    )
    # As in Volcano: minimums of tasks count only if the group needs as many pods as they do together.
    if not tasks or sum(tasks.values()) > spec.min_member:
        return (whole,)
    root = ForeignTree(
        metadata=group.metadata,
        spec=_gang_of_groups(len(tasks), spec.priority_class_name),
        dialect=VOLCANO,
        min_pods=spec.min_member,
    )
    parts = [
        msgspec.structs.replace(whole, spec=_gang(max(0, least), spec.priority_class_name), part=task, parent="")
        for task, least in tasks.items()
    ]
    return (root, *parts)


def _read_kai(group: KaiPodGroup) -> tuple[AnyForeign, ...]:
    spec, class_ = group.spec, group.spec.priority_class_name
    whole = ForeignGroup(
        metadata=group.metadata,
        spec=_gang(1 if spec.min_member is None else max(0, spec.min_member), class_),
        dialect=KAI,
        near=_near(spec.topology_constraint),
        queue=spec.queue,
        preemptibility=spec.preemptibility,
        preemption_delay_s=go_seconds(spec.preemption_delay) or 0.0,
        waits_since=max(group.metadata.creation_timestamp or "", group.metadata.annotations.get(KAI_LAST_EVICTION, "")),
        staleness_s=go_seconds(spec.staleness_grace_period),
    )
    if not spec.sub_groups:
        return (whole,)
    children: dict[str, list[KaiSubGroup]] = {}
    for each in spec.sub_groups:
        children.setdefault((each.parent or "").lower(), []).append(each)
    found: list[AnyForeign] = []

    def add(part: str, parent: str | None, near: Near | None, least: int | None) -> None:
        below = children.pop(part, [])
        count = len(below) if least is None else least
        found.append(
            ForeignTree(
                metadata=group.metadata,
                spec=_gang_of_groups(count, class_),
                dialect=KAI,
                part=part,
                parent=parent,
                near=near,
            )
        )
        for each in below:
            own = _near(each.topology_constraint)
            if each.name in children:
                add(each.name, part, own, each.min_sub_group)
            else:
                minimum = 1 if each.min_member is None else max(0, each.min_member)
                found.append(
                    msgspec.structs.replace(whole, spec=_gang(minimum, class_), part=each.name, parent=part, near=own)
                )

    add("", None, whole.near, spec.min_sub_group)
    return tuple(found)


def _near(constraint: KaiTopologyConstraint | None) -> Near | None:
    if constraint is None or not (constraint.required_topology_level or constraint.preferred_topology_level):
        return None
    return Near(
        topology=constraint.topology,
        required=constraint.required_topology_level,
        preferred=constraint.preferred_topology_level,
    )


def _gang(minimum: int, class_: str = "") -> PodGroupSpec:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=minimum))
    return PodGroupSpec(scheduling_policy=policy, priority_class_name=class_)


def _gang_of_groups(minimum: int, class_: str) -> CompositePodGroupSpec:
    policy = CompositePodGroupSchedulingPolicy(gang=CompositeGangSchedulingPolicy(min_group_count=minimum))
    return CompositePodGroupSpec(scheduling_policy=policy, priority_class_name=class_)


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
        part_annotation="volcano.sh/task-spec",
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
        annotations=(KAI_GROUP_NAME,),
        part_label=KAI_SUB_GROUP,
        default_priority=KAI_PRIORITY,
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


def group_key(group: PodGroup | CompositePodGroup) -> str:
    """The key of a group, distinct from groups of other dialects and groups of groups in its namespace."""
    if isinstance(group, AnyForeign):
        return _key(group.dialect, group.metadata.name, group.part)
    return f"composite:{group.metadata.name}" if isinstance(group, CompositePodGroup) else group.metadata.name


def parent_key(group: PodGroup | CompositePodGroup) -> str:
    """The key of the group that a group belongs to; empty if it belongs to none."""
    if isinstance(group, AnyForeign):
        return "" if group.parent is None else _key(group.dialect, group.metadata.name, group.parent)
    name = group.spec.parent_composite_pod_group_name
    return f"composite:{name}" if name else ""


def _key(dialect: str, name: str, part: str = "") -> str:
    # No object has a colon in its name.
    return f"{dialect}:{name}:{part}" if part else f"{dialect}:{name}"


def dialect_of(key: str) -> Dialect | None:
    """The dialect of a group, by its key or namespace/key; None if it is one of scheduling.k8s.io."""
    api_group, colon, _ = key.rpartition("/")[2].partition(":") if ":" in key else ("", "", "")
    return next((each for each in DIALECTS if each.api_group == api_group), None) if colon else None


class Membership:
    """Which group a pod belongs to. Only this class knows."""

    __slots__ = ("_parts", "_served", "_uses_pod_groups")

    def __init__(self, *, uses_pod_groups: bool = True) -> None:
        """uses_pod_groups: whether pods may name groups of scheduling.k8s.io (GenericWorkload)."""
        self._uses_pod_groups = uses_pod_groups
        self._served: tuple[Dialect, ...] = ()
        # For groups with parts, by namespace and key: the names of the parts that have pods.
        self._parts: dict[tuple[str, str], frozenset[str]] = {}

    def serves(self, api_group: str) -> bool:
        """Whether pods may name groups of this dialect."""
        return any(each.api_group == api_group for each in self._served)

    def serve(self, api_group: str) -> None:
        """From now on, pods may name groups of this dialect too."""
        found = [each for each in DIALECTS if each.api_group == api_group and each not in self._served]
        self._served = (*self._served, *found)

    def parts(self, namespace: str, key: str) -> frozenset[str]:
        """The parts of a group that have pods; empty if it has no parts."""
        return self._parts.get((namespace, key), frozenset())

    def divide(self, namespace: str, key: str, parts: frozenset[str]) -> None:
        """From now on a group has these parts."""
        if parts:
            self._parts[namespace, key] = parts
        else:
            self._parts.pop((namespace, key), None)

    def of(self, pod: Pod) -> tuple[str, str] | None:
        """The namespace and key of a pod's group, or of its part of the group; None if it has none. A pod that names no part of a
        group with parts belongs to the whole."""
        link = pod.spec.scheduling_group
        namespace = pod.metadata.namespace
        if link is not None and link.pod_group_name and self._uses_pod_groups:
            return namespace, link.pod_group_name
        for dialect in self._served:
            name = dialect.name_in(pod)
            if name:
                key = _key(dialect.api_group, name)
                parts = self._parts.get((namespace, key)) if self._parts else None
                if parts is not None and (part := dialect.part_in(pod)) in parts:
                    key = f"{key}:{part}"
                return namespace, key
        return None

    def key(self, pod: Pod) -> str:
        """namespace/key of a pod's group; empty if it has none."""
        found = self.of(pod)
        return f"{found[0]}/{found[1]}" if found is not None else ""
