"""An agent that is killed at any moment knows afterwards what its drivers hold."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from allot.process.ids import SystemIds
from node.dra import killed_agent
from node.dra.node import QUICK, node
from waiting import until

ROUNDS = 4


@pytest.mark.slow
async def test_nothing_is_prepared_that_a_killed_agent_does_not_know(tmp_path: Path) -> None:
    ids = SystemIds()
    async with node(tmp_path) as here:
        driver = await here.driver()
        second = await here.driver("nic.example.com")
        kubeconfig, pods = tmp_path / "kubeconfig", tmp_path / "pods.json"
        here.cluster.server.access.write_admin_kubeconfig(kubeconfig, here.cluster.server.url)
        # Some have claims of their own, some share one, some have two drivers.
        made = [await here.pod(f"own-{number}", f"own-{number}") for number in range(4)]
        made += [await here.pod(f"shares-{number}", "shared") for number in range(3)]
        both = [driver.name, second.name]
        made += [await here.pod(f"both-{number}", f"both-{number}", drivers=both) for number in range(3)]
        pods.write_bytes(msgspec.json.encode(made))

        async def slow(_: str, __: Any, answer: Any) -> Any:
            await asyncio.sleep(0.01 * ids.jitter())
            return answer()

        driver.around = second.around = slow
        for _ in range(ROUNDS):
            calls = len(driver.calls)
            agent = await asyncio.create_subprocess_exec(
                sys.executable, killed_agent.__file__, str(here.root), str(kubeconfig), str(pods)
            )
            await until(lambda calls=calls: len(driver.calls) > calls + 10)
            await asyncio.sleep(0.1 * ids.jitter())
            agent.kill()
            await agent.wait()
            # Calls that were on their way arrive.
            await asyncio.sleep(0.03)
            known = {claim["ClaimUID"]: claim["DriverState"] for claim in here.state()}
            for each in (driver, second):
                assert all(each.name in known[uid] for uid in each.prepared)
        here.active = set()
        driver.around = second.around = None
        async with here.running(msgspec.structs.replace(QUICK, reconcile_s=0.02)) as preparer:
            await until(lambda: not preparer.records)
        assert (driver.prepared, second.prepared, here.state()) == (set(), set(), [])
