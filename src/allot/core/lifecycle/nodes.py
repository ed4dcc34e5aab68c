"""Nodes that stop reporting: when they count as unreachable, their conditions, and their taints.

A node is alive as long as its Ready condition or its lease is renewed, as seen on our own clock: times of different machines are
never compared. When too many nodes of a zone are unhealthy at once, the fault is more likely here or in the network, so tainting
(which evicts pods) slows down, and stops when no healthy node is left. Numbers and texts are Kubernetes'.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import (
    NORMAL,
    WARNING,
    Action,
    Answers,
    Emit,
    LookUp,
    Patch,
    PatchType,
    Resource,
    resource_of,
)
from allot.core.lifecycle.disruption import patch_status
from allot.core.model.core_v1 import Node, NodeCondition, Pod, Taint

READY = "Ready"
NOT_READY_TAINT = "node.kubernetes.io/not-ready"
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"
UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"
EXCLUDED_LABEL = "node.kubernetes.io/exclude-disruption"
LEASE_NAMESPACE = "kube-node-lease"
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", namespaced=True)
_NODES = resource_of(Node)
_SILENCED = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
_CONDITION_TAINTS = {
    (READY, "False"): NOT_READY_TAINT,
    (READY, "Unknown"): UNREACHABLE_TAINT,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
_OURS = frozenset((*_CONDITION_TAINTS.values(), UNSCHEDULABLE_TAINT))
_EXECUTE = {"False": NOT_READY_TAINT, "Unknown": UNREACHABLE_TAINT}
_OLD_LABELS = {"kubernetes.io/os": "beta.kubernetes.io/os", "kubernetes.io/arch": "beta.kubernetes.io/arch"}


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Timeouts and rates."""

    period_s: float = 5.0
    grace_s: float = 50.0
    # For nodes that have never reported their status.
    startup_grace_s: float = 60.0
    # Nodes tainted per second in a zone, and in a large zone that is mostly unhealthy.
    rate: float = 0.1
    reduced_rate: float = 0.01
    large_zone: int = 50
    unhealthy_share: float = 0.55


DEFAULTS = NodeSettings()


def ready_of(node: Node) -> NodeCondition | None:
    """The node's Ready condition."""
    return next((one for one in node.status.conditions if one.type == READY), None)


def ready_status(node: Node) -> str:
    """True, False or Unknown; empty if the node has never reported."""
    ready = ready_of(node)
    return "" if ready is None else ready.status


# --- silence ---


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """The last sign of life of a node, on our clock, and its content."""

    seen_s: float
    heartbeat: str = ""
    renewed: str = ""
    has_condition: bool = False


def observed(health: Health | None, node: Node, renewed: str, now_s: float, created_s: float) -> Health:
    """The health after observing the node and its lease's renewal time."""
    ready = ready_of(node)
    heartbeat = "" if ready is None else ready.last_heartbeat_time or ""
    if health is None:
        # A node that has never reported counts from its creation, any other from when it was first seen.
        seen_s = created_s if ready is None and not renewed else now_s
        return Health(seen_s=seen_s, heartbeat=heartbeat, renewed=renewed, has_condition=ready is not None)
    alive = (ready is not None) != health.has_condition or heartbeat != health.heartbeat or renewed > health.renewed
    if not alive:
        return health
    return Health(
        seen_s=now_s, heartbeat=heartbeat, renewed=max(renewed, health.renewed), has_condition=ready is not None
    )


def is_silent(health: Health, node: Node, now_s: float, settings: NodeSettings = DEFAULTS) -> bool:
    """Whether a node has been silent for too long."""
    patience = settings.startup_grace_s if ready_of(node) is None else settings.grace_s
    return now_s - health.seen_s > patience


def needs_silencing(node: Node) -> bool:
    """Whether a silent node's conditions are not Unknown yet."""
    return ready_status(node) != "Unknown"


