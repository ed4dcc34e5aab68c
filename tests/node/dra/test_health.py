"""What drivers say about devices becomes part of the status of pods (scenarios 57 to 62)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from allot.core.features import DEFAULT_GATES
from allot.core.model.pods_v1 import decode_runnable
from allot.node.dra.claim_preparer import ClaimPreparer
from allot.process.clock import ManualClock
from node.dra.node import node, registered
from waiting import WAIT_S, until

WITH_HEALTH = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
UNKNOWN, HEALTHY, UNHEALTHY = 0, 1, 2


def said(preparer: ClaimPreparer, pod: Any) -> list[tuple[str, str | None]]:
    """Health and message of the devices of a pod's only container."""
    found = preparer.health(decode_runnable(pod)).get("c", [])
    return [(each["health"], each.get("message")) for status in found for each in status["resources"]]


async def test_health_follows_what_the_driver_says(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(versions=WITH_HEALTH)
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        uid = await here.uid_of("a")
        assert preparer.health(decode_runnable(pod)) == {
            "c": [
                {
                    "name": "claim:a",
                    "resources": [{"resourceID": f"gpu.example.com/claim={uid}-0", "health": "Unknown"}],
                }
            ]
        }
        changes = preparer.health_changes()
        for health, message in ((HEALTHY, "msg1"), (UNHEALTHY, "msg2"), (UNHEALTHY, "msg3"), (HEALTHY, "msg4")):
            driver.say(health, message)
            async with asyncio.timeout(WAIT_S):
                assert await anext(changes) == pod["metadata"]["uid"]
            assert said(preparer, pod) == [("Healthy" if health == HEALTHY else "Unhealthy", message)]
        # Nothing new: nobody is told.
        driver.say(HEALTHY, "msg4")
        driver.say(UNHEALTHY, "msg5")
        async with asyncio.timeout(WAIT_S):
            await anext(changes)
        assert said(preparer, pod) == [("Unhealthy", "msg5")]
        assert driver.health_streams == ["v1.DRAResourceHealth"]
        await changes.aclose()


@pytest.mark.parametrize("version", ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
async def test_either_version_will_do_and_the_newer_is_preferred(tmp_path: Path, version: str) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(versions=("v1.DRAPlugin", version))
        both = await here.driver("both.example.com", versions=("v1alpha1.DRAResourceHealth", *WITH_HEALTH[:2]))
        await registered(preparer, driver.name, both.name)
        await until(lambda: driver.health_streams and both.health_streams)
        assert (driver.health_streams, both.health_streams) == ([version], ["v1.DRAResourceHealth"])


async def test_a_driver_that_ends_its_stream_is_unknown_until_it_reports_again(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(versions=WITH_HEALTH)
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        driver.say(HEALTHY)
        await until(lambda: said(preparer, pod) == [("Healthy", None)])
        driver.health.put_nowait(None)
        await until(lambda: said(preparer, pod) == [("Unknown", None)])
        await until(lambda: len(driver.health_streams) > 1)
        driver.say(HEALTHY)
        await until(lambda: said(preparer, pod) == [("Healthy", None)])
        await driver.stop()
        await until(lambda: said(preparer, pod) == [("Unknown", None)])


async def test_a_driver_without_health_is_not_asked_again(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(versions=WITH_HEALTH)
        other = await here.driver("other.example.com", versions=WITH_HEALTH)
        await registered(preparer, driver.name, other.name)
        await until(lambda: driver.health_streams and other.health_streams)
        driver.health.put_nowait(grpc.StatusCode.UNIMPLEMENTED)
        await until(lambda: not driver.health.qsize())
        # One whose stream only ends is asked again each time.
        for times in (1, 2):
            await until(lambda times=times: len(other.health_streams) == times)
            other.health.put_nowait(None)
        await until(lambda: len(other.health_streams) == 3)
        assert len(driver.health_streams) == 1
        await preparer.prepare(decode_runnable(await here.pod("p", "a")))


async def test_garbage_in_a_report_ends_the_stream_and_no_more(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(versions=WITH_HEALTH)
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        driver.health.put_nowait(b"\x0a\xff")
        driver.health.put_nowait([("node-1", "gpu-0", 99, "x" * 5000, -7)])
        await until(lambda: preparer.health(decode_runnable(pod))["c"][0]["resources"][0].get("message"))
        health, message = said(preparer, pod)[0]
        assert (health, len(message or ""), (message or "")[-4:]) == ("Unknown", 1024, "x...")


async def test_a_report_that_is_too_old_is_not_believed(tmp_path: Path) -> None:
    clock = ManualClock()
    async with node(tmp_path) as here, here.running(clock=clock) as preparer:
        driver = await here.driver(versions=WITH_HEALTH)

        async def tick(seconds: float) -> None:
            clock.advance(seconds)
            await asyncio.sleep(0.005)

        async def until_ticking(what: Any) -> None:
            async with asyncio.timeout(WAIT_S):
                while not what():
                    await tick(0.01)

        await until_ticking(lambda: preparer.plugins.is_usable(driver.name))
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        driver.say(HEALTHY, timeout=10)
        await until_ticking(lambda: said(preparer, pod) == [("Healthy", None)])
        changes = preparer.health_changes()
        await anext(changes)
        await tick(9)
        assert said(preparer, pod) == [("Healthy", None)]
        await tick(2)
        assert said(preparer, pod) == [("Unknown", None)]
        async with asyncio.timeout(WAIT_S):
            assert await anext(changes) == pod["metadata"]["uid"]
        await changes.aclose()


async def test_health_is_told_by_request_and_each_device_once(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver(versions=WITH_HEALTH)
        await registered(preparer)
        pod = await here.pod("p", "a")
        uid = await here.uid_of("a")
        driver.devices[uid] = [
            {"request_names": ["one"], "pool_name": "node-1", "device_name": "gpu-0", "share_id": "s1"},
            {"request_names": ["one"], "pool_name": "node-1", "device_name": "gpu-0", "share_id": "s2"},
            {"request_names": ["two"], "pool_name": "node-1", "device_name": "gpu-1", "cdi_device_ids": []},
        ]
        for device in driver.devices[uid][:2]:
            device["cdi_device_ids"] = ["gpu.example.com/gpu=0"]
        container = {"name": "c", "image": "x"}
        claims = [{"name": "a", "request": "one"}, {"name": "a", "request": "two"}]
        init = {"name": "init", "image": "x", "resources": {"claims": claims}}
        pod["spec"] = {
            **pod["spec"],
            "containers": [{**container, "resources": {"claims": claims}}, {**container, "name": "plain"}],
            "initContainers": [init],
        }
        await preparer.prepare(decode_runnable(pod))
        driver.say(HEALTHY)
        await until(lambda: said(preparer, pod)[0][0] == "Healthy")
        assert preparer.health(decode_runnable(pod)) == {
            "c": [
                {"name": "claim:a/one", "resources": [{"resourceID": "gpu.example.com/gpu=0", "health": "Healthy"}]},
                {
                    "name": "claim:a/two",
                    "resources": [{"resourceID": "gpu.example.com/node-1/gpu-1", "health": "Unknown"}],
                },
            ]
        }


async def test_health_is_kept_in_the_kubelets_file(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        async with here.running() as preparer:
            driver = await here.driver(versions=WITH_HEALTH)
            await registered(preparer)
            driver.say(UNHEALTHY, "hot", timeout=60)
            path = here.root / "dra_health_state"
            await until(path.exists)
            found = await until(lambda: msgspec.json.decode(path.read_bytes()).get(driver.name))
            device = found["Devices"]["node-1/gpu-0"]
            assert device.pop("LastUpdated").endswith("Z")
            assert device == {
                "PoolName": "node-1",
                "DeviceName": "gpu-0",
                "Health": "Unhealthy",
                "HealthCheckTimeout": 60_000_000_000,
                "Message": "hot",
            }
        for damaged in (b"", b"{", b'{"a": 1}', b"\xff", b'{"a":' * 5000):
            path.write_bytes(damaged)
            here.preparer()


@pytest.mark.parametrize("gate", ["ResourceHealthStatus", "ResourceHealthStatusMessage"])
async def test_gates_switch_health_and_messages_off(tmp_path: Path, gate: str) -> None:
    async with node(tmp_path, DEFAULT_GATES.changed(disable=[gate])) as here, here.running() as preparer:
        driver = await here.driver(versions=WITH_HEALTH)
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        driver.say(HEALTHY, "fine")
        if gate == "ResourceHealthStatus":
            # A stream would have been opened before the driver was called.
            assert (preparer.health(decode_runnable(pod)), driver.health_streams) == ({}, [])
        else:
            await until(lambda: said(preparer, pod) == [("Healthy", None)])


async def test_an_instance_that_goes_does_not_take_the_word_of_its_successor(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        old = await here.driver(versions=WITH_HEALTH, instance="-old")
        await registered(preparer)
        pod = await here.pod("p", "a")
        await preparer.prepare(decode_runnable(pod))
        new = await here.driver(versions=WITH_HEALTH, instance="-new")
        await until(lambda: new.health_streams and old.health_streams)
        new.say(HEALTHY)
        await until(lambda: said(preparer, pod) == [("Healthy", None)])
        await old.stop()
        await until(lambda: len(preparer.plugins.instances()) == 1)
        await until(lambda: preparer._health._streams == {new.name: 1})
        assert said(preparer, pod) == [("Healthy", None)]
