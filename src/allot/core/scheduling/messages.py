"""Messages about a pod that got no node: kube-scheduler's text, and an additional sentence."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.quantity import Quantity
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plugins import node_resources_fit
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.status import Status, Verdict

NO_NODES = "no nodes available to schedule pods"
_DEVICES = "DynamicResources"
_EXPLAINED_MAX = 512


def histogram(counts: Mapping[Status, int]) -> str:
    """The reasons with how many nodes gave them: `2 Insufficient cpu, 3 node(s) were unschedulable`, sorted as text."""
    reasons: dict[str, int] = {}
    for status, count in counts.items():
        for reason in status.reasons:
            reasons[reason] = reasons.get(reason, 0) + count
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))


def refusal_text(nodes: int, failure: Failure, after: str = "") -> str:
    """The text of the condition and the event. after: what was done about it, or why nothing could be."""
    status = failure.status
    if status is not None and status.verdict is Verdict.ERROR:
        point = "PreFilter plugin" if failure.early else "filter plugin"
        name = f'PreFilter plugin "{status.plugin}"' if failure.early else f'"{status.plugin}" {point}'
        return f"running {name}: {', '.join(status.reasons)}"
    if not nodes:
        return NO_NODES
    text = f"0/{nodes} nodes are available:"
    said = ", ".join(status.reasons) if status is not None else histogram(failure.histogram)
    if said:
        text += f" {said}."
    return f"{text} {after}" if after else text


def refusing_plugins(failure: Failure) -> frozenset[str]:
    """The plugins that refused nodes: what they wait for may help."""
    if failure.status is not None:
        return frozenset((failure.status.plugin,))
    return frozenset(status.plugin for status in failure.histogram)


# --- our own words ---


def explanation(cluster: Cluster, profile: Profile, failure: Failure) -> str:
    """What can be said beyond kube-scheduler's words: what is missing on the node that comes closest."""
    if failure.status is not None:
        return ""
    lacking: list[NodeInfo] = []
    tight: list[NodeInfo] = []
    for name, status in failure.refusals.items():
        info = cluster.nodes.get(name)
        if info is None:
            continue
        if status.plugin == _DEVICES:
            lacking.append(info)
        elif status.plugin == node_resources_fit.NAME:
            tight.append(info)
        if len(lacking) >= _EXPLAINED_MAX:
            break
    if lacking and failure.fit is not None:
        return failure.fit.explanation(lacking)
    return _closest(profile, tight) if tight else ""


def _closest(profile: Profile, nodes: list[NodeInfo]) -> str:
    """The node that lacks the smallest part of what the pod asks for."""

    def missing(info: NodeInfo) -> float:
        return max((short / wanted for _, wanted, short in _shortages(profile, info)), default=0.0)

    info = min(nodes, key=lambda info: (missing(info), info.name))
    parts = [
        f"{_amount(name, wanted - short)} of {name} free where the pod needs {_amount(name, wanted)}"
        for name, wanted, short in _shortages(profile, info)
    ]
    if not parts:
        return f"node {info.name} has {len(info.pods)} pods and takes no more than {info.allocatable_pods}"
    return f"node {info.name} comes closest: it has {' and '.join(parts)}"


def _shortages(profile: Profile, info: NodeInfo) -> list[tuple[str, int, int]]:
    """Resource, wanted, missing."""
    amounts = [
        ("cpu", profile.cpu, info.allocatable_cpu - info.cpu),
        ("memory", profile.memory, info.allocatable_memory - info.memory),
        ("ephemeral-storage", profile.storage, info.allocatable_storage - info.storage),
    ]
    for name, wanted in sorted(profile.scalars.items()):
        amounts.append((name, wanted, info.allocatable_scalars.get(name, 0) - info.scalars.get(name, 0)))
    return [(name, wanted, wanted - max(free, 0)) for name, wanted, free in amounts if wanted > max(free, 0)]


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return str(Quantity.from_nano(amount * 10**6))
    if name in ("memory", "ephemeral-storage") and amount >= 2**20:
        return f"{amount / 2**30:.1f}Gi" if amount >= 2**30 else f"{amount // 2**20}Mi"
    return str(amount)