def silence(node: Node, health: Health, answers: Answers, now: str) -> tuple[Action, ...]:
    """Set the node's conditions to Unknown, after reading its lease from the server."""
    question = LookUp(resource=LEASES, name=node.metadata.name, namespace=LEASE_NAMESPACE)
    if question not in answers:
        return (question,)
    lease = answers[question]
    if lease is not None and str((lease.get("spec") or {}).get("renewTime") or "") > health.renewed:
        # The cache is stale: the node is alive.
        return ()
    conditions = [told for type_ in _SILENCED if (told := _unknown(node, type_, now)) is not None]
    patch = Patch(
        resource=_NODES,
        name=node.metadata.name,
        patch={"metadata": _guard(node), "status": {"conditions": conditions}},
        type=PatchType.STRATEGIC,
        subresource="status",
    )
    if ready_status(node) != "True":
        return (patch,)
    return patch, _event(node, "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady")


def _unknown(node: Node, type_: str, now: str) -> dict[str, Any] | None:
    old = next((one for one in node.status.conditions if one.type == type_), None)
    if old is None:
        return {
            "type": type_,
            "status": "Unknown",
            "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.",
            "lastHeartbeatTime": node.metadata.creation_timestamp,
            "lastTransitionTime": now,
        }
    if old.status == "Unknown":
        return None
    return {
        "type": type_,
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting node status.",
        "lastTransitionTime": now,
    }


def _guard(node: Node) -> dict[str, Any]:
    return {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}


def _event(node: Node, reason: str, note: str) -> Emit:
    return Emit(regarding=node, type=NORMAL, reason=reason, action=reason, note=note)


def registered(node: Node) -> Emit:
    """The event about a new node."""
    name = node.metadata.name
    return _event(node, "RegisteredNode", f"Node {name} event: Registered Node {name} in Controller")


def removed(node: Node) -> Emit:
    """The event about a deleted node."""
    name = node.metadata.name
    return _event(node, "RemovingNode", f"Node {name} event: Removing Node {name} from Controller")


# --- what follows for the node and its pods ---


def reconcile(node: Node, pods: Sequence[Pod], now: str, *, evicts: bool, halted: bool) -> tuple[Action, ...]:
    """Taints and labels of a node, and the readiness of its pods once its status is unknown.

    evicts: it is this node's turn to get a taint that evicts its pods. halted: no node gets or keeps one.
    """
    fields: dict[str, Any] = {}
    taints = wanted_taints(node, now, evicts=evicts, halted=halted)
    if taints != node.spec.taints:
        fields["spec"] = {"taints": [msgspec.to_builtins(taint) for taint in taints] or None}
    labels = _labels(node)
    actions: list[Action] = []
    if fields or labels:
        metadata = {**_guard(node), "labels": labels} if labels else _guard(node)
        patch = {"metadata": metadata, **fields}
        actions.append(Patch(resource=_NODES, name=node.metadata.name, patch=patch, type=PatchType.STRATEGIC))
    if ready_status(node) == "Unknown":
        for pod in pods:
            actions.extend(_not_ready(pod, now))
    return tuple(actions)


def wanted_taints(node: Node, now: str, *, evicts: bool = False, halted: bool = False) -> tuple[Taint, ...]:
    """The taints that a node should have; those of others are kept."""
    wanted = _wanted(node, evicts=evicts, halted=halted)
    kept = tuple(taint for taint in node.spec.taints if not _is_ours(taint) or (taint.key, taint.effect) in wanted)
    present = {(taint.key, taint.effect) for taint in kept}
    added = (Taint(key=key, effect=effect, time_added=now) for key, effect in wanted if (key, effect) not in present)
    return (*kept, *added)


def _is_ours(taint: Taint) -> bool:
    if taint.effect == "NoExecute":
        return taint.key in (NOT_READY_TAINT, UNREACHABLE_TAINT)
    return taint.effect == "NoSchedule" and taint.key in _OURS


def _wanted(node: Node, *, evicts: bool, halted: bool) -> dict[tuple[str, str], None]:
    keys = [_CONDITION_TAINTS.get((one.type, one.status)) for one in node.status.conditions]
    wanted: dict[tuple[str, str], None] = {(key, "NoSchedule"): None for key in keys if key is not None}
    if node.spec.unschedulable:
        wanted[UNSCHEDULABLE_TAINT, "NoSchedule"] = None
    status = ready_status(node)
    if status in _EXECUTE and not halted and (evicts or evicting(node)):
        wanted[_EXECUTE[status], "NoExecute"] = None
    return wanted


def evicting(node: Node) -> bool:
    """Whether a node has a taint of ours that evicts pods."""
    return any(taint.effect == "NoExecute" and _is_ours(taint) for taint in node.spec.taints)


