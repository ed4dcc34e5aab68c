"""A GPU driver that runs: a real API server in process, the driver's sockets, the kubelet's part of the protocol, and what a
container would see of its CDI devices."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client
from allot.core.allocation.allocator import Allocated, Unallocatable, allocate
from allot.core.allocation.inventory import Inventory, claim_id
from allot.core.model.codec import decode
from allot.core.model.core_v1 import Node
from allot.core.model.meta import ObjectMeta
from allot.core.model.resource_v1 import DeviceClass, ResourceClaim, ResourceClaimStatus, ResourceSlice
from allot.devices.container_programs import CONTAINER_PROGRAMS
from allot.devices.gpu.classes import device_classes
from allot.devices.gpu.driver import GpuDriver
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.hardware import Hardware
from allot.devices.gpu.programs import CONTAINER_CARDS
from allot.devices.gpu.simulated import MigLayout, SimulatedHardware
from allot.devices.profiles.machines import find_machine
from allot.driver.conformance.kubelet import ClaimRef, DriverConnection, Entry, find_sockets, registered
from allot.driver.plugin import Options, Plugin, running
from allot.store.memory import MemoryStore
from apiserver.live import live_server
from client.conftest import http_transport
from waiting import WAIT_S

NODE = "worker"
DYNAMIC = Gates(dynamic_mig=True)


def simulated(state: Path, machine: str, layout: MigLayout | None = None) -> SimulatedHardware:
    """The cards of a machine, on a node whose UUIDs are always the same."""
    return SimulatedHardware(find_machine(machine), state, NODE, layout)


class World:
    """What a test has."""

    def __init__(self, client: Client, plugin: Plugin, kubelet: DriverConnection, cdi: Path, scratch: Path) -> None:
        self.client = client
        self.plugin = plugin
        self.kubelet = kubelet
        self.cdi = cdi
        self._scratch = scratch
        self._containers = 0
        self.inventory = Inventory()
        for device_class in device_classes():
            self.inventory.put_class(device_class)

    async def slices(self) -> list[ResourceSlice]:
        """What the API server has."""
        return list((await self.client.typed(ResourceSlice).list()).items)

    async def published(self, count: int) -> list[ResourceSlice]:
        """The slices once there are so many devices."""
        async with eventually():
            while True:
                found = await self.slices()
                if sum(len(each.spec.devices or ()) for each in found) == count:
                    return found
                await pause()

    async def allocated(self, claim: Mapping[str, Any]) -> ClaimRef:
        """Create a claim and give it devices, as the scheduler would."""
        created = await self.client.typed(ResourceClaim).create(decode(dict(claim), ResourceClaim).object, "default")
        answer = await self.allocate(created)
        assert isinstance(answer, Allocated), answer
        status = ResourceClaimStatus(allocation=answer.results[0])
        await self.client.typed(ResourceClaim).update_status(msgspec.structs.replace(created, status=status))
        return ClaimRef("default", created.metadata.name, created.metadata.uid)

    async def allocate(self, claim: ResourceClaim) -> Allocated | Unallocatable:
        """Find devices for a claim, and hold them."""
        for slice_ in await self.slices():
            self.inventory.put_slice(slice_)
        answer = allocate(self.inventory, Node(metadata=ObjectMeta(name=NODE)), [claim])
        if isinstance(answer, Allocated):
            self.inventory.hold(claim_id(claim), answer.results[0])
        return answer

    async def prepare(self, claim: ClaimRef) -> Entry:
        """Prepare one claim."""
        return (await self.kubelet.prepare([claim]))[claim.uid]

    async def unprepare(self, claim: ClaimRef) -> str:
        """Unprepare one claim; the error."""
        return (await self.kubelet.unprepare([claim]))[claim.uid]

    def container(self, *entries: Entry) -> Container:
        """A container with the CDI devices of these claims."""
        self._containers += 1
        ids = dict.fromkeys(id_ for entry in entries for device in entry.devices for id_ in device.cdi_ids)
        return Container(self._scratch / f"container-{self._containers}", self.edits(list(ids)))

    def edits(self, ids: Sequence[str]) -> dict[str, Any]:
        """What the CDI spec files say about these names."""
        env: dict[str, str] = {}
        mounts: list[dict[str, Any]] = []
        nodes: list[dict[str, Any]] = []
        specs = [json.loads(path.read_text()) for path in sorted(self.cdi.glob("*.json"))]
        for id_ in ids:
            kind, _, name = id_.partition("=")
            found = [each for spec in specs if spec["kind"] == kind for each in spec["devices"] if each["name"] == name]
            assert len(found) == 1, f"{id_} is in {len(found)} CDI specs"
            edits = found[0]["containerEdits"]
            env |= dict(each.split("=", 1) for each in edits.get("env", ()))
            mounts += edits.get("mounts", ())
            nodes += edits.get("deviceNodes", ())
        return {"env": env, "mounts": mounts, "nodes": nodes}


class Container:
    """Programs run as if in a container: what would be mounted is linked."""

    def __init__(self, root: Path, edits: Mapping[str, Any]) -> None:
        self.env = dict(edits["env"])
        self.mounts = {each["containerPath"]: each["hostPath"] for each in edits["mounts"]}
        self.nodes = [each["path"] for each in edits["nodes"]]
        self._root = root
        for target, source in self.mounts.items():
            path = root / target.removeprefix("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(source)

    def _environment(self) -> dict[str, str]:
        given = dict(self.env)
        pipe = given.get("CUDA_MPS_PIPE_DIRECTORY")
        if pipe:
            given["CUDA_MPS_PIPE_DIRECTORY"] = str(self._root) + pipe
        return {"PATH": os.environ["PATH"], "TZ": "UTC", "SIMULATED_GPUS": str(self._root) + CONTAINER_CARDS, **given}

    def run(self, program: str, *arguments: str, shell: Sequence[str] = ("sh",)) -> subprocess.CompletedProcess[str]:
        """Run a program that was mounted."""
        path = f"{self._root}{CONTAINER_PROGRAMS}/{program}"
        return subprocess.run(
            [*shell, path, *arguments],
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a program that was mounted, in a process group of its own; its first line has been said."""
        path = f"{self._root}{CONTAINER_PROGRAMS}/{program}"
        process = subprocess.Popen(
            ["sh", path, *arguments],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert process.stdout is not None
        process.stdout.readline()
        return process


@asynccontextmanager
async def eventually(seconds: float = WAIT_S) -> AsyncIterator[None]:
    """A limit for waiting."""
    async with asyncio.timeout(seconds):
        yield


async def pause() -> None:
    """Let others work."""
    await asyncio.sleep(0.02)


@asynccontextmanager
async def api_client(folder: Path) -> AsyncIterator[Client]:
    """An API server with a node and the driver's classes."""
    folder.mkdir(parents=True, exist_ok=True)
    async with live_server(folder, MemoryStore()) as live:
        client = Client(http_transport(live))
        await client.typed(Node).create(Node(metadata=ObjectMeta(name=NODE)))
        for device_class in device_classes():
            await client.typed(DeviceClass).create(device_class)
        try:
            yield client
        finally:
            await client.close()


@asynccontextmanager
async def driver_world(
    client: Client, folder: Path, hardware: Hardware, gates: Gates | None = None
) -> AsyncIterator[World]:
    """The driver on its node."""
    options = Options(node_name=NODE, kubelet_root=folder / "k", cdi_directory=folder / "cdi", repair_delay_s=0.1)
    async with running(GpuDriver(hardware, gates), client, options) as plugin:
        socket = (await find_sockets(folder / "k" / "plugins_registry"))[0]
        async with registered(socket, timeout_s=WAIT_S) as kubelet:
            yield World(client, plugin, kubelet, folder / "cdi", folder / "containers")


@asynccontextmanager
async def gpu_world(
    folder: Path, machine: str = "h100x8", gates: Gates | None = None, layout: MigLayout | None = None
) -> AsyncIterator[World]:
    """API server and simulated GPUs."""
    async with (
        api_client(folder / "api") as client,
        driver_world(client, folder, simulated(folder / "state", machine, layout), gates) as world,
    ):
        yield world


def claim(name: str, *requests: Mapping[str, Any], config: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """A claim for devices of this driver."""
    devices: dict[str, Any] = {"requests": list(requests)}
    if config:
        devices["config"] = list(config)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": devices},
    }


def request(name: str = "gpu", device_class: str = "gpu.nvidia.com", count: int = 1, *cel: str) -> dict[str, Any]:
    """A request for whole GPUs."""
    exactly: dict[str, Any] = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    if cel:
        exactly["selectors"] = [{"cel": {"expression": each}} for each in cel]
    return {"name": name, "exactly": exactly}


def mig_request(name: str, profile: str, count: int = 1) -> dict[str, Any]:
    """A request for MIG instances of a profile."""
    return request(name, "mig.nvidia.com", count, f"device.attributes['gpu.nvidia.com'].profile == '{profile}'")


def opaque(kind: str, value: Mapping[str, Any], *requests: str) -> dict[str, Any]:
    """Parameters for the driver."""
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **value}
    entry: dict[str, Any] = {"opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}
    return {**entry, "requests": list(requests)} if requests else entry
