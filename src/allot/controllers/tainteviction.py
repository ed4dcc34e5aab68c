"""The taint eviction controller: a queue of pods, each reconciled when it or its node's taints change, or when its time is up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Delete, RequeueAfter, Write
from allot.core.lifecycle.node_taint_evictions import no_execute, reconcile
from allot.core.lifecycle.podgc import BY_NODE, node_of
from allot.core.model.core_v1 import Node, Pod
from allot.process.metrics import Counter

WORKERS = 8


class TaintEviction:
    """Evicts pods from tainted nodes."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._pods: Informer[Pod] = services.informers.typed(Pod, indexers={BY_NODE: node_of})
        self._nodes: Informer[Node] = services.informers.typed(Node)
        self._tainted: set[str] = set()
        self._planned: set[str] = set()
        self._deletions = Counter(
            services.metrics.registry,
            "taint_eviction_controller_pod_deletions",
            "Total number of Pods deleted by TaintEvictionController since its start.",
        )
        self._controller: Controller[str] = Controller(
            services,
            self._reconcile,
            queue_name="noexec_taint_pod",
            component="taint-eviction-controller",
            waits_for=(self._pods, self._nodes),
            concurrency=WORKERS,
            on_written=self._count,
        )
        self._nodes.add_handler(self._notice_node)
        self._pods.add_handler(self._notice_pod)

    async def run(self) -> None:
        """Evict until cancelled."""
        await self._controller.run()

    def _notice_node(self, change: Change[Node]) -> None:
        old = no_execute(change.old.spec.taints) if change.old is not None else ()
        new = no_execute(change.new.spec.taints) if change.new is not None else ()
        if old == new:
            return
        if new:
            self._tainted.add(change.key)
        else:
            self._tainted.discard(change.key)
        for pod in self._pods.cache.by_index(BY_NODE, change.key):
            self._controller.queue.add(f"{pod.metadata.namespace}/{pod.metadata.name}")

    def _notice_pod(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if new is None:
            self._planned.discard(change.key)
        elif new.spec.node_name in self._tainted and (
            old is None or old.spec.node_name != new.spec.node_name or old.spec.tolerations != new.spec.tolerations
        ):
            self._controller.queue.add(change.key)

    def _count(self, action: Write, after: dict[str, Any] | None, error: ApiError | None) -> None:  # noqa: ARG002
        if isinstance(action, Delete) and error is None:
            self._deletions.add()

    def _reconcile(self, key: str, answers: Answers) -> Sequence[Action]:  # noqa: ARG002 - it asks nothing
        pod = self._pods.cache.get(key)
        if pod is None or not pod.spec.node_name:
            return ()
        node = self._nodes.cache.get(pod.spec.node_name)
        actions = reconcile(pod, node, key in self._planned, self._clock.seconds(), self._clock.now())
        if any(isinstance(action, RequeueAfter) for action in actions):
            self._planned.add(key)
        else:
            self._planned.discard(key)
        return actions


def make(services: Services) -> TaintEviction:
    """The controller `taint-eviction-controller`."""
    return TaintEviction(services)
