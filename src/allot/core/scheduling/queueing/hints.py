"""Which events in the cluster can make a plugin change its mind about a pod that it refused.

The rules are kube-scheduler's queueing hints, plugin by plugin. A rule that cannot tell says yes: a needless attempt costs a
little, a missed one costs five minutes. Nothing here looks at the cluster; what a rule needs to know beyond the two states of
the changed object, it asks `Facts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node, Pod, Taint, Toleration
from allot.core.quantity import Quantity
from allot.core.scheduling.queueing.hints_affinity import (
    affinity_is_helped,
    affinity_is_helped_by_namespace,
    affinity_is_helped_by_node,
    spread_is_helped,
    spread_is_helped_by_node,
    uses_host_ports,
    wants_port_of,
)
from allot.core.scheduling.settings import AddedAffinity
from allot.core.selectors import node_matcher

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
# Stands for the plugins of a refusal if there were no nodes to refuse.
NO_NODES = ""


class EventResource(StrEnum):
    """The kinds of objects whose changes can help. The values are kube-scheduler's names, used in metrics."""

    NODE = "Node"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnscheduledPod"
    # The waiting pod itself.
    OWN_POD = "TargetPod"
    CLAIM = "ResourceClaim"
    CLASS = "DeviceClass"
    SLICE = "ResourceSlice"
    POD_GROUP = "PodGroup"
    VOLUME_CLAIM = "PersistentVolumeClaim"
    VOLUME = "PersistentVolume"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    # A queue of a team, or what it holds.
    QUEUE = "Queue"
    # Levels of a cluster that groups name.
    TOPOLOGY = "Topology"
    # Not an event in kube-scheduler, where a pod that a change of namespace labels helps waits for five minutes.
    NAMESPACE = "Namespace"


class ClusterEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an object: added if there is no old state, deleted if there is no new one."""

    resource: EventResource
    # namespace/name, or name alone.
    key: str
    old: Any = None
    new: Any = None
    # The deletion was missed: old is the last known state.
    is_final_state_unknown: bool = False

    @property
    def label(self) -> str:
        """For metrics."""
        action = "Add" if self.old is None else "Delete" if self.new is None else "Update"
        return f"{self.resource.value}{action}"


class Facts(Protocol):
    """What rules ask about the cluster as it is after the event."""

    def claims_are_usable(self, pod: Pod) -> bool:
        """Whether every claim of the pod exists and may be used by it."""

    def requests(self, pod: Pod) -> Mapping[str, Quantity]:
        """What the pod asks of a node."""

    def added_affinity(self, pod: Pod) -> AddedAffinity | None:
        """The node affinity that the pod's profile adds."""


Rule = Callable[[ClusterEvent, Pod, Facts], bool]


# --- claims of a pod ---


def claim_keys(pod: Pod) -> tuple[str, ...]:
    """namespace/name of every claim of the pod that has a name already."""
    entries = pod.spec.resource_claims
    if not entries:
        return ()
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    names = (entry.resource_claim_name or made.get(entry.name) for entry in entries)
    namespace = pod.metadata.namespace
    return tuple(f"{namespace}/{name}" for name in names if name)


def frees_devices(event: ClusterEvent) -> bool:
    """Whether a change of a claim may have given devices back, which can help any pod."""
    old: api.ResourceClaim | None = event.old
    new: api.ResourceClaim | None = event.new
    if new is None:
        return event.is_final_state_unknown or (old is not None and old.status.allocation is not None)
    return old is not None and old.status.allocation is not None and new.status.allocation is None


# --- rules: devices ---


def _devices_after_claim(event: ClusterEvent, pod: Pod, facts: Facts) -> bool:
    if event.new is None:
        return frees_devices(event)
    if not facts.claims_are_usable(pod):
        return False
    if frees_devices(event):
        return True
    if event.key not in claim_keys(pod):
        return False
    return event.old is None or event.old.status != event.new.status


