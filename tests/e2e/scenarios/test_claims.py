"""Scenarios 99 to 102: claims are released when pods are over."""

from __future__ import annotations

import pytest

from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]


async def test_99_a_shared_claim_is_deallocated_when_its_last_pod_is_gone(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("shared")
    for name in ("p1", "p2"):
        await world.pod(name, claims={"gpu": "shared"})
    await world.running("p1", "p2")
    await world.delete_pod("p1")

    async def reserved_for_one() -> bool:
        status = (await world.get("resourceclaims", "shared"))["status"]
        return [entry["name"] for entry in status["reservedFor"]] == ["p2"] and bool(status["allocation"])

    await world.until(reserved_for_one, "the release by the first pod")
    await world.delete_pod("p2")

    async def free() -> bool:
        claim = await world.get("resourceclaims", "shared")
        return not (claim.get("status") or {}).get("allocation") and not claim["metadata"].get("finalizers")

    await world.until(free, "the deallocation")


async def test_99_a_pod_that_has_finished_holds_nothing(world: World) -> None:
    await world.gpus("n1", 1)
    await world.device_class()
    await world.claim("shared")
    await world.pod("p1", claims={"gpu": "shared"}, script="true", restartPolicy="Never")
    await world.in_phase("p1", "Succeeded")

    async def free() -> bool:
        return not ((await world.get("resourceclaims", "shared")).get("status") or {}).get("allocation")

    await world.until(free, "the deallocation")
    await world.no_claims_on(world.site.agents["n1"])


async def test_100_the_claim_of_a_pod_stays_while_the_pod_restarts_and_goes_when_it_is_done(world: World) -> None:
    driver = await world.gpus("n1", 1)
    await world.device_class()
    await world.template("single")
    first = world.folder / "first"
    over = world.folder / "over"
    script = f"[ -e {first} ] || {{ touch {first}; exit 1; }}; while [ ! -e {over} ]; do sleep 0.05; done"
    await world.pod("p1", templates={"gpu": "single"}, script=script, sees_folder=True, restartPolicy="OnFailure")
    uid = (await world.claim_of("p1", "gpu"))["metadata"]["uid"]

    async def restarted() -> bool:
        states = (await world.get("pods", "p1")).get("status", {}).get("containerStatuses") or [{}]
        return states[0].get("restartCount") == 1 and "running" in states[0]["state"]

    await world.until(restarted, "the restart")
    claim = await world.claim_of("p1", "gpu")
    assert claim["metadata"]["uid"] == uid and claim["status"]["allocation"] and claim["status"]["reservedFor"]
    assert len(driver.said("prepare")) == 1 and not driver.said("unprepare")
    over.touch()
    await world.in_phase("p1", "Succeeded")
    await world.gone("resourceclaims", claim["metadata"]["name"])


async def test_101_and_102_pods_that_come_and_go_leave_nothing_behind(world: World) -> None:
    driver = await world.gpus("n1", 1)
    await world.device_class()
    await world.template("single")
    agent = world.site.agents["n1"]
    for _ in range(10):
        await world.pod("p1", templates={"gpu": "single"})
        await world.running("p1")
        await world.delete_pod("p1")

    async def no_claims() -> bool:
        return not await world.all("resourceclaims")

    await world.until(no_claims, "the deletion of all claims")
    assert agent.claims(world.namespace) == [] and agent.cdi_files(world.driver) == []
    assert len(driver.said("prepare")) == len(driver.said("unprepare")) == 10
    assert [len(each["spec"]["devices"]) for each in await world.slices_of("n1")] == [1]
