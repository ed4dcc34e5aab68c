"""The pod garbage collector: periodically checks all pods, by indexes, and deletes some."""

from __future__ import annotations

from collections.abc import Sequence

from allot.client.informer import Informer
from allot.controllers.runner import Controller, Services
from allot.core.lifecycle.actions import Action, Answers, Delete
from allot.core.lifecycle.podgc import (
    BY_NODE,
    PERIOD_S,
    QUARANTINE_S,
    TERMINATED_MAX,
    Quarantine,
    Why,
    excess,
    node_of,
    reconcile,
    stages,
    stuck,
)
from allot.core.model.core_v1 import Node, Pod
from allot.process.metrics import Counter

WORKERS = 20
_Key = tuple[Why, str]


class PodGarbageCollector:
    """Deletes pods that no other component removes."""

    def __init__(
        self,
        services: Services,
        *,
        terminated_max: int = TERMINATED_MAX,
        period_s: float = PERIOD_S,
        quarantine_s: float = QUARANTINE_S,
    ) -> None:
        self._clock = services.clock
        self._terminated_max = terminated_max
        self._period_s = period_s
        self._quarantine = Quarantine(quarantine_s)
        indexers = {BY_NODE: node_of, "podgc": stages}
        self._pods: Informer[Pod] = services.informers.typed(Pod, indexers=indexers)
        self._nodes: Informer[Node] = services.informers.typed(Node)
        registry = services.metrics.registry
        self._deletions = Counter(
            registry,
            "pod_gc_collector_force_delete_pods",
            "Number of pods that are being forcefully deleted since the Pod GC Controller started.",
            ("namespace", "reason"),
        )
        self._controller: Controller[_Key] = Controller(
            services,
            self._reconcile,
            queue_name="orphaned_pods_nodes",
            component="pod-garbage-collector-controller",
            waits_for=(self._pods, self._nodes),
            concurrency=WORKERS,
            background=(self._look_around,),
        )

    async def run(self) -> None:
        """Collect until cancelled."""
        await self._controller.run()

    async def _look_around(self) -> None:
        while True:
            for why, pod in self._found():
                self._controller.queue.add((why, f"{pod.metadata.namespace}/{pod.metadata.name}"))
            await self._clock.sleep(self._period_s)

    def _found(self) -> list[tuple[Why, Pod]]:
        pods = self._pods.cache
        nodes = dict(self._nodes.cache.items())
        found = [(Why.TERMINATED, pod) for pod in excess(pods.by_index("podgc", "terminated"), self._terminated_max)]
        found += stuck(pods.by_index("podgc", "terminating"), nodes)
        for name in self._quarantine.over(pods.index_values(BY_NODE), nodes, self._clock.monotonic()):
            found += [(Why.ORPHANED, pod) for pod in pods.by_index(BY_NODE, name)]
        return found

    def _reconcile(self, key: _Key, answers: Answers) -> Sequence[Action]:
        why, name = key
        pod = self._pods.cache.get(name)
        if pod is None or (why is Why.ORPHANED and pod.spec.node_name in self._nodes.cache):
            return ()
        actions = reconcile(why, pod, answers, self._clock.now())
        if any(isinstance(action, Delete) for action in actions):
            self._deletions.add(pod.metadata.namespace, why.value)
        return actions


def make(services: Services) -> PodGarbageCollector:
    """The controller `pod-garbage-collector-controller`."""
    return PodGarbageCollector(services)
