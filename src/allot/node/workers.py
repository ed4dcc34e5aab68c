"""The workers of all pods that an agent looks after: one per pod, from its first appearance to its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

from allot.client.informer import Change
from allot.node.pods import PodWorker, Services
from allot.node.static_pods import MIRROR
from allot.process.clock import Clock
from allot.process.supervise import supervise

Object = dict[str, Any]

_log = logging.getLogger("allot.node")


class PodWorkers:
    """By uid: a pod that was deleted and made anew has two workers for a while. is_ours: whether a new pod gets one; mirror pods,
    which only tell of something that runs otherwise, never do."""

    def __init__(self, clock: Clock, is_ours: Callable[[Object], bool] = lambda _: True) -> None:
        self._clock = clock
        self._is_ours = is_ours
        self._by_uid: dict[str, PodWorker] = {}
        self._services_of: Callable[[Object], Services] | None = None
        self._tasks: asyncio.TaskGroup | None = None

    def open(self, services_of: Callable[[Object], Services], tasks: asyncio.TaskGroup) -> None:
        """From now on pods can be told of. services_of: what the worker of a pod works with."""
        self._services_of, self._tasks = services_of, tasks

    @property
    def are_open(self) -> bool:
        """Whether pods can be told of."""
        return self._tasks is not None

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_uid)

    def get(self, uid: str) -> PodWorker | None:
        """The worker of a pod."""
        return self._by_uid.get(uid)

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
        try:
            worker = PodWorker(self._services_of(pod), pod)
        except ValueError as error:
            _log.warning("pod %s: not understood: %s", pod["metadata"].get("name"), error)
            return
        self._by_uid[worker.pod.metadata.uid] = worker
        self._tasks.create_task(self._look_after(worker))

    async def _look_after(self, worker: PodWorker) -> None:
        uid = worker.pod.metadata.uid
        try:
            await supervise(f"pod {worker.pod.key}", worker.run, self._clock)
        finally:
            if self._by_uid.get(uid) is worker:
                del self._by_uid[uid]
