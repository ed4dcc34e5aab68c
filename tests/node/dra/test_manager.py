"""Claims are prepared before pods start and given back when they have ended, whatever happens in between."""

from __future__ import annotations

from pathlib import Path

from node.dra.node import node, registered


async def test_a_claim_is_prepared_once_and_given_back_once(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as manager:
        driver = await here.driver()
        await registered(manager)
        pod = await here.pod("p", "a")
        uid = await here.uid_of("a")
        await manager.prepare(pod)
        await manager.prepare(pod)
        assert driver.asked("NodePrepareResources") == [(uid,)]
        assert manager.cdi_devices(pod, "c") == (f"gpu.example.com/claim={uid}-0",)
        await manager.unprepare(pod)
        await manager.unprepare(pod)
        assert driver.asked("NodeUnprepareResources") == [(uid,)]
        assert here.state() == []
