"""The node lifecycle controller: checks all nodes every few seconds, and one node whenever it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any

from prometheus_client import CollectorRegistry

from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Emit
from allot.core.lifecycle.nodes import (
    DEFAULTS,
    LEASE_NAMESPACE,
    Health,
    NodeSettings,
    Zones,
    evicting,
    is_silent,
    needs_silencing,
    observed,
    ready_status,
    reconcile,
    registered,
    removed,
    silence,
    zone_of,
)
from allot.core.lifecycle.podgc import BY_NODE, node_of
from allot.core.model.core_v1 import Node, Pod
from allot.process.metrics import Counter, Gauge

WORKERS = 8
_NODES_PER_TICK = 500
Object = dict[str, Any]


class _Task(Enum):
    SETTLE = "settle"
    SILENCE = "silence"


_Key = tuple[_Task, str]


class NodeLifecycle:
    """Detects nodes that stop reporting, and maintains the taints of all nodes."""

    def __init__(self, services: Services, settings: NodeSettings = DEFAULTS) -> None:
        self._clock = services.clock
        self._settings = settings
        self._nodes: Informer[Node] = services.informers.typed(Node)
        self._pods: Informer[Pod] = services.informers.typed(Pod, indexers={BY_NODE: node_of})
        self._leases: Informer[Object] = services.informers.dynamic(
            "coordination.k8s.io", "v1", "leases", namespaced=True, namespace=LEASE_NAMESPACE
        )
        self._health: dict[str, Health] = {}
        self._zones = Zones(settings)
        # Nodes to taint with NoExecute next.
        self._due: set[str] = set()
        self._evictions = self._measure(services.metrics.registry)
        self._controller: Controller[_Key] = Controller(
            services,
            self._reconcile,
            queue_name="node_lifecycle_controller",
            component="node-lifecycle-controller",
            waits_for=(self._nodes, self._pods, self._leases),
            concurrency=WORKERS,
            background=(self._monitor,),
        )
        self._nodes.add_handler(self._notice_node)
        self._pods.add_handler(self._notice_pod)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._controller.run()

    def _measure(self, registry: CollectorRegistry) -> Counter:
        """Metrics about zones, and the counter of evicted nodes."""
        labels, unhealthy = ("zone",), self._zones.unhealthy
        Gauge(
            registry,
            "node_collector_zone_size",
            "Gauge measuring number of registered Nodes per zones.",
            labels,
            lambda: {(zone,): float(size) for zone, (size, _) in unhealthy().items()},
        )
        Gauge(
            registry,
            "node_collector_unhealthy_nodes_in_zone",
            "Gauge measuring number of not Ready Nodes per zones.",
            labels,
            lambda: {(zone,): float(count) for zone, (_, count) in unhealthy().items()},
        )
        Gauge(
            registry,
            "node_collector_zone_health",
            "Gauge measuring percentage of healthy nodes per zone.",
            labels,
            lambda: {(zone,): 100.0 * (size - count) / max(size, 1) for zone, (size, count) in unhealthy().items()},
        )
        text = "Number of Node evictions that happened since current instance of NodeController started."
        return Counter(registry, "node_collector_evictions", text, labels)

    # --- changes ---

    def _notice_node(self, change: Change[Node]) -> None:
        if change.new is None:
            self._health.pop(change.key, None)
            self._due.discard(change.key)
            self._tell(removed(change.object))
            return
        if change.old is None and not change.is_initial:
            self._tell(registered(change.new))
        self._controller.queue.add((_Task.SETTLE, change.key))

    def _notice_pod(self, change: Change[Pod]) -> None:
        new, old = change.new, change.old
        if new is None or not new.spec.node_name or (old is not None and old.spec.node_name == new.spec.node_name):
            return
        node = self._nodes.cache.get(new.spec.node_name)
        if node is not None and ready_status(node) == "Unknown":
            self._controller.queue.add((_Task.SETTLE, new.spec.node_name))

    def _tell(self, event: Emit) -> None:
        self._controller.events.record(event.regarding, event.type, event.reason, event.action, event.note)

    # --- periodically ---

    async def _monitor(self) -> None:
        while True:
            await self._look_around()
            await self._clock.sleep(self._settings.period_s)

    async def _look_around(self) -> None:
        queue = self._controller.queue
        nodes = self._nodes.cache.items()
        for count, (name, node) in enumerate(nodes, 1):
            if count % _NODES_PER_TICK == 0:
                await asyncio.sleep(0)
            now_s = self._clock.monotonic()
            created_s = now_s - self._age_s(node)
            health = observed(self._health.get(name), node, self._renewed(name), now_s, created_s)
            self._health[name] = health
            if is_silent(health, node, now_s, self._settings) and needs_silencing(node):
                queue.add((_Task.SILENCE, name))
        was_halted = self._zones.is_halted
        self._zones.update(node for _, node in nodes)
        self._due.update(self._zones.next(self._clock.monotonic()))
        for name in [name for name, _ in nodes] if self._zones.is_halted and not was_halted else sorted(self._due):
            queue.add((_Task.SETTLE, name))

    def _age_s(self, node: Node) -> float:
        created = node.metadata.creation_timestamp
        return 0.0 if created is None else max(0.0, self._clock.seconds() - datetime.fromisoformat(created).timestamp())

    def _renewed(self, name: str) -> str:
        lease = self._leases.cache.get(f"{LEASE_NAMESPACE}/{name}")
        return str((lease.get("spec") or {}).get("renewTime") or "") if lease is not None else ""

    def _reconcile(self, key: _Key, answers: Answers) -> Sequence[Action]:
        task, name = key
        node = self._nodes.cache.get(name)
        if node is None:
            return ()
        if task is _Task.SILENCE:
            health = self._health.get(name)
            if health is None or not is_silent(health, node, self._clock.monotonic(), self._settings):
                return ()
            return silence(node, health, answers, self._clock.now()) if needs_silencing(node) else ()
        pods = self._pods.cache.by_index(BY_NODE, name) if ready_status(node) == "Unknown" else ()
        evicts = name in self._due
        actions = reconcile(node, pods, self._clock.now(), evicts=evicts, halted=self._zones.is_halted)
        if not actions and evicts:
            self._due.discard(name)
            if evicting(node):
                self._evictions.add(zone_of(node))
        return actions


def make(services: Services) -> NodeLifecycle:
    """The controller `node-lifecycle-controller`."""
    return NodeLifecycle(services)
