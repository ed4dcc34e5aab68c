"""Probes: has a container started, is it alive, is it ready? One task per probe and container, while the container runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from allot.core.model.containers_v1 import Probe, RunnableContainer
from allot.node.actions import ActionFailure, Actions
from allot.process.clock import Clock
from allot.process.ids import Ids

# However fast time passes.
_SHORTEST_S = 0.2
STARTUP, LIVENESS, READINESS = "Startup", "Liveness", "Readiness"


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a probe; success is None while undecided."""

    kind: str
    container: str
    container_id: str
    success: bool


class ProbeReports(msgspec.Struct, frozen=True, kw_only=True):
    """The listener of probes: changed results, and each failure with its text."""

    changed: Callable[[Answer], None]
    failed: Callable[[str, str, str], None]


class Prober:
    """The probes of one running container."""

    def __init__(
        self,
        actions: Actions,
        clock: Clock,
        ids: Ids,
        container: RunnableContainer,
        container_id: str,
        address: str,
        reports: ProbeReports,
        time_factor: float = 1.0,
    ) -> None:
        """time_factor: how many times faster probes run, on a simulated node."""
        self._actions = actions
        self._clock = clock
        self._ids = ids
        self._container = container
        self._id = container_id
        self._address = address
        self._reports = reports
        self._time_factor = time_factor
        self._must_live = True

    def let_end(self) -> None:
        """The container is being stopped: only its readiness still matters, to its clients."""
        self._must_live = False

    async def run(self) -> None:
        """Run until cancelled: first the startup probe, then the others."""
        container = self._container
        if container.startup_probe is not None:
            await self._probe(STARTUP, container.startup_probe, until_success=True)
        async with asyncio.TaskGroup() as tasks:
            if container.liveness_probe is not None:
                tasks.create_task(self._probe(LIVENESS, container.liveness_probe))
            if container.readiness_probe is not None:
                tasks.create_task(self._probe(READINESS, container.readiness_probe))

    async def _probe(self, kind: str, probe: Probe, *, until_success: bool = False) -> None:
        await self._pause(probe.initial_delay_seconds)
        streak, last, told = 0, None, None
        while kind == READINESS or self._must_live:
            success, text = await self._ask(probe)
            if kind != READINESS and not self._must_live:
                return
            if not success:
                self._reports.failed(self._container.name, kind, text)
            streak = streak + 1 if success == last else 1
            last = success
            enough = probe.success_threshold if success else probe.failure_threshold
            if streak >= enough and told != success:
                told = success
                self._reports.changed(
                    Answer(kind=kind, container=self._container.name, container_id=self._id, success=success)
                )
                if success and until_success:
                    return
            await self._pause(max(probe.period_seconds, 1))

    async def _pause(self, seconds: int) -> None:
        shortest = min(seconds, _SHORTEST_S)
        await self._clock.sleep(max(seconds / self._time_factor, shortest))

    async def _ask(self, probe: Probe) -> tuple[bool, str]:
        timeout = float(max(probe.timeout_seconds, 1))
        try:
            if probe.exec is not None:
                return True, await self._actions.run_command(self._id, probe.exec.command, timeout)
            if probe.http_get is not None:
                return True, await self._actions.request(probe.http_get, self._container, self._address, timeout)
            if probe.tcp_socket is not None:
                return True, await self._actions.dial(probe.tcp_socket, self._container, self._address, timeout)
            if probe.grpc is not None:
                port, service = probe.grpc.port, probe.grpc.service
                return True, await self._actions.ask_health(port, service, self._address, timeout)
        except ActionFailure as error:
            return False, str(error)
        return False, "the probe says nothing to do"
