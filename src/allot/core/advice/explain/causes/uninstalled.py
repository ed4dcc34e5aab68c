"""Drivers that are gone from a node while claims still have their devices."""

from __future__ import annotations

from allot.core.advice.explain.causes.driver_pods import plugins
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model.resource_v1 import ResourceSlice


def is_uninstalled(what_if: WhatIfCluster, driver: str, node: str) -> bool:
    """Whether neither a pod nor a ResourceSlice of a driver is left on a node. A kubelet deletes the slices of a plugin that is gone."""
    if {ResourceSlice, core_v1.Pod} & set(what_if.unread) or plugins(what_if, driver, node):
        return False
    return not any(
        each.spec.driver == driver and each.spec.node_name in (node, None) for each in what_if.all(ResourceSlice)
    )


def gone_text(what_if: WhatIfCluster, driver: str, node: str) -> str:
    """What there is no longer, phrased to follow a colon."""
    anywhere = any(each.spec.driver == driver for each in what_if.all(ResourceSlice))
    slices = f"no ResourceSlice of node {node}" if anywhere else "no ResourceSlice at all"
    return f"it has no pod on the node and {slices}"


def reinstall_advice(driver: str, node: str) -> str:
    """How its claims are cleaned up."""
    return f"install driver {driver} on node {node} again, so that it unprepares the claim; remove it only when no claim has its devices"
