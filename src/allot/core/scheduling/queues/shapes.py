"""Groups as queues see them: which pods form a job, its parts with their minimums, and their placement rules."""

from __future__ import annotations

from datetime import datetime

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups import dialects
from allot.core.scheduling.groups.dialects import AnyForeign, ForeignGroup, dialect_of, group_key
from allot.core.scheduling.groups.forest import AnyGroup, Tree
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.queues.jobs import Job, Near, Part

# No label is called so.
_UNKNOWN = "?"


def job_key(cluster: Cluster, pod: Pod) -> str:
    """What the job of a pod is called: namespace/key of the group that it is decided with, or of the pod itself."""
    key = cluster.membership.of(pod)
    if key is None or key not in cluster.groups:
        return f"{pod.metadata.namespace}/{pod.metadata.name}"
    return cluster.forest.root(f"{key[0]}/{key[1]}")


def is_stray(cluster: Cluster, pod: Pod) -> bool:
    """Whether a pod names a group that has parts, and none of them: it is not tried."""
    key = cluster.membership.of(pod)
    return key is not None and key not in cluster.groups and bool(cluster.membership.parts(*key))


def priority_of(cluster: Cluster, pod: Pod, group: AnyGroup | None) -> int:
    """The priority of a job within its queue: that of its group, else of its pods."""
    own = pod.spec.priority or 0
    if group is None:
        return own
    if isinstance(group, AnyForeign):
        value = cluster.priority_classes.get(group.spec.priority_class_name)
        dialect = dialect_of(group_key(group))
        default = dialect.default_priority if dialect is not None else None
        return value if value is not None else default if default is not None else own
    return group.spec.priority if group.spec.priority is not None else own


def takes_at_s(group: AnyGroup | None) -> float:
    """When a group may start to preempt, in seconds since 1970; 0: at any time."""
    if not isinstance(group, ForeignGroup) or not group.preemption_delay_s or not group.waits_since:
        return 0.0
    return datetime.fromisoformat(group.waits_since).timestamp() + group.preemption_delay_s


def part_of(cluster: Cluster, pod: Pod, job: Job) -> str:
    """The part of its job that a pod belongs to; empty if that has none."""
    return cluster.membership.key(pod) if job.groups else ""


def shape_job(cluster: Cluster, pod: Pod, *, queue: str, is_preemptible: bool) -> Job:
    """The job of a pod, still without pods."""
    key = job_key(cluster, pod)
    tree = cluster.forest.tree(key)
    named = cluster.membership.of(pod)
    group = cluster.groups.get(named) if named is not None else None
    root: AnyGroup | None = tree.group if tree is not None else group
    created = pod.metadata.creation_timestamp or ""
    if root is not None:
        created = root.metadata.creation_timestamp or created
    priority = priority_of(cluster, pod, root)
    job = Job(key, queue, priority=priority, is_preemptible=is_preemptible, created=created)
    job.group = group
    job.takes_at_s = takes_at_s(group)
    if tree is not None:
        job.root = _part_of_tree(cluster, tree)
        job.groups = dict(tree.leaves())
    elif group is not None:
        job.root = Part(minimum=minimum_of(group), near=_near(cluster, group))
    return job


def _part_of_tree(cluster: Cluster, tree: Tree) -> Part:
    if isinstance(tree.group, PodGroup):
        return Part(name=tree.key, minimum=minimum_of(tree.group), near=_near(cluster, tree.group))
    parts = tuple(_part_of_tree(cluster, child) for child in tree.children)
    return Part(name=tree.key, minimum=tree.minimum, parts=parts, near=_near(cluster, tree.group))


def _near(cluster: Cluster, group: AnyGroup) -> Near | None:
    if isinstance(group, AnyForeign):
        return _foreign_near(cluster, group.near) if group.near is not None else None
    constraints = group.spec.scheduling_constraints
    if constraints is None or not constraints.topology:
        return None
    key = constraints.topology[0].key
    return Near((key,), required=key)


def _foreign_near(cluster: Cluster, near: dialects.Near) -> Near:
    """Levels by their labels; no node has an unknown level."""
    if not near.topology:
        levels = (near.required, near.preferred) if near.required != near.preferred else (near.required,)
        return Near(tuple(level for level in levels if level), required=near.required, preferred=near.preferred)
    known = cluster.topologies.get(near.topology, ())
    labels = {name: level.node_label for level in known for name in (level.node_label, level.alias) if name}
    required = labels.get(near.required, _UNKNOWN) if near.required else ""
    preferred = labels.get(near.preferred, _UNKNOWN) if near.preferred else ""
    if _UNKNOWN in (required, preferred):
        return Near((_UNKNOWN,), required=_UNKNOWN)
    return Near(tuple(level.node_label for level in known), required=required, preferred=preferred)
