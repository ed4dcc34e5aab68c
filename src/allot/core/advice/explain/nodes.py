"""Everything that keeps a pod from each node, not only the first filter's answer, so that the nearest node can be
named. Every answer comes from the scheduler's own filters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from allot.core.advice.explain.node_troubles import taint_text, trouble_of, troubles_of
from allot.core.advice.explain.report import NodeGroup, Reason
from allot.core.advice.explain.upkeep import upkeep
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.quantity import Format, Quantity
from allot.core.scheduling import (
    DYNAMIC_RESOURCES,
    NOT_AVAILABLE,
    SCHEDULE_ANYWAY,
    ClaimFit,
    NodeInfo,
    PodInfo,
    Profile,
    Status,
    TopologyTerms,
    Verdict,
    spreads_of,
)
from allot.core.scheduling.plugins import (
    node_affinity,
    node_ports,
    node_resources_fit,
    node_unschedulable,
)
from allot.core.selectors import SelectorError, matches, tolerates

# What a cordon adds to a node besides spec.unschedulable.
CORDON_TAINT = "node.kubernetes.io/unschedulable"
NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_INSUFFICIENT = "Insufficient "
_BLOCKING = ("NoSchedule", "NoExecute")
_SHOWN_MAX = 5


class Check(msgspec.Struct, frozen=True):
    """Something that keeps a pod from a node. text: the same for similar nodes; is_leaving: the node is about to be removed."""

    reason: Reason
    text: str
    is_leaving: bool = False


class Shortage(msgspec.Struct, frozen=True):
    """Something that a node has too little of."""

    resource: str
    wanted: str
    free: str
    allocatable: str
    # Even an empty node does not have enough.
    never: bool
    # Less than half of what is wanted.
    much: bool


class NodeChecks:
    """All nodes of a cluster, asked about one pod."""

    def __init__(
        self,
        what_if: WhatIfCluster,
        pod: core_v1.Pod,
        fit: ClaimFit | None,
        refusals: Mapping[str, Status] | None = None,
    ) -> None:
        """refusals: answers that nodes have already given; they need not be asked about devices again."""
        self._what_if = what_if
        self._pod = pod
        self._fit = fit
        self._refusals = refusals or {}
        cluster = what_if.cluster
        self.profile = cluster.profiles.of(pod)
        spreads = spreads_of(self.profile, cluster.spread_selectors, what_if.settings)
        nodes = [(info, 1) for info in cluster.nodes.values()] if spreads.hard else []
        self._topology = TopologyTerms(self.profile, spreads, cluster.affinity_index, what_if.settings, nodes)
        self.checks: dict[str, tuple[Check, ...]] = {
            info.name: tuple(self._of(info)) for info in cluster.nodes.values()
        }

    def _of(self, info: NodeInfo) -> list[Check]:
        profile, cluster = self.profile, self._what_if.cluster
        checks: list[Check] = []
        if info.unschedulable and node_unschedulable.refusal(profile, info) is not None:
            work = upkeep(info.node)
            checks.append(Check(Reason.CORDONED, f"is cordoned ({work})" if work else "is cordoned"))
        if info.taints:
            cordoned = any(check.reason is Reason.CORDONED for check in checks)
            taints = [taint for taint in untolerated(profile, info) if not (cordoned and taint.key == CORDON_TAINT)]
            checks += _taint_checks(self._what_if, taints, info, profile)
        if node_affinity.refusal(profile, info, self._what_if.settings.added_affinity) is not None:
            checks.append(Check(Reason.AFFINITY, "does not match the pod's node selector or affinity"))
        if profile.host_ports and node_ports.refusal(profile, info) is not None:
            ports = sorted({port for _, _, port in profile.host_ports})
            checks.append(Check(Reason.PORTS, f"has {named('host port', map(str, ports))} in use"))
        status = node_resources_fit.refusal(profile, info, self._what_if.settings, cluster.devices)
        if status is not None:
            lacking = " and ".join(reason.removeprefix("Insufficient ") for reason in status.reasons)
            full = f"has reached its limit of pods ({len(info.pods)})"
            text = full if lacking == "Too many pods" else f"does not have enough {lacking}"
            checks.append(Check(Reason.RESOURCES, text))
        if profile.volume_claims or profile.disks:
            status = cluster.volumes.refusal(profile, info, self._what_if.settings.disabled_filters)
            if status is not None:
                text = "; ".join(reason.removeprefix("node(s) ") for reason in status.reasons)
                checks.append(Check(Reason.VOLUME, f"cannot use the pod's volumes ({text})"))
        status = self._topology.refusal(info)
        if status is not None:
            checks.append(Check(Reason.NEIGHBOURS, self._neighbours(status)))
        if self._fit is not None:
            device = self._devices(info, self._fit)
            if device is not None:
                checks.append(device)
        return checks or self._refused(info)

    def _refused(self, info: NodeInfo) -> list[Check]:
        """What the decision itself said about an otherwise suitable node: rules that consider all nodes at once."""
        status = self._refusals.get(info.name)
        if status is None:
            return []
        reason = Reason.VOLUME if status.plugin.startswith("Volume") else Reason.SEVERAL
        return [Check(reason, f"was refused ({'; '.join(text.removeprefix('node(s) ') for text in status.reasons)})")]

    def _neighbours(self, status: Status) -> str:
        """How other pods are in the way, in the words of the violated rule."""
        texts = []
        for reason in status.reasons:
            if "topology spread" in reason:
                shown = [f"on {each.topology_key} (maxSkew {each.max_skew})" for each in hard_spreads(self._pod)]
                text = f"would violate the pod's {named('topology spread constraint', shown)}"
                texts.append(f"{text}, as it lacks that label" if "missing required label" in reason else text)
            elif "existing pods anti-affinity" in reason:
                texts.append("would violate the anti-affinity of existing pods")
            elif "anti-affinity" in reason:
                affinity = self._pod.spec.affinity
                anti = affinity.pod_anti_affinity if affinity is not None else None
                terms = anti.required_during_scheduling_ignored_during_execution if anti is not None else ()
                texts.append(f"would violate the pod's anti-affinity on {listed(term.topology_key for term in terms)}")
            elif "pod affinity" in reason:
                texts.append("has none of the pods in its topology domain that the pod's affinity requires")
            else:
                texts.append(reason.removeprefix("node(s) "))
        return "; ".join(texts)

    def _devices(self, info: NodeInfo, fit: ClaimFit) -> Check | None:
        status = self._refusals.get(info.name)
        if status is None or status.plugin != DYNAMIC_RESOURCES:
            status = fit.quick(info)
            if status is None:
                status = fit.exact(info)
        if status is None:
            return None
        reason = Reason.SELECTOR_ERROR if status.verdict is Verdict.ERROR else Reason.NO_DEVICES
        if status == NOT_AVAILABLE:
            return Check(Reason.PINNED, "cannot use the devices allocated to the pod's claims")
        if all(text.startswith(_INSUFFICIENT) for text in status.reasons):
            # Node resources that devices provide (DRANodeAllocatableResources).
            lacking = " and ".join(text.removeprefix(_INSUFFICIENT) for text in status.reasons)
            return Check(Reason.RESOURCES, f"does not have enough {lacking} for the devices that the pod claims")
        return Check(reason, "; ".join(status.reasons))


def leaving(node: core_v1.Node) -> str:
    """`is about to be removed by Karpenter (taint karpenter.sh/disrupted)`; empty for a node that stays."""
    for taint in node.spec.taints:
        found = trouble_of(taint.key, node.metadata.name)
        if found is not None and not found.remedy:
            return f"{found.text} (taint {taint.key})"
    return ""


def _near_toleration(taints: Sequence[core_v1.Taint], profile: Profile) -> str:
    """A near miss: the value or effect that the pod tolerates instead."""
    for taint in taints:
        for each in profile.tolerations:
            if each.key != taint.key:
                continue
            if each.value and each.value != taint.value:
                return f" (it tolerates value {each.value})"
            if each.effect and each.effect != taint.effect:
                return f" (it tolerates effect {each.effect})"
    return ""


def _taint_checks(
    what_if: WhatIfCluster, taints: Sequence[core_v1.Taint], info: NodeInfo, profile: Profile
) -> list[Check]:
    """Taints of unready nodes, of nodes short of a resource, and those set by someone."""
    checks = []
    away = [taint for taint in taints if taint.key in NOT_READY]
    if away:
        said = next(
            (each.message for each in info.node.status.conditions if each.type == "Ready" and each.status != "True"), ""
        )
        checks.append(Check(Reason.NODE_NOT_READY, f"is not ready ({said.rstrip('.')})" if said else "is not ready"))
    troubles = troubles_of(what_if, info.node, taints)
    checks += [
        Check(Reason.NODE_TAINT, f"{found.text} (taint {key})", is_leaving=not found.remedy)
        for key, found in troubles.items()
    ]
    others = [taint for taint in taints if taint.key not in NOT_READY and taint.key not in troubles]
    if others:
        shown = ", ".join(taint_text(taint) for taint in others)
        near = _near_toleration(others, profile)
        checks.append(Check(Reason.NODE_TAINT, f"has taint {shown}, which the pod does not tolerate{near}"))
    return checks


def hard_spreads(pod: core_v1.Pod) -> list[core_v1.TopologySpreadConstraint]:
    """A pod's spread constraints that keep it waiting."""
    return [each for each in pod.spec.topology_spread_constraints if each.when_unsatisfiable != SCHEDULE_ANYWAY]


