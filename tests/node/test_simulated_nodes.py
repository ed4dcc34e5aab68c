"""Nodes that exist only here: registered with slices from a profile, running programs and placeholders. Real control plane in memory."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from allot.apiserver.assembly import Settings
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane, control_plane
from allot.core.model.codec import encode
from allot.devices.catalogue import find_profile
from allot.devices.gpu.classes import device_class
from allot.devices.gpu.simulated import inject, parse_fault
from allot.devices.simulation import GpuSettings, SimulatedDrivers
from allot.devices.simulation import Settings as DriverSettings
from allot.node.machine import read_machine
from allot.node.registration import NodeOptions
from allot.node.runtimes.port import RuntimeFailure
from allot.node.runtimes.process import ProcessRuntime
from allot.node.simulated_nodes import SimulatedNodes, SimulatedOptions, SimulatedSet
from allot.store.memory import MemoryStore
from allot.wire import pod_resources_v1_pb2 as wire
from node.dra.test_pod_resources import ask
from waiting import WAIT_S, until

pytestmark = pytest.mark.slow

Object = dict[str, Any]
COUNT = 3


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A folder below which clients reach sockets by their whole path."""
    with tempfile.TemporaryDirectory(prefix="a-") as folder:
        yield Path(folder)


class Fleet:
    """Three nodes with two GPUs each."""

    def __init__(self, plane: ControlPlane, nodes: SimulatedNodes, root: Path, registry: CollectorRegistry) -> None:
        self.nodes = nodes
        self.registry = registry
        self.root = root
        self.client = plane.client()
        self.pods = self.client.resource("", "v1", "pods", namespaced=True)
        self.events = self.client.resource("", "v1", "events", namespaced=True)

    async def pod(self, name: str, *containers: Object, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        """Create a pod."""
        metadata = {"name": name, "namespace": "default", "annotations": annotations or {}}
        made = {"containers": list(containers), "automountServiceAccountToken": False, **spec}
        await self.pods.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made})

    async def template(
        self, name: str, class_name: str = "gpu.nvidia.com", expression: str = "", **request: Any
    ) -> None:
        """Create a template of claims with one request."""
        selectors = [{"cel": {"expression": expression}}] if expression else []
        exactly = {"deviceClassName": class_name, "selectors": selectors, **request}
        templates = self.client.resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
        await templates.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaimTemplate",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}}},
            }
        )

    async def claiming(
        self, name: str, template: str, *command: str, annotations: dict[str, str] | None = None
    ) -> None:
        """Create a pod with one claim."""
        container = {"name": "main", "image": "trainer:1", "resources": {"claims": [{"name": "devices"}]}}
        if command:
            container["command"] = list(command)
        claims = [{"name": "devices", "resourceClaimTemplateName": template}]
        once = {"restartPolicy": "Never"}
        await self.pod(name, container, resourceClaims=claims, annotations=annotations, **once)

    async def said(self, name: str, *command: str) -> str:
        """What a program says that is run in the container of a pod."""
        worker = self.nodes.worker("default", name)
        assert worker is not None
        _, containers = await self.nodes.listing.of(worker.pod.metadata.uid)
        streams = await self.nodes.runtime.exec(containers[0].id, command, tty=False, stdin=False)
        async with asyncio.timeout(WAIT_S):
            return b"".join([data async for _, data in streams.output()]).decode()

    async def gone(self, name: str) -> None:
        """Delete a pod and wait until it is not there."""
        await self.pods.delete(name, "default")
        async with asyncio.timeout(WAIT_S):
            while any(each["metadata"]["name"] == name for each in (await self.pods.list("default")).items):
                await asyncio.sleep(0.02)

    async def devices(self, node: str) -> list[Object]:
        """What is published of a node."""
        slices = self.client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
        listed = (await slices.list(field_selector=f"spec.nodeName={node}")).items
        return [device for each in listed for device in each["spec"].get("devices") or ()]

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

    async def ended(self, code: str) -> bool:
        """Whether exactly one container is counted that ended so."""
        labels = {"container_type": "container", "exit_code": code, "reason": "Error"}
        return self.registry.get_sample_value("kubelet_terminated_containers_total", labels) == 1

    def log(self, name: str, container: str) -> str:
        """The first log of a container."""
        return next((self.root / "nodes/log/pods").glob(f"default_{name}_*/{container}/0.log")).read_text()


