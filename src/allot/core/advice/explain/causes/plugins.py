"""Nodes that have the devices of an extended resource and offer none, because the device plugin does not run there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.driver_pods import FailingPod
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.vendors import drivers_by_node, is_labelled, vendor_of
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, patch_of, pointer
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import named
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.scheduling import NodeInfo
from allot.core.workloads.pod_states import is_ready

# What NVIDIA's GPU operator reads of nodes whose GPUs are for virtual machines.
_WORKLOAD, _OF_MACHINES = "nvidia.com/gpu.workload.config", ("vm-passthrough", "vm-vgpu")


def without_plugin(placing: Placing, found: Diagnosis) -> Diagnosis:
    """What is wrong with the device plugin on nodes that only lack its resource; otherwise what was found, whose remedies come later."""
    if found.reason not in (Reason.RESOURCES, Reason.RESOURCE_UNKNOWN):
        return found
    for resource in placing.node_checks.profile.scalars:
        if "/" not in resource or placing.what_if.claims.backs(resource):
            continue
        failing = [each for info in _bare(placing, resource) for each in _failing(placing.what_if, resource, info)]
        if failing:
            return _caused(placing, resource, failing, found)
    return found


def _bare(placing: Placing, resource: str) -> Iterator[NodeInfo]:
    """The nodes that the pod could use if they offered the resource, and that should."""
    published = drivers_by_node(placing.what_if)
    vendor, domain = vendor_of(resource), resource.partition("/")[0]
    for info in placing.what_if.cluster.nodes.values():
        status = info.node.status
        others = any(name.startswith(f"{domain}/") and amount.nano > 0 for name, amount in status.allocatable.items())
        by_claim = any(vendor_of(driver) == vendor for driver in published.get(info.name, ()))
        wrong = {check.reason for check in placing.checks[info.name]} - {Reason.RESOURCES}
        if others or by_claim or wrong or info.labels.get(_WORKLOAD) in _OF_MACHINES:
            continue
        if resource in status.capacity or resource in status.allocatable or is_labelled(resource, info.node):
            yield info


def _failing(what_if: WhatIfCluster, resource: str, info: NodeInfo) -> list[FailingPod]:
    """The first thing that is wrong with the plugin on a node."""
    found = driver_pods.failing(what_if, resource, info.name)
    skips = None if found else driver_pods.unselected(what_if, resource, info.name)
    if skips is not None:
        return [skips]
    pod = next(filter(is_ready, driver_pods.plugins(what_if, resource, info.name)), None)
    if found or pod is None:
        return found[:1]
    text = f"the device plugin's pod {full_name(pod)} is ready there, but registers none"
    log = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
    return [FailingPod(info.name, text, f"see why the device plugin finds no devices on node {info.name}: {log}")]


def _caused(placing: Placing, resource: str, failing: Sequence[FailingPod], found: Diagnosis) -> Diagnosis:
    nodes = placing.what_if.cluster.nodes
    first = failing[0]
    alike = [each.node for each in failing if each.text == first.text]
    node = nodes[first.node].node
    had = node.status.capacity.get(resource)
    has, offers, its = ("has", "offers", "its") if len(alike) == 1 else ("have", "offer", "their")
    what = f"{had} {resource}" if had is not None and had.nano else f"devices for {resource} by {its} labels"
    text = f"{named('node', alike)} {has} {what}, but {offers} none: {first.text}; {found.text}"
    later = [replace(each, rank=max(each.rank, Rank.DROP + 1)) for each in found.candidates]
    return Diagnosis(
        reason=Reason.NO_DRIVER,
        text=text,
        details=found.details,
        candidates=(
            Candidate(rank=Rank.FIX, text=first.advice, patches=_offering(placing, resource, first.node)),
            *later,
        ),
        advice=tuple(dict.fromkeys([*(each.advice for each in failing), *found.advice])),
    )


def _offering(placing: Placing, resource: str, node: str) -> tuple[Patch, ...]:
    """The node as it is when its plugin runs: with as many devices as it had, or as another node offers."""
    nodes = placing.what_if.cluster.nodes
    own = nodes[node].node.status.capacity.get(resource)
    others = [amount for info in nodes.values() if (amount := info.node.status.allocatable.get(resource)) is not None]
    amount = own if own is not None and own.nano else max(others, key=lambda each: each.nano, default=None)
    if amount is None or not amount.nano:
        return ()
    operation = {"op": "add", "path": f"/status/allocatable/{pointer(resource)}", "value": str(amount)}
    return (patch_of("Node", node, operation),)