def untolerated(profile: Profile, info: NodeInfo) -> list[core_v1.Taint]:
    """Taints of a node that keep the pod away."""
    return [
        taint
        for taint in info.taints
        if taint.effect in _BLOCKING and not any(tolerates(toleration, taint) for toleration in profile.tolerations)
    ]


def selects_node(selector: core_v1.NodeSelector, info: NodeInfo) -> bool:
    """Whether a selector selects a node; an invalid one, found only in damaged dumps, selects none."""
    try:
        return matches(selector, info.node)
    except SelectorError:
        return False


def asks(info: PodInfo, resource: str) -> int:
    """How much of a resource a placed pod uses, as the scheduler counts it."""
    named = {"cpu": info.cpu, "memory": info.memory, "ephemeral-storage": info.storage}
    return named[resource] if resource in named else info.scalars.get(resource, 0)


def missing(profile: Profile, info: NodeInfo, resource: str) -> int:
    """How much of a resource a node lacks."""
    return next(wanted - (there - used) for name, wanted, there, used in _amounts(profile, info) if name == resource)


def shortages(profile: Profile, info: NodeInfo) -> list[Shortage]:
    """What a node lacks for a pod."""
    return [
        Shortage(
            name,
            amount(name, wanted),
            amount(name, max(there - used, 0)),
            amount(name, there),
            never=wanted > there,
            much=2 * (there - used) < wanted,
        )
        for name, wanted, there, used in _amounts(profile, info)
        if wanted > there - used and wanted > 0
    ]