def alike(*names: str, profile: str, root: Path, settings: DriverSettings | None = None) -> SimulatedSet:
    """Nodes of a profile."""
    return SimulatedSet(
        names=names,
        node=NodeOptions(name="", address="127.0.0.1", version="v1.37.0"),
        machine=read_machine(root),
        drivers=SimulatedDrivers(find_profile(profile), settings or DriverSettings()),
    )


@asynccontextmanager
async def fleet(root: Path, *sets: SimulatedSet, awake_max: int = 100) -> AsyncIterator[Fleet]:
    async with control_plane(Settings(directory=root / "server", port=0), MemoryStore()) as plane:
        start_controllers(plane)
        start_scheduler(plane)
        usual = alike("sim-0", "sim-1", "sim-2", profile="h100x2", root=root)
        options = SimulatedOptions(sets=sets or (usual,), address="127.0.0.1", root=root / "nodes", awake_max=awake_max)
        registry = CollectorRegistry()
        programs = ProcessRuntime(
            root / "runtime",
            plane.clock,
            plane.ids,
            environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            cdi_of=lambda pod: nodes.cdi_of(pod),
        )
        nodes = SimulatedNodes(
            plane.client(),
            plane.informers,
            plane.clock,
            plane.ids,
            options,
            programs,
            metrics=registry,
        )
        plane.start("nodes", nodes.run)
        async with asyncio.timeout(WAIT_S):
            await nodes.are_ready.wait()
        yield Fleet(plane, nodes, root, registry)


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

        for code in ("4", "3"):
            await until(partial(made.ended, code))

        await made.gone("placeholder")


async def test_pods_get_gpus_of_simulated_nodes_and_no_more_than_there_are(tmp_path: Path) -> None:
    async with fleet(tmp_path) as made:
        await made.template("two", count=2)
        for index in range(COUNT + 1):
            await made.claiming(f"p{index}", "two", annotations={"allot.dev/run-seconds": "600"})
        async with asyncio.timeout(WAIT_S):
            while True:
                pods = (await made.pods.list("default")).items
                running = [each for each in pods if each["status"].get("phase") == "Running"]
                if len(running) >= COUNT:
                    break
                await asyncio.sleep(0.05)
    assert len({each["spec"]["nodeName"] for each in running}) == COUNT
    assert len(running) == COUNT


async def test_containers_see_exactly_the_devices_that_the_drivers_of_their_node_give_them(tmp_path: Path) -> None:
    dynamic = DriverSettings(gpu=GpuSettings(feature_gates={"DynamicMIG": True}))
    sets = (
        alike("a100", profile="p4d.24xlarge", root=tmp_path),
        alike("mig", profile="h100", root=tmp_path, settings=dynamic),
        alike("tpu", profile="ct6e-standard-4t", root=tmp_path),
    )
    async with fleet(tmp_path, *sets) as made:
        a100 = "device.attributes['gpu.nvidia.com'].productName.contains('A100')"
        await made.template("four", count=4, expression=a100)
        await made.template("part", "mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'")
        await made.template("chips", "tpu.google.com", allocationMode="All")
        await made.template("two-chips", "tpu.google.com", count=2)
        await made.claiming("training", "four")
        await made.claiming("instance", "part", "nvidia-smi", "-L")
        await made.claiming("cut", "part", "sh", "-c", "nvidia-smi -L; sleep 600")
        await made.claiming("few-chips", "two-chips")

        await made.phase("training", "Running")
        listed = await made.said("training", "nvidia-smi", "-L")
        assert listed.count("NVIDIA A100-SXM4-40GB") == 4 and len(listed.splitlines()) == 4
        assert "SIMULATED" not in await made.said("training", "env")
        with pytest.raises(
            RuntimeFailure, match=r'cannot run "vim-of-nobody" .*its devices provide gpu-memory, nvidia-smi'
        ):
            await made.said("training", "vim-of-nobody")
        await made.phase("instance", "Succeeded")
        assert "MIG 3g.40gb" in made.log("instance", "main"), "a command that only the devices bring"
        await made.phase("cut", "Running")
        cards = tmp_path / "nodes/nodes/mig/plugins/gpu.nvidia.com/gpus"
        assert '"profile":9' in (cards / "state.json").read_text()
        assert "you must request all 4 chips" in await made.told("few-chips", "FailedPrepareDynamicResources")
        for each in ("cut", "few-chips", "instance", "training"):
            await made.gone(each)
        assert '"profile":9' not in (cards / "state.json").read_text(), "instances go with their claims"
        assert not list((tmp_path / "nodes/nodes/a100/cdi").glob("*claim_*-*-*.json"))
        assert (await made.nodes.runtime.list()) == ((), ()) and not list((tmp_path / "runtime/containers").iterdir())

        await made.claiming("all-chips", "chips", "env")
        await made.phase("all-chips", "Succeeded")
        assert "TPU_ACCELERATOR_TYPE=v6e-4" in made.log("all-chips", "main")