def _labels(node: Node) -> dict[str, str]:
    """Deprecated label names that must have the same values as the new ones."""
    labels = node.metadata.labels
    return {old: labels[new] for new, old in _OLD_LABELS.items() if new in labels and labels.get(old) != labels[new]}


def _not_ready(pod: Pod, now: str) -> tuple[Action, ...]:
    ready = next((one for one in pod.status.conditions if one.type == READY), None)
    if ready is None or ready.status == "False":
        return ()
    condition: dict[str, Any] = {"type": READY, "status": "False", "lastTransitionTime": now}
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    event = Emit(regarding=pod, type=WARNING, reason="NodeNotReady", action="NodeNotReady", note="Node is not ready")
    return patch_status(pod, {"conditions": [condition]}), event


# --- zones ---


class _Zone:
    """Nodes that may fail together, and those waiting to be tainted."""

    __slots__ = ("rate", "refilled_s", "size", "tokens", "unready")

    def __init__(self) -> None:
        self.rate = 0.0
        self.tokens = 1.0
        self.refilled_s: float | None = None
        self.size = 0
        self.unready: list[str] = []


def zone_of(node: Node) -> str:
    """The zone of a node, as far as its labels say."""
    labels = node.metadata.labels
    region, zone = labels.get("topology.kubernetes.io/region", ""), labels.get("topology.kubernetes.io/zone", "")
    return f"{region}:\x00:{zone}" if region or zone else ""


class Zones:
    """How many nodes of each zone may be tainted, and which are next."""

    def __init__(self, settings: NodeSettings = DEFAULTS) -> None:
        self._settings = settings
        self._zones: dict[str, _Zone] = {}
        self._waiting: dict[str, str] = {}
        self.is_halted = False

    def update(self, nodes: Iterable[Node]) -> None:
        """Check all nodes."""
        for zone in self._zones.values():
            zone.size, zone.unready = 0, []
        waiting: dict[str, str] = {}
        for node in nodes:
            name, key = node.metadata.name, zone_of(node)
            zone = self._zones.setdefault(key, _Zone())
            healthy = ready_status(node) == "True"
            if EXCLUDED_LABEL not in node.metadata.labels:
                zone.size += 1
                if not healthy:
                    zone.unready.append(name)
            if ready_status(node) in _EXECUTE and not evicting(node):
                waiting[name] = key
        self._zones = {key: zone for key, zone in self._zones.items() if zone.size or key in waiting.values()}
        # Waiting nodes keep their place.
        order = [*(name for name in self._waiting if name in waiting), *waiting]
        self._waiting = {name: waiting[name] for name in order}
        counted = [zone for zone in self._zones.values() if zone.size]
        self.is_halted = bool(counted) and all(len(zone.unready) == zone.size for zone in counted)
        for zone in self._zones.values():
            zone.rate = 0.0 if self.is_halted else self._rate(zone)

    def _rate(self, zone: _Zone) -> float:
        unready, settings = len(zone.unready), self._settings
        if zone.size and unready < zone.size and unready > 2 and unready / zone.size >= settings.unhealthy_share:
            return settings.reduced_rate if zone.size > settings.large_zone else 0.0
        return settings.rate

    def next(self, now_s: float) -> tuple[str, ...]:
        """The nodes whose turn it is, as many as the rates of their zones allow."""
        for zone in self._zones.values():
            passed = 0.0 if zone.refilled_s is None else now_s - zone.refilled_s
            zone.refilled_s = now_s
            zone.tokens = min(zone.tokens + passed * zone.rate, max(1.0, zone.rate * self._settings.period_s))
        chosen: list[str] = []
        for name, key in self._waiting.items():
            zone = self._zones[key]
            # A sum of tenths may fall short of one by a rounding error.
            if zone.rate and zone.tokens >= 1.0 - 1e-9:
                zone.tokens -= 1.0
                chosen.append(name)
        for name in chosen:
            del self._waiting[name]
        return tuple(chosen)

    def unhealthy(self) -> Mapping[str, tuple[int, int]]:
        """The size of every zone, and how many of its nodes are not ready."""
        return {key: (zone.size, len(zone.unready)) for key, zone in self._zones.items()}
