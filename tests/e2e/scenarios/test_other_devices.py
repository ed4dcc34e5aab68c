"""Scenarios with the drivers of CPUs, network cards and TPUs, and with files that describe devices: 46, 110 to 118."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from e2e.scenarios.objects import container, uses
from e2e.scenarios.world import World

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

# Shells do not hand on variables with dashes in their names, and $$ is one $ in a pod.
CPUSET = "cpus=`tr '\\0' '\\n' </proc/$$$$/environ | sed -n 's/^DRA_CPUSET_.*=//p'`; echo cpus $cpus"


def cpus(count: int, device_class: str = "dra.cpu") -> dict[str, Any]:
    """A request for some CPUs of a group."""
    return {
        "name": "cpus",
        "exactly": {"deviceClassName": device_class, "capacity": {"requests": {"dra.cpu/cpu": str(count)}}},
    }


async def cpus_of(world: World, pod: str) -> str:
    """What a pod says that its CPUs are."""
    said = await world.says(pod, "cpus ")
    return next(line.removeprefix("cpus ") for line in said.splitlines() if line.startswith("cpus "))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="exclusive CPUs for two pods take two CPUs")
async def test_110_and_112_exclusive_cpus_are_disjoint_also_after_a_restart_of_the_driver(world: World) -> None:
    driver = await world.devices("cpu", "--pin", "--group-by", "machine")
    mask = "sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status"
    script = f"{CPUSET}; while true; do {mask} > FILE; sleep 0.1; done"
    for name in ("p1", "p2"):
        await world.claim(name, cpus(1))
        own = script.replace("FILE", str(world.folder / name))
        await world.pod(name, claims={"cpus": name}, script=own, sees_folder=True)
    given = {name: await cpus_of(world, name) for name in ("p1", "p2")}
    assert len(set(given.values())) == 2 and all(each.isdigit() for each in given.values())

    async def pinned() -> bool:
        files = {name: world.folder / name for name in given}
        return all(path.exists() and path.read_text().strip() == given[name] for name, path in files.items())

    await world.until(pinned, "pods on their CPUs")
    driver.stop(signal.SIGKILL)
    driver.start()
    for name in given:
        (world.folder / name).unlink()
    await world.until(pinned, "pods on their CPUs after the restart")
    # What it has given away the driver still knows.
    await world.delete_pod("p1")
    await world.kind("resourceclaims").delete("p1", world.namespace)
    await world.claim("p3", cpus(1))
    await world.pod("p3", claims={"cpus": "p3"}, script=f"{CPUSET}; exec sleep 600")
    assert await cpus_of(world, "p3") == given["p1"]


async def test_113_a_claim_can_name_its_cpus_exactly(world: World) -> None:
    await world.devices("cpu", "--profile", "a3-ultragpu-8g", "--group-by", "machine")
    parameters = {"apiVersion": "v1alpha1", "cpuConfig": {"cpuset": "4-6"}}
    await world.claim("c", cpus(3), config=[{"opaque": {"driver": "dra.cpu", "parameters": parameters}}])
    await world.pod("p1", claims={"cpus": "c"}, script=f"{CPUSET}; exec sleep 600")
    assert await cpus_of(world, "p1") == "4-6"


# --- files ---

FILES = "cd /var/run/kubernetes.io/dra-device-attributes 2>/dev/null && find . -type f -exec sh -c 'echo {}; head -n1 {}' ';'; echo listed; exec sleep 600"


async def files_in(world: World, pod: str, container_name: str) -> dict[str, Any]:
    """The files that describe devices in a container, by path."""
    lines = (await world.says(pod, "listed", container_name)).splitlines()[:-1]
    return {path.removeprefix("./"): json.loads(text) for path, text in zip(lines[::2], lines[1::2], strict=True)}


async def test_114_a_file_describes_devices_to_the_containers_that_have_them(world: World) -> None:
    other = f"{world.namespace}.nic.example.com"
    for name, device in ((world.driver, "gpu"), (other, "nic")):
        model = {"model": {"string": device}}
        devices = [{"name": f"{device}-{number}", "attributes": model} for number in range(2)]
        world.driver_on("n1", driver=name, has_metadata=True, pools=({"devices": devices},)).start()
        await world.published("n1", name)
    await world.device_class(f'device.driver in ["{world.driver}", "{other}"]')
    await world.claim("both", world.request("all", allocationMode="All"))
    await world.pod(
        "p1",
        claims={"direct": "both"},
        containers=[container("with", FILES, resources=uses("direct")), container("without", FILES)],
    )
    found = await files_in(world, "p1", "with")
    folder = "resourceclaims/both/all"
    assert set(found) == {f"{folder}/{world.driver}-metadata.json", f"{folder}/{other}-metadata.json"}
    described = found[f"{folder}/{world.driver}-metadata.json"]
    assert (described["kind"], described["metadata"]["name"]) == ("DeviceMetadata", "both")
    [request] = described["requests"]
    assert [(each["name"], each["attributes"]["model"]) for each in request["devices"]] == [
        ("gpu-0", {"string": "gpu"}),
        ("gpu-1", {"string": "gpu"}),
    ]
    assert await files_in(world, "p1", "without") == {}
    await world.delete_pod("p1")
    await world.template("single")
    await world.pod("p2", templates={"made": "single"}, containers=[container("with", FILES, resources=uses("made"))])
    [path] = await files_in(world, "p2", "with")
    assert path.startswith("resourceclaimtemplates/made/gpu/")


# --- network cards ---


async def test_115_and_116_two_interfaces_are_told_in_the_claim_and_claimed_again(world: World) -> None:
    await world.devices("nic", "--profile", "a3-ultragpu-8g")
    exactly = {"deviceClassName": "dra.net", "count": 2}
    await world.template("two", {"name": "nics", "exactly": exactly})
    seen = []
    for _ in range(2):
        await world.pod("p1", templates={"nics": "two"}, script="env | grep ^NET_DEVICE_; echo listed; exec sleep 600")
        said = await world.says("p1", "listed")

        async def told() -> list[str]:
            devices = (await world.claim_of("p1", "nics"))["status"].get("devices") or []
            return [each["networkData"]["interfaceName"] for each in devices if each.get("networkData")]

        names = await world.until(told, "network data")
        assert len(names) == 2 and all(f"={name}\n" in said for name in names)
        seen.append(sorted(names))
        await world.delete_pod("p1")
    assert seen[0] == seen[1]


async def test_32_a_share_of_a_card_has_its_bandwidth(world: World) -> None:
    await world.devices("nic", "--profile", "a3-ultragpu-8g", "--share-bandwidth")
    exactly = {"deviceClassName": "mrdma.google.com", "capacity": {"requests": {"dra.net/bandwidth": "100G"}}}
    for name in ("p1", "p2"):
        await world.claim(name, {"name": "nic", "exactly": exactly})
        await world.pod(name, claims={"nic": name}, script="env | grep ^NET_DEVICE_; exec sleep 600")
        await world.says(name, "_BANDWIDTH=100000000000")
    assert await world.devices_of("p1", "nic") == await world.devices_of("p2", "nic")


async def test_117_a_driver_that_ends_takes_its_sockets_away_on_its_node_only(world: World) -> None:
    drivers = {node: await world.gpus(node, 1) for node in ("n1", "n2")}

    def sockets(node: str) -> list[bool]:
        root = world.site.agents[node].root
        paths = (root / "plugins" / world.driver / "dra.sock", root / "plugins_registry" / f"{world.driver}-reg.sock")
        return [path.is_socket() for path in paths]

    assert sockets("n1") == sockets("n2") == [True, True]
    drivers["n1"].stop()
    assert (sockets("n1"), sockets("n2")) == ([False, False], [True, True])


# --- TPUs ---


def chips(**more: Any) -> dict[str, Any]:
    """A request for chips."""
    return {"name": "chips", "exactly": {"deviceClassName": "tpu.google.com", **more}}


async def test_46_fewer_chips_than_all_are_refused(world: World) -> None:
    await world.devices("tpu", "--profile", "ct6e-standard-4t", "--logs-dir", str(world.folder / "logs"))
    await world.claim("part", chips(count=2))
    await world.pod("p1", claims={"tpu": "part"})
    await world.events("p1", "FailedPrepareDynamicResources", "you must request all 4 chips on this node together")
    await world.is_pending("p1")


async def test_46_and_118_all_chips_beside_devices_of_another_driver(world: World) -> None:
    await world.devices("tpu", "--profile", "ct6e-standard-4t", "--logs-dir", str(world.folder / "logs"))
    # Their names are those of the chips.
    await world.publish("n1", [{"name": str(number)} for number in range(4)])
    await world.device_class()
    await world.claim("both", chips(allocationMode="All"), world.request(count=2))
    await world.pod("p1", claims={"tpu": "both"}, script="env; echo that is all; exec sleep 600")
    assert {"device_0", "device_1"} <= set(await world.variables("p1"))
    said = await world.log("p1")
    assert "TPU_TOPOLOGY=2x2\n" in said and "TPU_ACCELERATOR_TYPE=v6e-4\n" in said
    assert said.count("_RESOURCE_CLAIM=") == 4