def _devices_after_node(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    old, new = event.old, event.new
    if new is None:
        return False
    return (
        old is None
        or old.metadata.labels != new.metadata.labels
        or old.status.allocatable != new.status.allocatable
        or old.status.declared_features != new.status.declared_features
    )


def _devices_after_own_pod(event: ClusterEvent, pod: Pod, facts: Facts) -> bool:
    return event.old.status.resource_claim_statuses != event.new.status.resource_claim_statuses and (
        facts.claims_are_usable(pod)
    )


# --- rules: node resources ---


def _fit_after_assigned_pod(event: ClusterEvent, _pod: Pod, facts: Facts) -> bool:
    if event.new is None:
        return True
    if event.old is None or event.old.spec is event.new.spec:
        return False
    before, after = facts.requests(event.old), facts.requests(event.new)
    return any(name not in after or after[name] < amount for name, amount in before.items())


def _fit_after_node(event: ClusterEvent, pod: Pod, facts: Facts) -> bool:
    old: Node | None = event.old
    new: Node | None = event.new
    if new is None or (old is not None and old.status.allocatable == new.status.allocatable):
        return False
    wanted = {name: amount for name, amount in facts.requests(pod).items() if amount.sign() > 0}
    has = new.status.allocatable
    # A name that the node does not have may stand for devices.
    if any(name in has and has[name] < amount for name, amount in wanted.items()):
        return False
    if old is None:
        return True
    had = old.status.allocatable
    return any(name in has and (name not in had or had[name] < has[name]) for name in (*wanted, "pods"))


def _fit_after_class(event: ClusterEvent, pod: Pod, facts: Facts) -> bool:
    old: api.DeviceClass | None = event.old
    new: api.DeviceClass | None = event.new
    if new is None:
        return False
    name = new.spec.extended_resource_name
    if old is not None and old.spec.extended_resource_name == name:
        return False
    wanted = facts.requests(pod)
    return (old is None and IMPLICIT_PREFIX + new.metadata.name in wanted) or (name is not None and name in wanted)


def _fit_after_own_pod(event: ClusterEvent, _pod: Pod, facts: Facts) -> bool:
    return _fit_after_assigned_pod(event, _pod, facts)


# --- rules: which nodes ---


def _affinity_after_node(event: ClusterEvent, pod: Pod, facts: Facts) -> bool:
    old: Node | None = event.old
    new: Node | None = event.new
    if new is None or (old is not None and old.metadata.labels == new.metadata.labels):
        return False
    added = facts.added_affinity(pod)
    return _wants_node(pod, new, added) and (old is None or not _wants_node(pod, old, added))


def _wants_node(pod: Pod, node: Node, added: AddedAffinity | None) -> bool:
    labels = node.metadata.labels
    if added is not None and not added.allows(node.metadata.name, labels):
        return False
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    if required is None:
        return True
    try:
        return node_matcher(required).matches_node(node)
    except ValueError:
        return True


def _taints_after_node(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    old: Node | None = event.old
    new: Node | None = event.new
    if new is None or (old is not None and old.spec.taints == new.spec.taints):
        return False
    return not _is_repelled(pod, new) and (old is None or _is_repelled(pod, old))


def _is_repelled(pod: Pod, node: Node) -> bool:
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(_tolerates(toleration, taint) for toleration in pod.spec.tolerations)
        for taint in node.spec.taints
    )


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    # Operators that compare numbers: let the attempt find out.
    return toleration.operator not in ("", "Equal") or toleration.value == taint.value


def _tolerations_after_own_pod(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    return bool(event.old.spec.tolerations != event.new.spec.tolerations)


def _unschedulable_after_node(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    old: Node | None = event.old
    new: Node | None = event.new
    if new is None or new.spec.unschedulable:
        return False
    return old is None or old.spec.unschedulable


def _added(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    return event.old is None


def _added_or_labelled(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    old, new = event.old, event.new
    return new is not None and (old is None or old.metadata.labels != new.metadata.labels)


def _changed(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    return event.new is not None


def _deleted(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    return event.new is None


# --- rules: other pods ---


def _ports_after_assigned_pod(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return event.new is None and wants_port_of(pod, event.old)


def _affinity_after_assigned_pod(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return affinity_is_helped(event.old, event.new, pod)


def _pod_affinity_after_node(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return affinity_is_helped_by_node(event.old, event.new, pod)


def _affinity_after_namespace(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return affinity_is_helped_by_namespace(event.key, pod)


def _spread_after_assigned_pod(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return spread_is_helped(event.old, event.new, pod)


def _labels_after_own_pod(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    old, new = event.old, event.new
    return bool(old.metadata.labels != new.metadata.labels or old.spec.tolerations != new.spec.tolerations)


def _spread_after_node(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return spread_is_helped_by_node(event.old, event.new, pod)


def _volumes_after_csi_node(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    return event.new is not None and (event.old is None or event.old != event.new)


def _group_after_pod(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return event.old is None and _group(pod) != "" and _group(pod) == _group(event.new)


def _group_after_group(event: ClusterEvent, pod: Pod, _facts: Facts) -> bool:
    return event.new is not None and _group(pod) == event.key


def _group(pod: Pod) -> str:
    link = pod.spec.scheduling_group
    return f"{pod.metadata.namespace}/{link.pod_group_name}" if link is not None and link.pod_group_name else ""


def _leaves(event: ClusterEvent, _pod: Pod, _facts: Facts) -> bool:
    old, new = event.old, event.new
    return new is None or (old is not None and old.metadata.deletion_timestamp != new.metadata.deletion_timestamp)


_H = EventResource
RULES: Mapping[str, Mapping[EventResource, Rule]] = {
    "DynamicResources": {
        _H.CLAIM: _devices_after_claim,
        _H.NODE: _devices_after_node,
        _H.CLASS: _changed,
        _H.SLICE: _changed,
        _H.OWN_POD: _devices_after_own_pod,
    },
    "NodeResourcesFit": {
        _H.ASSIGNED_POD: _fit_after_assigned_pod,
        _H.NODE: _fit_after_node,
        _H.CLASS: _fit_after_class,
        _H.OWN_POD: _fit_after_own_pod,
    },
    "NodeAffinity": {_H.NODE: _affinity_after_node},
    "NodeName": {_H.NODE: _added},
    "NodeUnschedulable": {_H.NODE: _unschedulable_after_node, _H.OWN_POD: _tolerations_after_own_pod},
    "TaintToleration": {_H.NODE: _taints_after_node, _H.OWN_POD: _tolerations_after_own_pod},
    "NodePorts": {_H.ASSIGNED_POD: _ports_after_assigned_pod, _H.NODE: _added},
    "InterPodAffinity": {
        _H.ASSIGNED_POD: _affinity_after_assigned_pod,
        _H.NODE: _pod_affinity_after_node,
        _H.NAMESPACE: _affinity_after_namespace,
        _H.OWN_POD: _labels_after_own_pod,
    },
    "PodTopologySpread": {
        _H.ASSIGNED_POD: _spread_after_assigned_pod,
        _H.NODE: _spread_after_node,
        _H.OWN_POD: _labels_after_own_pod,
    },
    "VolumeBinding": {
        _H.VOLUME_CLAIM: _changed,
        _H.VOLUME: _changed,
        _H.STORAGE_CLASS: _changed,
        _H.CSI_NODE: _volumes_after_csi_node,
        _H.NODE: _added_or_labelled,
    },
    "VolumeZone": {
        _H.VOLUME_CLAIM: _changed,
        _H.VOLUME: _changed,
        _H.STORAGE_CLASS: _added,
        _H.NODE: _added_or_labelled,
    },
    "NodeVolumeLimits": {
        _H.CSI_NODE: _volumes_after_csi_node,
        _H.ASSIGNED_POD: _deleted,
        _H.VOLUME_CLAIM: _added,
        # Kube-scheduler waits for the CSINode of a new node, which a node without storage drivers need not have.
        _H.NODE: _added,
    },
    "VolumeRestrictions": {_H.ASSIGNED_POD: _deleted, _H.NODE: _added, _H.VOLUME_CLAIM: _added},
    "GangScheduling": {
        _H.UNSCHEDULED_POD: _group_after_pod,
        _H.ASSIGNED_POD: _group_after_pod,
        _H.POD_GROUP: _group_after_group,
        _H.TOPOLOGY: _changed,
    },
    "DefaultPreemption": {_H.ASSIGNED_POD: _deleted},
    # A terminating pod no longer holds anything in its queue.
    "Queues": {_H.QUEUE: _changed, _H.ASSIGNED_POD: _leaves, _H.OWN_POD: _labels_after_own_pod},
    NO_NODES: {_H.NODE: _added},
}

# Which plugins may care about a kind of event, so that the others are not asked.
INTERESTED: Mapping[EventResource, tuple[str, ...]] = {
    resource: tuple(plugin for plugin, rules in RULES.items() if resource in rules) for resource in EventResource
}


def may_help(plugin: str, event: ClusterEvent) -> bool:
    """Whether an event can help any pod that the plugin refused, judging by the event alone: most events cannot,
    and thousands of pods may be waiting."""
    look = _FIRST_LOOKS.get((plugin, event.resource))
    return look is None or look(event)


def _is_no_addition(event: ClusterEvent) -> bool:
    return event.old is not None


def _is_deletion(event: ClusterEvent) -> bool:
    return event.new is None


def _is_no_deletion(event: ClusterEvent) -> bool:
    return event.new is not None


def _is_addition(event: ClusterEvent) -> bool:
    return event.old is None


def _frees_ports(event: ClusterEvent) -> bool:
    return event.new is None and uses_host_ports(event.old)


def _is_change_of_labels(event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    return old is None or new is None or old.metadata.labels != new.metadata.labels


def _is_change_of_resources(event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    return new is not None and (old is None or old.status.allocatable != new.status.allocatable)


def _is_change_of_taints(event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    return new is not None and (old is None or old.spec != new.spec)


_FIRST_LOOKS: Mapping[tuple[str, EventResource], Callable[[ClusterEvent], bool]] = {
    ("NodeResourcesFit", _H.ASSIGNED_POD): _is_no_addition,
    ("NodeResourcesFit", _H.NODE): _is_change_of_resources,
    ("NodeAffinity", _H.NODE): _is_change_of_labels,
    ("TaintToleration", _H.NODE): _is_change_of_taints,
    ("NodeUnschedulable", _H.NODE): _is_change_of_taints,
    ("NodePorts", _H.ASSIGNED_POD): _frees_ports,
    ("NodePorts", _H.NODE): _is_addition,
    ("InterPodAffinity", _H.ASSIGNED_POD): _is_change_of_labels,
    ("PodTopologySpread", _H.ASSIGNED_POD): _is_change_of_labels,
    ("DynamicResources", _H.SLICE): _is_no_deletion,
    ("DynamicResources", _H.CLASS): _is_no_deletion,
    ("NodeVolumeLimits", _H.ASSIGNED_POD): _is_deletion,
    ("VolumeRestrictions", _H.ASSIGNED_POD): _is_deletion,
    ("DefaultPreemption", _H.ASSIGNED_POD): _is_deletion,
    ("GangScheduling", _H.ASSIGNED_POD): _is_addition,
    ("GangScheduling", _H.UNSCHEDULED_POD): _is_addition,
}


def helps(plugin: str, event: ClusterEvent, pod: Pod, facts: Facts) -> bool:
    """Whether an event may change a plugin's mind about a pod. For a plugin without rules, any event may."""
    rules = RULES.get(plugin)
    if rules is None:
        return True
    rule = rules.get(event.resource)
    return rule is not None and rule(event, pod, facts)
