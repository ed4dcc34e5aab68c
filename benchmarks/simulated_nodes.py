"""The cost of thousands of simulated nodes.

    python benchmarks/simulated_nodes.py [--quick] [--nodes N] [--pods N] [--claims N]

Control plane (API server in memory, scheduler, controllers) and nodes in one process. Measured: until all nodes of the shape h100x8
are registered with lease, state and slices; then, with --pods, until so many pods with annotations for placeholders run on them; with
--claims, until so many more run that each claim a GPU, which the drivers of their nodes prepare.
Processor seconds, which other work on the machine does not change, elapsed seconds, and the peak of memory.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

from allot.apiserver.assembly import Settings
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane, control_plane
from allot.devices.catalogue import find_profile
from allot.devices.simulation import SimulatedDrivers
from allot.node.machine import Machine
from allot.node.registration import NodeOptions
from allot.node.runtimes.placeholders import RUN_SECONDS
from allot.node.runtimes.process import ProcessRuntime
from allot.node.simulated_nodes import SimulatedNodes, SimulatedOptions, SimulatedSet
from allot.process.memory import peak_resident_bytes
from allot.store.memory import MemoryStore

PROFILE = "h100x8"
NAMESPACE = "default"


def machine() -> Machine:
    """A machine of the profile's size."""
    profile = find_profile(PROFILE)
    return Machine(
        processors=profile.cpus,
        memory_bytes=profile.memory_gib * 2**30,
        disk_bytes=2**40,
        architecture="amd64",
        operating_system="linux",
        kernel_version="6.12",
        os_image="simulated",
        machine_id="",
        system_uuid="",
        boot_id="",
    )


class Stopwatch:
    """Says how long something took."""

    def __init__(self) -> None:
        self._processor, self._elapsed = time.process_time(), time.monotonic()

    def say(self, what: str) -> None:
        """Print what it took since the last time."""
        processor, elapsed = time.process_time(), time.monotonic()
        peak = peak_resident_bytes() / 2**20
        print(
            f"{what}: {processor - self._processor:.1f} s of processor time, {elapsed - self._elapsed:.1f} s elapsed, "
            f"peak {peak:.0f} MiB",
            flush=True,
        )
        self._processor, self._elapsed = processor, elapsed


async def measure(root: Path, count: int, pods: int, claims: int) -> None:
    """One run."""
    profile = find_profile(PROFILE)
    async with control_plane(Settings(directory=root / "server", port=0), MemoryStore()) as plane:
        start_controllers(plane)
        start_scheduler(plane)
        nodes_alike = SimulatedSet(
            names=tuple(f"sim-{index}" for index in range(count)),
            node=NodeOptions(name="", address="127.0.0.1", version="v1.37.0"),
            machine=machine(),
            drivers=SimulatedDrivers(profile),
        )
        options = SimulatedOptions(sets=(nodes_alike,), address="127.0.0.1", root=root / "nodes")
        programs = ProcessRuntime(root / "runtime", plane.clock, plane.ids)
        nodes = SimulatedNodes(
            plane.client(),
            plane.informers,
            plane.clock,
            plane.ids,
            options,
            programs,
        )
        watch = Stopwatch()
        plane.start("nodes", nodes.run)
        await nodes.are_ready.wait()
        watch.say(f"{count} nodes with {profile.devices} each")
        await asyncio.sleep(10)
        watch.say("the 10 s after that: what controllers still do, and leases")
        spec: dict[str, Any] = {
            "containers": [{"name": "main", "image": "trainer"}],
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
        }
        if pods:
            await _run_pods(plane, "pod", pods, 0, spec)
            watch.say(f"{pods} pods")
        if claims:
            await create_template(plane)
            spec["containers"] = [{"name": "main", "image": "trainer", "resources": {"claims": [{"name": "gpu"}]}}]
            spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
            await _run_pods(plane, "claiming", claims, pods, spec)
            watch.say(f"{claims} pods with a claim each")


async def create_template(plane: ControlPlane) -> None:
    """The template that claims one GPU."""
    templates = plane.client().resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    await templates.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "gpu", "namespace": NAMESPACE},
            "spec": {"spec": {"devices": {"requests": [request]}}},
        }
    )


async def _run_pods(plane: ControlPlane, name: str, count: int, before: int, spec: dict[str, Any]) -> None:
    """Create pods and wait until they run; before: how many run already."""
    client = plane.client().resource("", "v1", "pods", namespaced=True)
    for index in range(count):
        metadata = {"name": f"{name}-{index}", "namespace": NAMESPACE, "annotations": {RUN_SECONDS: "86400"}}
        await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, NAMESPACE)
    while True:
        listed = await client.list(NAMESPACE, field_selector="status.phase=Running")
        if len(listed.items) >= before + count:
            return
        await asyncio.sleep(1)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description="Thousands of simulated nodes in one process.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--claims", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uvloop.run(measure(Path(folder), given.nodes or (200 if given.quick else 5000), given.pods, given.claims))


if __name__ == "__main__":
    main()
