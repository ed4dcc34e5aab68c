"""The cost of workloads beyond their pods.

    python benchmarks/workloads.py [--quick] [--nodes N] [--pods N] [--jobs N] [--case CASE ...] [--profile FILE]

Control plane (API server in memory, scheduler, controllers) and simulated nodes in one process, each case in a separate process:

    bare        so many pods with a claim each, written one by one, until all are ready
    deployment  a Deployment of the same pods, scaled from 0
    jobs        so many Jobs of ten pods each that end at once, until all are complete

Processor seconds until the drivers that the pods have woken sleep again, and elapsed seconds. Part of it is folders and
sockets of nodes: with TMPDIR on a memory file system the disk has no part in it. The ratio of the first two is what the
controllers of Deployments and ReplicaSets add to a pod.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop
from simulated_nodes import PROFILE, create_template, machine

from allot.apiserver.assembly import Settings
from allot.client.api import PatchType
from allot.client.informer import Change
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane, control_plane
from allot.core.model.core_v1 import Pod
from allot.devices.catalogue import find_profile
from allot.devices.simulation import SimulatedDrivers
from allot.node.registration import NodeOptions
from allot.node.runtimes.placeholders import RUN_SECONDS
from allot.node.runtimes.process import ProcessRuntime
from allot.node.simulated_devices import AWAKE_MAX
from allot.node.simulated_nodes import SimulatedNodes, SimulatedOptions, SimulatedSet
from allot.process.interpreter import tune
from allot.store.memory import MemoryStore

NAMESPACE = "default"
CASES = ("bare", "deployment", "jobs")
PODS_PER_JOB = 10
# As many requests at once as the controllers make.
AT_ONCE = 64
# What the plane does before it is asked for anything has come to an end after so long.
REST_S = 10.0

SPEC: dict[str, Any] = {
    "containers": [{"name": "main", "image": "trainer", "resources": {"claims": [{"name": "gpu"}]}}],
    "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    "tolerations": [{"operator": "Exists"}],
    "automountServiceAccountToken": False,
}


class Ready:
    """Counts the pods that are ready, as the plane's informers learn of them."""

    def __init__(self, plane: ControlPlane, wanted: int) -> None:
        self._wanted = wanted
        self._count = 0
        self.reached = asyncio.Event()
        plane.informers.typed(Pod).add_handler(self._changed)

    def _changed(self, change: Change[Pod]) -> None:
        self._count += _is_ready(change.new) - _is_ready(change.old)
        if self._count >= self._wanted:
            self.reached.set()


def _is_ready(pod: Pod | None) -> bool:
    return pod is not None and any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions)


async def bare(plane: ControlPlane, pods: int) -> None:
    """Pods without an owner."""
    client = plane.client().resource("", "v1", "pods", namespaced=True)
    ready = Ready(plane, pods)

    async def some(first: int) -> None:
        for number in range(first, pods, AT_ONCE):
            metadata = {"name": f"pod-{number}", "labels": {"app": "x"}, "annotations": {RUN_SECONDS: "86400"}}
            await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": SPEC}, NAMESPACE)

    async with asyncio.TaskGroup() as tasks:
        for first in range(AT_ONCE):
            tasks.create_task(some(first))
    await ready.reached.wait()


async def deployment(plane: ControlPlane, pods: int) -> None:
    """The same pods of a Deployment, until it says that they are there."""
    client = plane.client().resource("apps", "v1", "deployments", namespaced=True)
    metadata = {"labels": {"app": "x"}, "annotations": {RUN_SECONDS: "86400"}}
    spec = {
        "replicas": 0,
        "selector": {"matchLabels": {"app": "x"}},
        "template": {"metadata": metadata, "spec": SPEC},
    }
    object_ = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": spec}
    await client.create(object_, NAMESPACE)
    ready = Ready(plane, pods)
    await client.patch("x", {"spec": {"replicas": pods}}, PatchType.MERGE, NAMESPACE, subresource="scale")
    await ready.reached.wait()
    while (await client.get("x", NAMESPACE))["status"].get("readyReplicas") != pods:
        await asyncio.sleep(0.1)


