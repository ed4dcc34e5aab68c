"""ResourceSlices of drivers that are away are deleted, others are not (scenarios 88 to 91)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.transport import Response
from allot.node.dra.slices import SliceWiper
from allot.process.clock import ManualClock
from allot.process.ids import SystemIds
from node.dra.node import NODE, QUICK, node, registered
from node.dra.plugin import DriverOnSockets
from waiting import until

SOON = msgspec.structs.replace(QUICK, wipe_s=0.2)


async def test_a_new_agent_deletes_the_slices_of_its_own_node_only(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        await here.slice("own")
        await here.slice("other", node="node-2")
        async with here.running():
            await until(lambda: _are(here, ["other"]))


@pytest.mark.slow
async def test_slices_go_some_time_after_their_driver(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running(SOON) as preparer:
        driver = await here.driver()
        await registered(preparer)
        await here.slice("gone")
        await here.slice("stays", driver="other.example.com")
        await driver.stop()
        await until(lambda: _are(here, ["stays"]))


@pytest.mark.slow
async def test_slices_of_a_driver_that_registers_and_never_serves_go(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running(SOON) as preparer:
        driver = DriverOnSockets(here.root)
        here.drivers.append(driver)
        await driver.start_registration()
        await until(lambda: preparer.plugins.drivers())
        await here.slice("idle")
        await until(lambda: _are(here, []))


async def test_a_driver_that_is_away_for_a_moment_keeps_its_slices() -> None:
    clock = ManualClock()
    asked: list[str] = []
    wiper = SliceWiper(_recording(asked), NODE, clock, SystemIds())
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(wiper.run())
        await _pass(clock, 5)
        wiper.driver_changed("gpu.example.com", False)
        await _pass(clock, 29)
        wiper.driver_changed("gpu.example.com", True)
        await _pass(clock, 60)
        assert asked == [f"spec.nodeName={NODE}"]
        wiper.driver_changed("gpu.example.com", False)
        await _pass(clock, 10)
        # It is the first word that counts.
        wiper.driver_changed("gpu.example.com", False)
        await _pass(clock, 21)
        assert asked[1:] == [f"spec.nodeName={NODE},spec.driver=gpu.example.com"]
        task.cancel()


async def test_deleting_goes_on_until_the_server_is_there_or_the_driver_is_back() -> None:
    clock = ManualClock()
    asked: list[str] = []
    wiper = SliceWiper(_recording(asked, failures=3), NODE, clock, SystemIds(), delay_s=1)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(wiper.run())
        await _pass(clock, 30)
        assert asked == [f"spec.nodeName={NODE}"] * 4
        asked.clear()
        wiper = SliceWiper(_recording(asked, failures=1000), NODE, clock, SystemIds(), delay_s=1)
        wiper.driver_changed("gpu.example.com", False)
        other = tasks.create_task(wiper.run())
        await _pass(clock, 4)
        assert any("spec.driver" in each for each in asked)
        wiper.driver_changed("gpu.example.com", True)
        await _pass(clock, 20)
        asked.clear()
        await _pass(clock, 400)
        assert asked
        assert not any("spec.driver" in each for each in asked)
        task.cancel()
        other.cancel()


async def _are(here: Any, names: list[str]) -> bool:
    return await here.slices() == names


async def _pass(clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds * 2):
        clock.advance(0.5)
        for _ in range(5):
            await asyncio.sleep(0)


class _Recording:
    """A transport that remembers the selectors of requests, of which the first fail."""

    def __init__(self, asked: list[str], failures: int) -> None:
        self._asked = asked
        self._failures = failures

    async def request(self, method: str, path: str, query: Any = None, *_: Any, **__: Any) -> Response:
        assert (method, path) == ("DELETE", "/apis/resource.k8s.io/v1/resourceslices")
        self._asked.append(query["fieldSelector"])
        if self._failures:
            self._failures -= 1
            raise ApiError("the server is away")
        return Response(200, {}, {"kind": "Status"})


def _recording(asked: list[str], failures: int = 0) -> Client:
    return Client(_Recording(asked, failures))  # type: ignore[arg-type]
