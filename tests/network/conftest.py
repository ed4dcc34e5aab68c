"""Networks for tests; skipped where the kernel allows none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from allot.network.namespace import NetworkRefused
from network.running import Pods, Running, running_network


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    try:
        async with running_network(tmp_path) as found:
            yield found
    except NetworkRefused as error:
        pytest.skip(str(error))


@pytest.fixture
async def pods(running: Running, tmp_path: Path) -> AsyncIterator[Pods]:
    made = Pods(tmp_path, running.client)
    await made.runtime.open()
    if not (await made.runtime.isolation()).is_on:
        pytest.skip("this machine allows no sandbox")
    yield made
    await made.close()
