"""A control plane per test module (SQLite, controllers, scheduler, nodes that only pretend), a world per test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from allot.apiserver.assembly import Settings
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane, control_plane
from allot.core.features import DEFAULT_GATES
from allot.store.sqlite import SqliteStore
from e2e.scheduling.world import World
from fake_node import FakeNodes

_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """Everything in this process, on a database in a file. A module may name gates (GATES) to switch on."""
    folder: Path = tmp_path_factory.mktemp("plane")
    gates = DEFAULT_GATES.changed(enable=getattr(request.module, "GATES", ()))
    settings = Settings(directory=folder / "pki", port=0, gates=gates)
    async with control_plane(settings, SqliteStore(folder / "state.db")) as plane:
        start_controllers(plane)
        start_scheduler(plane)
        nodes = FakeNodes(plane.client(), plane.informers)
        plane.start("fake nodes", nodes.run)
        yield plane


@pytest_asyncio.fixture(loop_scope="module")
async def world(plane: ControlPlane) -> AsyncIterator[World]:
    """A namespace of its own."""
    made = World(plane.client(), f"w{next(_numbers)}")
    await made.begin()
    yield made
    await made.end()
