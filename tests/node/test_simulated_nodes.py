"""Nodes that exist only here: registered with slices from a profile, running programs and placeholders. Real control plane in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from allot.apiserver.assembly import Settings
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane, control_plane
from allot.core.model.codec import encode
from allot.devices.gpu.classes import device_classes
from allot.devices.gpu.profile_pools import profile_pools
from allot.devices.profiles.machines import find_machine
from allot.node.machine import read_machine
from allot.node.registration import NodeOptions
from allot.node.runtimes.process import ProcessRuntime
from allot.node.simulated_nodes import SimulatedNodes, SimulatedOptions
from allot.store.memory import MemoryStore

pytestmark = pytest.mark.slow

Object = dict[str, Any]
COUNT = 3
WAIT_S = 20.0


class Fleet:
    """Three nodes with two GPUs each."""

    def __init__(self, plane: ControlPlane, nodes: SimulatedNodes, root: Path) -> None:
        self.nodes = nodes
        self.root = root
        self.client = plane.client()
        self.pods = self.client.resource("", "v1", "pods", namespaced=True)
        self.events = self.client.resource("", "v1", "events", namespaced=True)

    async def pod(self, name: str, *containers: Object, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        """Create a pod."""
        metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
        made = {"containers": list(containers), "automountServiceAccountToken": False, **spec}
        await self.pods.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})

    async def phase(self, name: str, phase: str) -> Object:
        """The status of a pod as soon as it is in a phase."""
        status: Object = {}
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    status = (await self.pods.get(name, "default")).get("status") or {}
                    if status.get("phase") == phase:
                        return status
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"pod {name} not in phase {phase}: {status}") from None

    async def told(self, name: str, reason: str) -> str:
        """The text of an event of a pod."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for event in (await self.events.list("default")).items:
                    if event["involvedObject"]["name"] == name and event["reason"] == reason:
                        return str(event["message"])
                await asyncio.sleep(0.05)

    def log(self, name: str, container: str) -> str:
        """The first log of a container."""
        return next((self.root / "nodes/log/pods").glob(f"default_{name}_*/{container}/0.log")).read_text()


@asynccontextmanager
async def fleet(root: Path) -> AsyncIterator[Fleet]:
    shape = find_machine("h100x2")
    async with control_plane(Settings(directory=root / "server", port=0), MemoryStore()) as plane:
        start_controllers(plane)
        start_scheduler(plane)
        options = SimulatedOptions(
            names=tuple(f"sim-{index}" for index in range(COUNT)),
            node=NodeOptions(name="", address="127.0.0.1", version="v1.37.0"),
            machine=read_machine(root),
            root=root / "nodes",
        )
        programs = ProcessRuntime(root / "runtime", plane.clock, plane.ids, environment={"PATH": "/usr/bin:/bin"})
        nodes = SimulatedNodes(
            plane.client(),
            plane.informers,
            plane.clock,
            plane.ids,
            options,
            programs,
            lambda name: profile_pools(shape, name),
        )
        plane.start("nodes", nodes.run)
        async with asyncio.timeout(WAIT_S):
            await nodes.are_ready.wait()
        yield Fleet(plane, nodes, root)


async def test_nodes_are_registered_with_leases_and_the_slices_of_their_profile(tmp_path: Path) -> None:
    async with fleet(tmp_path) as made:
        nodes = (await made.client.resource("", "v1", "nodes", namespaced=False).list()).items
        leases = (
            await made.client.resource("coordination.k8s.io", "v1", "leases", namespaced=True).list("kube-node-lease")
        ).items
        slices = (await made.client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False).list()).items
    assert [each["metadata"]["name"] for each in nodes] == ["sim-0", "sim-1", "sim-2"]
    assert all(each["status"]["conditions"][-1]["status"] == "True" for each in nodes)
    assert len(leases) == COUNT
    by_node = {each["spec"]["nodeName"]: each for each in slices}
    assert set(by_node) == {"sim-0", "sim-1", "sim-2"}
    uuids = {device["attributes"]["uuid"]["string"] for each in by_node.values() for device in each["spec"]["devices"]}
    assert len(uuids) == 2 * COUNT, "each card of each node is another one"
    assert by_node["sim-1"]["metadata"]["ownerReferences"][0]["name"] == "sim-1"


async def test_pods_run_as_programs_placeholders_and_as_annotations_say(tmp_path: Path) -> None:
    async with fleet(tmp_path) as made:
        main = {"name": "main", "image": "trainer:1"}
        once: dict[str, Any] = {"restartPolicy": "Never"}
        await made.pod("program", {**main, "command": ["sh", "-c", "echo from here; exit 4"]}, **once)
        await made.pod("placeholder", {**main, "command": ["no-such-program-anywhere"]})
        await made.pod(
            "annotated", main, annotations={"allot.dev/run-seconds": "0.1", "allot.dev/exit-code": "3"}, **once
        )
        await made.pod("wrong", main, annotations={"allot.dev/run-seconds": "soon"})
        probe = {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1}
        await made.pod("begun", {**main, "readinessProbe": probe}, initContainers=[{**main, "name": "first"}])

        status = await made.phase("program", "Failed")
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
        assert "from here" in made.log("program", "main")

        await made.phase("placeholder", "Running")
        text = 'Placeholder for image "trainer:1": this machine has no command "no-such-program-anywhere"; '
        assert (await made.told("placeholder", "Placeholder")) == f"{text}it runs until it is stopped"
        assert text in made.log("placeholder", "main")

        status = await made.phase("annotated", "Failed")
        assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3

        status = await made.phase("begun", "Running")
        assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
        assert "annotation allot.dev/run-seconds" in await made.told("wrong", "Failed")

        await made.pods.delete("placeholder", "default")
        async with asyncio.timeout(WAIT_S):
            while any(each["metadata"]["name"] == "placeholder" for each in (await made.pods.list("default")).items):
                await asyncio.sleep(0.02)


async def test_pods_get_gpus_of_simulated_nodes_and_no_more_than_there_are(tmp_path: Path) -> None:
    async with fleet(tmp_path) as made:
        classes = made.client.resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
        for each in device_classes():
            await classes.create(encode(each))
        templates = made.client.resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
        request = {
            "name": "gpu",
            "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2},
        }
        await templates.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": "two", "namespace": "default"},
                "spec": {"spec": {"devices": {"requests": [request]}}},
            }
        )
        container = {"name": "main", "image": "trainer:1", "resources": {"claims": [{"name": "gpus"}]}}
        claims = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
        for index in range(COUNT + 1):
            await made.pod(f"p{index}", container, resourceClaims=claims, annotations={"allot.dev/run-seconds": "600"})
        async with asyncio.timeout(WAIT_S):
            while True:
                pods = (await made.pods.list("default")).items
                running = [each for each in pods if each["status"].get("phase") == "Running"]
                if len(running) >= COUNT:
                    break
                await asyncio.sleep(0.05)
    assert len({each["spec"]["nodeName"] for each in running}) == COUNT
    assert len(running) == COUNT
