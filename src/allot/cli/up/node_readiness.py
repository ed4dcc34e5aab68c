"""Waits until the nodes of a starting cluster are ready and have published their devices.

Leftovers of an earlier run do not count: agents must have renewed their leases since this one began.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Set

from allot.autoscaler.provider import POOL_LABEL
from allot.cli.output import progress, talk
from allot.cli.up.node_sets import Nodes
from allot.controlplane.plane import ControlPlane
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice
from allot.node.registration import LEASE_NAMESPACE
from allot.process.clock import rfc3339

# Nodes that are not ready by then are reported, and the cluster is announced without them.
_WAIT_S, _WAIT_PER_NODE_S = 60.0, 0.05
_PAUSE_S, _PAUSE_PER_NODE_S = 0.03, 0.0001


async def wait_for_nodes(plane: ControlPlane, wanted: Nodes, began: float) -> None:
    """Wait for a limited time. began: seconds since 1970."""
    names = {*wanted.all_names, *_first_of_pools(wanted)}
    clock, nodes = plane.clock, NodesReady(plane, wanted, rfc3339(int(began)))
    until = clock.monotonic() + _WAIT_S + _WAIT_PER_NODE_S * len(names)
    missing = names
    with progress("starting nodes", len(names)) as advance:
        while missing and clock.monotonic() < until:
            await clock.sleep(_PAUSE_S + _PAUSE_PER_NODE_S * len(names))
            before, missing = missing, names - nodes.names()
            for _ in before - missing:
                advance()
    if missing:
        talk(f"not ready yet: {len(missing)} nodes such as {min(missing)}; the log says why")


def condition_text(plane: ControlPlane, wanted: Nodes, condition: str) -> str:
    """How pods run, from a node condition; empty with a container runtime."""
    names = set(wanted.all_names)
    told = {
        each.message
        for node in plane.informers.typed(Node).cache
        if node.metadata.name in names
        for each in node.status.conditions
        if each.type == condition
    }
    return "; ".join(sorted(told))


class NodesReady:
    """What has been published so far. began: when this run did."""

    def __init__(self, plane: ControlPlane, wanted: Nodes, began: str) -> None:
        informers = plane.informers
        self._nodes, self._slices = informers.typed(Node), informers.typed(ResourceSlice)
        self._leases = informers.dynamic(
            "coordination.k8s.io", "v1", "leases", namespaced=True, namespace=LEASE_NAMESPACE
        )
        # Without the final Z, so that fractions of the same second compare as later.
        self._began = began.removesuffix("Z")
        self._publishers, self._publishers_of_pools = wanted.publishers, wanted.publishers_of_pools

    def names(self) -> Set[str]:
        """Of all nodes that are ready."""
        alive = {
            each["metadata"]["name"] for each in self._leases.cache if each["spec"].get("renewTime", "") >= self._began
        }
        published: defaultdict[str, set[str]] = defaultdict(set)
        for each in self._slices.cache:
            published[each.spec.node_name or ""].add(each.spec.driver)
        found: set[str] = set()
        counts: Counter[str] = Counter()
        for node in self._nodes.cache:
            pool, name = node.metadata.labels.get(POOL_LABEL, ""), node.metadata.name
            publishers = self._publishers_of_pools.get(pool) or self._publishers.get(name) or frozenset()
            if name in alive and _is_ready(node) and publishers <= published[name]:
                found.add(name)
                counts[pool] += 1
        return found | {_of_pool(pool, number) for pool, count in counts.items() if pool for number in range(count)}


def _first_of_pools(wanted: Nodes) -> Iterator[str]:
    """Placeholders for the initial nodes of pools, whose names are unknown."""
    for pool in wanted.pools.pools:
        for number in range(pool.min if pool.initial is None else max(pool.initial, pool.min)):
            yield _of_pool(pool.name, number)


def _of_pool(pool: str, number: int) -> str:
    return f"pool {pool}, node {number}"


def _is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
