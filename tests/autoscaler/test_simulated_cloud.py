"""The simulated cloud: what it makes, what it refuses, and that it forgets no machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from allot.autoscaler.provider import NodeName, ProviderError, State
from allot.autoscaler.simulated_cloud import SimulatedCloud, Window
from allot.process.clock import ManualClock
from autoscaler.cloud_world import pools_of


class Recorded:
    """Machines as they came and went."""

    def __init__(self) -> None:
        self.there: dict[str, bool] = {}

    async def start(self, _pool: str, name: str, _provider_id: str) -> None:
        """Without devices."""
        self.there[name] = False

    async def publish(self, name: str) -> None:
        """With them."""
        self.there[name] = True

    async def stop(self, name: str) -> None:
        """Gone."""
        self.there.pop(name, None)


class Town:
    """A cloud on a clock that is moved by hand."""

    def __init__(self, folder: Path, *texts: str, machines: Recorded | None = None, **options: Any) -> None:
        changes = {name: options.pop(name) for name in list(options) if name not in ("seed", "factor", "quota")}
        self.clock = ManualClock()
        self.machines = machines or Recorded()
        self.cloud = SimulatedCloud(
            pools_of(*texts, **{"boot_s": 40.0, "driver_s": 20.0, **changes}),
            self.machines,
            self.clock,
            folder / "cloud.json",
            **options,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Time passes only by `after`."""
        task = asyncio.create_task(self.cloud.run())
        try:
            await asyncio.sleep(0)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def after(self, seconds: float) -> None:
        """Let time pass in small steps."""
        for _ in range(20):
            self.clock.advance(seconds / 20)
            for _ in range(10):
                await asyncio.sleep(0)


async def test_nodes_come_after_their_time_and_devices_later(tmp_path: Path) -> None:
    """As fast as the factor says."""
    town = Town(tmp_path, "p=g2-standard-4,max=3", factor=10.0)
    async with town.running():
        await town.cloud.increase("p", 1)
        await town.after(3.5)
        assert not town.machines.there
        await town.after(1.0)
        assert list(town.machines.there.values()) == [False]
        await town.after(2.5)
        assert list(town.machines.there.values()) == [True]
        (instance,) = await town.cloud.instances("p")
        assert instance.state is State.RUNNING
        await town.cloud.delete("p", [NodeName(provider_id=instance.id, name="")])
        await town.after(0.1)
        assert not town.machines.there and not await town.cloud.instances("p")


async def test_stock_windows_quota_and_bounds(tmp_path: Path) -> None:
    """Machines that cannot be had are there with an error, as clouds have it."""
    town = Town(tmp_path, "p=g2-standard-4,max=9", windows=(Window(0.0, 100.0, 1),), quota=3)
    await town.cloud.increase("p", 2)
    assert [each.error_code for each in await town.cloud.instances("p")] == ["", "OUT_OF_STOCK"]
    town.clock.advance(200)
    await town.cloud.increase("p", 3)
    codes = [each.error_code for each in await town.cloud.instances("p")]
    assert codes == ["", "OUT_OF_STOCK", "", "", "QUOTA_EXCEEDED"]
    assert all(each.is_out_of_resources for each in await town.cloud.instances("p") if each.error_code)
    with pytest.raises(ProviderError, match="10 machines, expected at most 9"):
        await town.cloud.increase("p", 5)
    with pytest.raises(ProviderError, match="there is no pool q"):
        await town.cloud.target_size("q")
    with pytest.raises(ProviderError, match="there is no machine x"):
        await town.cloud.delete("p", [NodeName(provider_id="simulated://p/x", name="x")])


async def test_spot_machines_are_taken_back(tmp_path: Path) -> None:
    """Sooner or later; the pool wants fewer then."""
    town = Town(tmp_path, "p=g2-standard-4,max=3,spot", reclaims_per_hour=60.0, boot_s=0.0)
    async with town.running():
        await town.cloud.increase("p", 2)
        await town.after(1.0)
        assert len(town.machines.there) == 2
        for _ in range(60):
            await town.after(60.0)
        assert not town.machines.there
        assert await town.cloud.target_size("p") == 0


async def test_the_same_seed_gives_the_same_faults(tmp_path: Path) -> None:
    """And another seed others."""

    async def codes(seed: int) -> list[str]:
        folder = tmp_path / f"{seed}-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        town = Town(folder, "p=g2-standard-4,max=40", failing=0.5, seed=seed)
        await town.cloud.increase("p", 40)
        return [each.error_code for each in await town.cloud.instances("p")]

    assert await codes(1) == await codes(1)
    assert await codes(1) != await codes(2)


async def test_a_cloud_that_is_killed_knows_its_machines_again(tmp_path: Path) -> None:
    """Nodes come back under their names; machines of pools that are no more go."""
    first = Town(tmp_path, "p=g2-standard-4,initial=1", "q=g2-standard-4,initial=1", boot_s=0.0, driver_s=0.0)
    async with first.running():
        await first.after(1.0)
        names = set(first.machines.there)
        assert len(names) == 2
    second = Town(tmp_path, "p=g2-standard-4,initial=1", boot_s=0.0, driver_s=0.0)
    second.machines.there = dict.fromkeys(names, True)
    async with second.running():
        await second.after(1.0)
        assert set(second.machines.there) == {name for name in names if name.startswith("p-")}
        assert await second.cloud.target_size("p") == 1


async def test_a_pool_that_is_offered_is_made_when_it_is_asked_for_and_goes_with_its_last_machine(
    tmp_path: Path,
) -> None:
    """It is remembered as long as there are machines of it, whatever is offered then."""
    town = Town(tmp_path)
    offered = [replace(each, origin=f"of {each.name}") for each in pools_of("nap=n2-standard-4,max=3")]
    town.cloud.offer(offered)
    async with town.running():
        assert [group.id for group in await town.cloud.groups()] == ["nap"]
        assert not town.cloud.made_before
        await town.cloud.increase("nap", 1)
        town.cloud.offer([])
        assert [group.id for group in await town.cloud.groups()] == ["nap"]
    again = Town(tmp_path)
    assert again.cloud.made_before == {"nap": "of nap"}
    again.cloud.put(offered[0])
    async with again.running():
        (instance,) = await again.cloud.instances("nap")
        await again.cloud.delete("nap", [NodeName(provider_id=instance.id, name="")])
        await again.after(1.0)
        await again.cloud.refresh()
        assert not await again.cloud.groups()
        assert not again.cloud.made_before
        again.cloud.offer(offered)
        await again.cloud.increase("nap", 2)
        assert len(await again.cloud.instances("nap")) == 2
