"""Drivers that run on a node and publish nothing for it."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.explain.causes.driver_pods import FailingPod, plugins
from allot.core.advice.explain.causes.vendors import drivers_by_node, is_labelled
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model.resource_v1 import ResourceSlice
from allot.core.workloads.pod_states import is_ready


def silent(what_if: WhatIfCluster, driver: str) -> Iterator[FailingPod]:
    """The nodes that have devices of a driver, by their labels, and where its pod is ready but has published none."""
    if ResourceSlice in what_if.unread:
        return
    published = drivers_by_node(what_if)
    for name, info in what_if.cluster.nodes.items():
        if driver in published.get(name, ()) or not is_labelled(driver, info.node):
            continue
        ready = [pod for pod in plugins(what_if, driver, name) if is_ready(pod)]
        if not ready:
            continue
        pod = ready[0]
        text = f"the driver's pod {full_name(pod)} is ready there, but has published no devices of the node"
        log = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
        advice = f"see why the driver publishes no ResourceSlice with the devices of node {name}: {log}{_other_version(what_if, driver, name)}"
        yield FailingPod(name, text, advice)


def _other_version(what_if: WhatIfCluster, driver: str, node: str) -> str:
    """How the node's labels about its devices differ from those of a node whose devices are published; empty if they do not."""
    published = drivers_by_node(what_if)
    nodes = what_if.cluster.nodes
    others = [info for name, info in nodes.items() if driver in published.get(name, ())]
    own = nodes[node].labels
    vendor = driver.split(".")[-2:][0]
    for other in others:
        for key, value in own.items():
            there = other.labels.get(key, value)
            if vendor in key and "version" in key and there != value:
                return f" (label {key} is {value} there, and {there} on node {other.name}, whose devices are published)"
    return ""
