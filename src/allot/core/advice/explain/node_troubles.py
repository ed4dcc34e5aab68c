"""Problems of nodes that taints report, and that some component removes when they are solved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from allot.core.advice.explain.wording import duration
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1
from allot.core.model.node_pools import POOL_LABEL, NodePool

# The problem that a taint reports, and what to do about it. Tolerating such a taint would run the pod where it cannot work.
_TROUBLE = {
    "node.kubernetes.io/disk-pressure": ("has disk pressure", "free disk space on node {}"),
    "node.kubernetes.io/memory-pressure": ("has memory pressure", "free memory on node {}"),
    "node.kubernetes.io/pid-pressure": ("has PID pressure", "end processes on node {}"),
    "node.kubernetes.io/network-unavailable": ("has no network", "set up the network of node {}"),
    "node.cloudprovider.kubernetes.io/uninitialized": (
        "has not been initialized by its cloud provider",
        "check that the cloud controller manager runs: it initializes node {}",
    ),
    "node.cilium.io/agent-not-ready": (
        "has no ready Cilium agent",
        "check that Cilium's agent runs on node {}: it removes the taint",
    ),
    "karpenter.sh/unregistered": (
        "has not been registered by Karpenter",
        "check that Karpenter runs, and its log about node {}",
    ),
}
_AGENT_NOT_READY = "/agent-not-ready"
_NODE_READINESS = "readiness.k8s.io/"
# Nodes about to be removed: nothing should start there.
_LEAVING = {
    "ToBeDeletedByClusterAutoscaler": "is about to be removed by the cluster autoscaler",
    "karpenter.sh/disrupted": "is about to be removed by Karpenter",
    "karpenter.sh/disruption": "is about to be removed by Karpenter",
    "cloud.google.com/impending-node-termination": "is about to be reclaimed by its cloud provider",
    "node.kubernetes.io/out-of-service": "has been put out of service",
}
_SPOT = "aws-node-termination-handler/"
# A node that starts has all it needs within so many seconds.
_STARTS_WITHIN_S = 600


class NodeTrouble(NamedTuple):
    """A problem that a taint reports. remedy: empty for a node about to be removed; lasting: what keeps the next node from it."""

    text: str
    remedy: str
    lasting: str = ""


def trouble_of(key: str, node: str) -> NodeTrouble | None:
    """The problem of a tainted node; None if the taint reserves it for pods that tolerate it."""
    if key in _TROUBLE:
        text, remedy = _TROUBLE[key]
        return NodeTrouble(text, remedy.format(node))
    if key.endswith(_AGENT_NOT_READY):
        who = key.removesuffix(_AGENT_NOT_READY)
        return NodeTrouble(f"has no ready agent of {who}", f"check that the agent of {who} runs on node {node}")
    if key.startswith(_NODE_READINESS):
        what = key.removeprefix(_NODE_READINESS)
        return NodeTrouble(f"is not ready for {what}", f"check what node {node} lacks for NodeReadinessRule {what}")
    if key in _LEAVING or key.startswith(_SPOT):
        return NodeTrouble(_LEAVING.get(key, "is about to be reclaimed by its cloud provider"), "")
    return None


def troubles_of(what_if: WhatIfCluster, node: core_v1.Node, taints: Iterable[core_v1.Taint]) -> dict[str, NodeTrouble]:
    """The problems that taints of a node report, by their keys."""
    found = {each.key: trouble_of(each.key, node.metadata.name) or _started(what_if, node, each) for each in taints}
    return {key: trouble for key, trouble in found.items() if trouble is not None}


def _started(what_if: WhatIfCluster, node: core_v1.Node, taint: core_v1.Taint) -> NodeTrouble | None:
    """A taint that a node has only while it starts, as its NodePool says."""
    pool = what_if.get(NodePool, node.metadata.labels.get(POOL_LABEL, ""))
    startup = pool.spec.template.spec.startup_taints if pool is not None else ()
    if pool is None or (taint.key, taint.effect) not in {(each.key, each.effect) for each in startup}:
        return None
    name, whose = node.metadata.name, f"startup taint of NodePool {pool.metadata.name}"
    created = node.metadata.creation_timestamp
    age = int(what_if.taken_at - seconds_of(created)) if what_if.taken_at is not None and created else 0
    if age < _STARTS_WITHIN_S:
        return NodeTrouble(
            f"has a {whose}", f"wait until node {name} has started: what the pool sets the taint for removes it"
        )
    return NodeTrouble(
        f"still has a {whose} {duration(age)} after it was created",
        f"kubectl taint node {name} {taint.key}:{taint.effect}-, if what it waits for is ready",
        f"deploy what removes taint {taint.key}, or take it out of spec.template.spec.startupTaints of NodePool {pool.metadata.name}: every "
        "new node of the pool has it",
    )


def taint_text(taint: core_v1.Taint) -> str:
    """As kubectl writes taints."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
