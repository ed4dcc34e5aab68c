"""Scenarios with the GPU driver and simulated cards: 8, 27 to 29, 45, 64, 98, 104 to 107, 109."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import msgspec
import pytest

from allot.core.model.codec import encode
from allot.devices.gpu.classes import mig_profile_class
from allot.devices.gpu.simulated import inject, parse_fault
from devices.gpu.world import mig_request, opaque, request
from e2e.scenarios.device_process import DeviceProcess
from e2e.scenarios.objects import container, uses
from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

LIST = "nvidia-smi -L; echo listed; exec sleep 600"
DYNAMIC = ("--feature-gates", "DynamicMIG=true")
DRIVER = "gpu.nvidia.com"


async def cards(world: World, profile: str, *options: str) -> DeviceProcess:
    """The driver with the cards of a machine."""
    return await world.devices("gpu", "--profile", profile, "--state-dir", str(world.folder), *options)


def state(world: World) -> list[dict[str, Any]]:
    """What the simulated cards are set to."""
    return list(json.loads((world.folder / "state.json").read_text()).values())


async def published_names(world: World) -> list[str]:
    """The devices of n1."""
    found = await world.slices_of("n1", DRIVER)
    return sorted(device["name"] for each in found for device in each["spec"].get("devices") or ())


async def listed(world: World, pod: str, container_name: str = "main") -> list[str]:
    """The lines of nvidia-smi -L in a container."""
    return (await world.says(pod, "listed", container_name)).splitlines()[:-1]


def uuid(line: str) -> str:
    """The UUID in a line of nvidia-smi -L."""
    found = re.search(r"UUID: ([^)]+)\)", line)
    assert found is not None, line
    return found[1]


async def test_01_a_pod_sees_its_card_and_no_other(world: World) -> None:
    await cards(world, "h100x2")
    await world.template("one", request())
    for name in ("p1", "p2"):
        await world.pod(name, templates={"gpu": "one"}, script=f"nvidia-smi; {LIST}")
    seen = [await listed(world, name) for name in ("p1", "p2")]
    assert all(any("No running processes found" in line for line in lines) for lines in seen)
    own = [[line for line in lines if line.startswith("GPU ")] for lines in seen]
    assert [len(lines) for lines in own] == [1, 1]
    assert uuid(own[0][0]) != uuid(own[1][0])


async def test_08_and_29_static_instances_of_one_card(world: World) -> None:
    await cards(world, "a100-40x2", "--mig-layout", "0=1g.5gb,1g.5gb,2g.10gb,3g.20gb")
    names = await published_names(world)
    # The card that was cut is not offered as a whole.
    assert len(names) == 5 and "gpu-0" not in names and "gpu-1" in names
    profiles = ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")
    requests = [mig_request(f"mig-{number}", profile) for number, profile in enumerate(profiles)]
    await world.claim("four", *requests, constraints=[{"matchAttribute": f"{DRIVER}/parentUUID"}])
    await world.pod("p1", claims={"gpu": "four"}, script=LIST)
    lines = await listed(world, "p1")
    assert len(lines) == 5 and len({uuid(line) for line in lines}) == 5
    assert lines[0].startswith("GPU 0: ") and all(line.strip().startswith("MIG ") for line in lines[1:])


async def test_29_a_card_with_one_instance_counts_as_one_device(world: World) -> None:
    await cards(world, "h100x2", "--mig-layout", "0=7g.80gb")
    names = await published_names(world)
    assert len(names) == 2 and "gpu-0" not in names and "gpu-1" in names


async def test_27_an_instance_is_made_for_a_claim_and_destroyed_after_it(world: World) -> None:
    await cards(world, "h100x1", *DYNAMIC)
    assert not any(card.get("mig_mode") for card in state(world))
    capacity = f"device.capacity['{DRIVER}']"
    selector = (
        f"{capacity}.multiprocessors.compareTo(quantity('10')) > 0 && {capacity}.memory.compareTo(quantity('10Gi')) > 0"
    )
    await world.claim("mig", request("mig", "mig.nvidia.com", 1, selector))
    await world.pod("p1", claims={"gpu": "mig"}, script=LIST)
    lines = await listed(world, "p1")
    assert [line.split()[0] for line in lines] == ["GPU", "MIG"]
    assert [len(card.get("instances") or ()) for card in state(world)] == [1]
    await world.delete_pod("p1")
    assert not any(card.get("mig_mode") or card.get("instances") for card in state(world))


async def test_28_two_containers_have_an_instance_each(world: World) -> None:
    await cards(world, "h100x1", *DYNAMIC)
    await world.claim("two", mig_request("a", "1g.10gb"), mig_request("b", "1g.10gb"))
    # A program that wants more memory than its instance has fails.
    script = f"gpu-memory 9Gi; gpu-memory 10Gi 2>&1; {LIST}"
    containers = [container(name, script, resources=uses(("gpu", name))) for name in ("a", "b")]
    await world.pod("p1", claims={"gpu": "two"}, containers=containers)
    seen = [await listed(world, "p1", name) for name in ("a", "b")]
    for lines in seen:
        assert "allocated 9216 MiB" in lines[0] and "9984 MiB memory of MIG instance 1g.10gb" in "".join(lines[1:-2])
    assert uuid(seen[0][-2]) == uuid(seen[1][-2]) and uuid(seen[0][-1]) != uuid(seen[1][-1])


async def test_45_cards_and_instances_as_extended_resources(world: World) -> None:
    await cards(world, "h100x2", *DYNAMIC)
    await world.make("deviceclasses", msgspec.to_builtins(encode(mig_profile_class("1g.10gb"))))
    for name, resource in (("whole", "nvidia.com/gpu"), ("part", "nvidia.com/mig-1g.10gb")):
        amounts = {resource: "1"}
        await world.pod(name, resources={"requests": amounts, "limits": amounts}, script=LIST)
    whole, part = await listed(world, "whole"), await listed(world, "part")
    assert [line.split()[0] for line in whole] == ["GPU"]
    assert [line.split()[0] for line in part] == ["GPU", "MIG"]
    assert uuid(whole[0]) != uuid(part[0])


async def test_64_new_pods_avoid_a_card_with_an_error(world: World) -> None:
    await cards(world, "h100x2")
    inject(world.folder, "0", [parse_fault("xid=79")])

    async def tainted() -> bool:
        found = await world.slices_of("n1", DRIVER)
        devices = [device for each in found for device in each["spec"]["devices"]]
        return [
            (device["name"], taint["key"], taint["value"], taint["effect"])
            for device in devices
            for taint in device.get("taints") or ()
        ] == [("gpu-0", f"{DRIVER}/xid", "79", "NoSchedule")]

    await world.until(tainted, "the taint")
    await world.template("one", request())
    await world.pod("p1", templates={"gpu": "one"})
    await world.pod("p2", templates={"gpu": "one"})

    async def one_runs() -> list[str]:
        pods = await world.all("pods")
        return [each["metadata"]["name"] for each in pods if each["status"].get("phase") == "Running"]

    [runs] = await world.until(one_runs, "a pod that runs")
    assert await world.devices_of(runs) == ["n1/gpu-1"]
    waits = "p2" if runs == "p1" else "p1"
    await world.pending(waits, "cannot allocate all claims")
    inject(world.folder, "0", [])
    await world.running(waits)


async def test_64_a_card_that_is_lost_is_seen_in_the_status_of_its_pod(world: World) -> None:
    await cards(world, "h100x1")
    await world.claim("one", request())
    await world.pod("p1", claims={"gpu": "one"}, script=LIST)
    await listed(world, "p1")

    async def health_is(health: str) -> None:
        async def ask() -> bool:
            [status] = (await world.get("pods", "p1"))["status"]["containerStatuses"]
            entries = status.get("allocatedResourcesStatus") or ()
            return [device["health"] for entry in entries for device in entry["resources"]] == [health]

        await world.until(ask, f"health {health}")

    await health_is("Healthy")
    inject(world.folder, "0", [parse_fault("lost")])
    await health_is("Unhealthy")
    inject(world.folder, "0", [])
    await health_is("Healthy")


async def test_98_as_many_devices_are_published_as_the_machine_has(world: World) -> None:
    await cards(world, "a3-highgpu-8g")
    assert await published_names(world) == [f"gpu-{number}" for number in range(8)]


async def shared_card(world: World, strategy: dict[str, Any]) -> list[list[str]]:
    """A card that two containers of a pod p1 share; what each lists."""
    await cards(world, "a2-highgpu-1g")
    await world.claim("shared", request(), config=[opaque("GpuConfig", {"sharing": strategy})])
    script = f"env | grep ^CUDA_MPS; gpu-memory 9Gi; gpu-memory 30Gi 2>&1; {LIST}"
    containers = [container(name, script, resources=uses("gpu")) for name in ("a", "b")]
    await world.pod("p1", claims={"gpu": "shared"}, containers=containers)
    return [await listed(world, "p1", name) for name in ("a", "b")]


@pytest.mark.parametrize(("interval", "number"), [("Short", 1), ("Long", 3)])
async def test_103_and_104_time_slices_last_as_long_as_the_claim(world: World, interval: str, number: int) -> None:
    seen = await shared_card(world, {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}})
    assert uuid(seen[0][-1]) == uuid(seen[1][-1])
    assert [card["time_slice"] for card in state(world)] == [number]
    await world.delete_pod("p1")
    assert not any(card.get("time_slice") for card in state(world))


async def test_105_mps_lasts_as_long_as_the_claim(world: World) -> None:
    mps = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
    seen = await shared_card(world, {"strategy": "MPS", "mpsConfig": mps})
    for lines in seen:
        assert "CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps" in lines
        assert "MPS limit 10240 MiB per client" in "".join(lines)
    assert uuid(seen[0][-1]) == uuid(seen[1][-1])
    claim = await world.get("resourceclaims", "shared")
    [daemon] = (world.folder / "mps").iterdir()
    assert daemon.name.startswith(claim["metadata"]["uid"])
    assert [card["compute_mode"] for card in state(world)] == ["EXCLUSIVE_PROCESS"]
    await world.delete_pod("p1")
    assert not list((world.folder / "mps").iterdir())


BAD_PARAMETERS = [
    ("GpuConfig", {"unknownField": 1}, 'strict decoding error: unknown field "unknownField"'),
    ("NoSuchConfig", {}, "kind 'NoSuchConfig' of apiVersion 'resource.nvidia.com/v1beta1'"),
    (
        "GpuConfig",
        {"sharing": {"strategy": "MPS", "mpsConfig": {"defaultActiveThreadPercentage": 101}}},
        "active thread percentage must not be greater than 100",
    ),
    (
        "GpuConfig",
        {"sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Forever"}}},
        "unknown time-slice interval: Forever",
    ),
]


@pytest.mark.parametrize(
    ("kind", "value", "text"), BAD_PARAMETERS, ids=["unknown field", "unknown kind", "out of range", "unknown value"]
)
async def test_106_parameters_that_make_no_sense_are_told_and_leave_nothing(
    world: World, kind: str, value: dict[str, Any], text: str
) -> None:
    await cards(world, "a2-highgpu-1g")
    await world.claim("odd", request(), config=[opaque(kind, value)])
    await world.pod("p1", claims={"gpu": "odd"})
    await world.events("p1", "FailedPrepareDynamicResources", text)
    pod = await world.is_pending("p1")
    assert pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    await world.delete_pod("p1")
    assert world.site.agents["n1"].cdi_files(f"claim_{DRIVER}") == []
    assert not list((world.site.agents["n1"].root / "plugins" / DRIVER / "checkpoint").glob("*.json"))


async def test_107_a_card_that_is_passed_through_is_not_offered_otherwise(world: World) -> None:
    await cards(world, "h100x1", "--feature-gates", "PassthroughSupport=true")
    assert await published_names(world) == ["gpu-0", "gpu-vfio-0"]
    await world.claim("vm", request("vm", "vfio.gpu.nvidia.com"))
    await world.pod("p1", claims={"gpu": "vm"}, script="ls /dev/vfio; echo listed; exec sleep 600")
    said = await world.says("p1", "listed")
    assert any(line.isdigit() for line in said.split())

    async def names_are(*names: str) -> None:
        async def ask() -> bool:
            return await published_names(world) == list(names)

        await world.until(ask, f"devices {names}")

    await names_are("gpu-vfio-0")
    await world.delete_pod("p1")
    await names_are("gpu-0", "gpu-vfio-0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_109_a_pod_outlives_a_change_of_the_driver(world: World, number: int) -> None:
    driver = await cards(world, "h100x1", *DYNAMIC)
    await world.claim("mig", mig_request("mig", "1g.10gb"))
    await world.pod("p1", claims={"gpu": "mig"}, script=LIST)
    before = await listed(world, "p1")
    driver.stop(number)
    driver.start("--profile", "h100x1", "--state-dir", str(world.folder), *DYNAMIC, "--versions", "v1beta1.DRAPlugin")
    assert await listed(world, "p1") == before
    await world.delete_pod("p1")
    assert not any(card.get("instances") for card in state(world))
