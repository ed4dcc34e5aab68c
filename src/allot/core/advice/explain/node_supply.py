"""Whether a node is coming for a waiting pod: what the autoscaler reported, or what one would do with given pools."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from allot.core.advice.compute_classes import classes_of, reason_line
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.node_pools import FullPool, full_pool, pools_said_full
from allot.core.advice.explain.report import Change, Explanation
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from allot.core.autoscaling.expanders import PRICE, Expander
from allot.core.autoscaling.pools import Pool, price_text
from allot.core.autoscaling.scale_up import Expectation, plan_scale_up
from allot.core.lifecycle.pod_amounts import pod_requests
from allot.core.model import core_v1
from allot.core.model.compute_classes import ComputeClass
from allot.core.model.node_pools import POOL_LABEL
from allot.core.model.observed_v1 import ConfigMap

TRIGGERED, NOT_TRIGGERED = "TriggeredScaleUp", "NotTriggerScaleUp"
_BOUGHT = "pod triggered scale-up: "
_NONE = "pod didn't trigger scale-up: "
# Karpenter's, which has the scheduler's reason for its own refusals.
_NOMINATED, _FAILED = "Nominated", "FailedScheduling"
_NODE_CLAIM = "nodeclaim/"
_KARPENTERS_NONE = "Failed to schedule pod, "
_COMING = "a node is coming"
_AT_MAXIMUM = "max node group size reached"
# Labels in which clouds and their tools write a node's group.
_GROUP_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    "karpenter.sh/nodepool",
)


# What the autoscaler's own ConfigMap says of its groups, in the form that it has since 1.30 and in the older one.
_BLOCK = re.compile(r"^\s*(?:-\s+name|Name):\s*", re.MULTILINE)
_NAME = re.compile(r"(\S+)")
_TARGET = re.compile(r"cloudProviderTarget[:=]\s*(\d+)")
_MOST = re.compile(r"maxSize[:=]\s*(\d+)")
_GROUP = re.compile(r"(?:^|/)node-?(?:group|pool)(?:-name)?$")


def told_by_autoscaler(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[str, ...]:
    """The last report of the cluster's autoscaler; empty if there is none."""
    events = [
        each
        for each in events_of(what_if, pod, TRIGGERED, NOT_TRIGGERED, _NOMINATED, _FAILED)
        if each.reason != _FAILED or each.message.startswith(_KARPENTERS_NONE)
    ]
    if not events:
        return ()
    last = events[0]
    at = f" (said at {last.seen_at})" if last.seen_at else ""
    if last.reason == TRIGGERED:
        return (f"{_COMING}: it was asked for {last.message.removeprefix(_BOUGHT)}{at}",)
    if last.reason == _NOMINATED:
        return (f"{_COMING}: {last.message}{at}",) if _NODE_CLAIM in last.message else ()
    said = last.message.removeprefix(_NONE).removeprefix(_KARPENTERS_NONE)
    return (f"no node is coming: {said}{at}",)


def gets_node(supply: Sequence[str]) -> bool:
    """Whether the report says that a node is coming."""
    return any(each.startswith(_COMING) for each in supply)


def _full_group(what_if: WhatIfCluster) -> tuple[str, str]:
    """The node group that its autoscaler says is as large as it may be, and that size; empty if it says so of none, or of several."""
    text = next((each.autoscaler_status for each in what_if.all(ConfigMap) if each.autoscaler_status), "")
    found = []
    for block in _BLOCK.split(text)[1:]:
        name, target, most = _NAME.match(block), _TARGET.search(block), _MOST.search(block)
        if name is not None and target is not None and most is not None and int(target[1]) >= int(most[1]):
            found.append((name[1], most[1]))
    return found[0] if len(found) == 1 else ("", "")


def at_maximum(what_if: WhatIfCluster, pod: core_v1.Pod, found: Explanation, supply: Sequence[str]) -> Explanation:
    """The answer for a pod that one more node would help but the autoscaler may not add one: raise that limit first."""
    added = next((change for change in found.changes if any(map(is_new_node, change.patches))), None)
    new = next((patch.object for patch in added.patches if is_new_node(patch)), None) if added is not None else None
    labels = new["metadata"].get("labels", {}) if new is not None else {}
    full = _full_pool(what_if, pod, labels, supply)
    if full is not None:
        why = f"Karpenter adds no node, because NodePool {full.name} is at its limit: {full.limits}"
        text = f"raise spec.limits of NodePool {full.name} to {full.raised}, so that Karpenter adds a node"
    elif added is None or not any(_AT_MAXIMUM in each for each in supply):
        return found
    else:
        group = next(
            (labels[label] for label in (*_GROUP_LABELS, *filter(_GROUP.search, labels)) if label in labels), ""
        )
        told, most = _full_group(what_if)
        group = group or told
        which = f"node group {group}" if group else "the node group"
        size = f" of {most}" if most and group == told else ""
        why = f"the autoscaler adds no node, because {which} is at its maximum size{size}"
        to = f" to {int(most) + 1}" if size else ""
        text = f"raise the maximum size of {which}{to}, so that the autoscaler adds a node"
    others = [change for change in found.changes if change is not added]
    # What was tried comes first.
    changes = [replace(added, text=text), *others] if added is not None else [*others, Change(text=text)]
    return replace(found, cause=f"{found.cause}; and {why}", changes=tuple(changes))


def _full_pool(
    what_if: WhatIfCluster, pod: core_v1.Pod, labels: Mapping[str, str], supply: Sequence[str]
) -> FullPool | None:
    """The NodePool whose node the pod needs, if it may have no more: that of a node that would help, or one that Karpenter names."""
    told = [name for each in supply for name in pools_said_full(each)]
    pools = dict.fromkeys([*([labels[POOL_LABEL]] if POOL_LABEL in labels else []), *told])
    wanted = pod_requests(pod)
    found = (full_pool(what_if, pool, wanted, is_said=pool in told) for pool in pools)
    return next((full for full in found if full is not None), None)


def is_new_node(patch: Patch) -> bool:
    """Whether a change adds a node."""
    return patch.action == "create" and patch.object is not None and patch.object.get("kind") == "Node"


def expected_of_pools(what_if: WhatIfCluster, pools: Sequence[Pool], pod: core_v1.Pod) -> tuple[str, ...]:
    """What an autoscaler that chooses by price would do with these pools, for all waiting pods."""
    classes = classes_of(what_if.all(ComputeClass))
    ranked = classes.ranked(pools) if classes is not None else pools
    by_name = {pool.name: pool for pool in ranked}
    plan = plan_scale_up(what_if.machine, ranked, Expander((PRICE,), by_name), seconds=what_if.now, classes=classes)
    expectation = plan.of(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return tuple(expectation_lines(expectation, by_name)) if expectation is not None else ()


def expectation_lines(expectation: Expectation, pools: dict[str, Pool]) -> Iterator[str]:
    """What a unit can expect, in sentences."""
    for name, count in expectation.bought.items():
        nodes = "a node" if count == 1 else f"{count} nodes"
        standing = pools[name].standing
        why = f", {standing.text} of ComputeClass {standing.compute_class}" if standing is not None else ""
        yield f"{nodes} of pool {name}{why} would be added for it, at {price_text(pools[name].price)} per hour each"
    if expectation.reasons and expectation.compute_class:
        yield f"ComputeClass {expectation.compute_class} does not help:"
    for reason in expectation.reasons:
        text = reason_line(reason)
        yield text if reason.priority else text.replace(": ", " does not help: ", 1)
    if not expectation.nodes and not expectation.reasons:
        yield "there are no pools"