async def test_an_mps_daemon_is_a_deployment_on_its_node_as_long_as_the_claim_is_prepared(short_path: Path) -> None:
    mps = {"strategy": "MPS", "mpsConfig": {"defaultPinnedDeviceMemoryLimit": "15Gi"}}
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": mps}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "shared", "namespace": "default"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}],
                "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}],
            }
        },
    }
    async with fleet(short_path, alike("a100", profile="a2-highgpu-1g", root=short_path)) as made:
        claims = made.client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        uid = (await claims.create(claim))["metadata"]["uid"]
        uses = {"name": "main", "image": "trainer:1", "resources": {"claims": [{"name": "gpu"}]}}
        await made.pod("first", uses, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])
        await made.phase("first", "Running")
        deployments = made.client.resource("apps", "v1", "deployments", namespaced=True)
        (daemon,) = (await deployments.list("dra-driver-nvidia-gpu")).items
        assert re.fullmatch(f"mps-control-daemon-{uid}-[0-9a-f]{{5}}", daemon["metadata"]["name"])
        assert daemon["spec"]["template"]["spec"]["nodeName"] == "a100"
        assert [owner["name"] for owner in daemon["metadata"]["ownerReferences"]] == ["a100"]
        (container,) = daemon["spec"]["template"]["spec"]["containers"]
        assert any(each.endswith("15360M") for each in container["command"]), "what a real one would have been told"

        # Who watches devices on the node finds out who has them.
        socket = short_path / "nodes/nodes/a100/pod-resources/kubelet.sock"
        listed = await ask(socket, "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
        (dynamic,) = next(each for each in listed.pod_resources if each.name == "first").containers[0].dynamic_resources
        assert (dynamic.claim_name, dynamic.claim_resources[0].device_name) == ("shared", "gpu-0")

        await made.gone("first")
        async with asyncio.timeout(WAIT_S):
            while (await deployments.list("dra-driver-nvidia-gpu")).items:
                await asyncio.sleep(0.02)

        async def nothing_runs() -> bool:
            return await made.nodes.runtime.list() == ((), ())

        # Programs outlive the agent.
        await until(nothing_runs, "the end of the daemon")


async def test_drivers_sleep_when_too_many_are_awake_and_wake_with_what_they_hold(tmp_path: Path) -> None:
    async with fleet(tmp_path, awake_max=1) as made:
        await made.template("two", count=2)
        for index in range(COUNT):
            await made.claiming(f"p{index}", "two")
        for index in range(COUNT):
            await made.phase(f"p{index}", "Running")
        registries = tmp_path / "nodes/nodes"

        async def awake() -> set[str]:
            return {path.parent.parent.name for path in registries.glob("*/plugins_registry/*.sock")}

        async with asyncio.timeout(WAIT_S):
            while len(await awake()) != 1:
                await asyncio.sleep(0.05)
        for index in range(COUNT):
            assert len((await made.said(f"p{index}", "nvidia-smi", "-L")).splitlines()) == 2
        for index in range(1, COUNT):
            await made.gone(f"p{index}")
        # As the process ends: what runs in placeholders goes with it.
        await made.nodes.runtime.close()
        assert not list((tmp_path / "runtime/containers").iterdir())
        await made.gone("p0")
        assert not list(registries.glob("*/cdi/*claim_*-*-*.json"))


async def test_faults_of_cards_are_told_whether_or_not_their_driver_runs(tmp_path: Path) -> None:
    async with fleet(tmp_path) as made:
        cards = tmp_path / "nodes/nodes/sim-1/plugins/gpu.nvidia.com/gpus"
        inject(cards, "0", [parse_fault("xid=63")])
        async with asyncio.timeout(WAIT_S):
            while not any(each.get("taints") for each in await made.devices("sim-1")):
                await asyncio.sleep(0.05)
        inject(cards, "0", [])
        async with asyncio.timeout(WAIT_S):
            while any(each.get("taints") for each in await made.devices("sim-1")):
                await asyncio.sleep(0.05)


async def test_pods_see_in_their_status_how_their_devices_are(tmp_path: Path) -> None:
    async with fleet(tmp_path) as made:
        await made.template("two", count=2)
        await made.claiming("training", "two")
        await made.phase("training", "Running")
        node = (await made.pods.get("training", "default"))["spec"]["nodeName"]
        inject(tmp_path / f"nodes/nodes/{node}/plugins/gpu.nvidia.com/gpus", "1", [parse_fault("lost")])
        async with asyncio.timeout(WAIT_S):
            while True:
                status = (await made.pods.get("training", "default"))["status"]["containerStatuses"][0]
                resources = [each for one in status.get("allocatedResourcesStatus") or () for each in one["resources"]]
                if sorted(each["health"] for each in resources) == ["Healthy", "Unhealthy"]:
                    break
                await asyncio.sleep(0.05)


async def test_device_classes_come_with_the_drivers_and_those_of_others_stay(tmp_path: Path) -> None:
    async with control_plane(Settings(directory=tmp_path / "server", port=0), MemoryStore()) as plane:
        classes = plane.client().resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
        await classes.create(encode(device_class("gpu.nvidia.com", "true")))
        options = SimulatedOptions(
            sets=(alike("one", profile="a3-ultragpu-8g", root=tmp_path),), address="127.0.0.1", root=tmp_path / "nodes"
        )
        programs = ProcessRuntime(tmp_path / "runtime", plane.clock, plane.ids)
        nodes = SimulatedNodes(plane.client(), plane.informers, plane.clock, plane.ids, options, programs)
        plane.start("nodes", nodes.run)
        async with asyncio.timeout(WAIT_S):
            await nodes.are_ready.wait()
        found = {each["metadata"]["name"]: each["spec"] for each in (await classes.list()).items}
    assert set(found) == {"gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com", "dra.net", "mrdma.google.com"}
    assert "&& true" in found["gpu.nvidia.com"]["selectors"][0]["cel"]["expression"]


async def test_gpus_are_told_by_the_pods_that_have_them(tmp_path: Path) -> None:
    """Whole ones, one that two pods share, and a part of one."""
    dynamic = DriverSettings(gpu=GpuSettings(feature_gates={"DynamicMIG": True}))
    sets = (
        alike("whole", profile="a100-40x4", root=tmp_path),
        alike("mig", profile="h100", root=tmp_path, settings=dynamic),
    )
    async with fleet(tmp_path, *sets) as made:
        a100 = "device.attributes['gpu.nvidia.com'].productName.contains('A100')"
        await made.template("two", count=2, expression=a100)
        await made.template("part", "mig.nvidia.com", "device.attributes['gpu.nvidia.com'].profile == '3g.40gb'")
        exactly = {"deviceClassName": "gpu.nvidia.com", "selectors": [{"cel": {"expression": a100}}]}
        claims = made.client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        await claims.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": "common", "namespace": "default"},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            }
        )
        for name in ("left", "right"):
            container = {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
            shared = [{"name": "gpu", "resourceClaimName": "common"}]
            said = {"allot.dev/gpu-utilization": "30"}
            await made.pod(name, container, resourceClaims=shared, annotations=said)
        await made.claiming("double", "two", annotations={"allot.dev/gpu-memory-usage": "10Gi"})
        await made.claiming("part", "part")
        for name in ("left", "right", "double", "part"):
            await made.phase(name, "Running")
        found = (await made.nodes.device_samples()).samples
        of_node = (await made.nodes.device_samples("mig")).samples

    def told(pod: str, metric: str) -> list[float]:
        return [each.value for each in found if each.name == f"DCGM_FI_{metric}" and each.labels["pod"] == pod]

    assert told("left", "DEV_GPU_UTIL") == told("right", "DEV_GPU_UTIL") == [60.0]
    uuids = {each.labels["UUID"] for each in found if each.labels["pod"] in ("left", "right")}
    assert len(uuids) == 1 and {each.labels["hostname"] for each in of_node} == {"mig"}
    assert told("double", "DEV_GPU_UTIL") == [50.0, 50.0] and told("double", "DEV_FB_USED") == [10240.0, 10240.0]
    assert told("part", "DEV_GPU_UTIL") == [] and told("part", "PROF_GR_ENGINE_ACTIVE") == [0.5]
    part = next(each.labels for each in found if each.labels["pod"] == "part")
    assert (part["GPU_I_PROFILE"], part["dra_mig_profile"]) == ("3g.40gb", "3g.40gb")
    assert part["dra_claim_name"].startswith("part-devices-") and part["dra_device_name"].startswith("gpu-0-mig-3g40gb")
