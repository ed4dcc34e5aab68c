"""The resize of one pod: the requested resources, what its node has allocated, what each container runs with, and the reported status.

The pod's status has everything that an agent needs after a restart: the resources of its containers and two conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from allot.core.lifecycle.pods import RUNNING, Record, Resize, Seen
from allot.core.lifecycle.resizing import (
    DEFERRED,
    ERROR,
    RESIZE_IN_PROGRESS,
    RESIZE_PENDING,
    Allocation,
    asked_for,
    condition,
    condition_of,
    differs,
    effective,
    remembered,
    shrinks,
    summary,
    whole,
    with_allocation,
)
from allot.core.model.core_v1 import PodCondition, ResourceRequirements
from allot.core.model.pods_v1 import RunnablePod
from allot.node.admission import Admission
from allot.node.reports import Reports
from allot.node.runtimes.port import Runtime, RuntimeFailure


class Resizes:
    """asked: the pod as in the API. allocation: what its node has allocated."""

    def __init__(self, pod: RunnablePod, admission: Admission, reports: Reports, wake: Callable[[], None]) -> None:
        self.asked = pod
        self.allocation: Allocation = remembered(pod) if pod.status.start_time is not None else asked_for(pod)
        self._admission = admission
        self._reports = reports
        self._wake = wake
        self._pending = condition_of(pod, RESIZE_PENDING)
        self._progress = condition_of(pod, RESIZE_IN_PROGRESS)
        # By container id.
        self._actuated: dict[str, ResourceRequirements] = {}
        self._restarting: set[str] = set()
        # What the pod as a whole was last given; None if this agent has not given it anything.
        self._settled: ResourceRequirements | None = None

    @property
    def conditions(self) -> tuple[PodCondition, ...]:
        """The progress of the resize."""
        return tuple(each for each in (self._pending, self._progress) if each is not None)

    @property
    def restarting(self) -> frozenset[str]:
        """Containers that were stopped to restart with other resources."""
        return frozenset(self._restarting)

    def look(self) -> bool:
        """Compare requested and allocated resources, and allocate if there is room; returns whether something has changed."""
        asked = asked_for(self.asked)
        if not asked.differs(self.allocation):
            self.allocation = asked
            self._pending = None
            return False
        generation = self.asked.metadata.generation
        rejection = self._admission.resize(self.asked, self._wake)
        if rejection is not None:
            self._defer(rejection.reason, rejection.message, generation)
            return False
        before = with_allocation(self.asked, self.allocation)
        self.allocation = asked
        self._pending = None
        self._progress = condition(RESIZE_IN_PROGRESS, generation)
        self._reports.tell(self.asked, "Normal", "ResizeStarted", summary("started", self.asked, generation))
        if shrinks(before, self.asked):
            self._admission.freed(self.asked.spec.node_name)
        return True

    def _defer(self, reason: str, message: str, generation: int) -> None:
        before = self._pending
        self._pending = condition(RESIZE_PENDING, generation, DEFERRED, message)
        if before is None or (before.reason, before.observed_generation) != (DEFERRED, generation):
            text = summary(reason, self.asked, generation, message)
            self._reports.tell(self.asked, "Warning", "ResizeDeferred", text)

    # --- containers ---

    def actuated(
        self, records: Mapping[str, tuple[Record, ...]], written: Mapping[str, Any]
    ) -> Mapping[str, ResourceRequirements]:
        """The actual resources of running containers. For a container of an earlier agent, its status has them."""
        running = {found[0].id: name for name, found in records.items() if found[0].state == RUNNING}
        for id_, name in running.items():
            if id_ not in self._actuated:
                self._actuated[id_] = self._told(id_, name, written)
        newest = {found[0].id for found in records.values()}
        self._actuated = {id_: each for id_, each in self._actuated.items() if id_ in newest}
        self._restarting &= newest
        return self._actuated

    def _told(self, id_: str, name: str, written: Mapping[str, Any]) -> ResourceRequirements:
        statuses = (*self.asked.status.init_container_statuses, *self.asked.status.container_statuses)
        raw = (*(written.get("initContainerStatuses") or ()), *(written.get("containerStatuses") or ()))
        is_same = any(str(each.get("containerID", "")).endswith(f"//{id_}") for each in raw)
        told = next((each.resources for each in statuses if each.name == name), None)
        if not is_same or told is None:
            told = self.allocation.containers.get(name, ResourceRequirements())
        return effective(told, self.allocation.pod)

    async def check_memory(
        self, runtime: Runtime, step: Resize, wanted: ResourceRequirements, limit: int | None
    ) -> None:
        """RuntimeFailure if a container uses more memory than its new limit: it would be killed. limit: with what claims add."""
        running, asked = (each.limits.get("memory") for each in (self._actuated[step.id], wanted))
        if limit is None or asked is None or (running is not None and asked >= running):
            return
        used = next((each.memory_bytes for each in await runtime.usage() if each.id == step.id), 0)
        if used > limit:
            text = f'attempting to set container "{step.name}" memory limit ({limit}) below current usage ({used})'
            raise RuntimeFailure("ResizeContainerError", f"cannot decrease memory limits: {text}")

    def done(self, container_id: str, resources: ResourceRequirements) -> None:
        """A container runs, or will run, with the allocated resources."""
        self._actuated[container_id] = resources

    def is_settled(self, pod: RunnablePod) -> bool:
        """Whether the pod as a whole has been given its allocated resources."""
        return self._settled is not None and not differs(self._settled, whole(pod))

    @property
    def settled(self) -> ResourceRequirements | None:
        """What the pod as a whole runs with; None if unknown."""
        return self._settled

    def settle(self, pod: RunnablePod) -> None:
        """The pod as a whole has its allocated resources."""
        self._settled = whole(pod)

    def restarts(self, container_id: str) -> None:
        """A container is stopped to restart with other resources."""
        self._restarting.add(container_id)

    def fail(self, message: str, pod: RunnablePod) -> None:
        """A container could not get the allocated resources."""
        before = self._progress
        generation = self.asked.metadata.generation if before is None else before.observed_generation
        self._progress = condition(RESIZE_IN_PROGRESS, generation, ERROR, message)
        if before is None or before.message != message:
            self._reports.tell(pod, "Warning", "ResizeError", summary("error", pod, generation, message))

    def finish(self, seen: Seen, pod: RunnablePod) -> None:
        """Report when all containers run with the allocated resources."""
        if self._progress is None:
            return
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            record = seen.newest(container.name)
            if record is None:
                continue
            if record.id in self._restarting:
                return
            running = self._actuated.get(record.id) if record.state == RUNNING else None
            if running is not None and differs(effective(container.resources, pod.spec.resources), running):
                return
        if seen.sandbox and not self.is_settled(pod):
            return
        generation, self._progress = self._progress.observed_generation, None
        self._reports.tell(pod, "Normal", "ResizeCompleted", summary("completed", pod, generation))
