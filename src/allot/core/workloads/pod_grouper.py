"""Creates and updates PodGroups for pods of KAI's scheduler that have none, and labels the pods (`pod_grouping`).

A pod that already names a group is left alone, unless it is the group that it would get. Users may change the queue of a group
created for them; it is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from allot.core.lifecycle.actions import WARNING, Action, Create, Emit, LookUp, Patch, Resource
from allot.core.lifecycle.disruption import PODS, is_terminal
from allot.core.model import kai_words as words
from allot.core.model.codec import DecodeError, decode
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import KAI
from allot.core.model.meta import OwnerReference
from allot.core.workloads.pod_grouping import (
    Grouping,
    Ungroupable,
    by_reference,
    controller_of,
    group_of,
    is_skipped,
    resource_of_owner,
)

Object = Mapping[str, Any]
# An owner, or the lookup needed to find it.
Find = Callable[[Resource, str, str], Object | LookUp | None]

POD_GROUPS = Resource(group=KAI, version="v2alpha2", plural="podgroups", kind="PodGroup", namespaced=True)
# A longer chain of owners is a cycle.
_DEPTH_MAX = 8


def is_concerned(pod: Pod) -> bool:
    """Whether a pod may need a group."""
    if pod.spec.scheduler_name != words.SCHEDULER or is_terminal(pod) or pod.metadata.deletion_timestamp is not None:
        return False
    return not (pod.spec.node_name and pod.metadata.annotations.get(words.POD_GROUP_NAME))


def reconcile_pod(
    pod: Pod, find: Find, known: Callable[[str], Object | None], classes: Collection[str]
) -> tuple[Action, ...]:
    """What to do for a pod. known: the PodGroup of a key; classes: the existing priority classes."""
    if not is_concerned(pod):
        return ()
    owners = _owners(pod, find)
    if isinstance(owners, LookUp):
        return (owners,)
    if is_skipped(pod, owners):
        return ()
    try:
        grouping = group_of(pod, owners, classes)
    except Ungroupable as error:
        note = f"cannot make a PodGroup: {error}"
        return (Emit(regarding=pod, type=WARNING, reason="PodGrouperWarning", action="Grouping", note=note),)
    named = pod.metadata.annotations.get(words.POD_GROUP_NAME, "")
    if named and named != grouping.name:
        return ()
    return (*_group(pod, grouping, known(f"{pod.metadata.namespace}/{grouping.name}")), *_pod(pod, grouping))


def _owners(pod: Pod, find: Find) -> list[Object] | LookUp:
    """The controllers of a pod, nearest first."""
    owners: list[Object] = []
    reference = controller_of(pod.metadata.owner_references)
    namespace = pod.metadata.namespace
    while reference is not None and len(owners) < _DEPTH_MAX:
        resource = resource_of_owner(reference)
        found = find(resource, namespace, reference.name) if resource is not None else None
        if isinstance(found, LookUp):
            return found
        if found is None or found.get("metadata", {}).get("uid") != reference.uid:
            owners.append(by_reference(reference, namespace))
            break
        # Lists have no apiVersion and kind in their items.
        owners.append({**found, "apiVersion": reference.api_version, "kind": reference.kind})
        reference = controller_of(_references(found))
    return owners


def _references(object_: Object) -> list[OwnerReference]:
    found: list[OwnerReference] = []
    for each in object_.get("metadata", {}).get("ownerReferences") or ():
        try:
            found.append(decode(each, OwnerReference).object)
        except DecodeError:
            continue
    return found


def _group(pod: Pod, grouping: Grouping, known: Object | None) -> tuple[Action, ...]:
    if known is None:
        made = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup"}
        failure = Emit(regarding=pod, type=WARNING, reason="PodGrouperWarning", action="Grouping", note="")
        return (
            Create(
                resource=POD_GROUPS,
                namespace=pod.metadata.namespace,
                object={**made, "metadata": grouping.metadata, "spec": grouping.spec},
                may_exist=True,
                on_failure=failure,
            ),
        )
    spec = known.get("spec") or {}
    wanted = {key: value for key, value in grouping.spec.items() if key != "queue"}
    changed = {key: value for key, value in wanted.items() if spec.get(key) != value}
    changed |= {key: None for key in ("minMember", "minSubGroup", "subGroups") if key in spec and key not in wanted}
    if not changed:
        return ()
    patch = {"metadata": {"uid": known["metadata"]["uid"]}, "spec": changed}
    return (Patch(resource=POD_GROUPS, name=grouping.name, namespace=pod.metadata.namespace, patch=patch),)


def _pod(pod: Pod, grouping: Grouping) -> tuple[Action, ...]:
    changes: dict[str, Any] = {}
    if pod.metadata.annotations.get(words.POD_GROUP_NAME) != grouping.name:
        changes["annotations"] = {words.POD_GROUP_NAME: grouping.name}
    if grouping.part and pod.metadata.labels.get(words.SUB_GROUP) != grouping.part:
        changes["labels"] = {words.SUB_GROUP: grouping.part}
    if not changes:
        return ()
    patch = {"metadata": {"uid": pod.metadata.uid, **changes}}
    return (Patch(resource=PODS, name=pod.metadata.name, namespace=pod.metadata.namespace, patch=patch),)
