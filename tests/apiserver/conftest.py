"""Servers for tests. `server` is in memory; `any_server` is one test per store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from allot.store.memory import MemoryStore
from allot.store.sqlite import SqliteStore
from apiserver.live import LiveServer, live_server


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server that keeps objects in memory."""
    async with live_server(tmp_path, MemoryStore()) as live:
        yield live


@pytest_asyncio.fixture(params=["memory", "sqlite"])
async def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server on each of the stores that need nothing else."""
    store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "state.db")
    async with live_server(tmp_path, store) as live:
        yield live
