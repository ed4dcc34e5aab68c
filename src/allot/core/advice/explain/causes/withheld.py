"""Extended resources of which nodes offer nothing although they have such devices: the devices are divided and offered as parts, or the
vendor's daemons do not run there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.vendors import is_labelled, vendor_of
from allot.core.advice.explain.daemons import daemon_sets, left_out, taken_in
from allot.core.advice.explain.diagnosis import Candidate, Rank
from allot.core.advice.explain.remedies import nodes
from allot.core.advice.explain.upkeep import upkeep
from allot.core.advice.explain.wording import listed, named
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model.apps_v1 import DaemonSet
from allot.core.scheduling import NodeInfo
from allot.core.workloads.pod_states import is_ready

# What device plugins call parts and shares of devices: mig-1g.10gb, gpu.shared, cpx_nps4.
_PART = re.compile(r"/mig-\d|\.shared$|/[cdqst]px(?:_|$)")
_NUMBER = re.compile(r"\d+")
# Labels that say how devices are divided, without the vendor.
_DIVISIONS = ("mig.config", "mig.strategy", "gpu.sharing-strategy", "compute-memory-partition")
_MIG_CONFIG = "nvidia.com/mig.config"
_PLUGIN = "device-plugin"


class Forms(NamedTuple):
    """What nodes offer instead of a resource. text: phrased to follow a colon."""

    text: str
    offered: tuple[str, ...]
    advice: tuple[str, ...]


def is_withheld(info: NodeInfo, resource: str) -> bool:
    """Whether a node offers nothing of a resource that it has or had, or whose devices it has by its labels."""
    if info.allocatable_scalars.get(resource):
        return False
    return resource in info.node.status.capacity or is_labelled(resource, info.node)


def held_back(info: NodeInfo, resource: str) -> int:
    """How much of a resource a node has, by its capacity, but does not offer."""
    there = info.node.status.capacity.get(resource)
    return there.value() if there is not None and not info.allocatable_scalars.get(resource) else 0


def other_forms(what_if: WhatIfCluster, resource: str) -> Forms | None:
    """Parts, shares or whole devices that nodes offer instead of what is asked for; None if there are none."""
    found = {info.name: forms for info in what_if.cluster.nodes.values() if (forms := _forms(info, resource))}
    if not found:
        return None
    offered = sorted({form for forms in found.values() for form in forms}, key=_size, reverse=True)
    infos = [what_if.cluster.nodes[name] for name in found]
    text = f"{named('node', found)} {'offers' if len(found) == 1 else 'offer'} {listed(offered)} instead"
    labels = {
        f"{key}={value}"
        for info in infos
        for key, value in info.labels.items()
        if key.endswith(_DIVISIONS) and _vendor(resource) in key
    }
    text += f" ({named('label', sorted(labels))})" if labels else ""
    whole = [info for info in infos if _MIG_CONFIG in info.labels and not _PART.search(resource)]
    if not whole:
        return Forms(text, tuple(offered), ())
    # The node on which the fewest would have to go.
    best = min(
        whole,
        key=lambda info: (sum(any(each in pod.scalars for each in offered) for pod in info.pods.values()), info.name),
    )
    advice = f"set label {_MIG_CONFIG}=all-disabled on node {best.name} when no pod uses its MIG devices: it then offers whole GPUs"
    return Forms(text, tuple(offered), (advice,))


def _forms(info: NodeInfo, resource: str) -> list[str]:
    """What a node offers of the same devices."""
    domain = resource.partition("/")[0]
    return [
        name
        for name, amount in info.allocatable_scalars.items()
        if amount and name.partition("/")[0] == domain and name != resource and any(map(_PART.search, (name, resource)))
    ]


def _vendor(resource: str) -> str:
    return vendor_of(resource.partition("/")[0])


def _size(form: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBER.findall(form)))


def withheld_text(what_if: WhatIfCluster, info: NodeInfo, resource: str) -> str:
    """How much a node offers of a resource that it withholds, and why."""
    there = held_back(info, resource)
    text = f"offers none of its {there} {resource}" if there else f"offers no {resource}"
    forms = _forms(info, resource)
    if forms:
        return f"{text} but {listed(sorted(forms, key=_size, reverse=True))}"
    why = why_withheld(what_if, info, resource)
    return f"{text}: {why.text}" if why is not None else text


def repaired(what_if: WhatIfCluster, info: NodeInfo, resource: str) -> tuple[Candidate, ...]:
    """The vendor's daemons run again on a node that withholds a resource; those who cordoned it for their work uncordon it then."""
    why, there = why_withheld(what_if, info, resource), held_back(info, resource)
    if why is None or not there:
        return ()
    offers = nodes.offering(info.name, resource, str(there))
    if not info.unschedulable:
        return (Candidate(rank=Rank.FIX, text=why.advice, patches=(offers,)),)
    text = why.advice if upkeep(info.node) else f"{why.advice}, and uncordon the node"
    return (Candidate(rank=Rank.FIX, text=text, patches=(nodes.uncordoned(info), offers)),)


def why_withheld(what_if: WhatIfCluster, info: NodeInfo, resource: str) -> driver_pods.FailingPod | None:
    """What is wrong with the vendor's daemons on a node; None if nothing is, or if it is not known."""
    failing = driver_pods.failing_of_vendor(what_if, _vendor(resource), info.name)
    return next(iter(failing), None) or next(_skipping(what_if, info, resource), None) or _mute(info, resource)


def _mute(info: NodeInfo, resource: str) -> driver_pods.FailingPod | None:
    """A device plugin that is ready on a node and offers nothing there."""
    domain = resource.partition("/")[0]
    if any(amount and name.partition("/")[0] == domain for name, amount in info.allocatable_scalars.items()):
        return None
    for each in info.pods.values():
        metadata = each.pod.metadata
        if _PLUGIN in metadata.name and _vendor(resource) in full_name(each.pod) and is_ready(each.pod):
            text = f"the device plugin's pod {full_name(each.pod)} is ready there, but registers none"
            log = f"kubectl logs -n {metadata.namespace} {metadata.name}"
            advice = f"see why the device plugin finds no devices on node {info.name}: {log}"
            return driver_pods.FailingPod(info.name, text, advice)
    return None


def _skipping(what_if: WhatIfCluster, info: NodeInfo, resource: str) -> Iterator[driver_pods.FailingPod]:
    """The device plugins that skip a node."""
    if DaemonSet in what_if.unread:
        return
    for set_, placement in daemon_sets(what_if, _vendor(resource)):
        for why in left_out(placement, info.node) if _PLUGIN in set_.metadata.name else ():
            name = f"DaemonSet {full_name(set_)}"
            yield driver_pods.FailingPod(info.name, f"{name} skips it: it {why}", taken_in(placement, info.node, name))
