"""Nodes that have the devices of an extended resource and offer none, because the device plugin does not run there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from allot.core.advice.explain.causes.driver_pods import FailingPod, of_all
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.vendors import drivers_by_node, vendor_of
from allot.core.advice.explain.causes.withheld import is_withheld, why_withheld
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank
from allot.core.advice.explain.remedies import nodes
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import named
from allot.core.advice.patches import Patch
from allot.core.scheduling import NodeInfo

# So many say what is wrong with the rest.
_NODES_MAX = 100
# What NVIDIA's GPU operator reads of nodes whose GPUs are for virtual machines.
_WORKLOAD, _OF_MACHINES = "nvidia.com/gpu.workload.config", ("vm-passthrough", "vm-vgpu")


def without_plugin(placing: Placing, found: Diagnosis) -> Diagnosis:
    """What is wrong with the device plugin on nodes that only lack its resource; otherwise what was found, whose remedies come later."""
    if found.reason not in (Reason.RESOURCES, Reason.RESOURCE_UNKNOWN):
        return found
    for resource in placing.of_plugins:
        bare = islice(_bare(placing, resource), _NODES_MAX)
        failing = [why for info in bare if (why := why_withheld(placing.what_if, info, resource)) is not None]
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
        if is_withheld(info, resource):
            yield info


def _caused(placing: Placing, resource: str, failing: Sequence[FailingPod], found: Diagnosis) -> Diagnosis:
    first = failing[0]
    same = [each for each in failing if each.text == first.text]
    alike = [each.node for each in same]
    had = placing.what_if.cluster.nodes[first.node].node.status.capacity.get(resource)
    has, offers, its = ("has", "offers", "its") if len(alike) == 1 else ("have", "offer", "their")
    what = f"{had} {resource}" if had is not None and had.nano else f"devices for {resource} by {its} labels"
    text = f"{named('node', alike)} {has} {what}, but {offers} none: {of_all(same)}; {found.text}"
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
    there = placing.what_if.cluster.nodes
    own = there[node].node.status.capacity.get(resource)
    others = [amount for info in there.values() if (amount := info.node.status.allocatable.get(resource)) is not None]
    amount = own if own is not None and own.nano else max(others, key=lambda each: each.nano, default=None)
    if amount is None or not amount.nano:
        return ()
    return (nodes.offering(node, resource, str(amount)),)
