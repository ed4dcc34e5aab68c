"""What a queue sees of groups: which pods are one job, its parts with their minimums, and where these are to be."""

from __future__ import annotations

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups.forest import AnyGroup, Tree
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.queues.jobs import Job, Near, Part


def job_key(cluster: Cluster, pod: Pod) -> str:
    """What the job of a pod is called: namespace/key of the group that it is decided with, or of the pod itself."""
    key = cluster.membership.of(pod)
    if key is None or key not in cluster.groups:
        return f"{pod.metadata.namespace}/{pod.metadata.name}"
    return cluster.forest.root(f"{key[0]}/{key[1]}")


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
    priority, created = pod.spec.priority or 0, pod.metadata.creation_timestamp or ""
    if root is not None:
        priority = root.spec.priority if root.spec.priority is not None else priority
        created = root.metadata.creation_timestamp or created
    job = Job(key, queue, priority=priority, is_preemptible=is_preemptible, created=created)
    job.group = group
    if tree is not None:
        job.root = _part_of_tree(tree)
        job.groups = dict(tree.leaves())
    elif group is not None:
        job.root = Part(minimum=minimum_of(group), near=_near(group))
    return job


def _part_of_tree(tree: Tree) -> Part:
    if isinstance(tree.group, PodGroup):
        return Part(name=tree.key, minimum=minimum_of(tree.group), near=_near(tree.group))
    parts = tuple(_part_of_tree(child) for child in tree.children)
    return Part(name=tree.key, minimum=tree.minimum, parts=parts, near=_near(tree.group))


def _near(group: AnyGroup) -> Near | None:
    constraints = group.spec.scheduling_constraints
    if constraints is None or not constraints.topology:
        return None
    key = constraints.topology[0].key
    return Near((key,), required=key)
