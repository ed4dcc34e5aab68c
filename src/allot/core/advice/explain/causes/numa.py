"""Pods that a kubelet rejects because no NUMA node has all that they need: the scheduler counts only the whole node."""

from __future__ import annotations

from typing import NamedTuple

from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model.node_topologies import NodeResourceTopology
from allot.core.quantity import Quantity

REJECTED = "TopologyAffinityError"
_HOLDERS_MAX = 3
_NATIVE = ("cpu", "memory", "ephemeral-storage")


class _Scattered(NamedTuple):
    """A resource that no NUMA node has enough of. free: by NUMA node; most: what one has if nothing is in use."""

    resource: str
    wanted: Quantity
    free: dict[str, Quantity]
    most: Quantity


def numa_text(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """What NUMA nodes lack for a pod that was rejected, phrased to follow a semicolon; empty if that is not known."""
    found = _scattered(what_if, pod)
    if found is None:
        return ""
    topology = what_if.get(NodeResourceTopology, pod.spec.node_name)
    policy = f" (policy {topology.policy})" if topology is not None and topology.policy else ""
    free = joined([f"{amount} on {zone}" for zone, amount in found.free.items()])
    users = _holders(what_if, pod, found.resource)
    rest = f" ({named('pod', users)} {'uses' if len(users) == 1 else 'use'} the rest)" if users else ""
    return f"the pod needs {found.wanted} {found.resource} on one NUMA node{policy}, but the node has {free} free{rest}"


def numa_advice(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[str, ...]:
    """Remedies for a pod that was rejected for its NUMA nodes."""
    found = _scattered(what_if, pod)
    if found is None or found.wanted.nano > found.most.nano:
        most = f"{found.most} {found.resource}, which" if found is not None else "cpu and devices than"
        less = f"at most {most} one NUMA node has" if found is not None else f"no more {most} one NUMA node has"
        return (f"ask for {less}, in whole numbers, in the pod, and recreate it",)
    later = "run such pods with a scheduler that knows NUMA nodes (plugin NodeResourceTopologyMatch), or small and large ones on different nodes"
    holders = _holders(what_if, pod, found.resource)
    if not holders:
        return (f"recreate it when more {found.resource} is free on one NUMA node of node {pod.spec.node_name}", later)
    who = named("pod", holders[:1]) if len(holders) == 1 else f"one of pods {listed(holders, _HOLDERS_MAX)}"
    first = f"wait until {who} ends, or delete it, so that one NUMA node of node {pod.spec.node_name} has {found.wanted} {found.resource} free, and recreate the pod"
    return (first, later)


def _scattered(what_if: WhatIfCluster, pod: core_v1.Pod) -> _Scattered | None:
    """The first resource of which no NUMA node of the pod's node has enough free; devices before cpu and memory."""
    topology = what_if.get(NodeResourceTopology, pod.spec.node_name)
    wanted = _requests(pod)
    for name in sorted(wanted, key=lambda each: (each in _NATIVE, each)) if topology is not None else ():
        assert topology is not None
        zones = {
            zone.name: resource
            for zone in topology.zones
            for resource in zone.resources
            if resource.name == name and resource.available is not None
        }
        free = {zone: each.available for zone, each in zones.items() if each.available is not None}
        if free and all(amount.nano < wanted[name].nano for amount in free.values()):
            there = [each.allocatable for each in zones.values() if each.allocatable is not None]
            most = max(there or free.values(), key=lambda each: each.nano)
            return _Scattered(name, wanted[name], free, most)
    return None


def _requests(pod: core_v1.Pod) -> dict[str, Quantity]:
    """What the containers of a pod ask for together."""
    total: dict[str, int] = {}
    for container in pod.spec.containers:
        for name, amount in {**container.resources.limits, **container.resources.requests}.items():
            total[name] = total.get(name, 0) + amount.nano
    return {name: Quantity.from_nano(nano) for name, nano in total.items()}


def _holders(what_if: WhatIfCluster, pod: core_v1.Pod, resource: str) -> list[str]:
    """The other pods on the node that use a resource, those with the least of it first."""
    info = what_if.cluster.nodes.get(pod.spec.node_name)
    users = [
        (asked[resource].nano, full_name(each.pod))
        for each in (info.pods.values() if info is not None else ())
        if each.pod.metadata.uid != pod.metadata.uid and resource in (asked := _requests(each.pod))
    ]
    return [name for _, name in sorted(users)]
