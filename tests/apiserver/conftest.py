"""Servers for tests. `server` is in memory; `any_server` is one test per store."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from allot.apiserver.kinds.stored_forms import read_stored
from allot.store.etcd import EtcdStore
from allot.store.etcd_client import EtcdOptions
from allot.store.memory import MemoryStore
from allot.store.port import Store
from allot.store.sqlite import SqliteStore
from apiserver.live import LiveServer, live_server
from apiserver.webhook_server import Webhook, webhook_server
from etcd_server import MISSING, EtcdServer, find_etcd

_prefixes = itertools.count()


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd for all tests that want one."""
    if find_etcd() is None:
        pytest.skip(MISSING)
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server that keeps objects in memory."""
    async with live_server(tmp_path, MemoryStore()) as live:
        yield live


@pytest_asyncio.fixture(params=["memory", "sqlite", pytest.param("etcd", marks=pytest.mark.slow)])
async def any_server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LiveServer]:
    """A server on each of the stores."""
    store: Store
    if request.param == "memory":
        store = MemoryStore()
    elif request.param == "sqlite":
        store = SqliteStore(tmp_path / "state.db")
    else:
        etcd: EtcdServer = request.getfixturevalue("etcd_server")
        # A folder of keys for each test.
        store = EtcdStore(EtcdOptions(servers=(etcd.address,), prefix=f"/apiserver{next(_prefixes)}"), read_stored)
    async with live_server(tmp_path, store) as live:
        yield live


@pytest_asyncio.fixture
async def webhook(tmp_path: Path) -> AsyncIterator[Webhook]:
    """A webhook on loopback."""
    async with webhook_server(tmp_path) as hook:
        yield hook
