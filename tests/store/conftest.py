"""Each kind of store, opened, for the tests that all of them have to pass."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from allot.store.etcd import EtcdStore
from allot.store.etcd_client import EtcdOptions
from allot.store.memory import MemoryStore
from allot.store.port import Store
from allot.store.sqlite import SqliteStore
from allot.store.timeline import Limits
from etcd_server import MISSING, EtcdServer, find_etcd

_prefixes = itertools.count()


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    if find_etcd() is None:
        pytest.skip(MISSING)
    with EtcdServer(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "etcd"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    limits = Limits(buffer_max=10, progress_s=0.05)
    made: Store
    if request.param == "memory":
        made = MemoryStore(limits)
    elif request.param == "sqlite":
        made = SqliteStore(tmp_path / "store.db", limits)
    else:
        server: EtcdServer = request.getfixturevalue("etcd_server")
        # A folder of keys for each test; revisions go on from the test before.
        made = EtcdStore(EtcdOptions(servers=(server.address,), prefix=f"/test{next(_prefixes)}", progress_s=0.05))
    await made.open()
    yield made
    await made.close()
