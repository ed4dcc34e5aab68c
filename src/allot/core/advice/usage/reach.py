"""Which devices someone can get at: those on nodes that take their pods, without taints that they do not tolerate.

Without someone in mind these are the nodes that take any pod at all: neither cordoned nor out of order. Where nothing is known of
nodes, every device counts as reachable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation import AllocationError
from allot.core.allocation.devices import DeviceEntry
from allot.core.allocation.inventory import node_of
from allot.core.allocation.pools import device_on_node
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import NodeInfo
from allot.core.selectors import SelectorError, blocking_taints
from allot.core.selectors import matches as matches_node

_KUBERNETES_TAINTS = "node.kubernetes.io/"
_KEEPS_OFF = ("NoSchedule", "NoExecute")


class Reach:
    """nodes: those that take the pods; None if nothing is known of nodes. tolerations: of devices' taints."""

    def __init__(
        self, nodes: Sequence[core_v1.Node] | None = None, tolerations: Sequence[api.DeviceToleration] = ()
    ) -> None:
        self._nodes = None if nodes is None else {node.metadata.name: node for node in nodes}
        self._tolerations = tolerations
        # Of slices that several nodes can use.
        self._by_slice: dict[int, bool] = {}

    def includes(self, entry: DeviceEntry) -> bool:
        """Whether a device can be got at."""
        if entry.taints and blocking_taints(entry.taints, self._tolerations):
            return False
        if self._nodes is None:
            return True
        name = node_of(entry)
        return name in self._nodes if name is not None else self._is_on_a_node(entry, self._nodes)

    def _is_on_a_node(self, entry: DeviceEntry, nodes: Mapping[str, core_v1.Node]) -> bool:
        spec = entry.slice.spec
        try:
            if spec.per_device_node_selection:
                return any(device_on_node(entry, node) for node in nodes.values())
            key = id(entry.slice)
            if key not in self._by_slice:
                selector = spec.node_selector
                self._by_slice[key] = bool(nodes) and (
                    bool(spec.all_nodes)
                    or (selector is not None and any(matches_node(selector, node) for node in nodes.values()))
                )
            return self._by_slice[key]
        except (AllocationError, SelectorError):
            # The allocator gets nothing from such a slice either.
            return False


def anybodys_reach(what_if: WhatIfCluster) -> Reach:
    """What a pod can get at that tolerates nothing but nodes' own taints."""
    nodes = what_if.cluster.nodes.values()
    return Reach([info.node for info in nodes if not closed_because(info)] if nodes else None)


def closed_because(info: NodeInfo) -> str:
    """Why a node accepts no pods at all; empty if it does."""
    if info.unschedulable:
        return "cordoned"
    for taint in info.taints:
        if taint.key.startswith(_KUBERNETES_TAINTS) and taint.effect in _KEEPS_OFF:
            return taint.key.removeprefix(_KUBERNETES_TAINTS).replace("-", " ")
    for condition in info.node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            return "not ready"
    return ""
