"""A site of processes per worker; a world with a namespace of its own per test."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from allot.client.api import Client
from e2e.scenarios.site import Site, client_of
from e2e.scenarios.world import World

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Processes that all tests of a worker share. Their sockets need short paths."""
    with tempfile.TemporaryDirectory(prefix="s-") as folder, Site(Path(folder)) as made:
        yield made


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def client(site: Site) -> AsyncIterator[Client]:
    """With all rights."""
    made = client_of(site.kubeconfig)
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="session")
async def world(site: Site, client: Client) -> AsyncIterator[World]:
    """A namespace of its own, and nothing left on the nodes when the test is over."""
    site.start_again()
    made = World(client, site, f"w{next(_numbers)}")
    await made.begin()
    yield made
    await made.end()