async def jobs(plane: ControlPlane, count: int) -> None:
    """Jobs, until all say that they are complete."""
    client = plane.client().resource("batch", "v1", "jobs", namespaced=True)
    complete: dict[str, None] = {}
    reached = asyncio.Event()

    def changed(change: Change[dict[str, Any]]) -> None:
        if change.new is not None and (change.new.get("status") or {}).get("completionTime"):
            complete[change.key] = None
            if len(complete) >= count:
                reached.set()

    plane.informers.dynamic("batch", "v1", "jobs", namespaced=True).add_handler(changed)
    template = {"metadata": {"annotations": {RUN_SECONDS: "0"}}, "spec": {**SPEC, "restartPolicy": "Never"}}
    spec = {"completions": PODS_PER_JOB, "parallelism": PODS_PER_JOB, "template": template}
    for number in range(count):
        object_ = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"job-{number}"}, "spec": spec}
        await client.create(object_, NAMESPACE)
    await reached.wait()


async def measure(case: str, root: Path, nodes: int, count: int, profile: cProfile.Profile | None) -> dict[str, float]:
    """One case: its processor and elapsed seconds."""
    run: Callable[..., Any] = {"bare": bare, "deployment": deployment, "jobs": jobs}[case]
    tune()
    async with control_plane(Settings(directory=root / "server", port=0), MemoryStore()) as plane:
        start_controllers(plane)
        start_scheduler(plane)
        alike = SimulatedSet(
            names=tuple(f"sim-{index}" for index in range(nodes)),
            node=NodeOptions(name="", address="127.0.0.1", version="v1.37.0"),
            machine=machine(),
            drivers=SimulatedDrivers(find_profile(PROFILE)),
        )
        options = SimulatedOptions(sets=(alike,), address="127.0.0.1", root=root / "nodes")
        programs = ProcessRuntime(root / "runtime", plane.clock, plane.ids)
        simulated = SimulatedNodes(plane.client(), plane.informers, plane.clock, plane.ids, options, programs)
        plane.start("nodes", simulated.run)
        await simulated.are_ready.wait()
        await create_template(plane)
        await asyncio.sleep(REST_S)
        if profile is not None:
            profile.enable()
        before, elapsed = os.times(), time.monotonic()
        await run(plane, count)
        while simulated.awake > AWAKE_MAX:
            # Drivers that this has woken, and that go to sleep again.
            await asyncio.sleep(0.1)
        after = os.times()
        found = {
            "user": after.user - before.user,
            "system": after.system - before.system,
            "elapsed": time.monotonic() - elapsed,
        }
        if profile is not None:
            profile.disable()
    return found


def alone(case: str, nodes: int, count: int, profile: str) -> None:
    """Measure one case in this process and print what it took."""
    profiler = cProfile.Profile() if profile else None
    with tempfile.TemporaryDirectory() as folder:
        found = uvloop.run(measure(case, Path(folder), nodes, count, profiler))
    if profiler is not None:
        profiler.dump_stats(profile)
    print(json.dumps(found))


def main() -> None:
    """Measure every case in a separate process and print a line for each."""
    parser = argparse.ArgumentParser(description="What workloads cost beyond their pods.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--pods", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--profile", default="", help="measure one case in this process and write its profile there")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    nodes = given.nodes or (100 if given.quick else 1000)
    pods = given.pods or (500 if given.quick else 5000)
    counts = {"bare": pods, "deployment": pods, "jobs": given.jobs or (50 if given.quick else 1000)}
    cases = given.case or CASES
    if given.alone or given.profile:
        alone(cases[0], nodes, counts[cases[0]], given.profile)
        return
    per_pod_ms: dict[str, float] = {}
    for case in cases:
        sizes = [f"--nodes={nodes}", f"--pods={pods}", f"--jobs={counts['jobs']}"]
        command = [sys.executable, __file__, "--alone", f"--case={case}", *sizes]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        total = counts[case] * (PODS_PER_JOB if case == "jobs" else 1)
        processor = found["user"] + found["system"]
        per_pod_ms[case] = processor / total * 1e3
        print(
            f"{case:11} {counts[case]:5} with {total} pods on {nodes} nodes: {per_pod_ms[case]:.2f} ms/pod of processor time, "
            f"{processor:.1f} s in all ({found['system']:.1f} s in the kernel), {found['elapsed']:.1f} s elapsed",
            flush=True,
        )
    if "bare" in per_pod_ms and "deployment" in per_pod_ms:
        print(f"a pod of a Deployment costs {per_pod_ms['deployment'] / per_pod_ms['bare']:.2f} times a bare one")


if __name__ == "__main__":
    main()
