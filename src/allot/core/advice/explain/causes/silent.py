"""Drivers that run on a node and publish nothing for it."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.explain.causes.driver_pods import FailingPod, plugins_by_node
from allot.core.advice.explain.causes.vendors import drivers_by_node, is_labelled, vendor_of
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model.resource_v1 import ResourceSlice
from allot.core.scheduling import NodeInfo
from allot.core.workloads.pod_states import is_ready


def silent(what_if: WhatIfCluster, driver: str) -> Iterator[FailingPod]:
    """The nodes that have devices of a driver, by their labels, and where its pod is ready but has published none."""
    published = {name for name, drivers in drivers_by_node(what_if).items() if driver in drivers}
    nodes = what_if.cluster.nodes
    bare = [info for name, info in nodes.items() if name not in published and is_labelled(driver, info.node)]
    if not bare or ResourceSlice in what_if.unread:
        return
    pods = plugins_by_node(what_if, driver)
    having = [nodes[name] for name in sorted(published) if name in nodes]
    for info in bare:
        pod = next(filter(is_ready, pods.get(info.name, ())), None)
        if pod is None:
            continue
        text = f"the driver's pod {full_name(pod)} is ready there, but has published no devices of the node"
        see = f"see why the driver publishes no ResourceSlice with the devices of node {info.name}"
        log = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
        yield FailingPod(info.name, text, f"{see}: {log}{_other_version(driver, info, having)}")


def _other_version(driver: str, info: NodeInfo, having: list[NodeInfo]) -> str:
    """A version that a node's labels give of its devices' software, if nodes whose devices are published have another one."""
    for key, value in info.labels.items():
        if vendor_of(driver) not in key or "version" not in key:
            continue
        there = {other.labels[key]: other.name for other in having if key in other.labels}
        if there and value not in there:
            version, name = next(iter(there.items()))
            return f" (label {key} is {value} there, and {version} on node {name}, whose devices are published)"
    return ""
