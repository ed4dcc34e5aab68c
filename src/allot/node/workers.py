"""The workers of all pods of an agent: one per pod, from its first appearance to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from allot.client.informer import Change
from allot.core.model.core_v1 import Pod
from allot.node.pods import PodWorker, Services
from allot.node.static_pods import MIRROR
from allot.process.clock import Clock
from allot.process.supervise import supervise

Object = dict[str, Any]

_log = logging.getLogger("allot.node")


class PodWorkers:
    """Workers by uid: a recreated pod has two for a while. is_ours: whether a new pod gets one; mirror pods, which only represent something that
    runs elsewhere, never do."""

    def __init__(self, clock: Clock, is_ours: Callable[[Object], bool] = lambda _: True) -> None:
        self._clock = clock
        self._is_ours = is_ours
        self._by_uid: dict[str, PodWorker] = {}
        # The uids of the pods of each node: there may be thousands of both.
        self._on_node: dict[str, dict[str, None]] = {}
        self._services_of: Callable[[Object], Services] | None = None
        self._tasks: asyncio.TaskGroup | None = None

    def open(self, services_of: Callable[[Object], Services], tasks: asyncio.TaskGroup) -> None:
        """Start accepting pods. services_of: the services for the worker of a pod."""
        self._services_of, self._tasks = services_of, tasks

    @property
    def are_open(self) -> bool:
        """Whether pods are accepted."""
        return self._tasks is not None

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_uid)

    def get(self, uid: str) -> PodWorker | None:
        """The worker of a pod."""
        return self._by_uid.get(uid)

    def on_node(self, node: str) -> Collection[str]:
        """The uids of the pods of a node."""
        return self._on_node.get(node, {}).keys()

    def unfinished(self, uids: Iterable[str]) -> tuple[Pod, ...]:
        """Those of these pods that have not ended."""
        workers = (self._by_uid.get(uid) for uid in uids)
        pods = (worker.pod for worker in workers if worker is not None)
        return tuple(pod for pod in pods if pod.status.phase not in ("Succeeded", "Failed"))

    def wake(self, uid: str) -> None:
        """Something about a pod has changed."""
        worker = self._by_uid.get(uid)
        if worker is not None:
            worker.wake()

    def pod_changed(self, change: Change[Object]) -> None:
        """For an informer of pods."""
        worker = self._by_uid.get(change.object["metadata"]["uid"])
        if change.new is None:
            if worker is not None:
                worker.remove()
        elif worker is not None:
            worker.update(change.new)
        elif self._is_ours(change.new) and MIRROR not in change.new["metadata"].get("annotations", {}):
            self._start(change.new)

    def _start(self, pod: Object) -> None:
        assert self._services_of is not None and self._tasks is not None, "the agent runs"
        services = self._services_of(pod)
        try:
            worker = PodWorker(services, pod)
        except ValueError as error:
            _log.warning("pod %s: not understood: %s", pod["metadata"].get("name"), error)
            self._tasks.create_task(services.reports.reject(pod, str(error)))
            return
        uid = worker.pod.metadata.uid
        self._by_uid[uid] = worker
        self._on_node.setdefault(worker.pod.spec.node_name, {})[uid] = None
        self._tasks.create_task(self._look_after(worker))

    async def _look_after(self, worker: PodWorker) -> None:
        uid, node = worker.pod.metadata.uid, worker.pod.spec.node_name
        try:
            await supervise(f"pod {worker.pod.key}", worker.run, self._clock)
        finally:
            if self._by_uid.get(uid) is worker:
                del self._by_uid[uid]
                self._leave(node, uid)

    def _leave(self, node: str, uid: str) -> None:
        there = self._on_node[node]
        del there[uid]
        if not there:
            del self._on_node[node]
