"""The composition of a control plane: an API server on a store, and the components that run beside it.

The only place that combines the API server and its clients in one process. Components interact only through the API: each has a
client with its own user, and all share one set of informers, so that each object is decoded once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

import msgspec

from allot.apiserver.assembly import Running, Settings, running
from allot.apiserver.request import User
from allot.client.api import Client
from allot.client.informers import Informers
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR, CONTROLLERS
from allot.process.clock import Clock, SystemClock
from allot.process.ids import Ids, SystemIds
from allot.process.supervise import supervise
from allot.store.port import Store

# The component of the current task; empty outside components.
running_component = ContextVar("running_component", default="")


class ComponentRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a component. started_at: the last time, in seconds since 1970."""

    started_at: float
    restarts: int


class ControlPlane:
    """An API server in this process, and the components beside it."""

    def __init__(self, server: Running, settings: Settings, clock: Clock, ids: Ids, tasks: asyncio.TaskGroup) -> None:
        self.server = server
        self.settings = settings
        self.clock = clock
        self.ids = ids
        # One user with read access to everything reads for all components.
        self.informers = Informers(self.client(CONTROLLERS, "allot-informers"), clock, ids)
        self._tasks = tasks
        self._running: dict[str, asyncio.Task[None]] = {}
        # By the name of the component.
        self.runs: dict[str, ComponentRuns] = {}

    def client(self, user: User = ADMINISTRATOR, user_agent: str = "allot") -> Client:
        """A client with a user's permissions."""
        return client_of(self.server, user, user_agent)

    def start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        """Run a component until it is stopped; a failure is reported, and the component restarted."""
        assert name not in self._running, f"component {name} runs already"
        self._running[name] = self._tasks.create_task(self._supervise(name, run), name=name)

    async def _supervise(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        running_component.set(name)

        async def count_and_run() -> None:
            before = self.runs.get(name)
            restarts = before.restarts + 1 if before is not None else 0
            self.runs[name] = ComponentRuns(started_at=self.clock.seconds(), restarts=restarts)
            await run()

        await supervise(name, count_and_run, self.clock)

    async def stop(self, name: str) -> None:
        """End a component abruptly, as in a crash."""
        task = self._running.pop(name)
        task.cancel()
        await asyncio.wait([task])

    @property
    def components(self) -> tuple[str, ...]:
        """The running components, oldest first."""
        return tuple(self._running)

    async def stop_all(self) -> None:
        """Stop every component, newest first."""
        for name in reversed(self.components):
            await self.stop(name)


@asynccontextmanager
async def control_plane(
    settings: Settings, store: Store, *, clock: Clock | None = None, ids: Ids | None = None
) -> AsyncIterator[ControlPlane]:
    """A ready API server with running shared informers; components are started on it."""
    clock, ids = clock or SystemClock(), ids or SystemIds()
    async with running(settings, store, clock=clock, ids=ids) as server, asyncio.TaskGroup() as tasks:
        plane = ControlPlane(server, settings, clock, ids, tasks)
        plane.start("informers", plane.informers.run)
        try:
            yield plane
        finally:
            await plane.stop_all()
