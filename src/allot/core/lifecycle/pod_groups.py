"""Keeps a deleted PodGroup until none of its pods can run, then removes its finalizer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from allot.core.lifecycle.actions import Action, RemoveFinalizer, resource_of
from allot.core.lifecycle.claim_owners import group_name, key_of
from allot.core.lifecycle.disruption import is_terminal
from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import POD_GROUP_PROTECTION_FINALIZER, PodGroup


def is_candidate(group: PodGroup) -> bool:
    """Whether a PodGroup is being deleted and the finalizer keeps it."""
    metadata = group.metadata
    return metadata.deletion_timestamp is not None and POD_GROUP_PROTECTION_FINALIZER in metadata.finalizers


def active_member_of(pod: Pod) -> Iterator[str]:
    """The key of the PodGroup of a pod that has not ended."""
    name = group_name(pod)
    if name and not is_terminal(pod):
        yield key_of(pod.metadata.namespace, name)


def reconcile_pod_group(group: PodGroup, active: Iterable[Pod]) -> tuple[Action, ...]:
    """Release a PodGroup. active: its pods that have not ended."""
    if not is_candidate(group) or any(True for _ in active):
        return ()
    return (RemoveFinalizer(resource=resource_of(PodGroup), object=group, finalizer=POD_GROUP_PROTECTION_FINALIZER),)