def _amounts(profile: Profile, info: NodeInfo) -> list[tuple[str, int, int, int]]:
    """Resources: what a pod wants, what a node has, and how much is in use."""
    amounts = [
        ("cpu", profile.cpu, info.allocatable_cpu, info.cpu),
        ("memory", profile.memory, info.allocatable_memory, info.memory),
        ("ephemeral-storage", profile.storage, info.allocatable_storage, info.storage),
    ]
    for name, wanted in sorted(profile.scalars.items()):
        amounts.append((name, wanted, info.allocatable_scalars.get(name, 0), info.scalars.get(name, 0)))
    return amounts


def amount(resource: str, value: int) -> str:
    """An amount of a resource, as the scheduler counts it, in the usual spelling."""
    if resource == "cpu":
        return str(Quantity.from_nano(value * 10**6))
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        return str(Quantity.from_nano(value * 10**9, Format.BINARY_SI))
    return str(value)


def grouped(checks: Mapping[str, Sequence[str]]) -> tuple[NodeGroup, ...]:
    """Nodes grouped by their texts, largest group first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, texts in checks.items():
        groups.setdefault(tuple(texts), []).append(name)
    return tuple(
        NodeGroup(reasons=texts, count=len(names), nodes=tuple(sorted(names)[:_SHOWN_MAX]))
        for texts, names in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    )
