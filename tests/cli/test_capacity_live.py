"""`allot plan` and `allot top --watch` on a cluster that is there: a real API server with simulated nodes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from allot.apiserver.assembly import Settings
from allot.client.api import Client
from allot.controlplane.components import start_controllers
from allot.controlplane.plane import ControlPlane, control_plane
from allot.core.model.codec import encode
from allot.devices.gpu.classes import device_class, device_classes
from allot.devices.node_files import NodeFile, NodeSet
from allot.node.machine import read_machine
from allot.node.registration import NodeOptions
from allot.node.runtimes.process import ProcessRuntime
from allot.node.simulated_nodes import SimulatedNodes, SimulatedOptions, SimulatedSet
from allot.store.memory import MemoryStore
from cli.command import allot
from waiting import WAIT_S

pytestmark = pytest.mark.slow

NODES = NodeSet(profile="h100x8", name="gpu", count=2)
MANIFEST = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: pair}
spec:
  spec:
    devices:
      requests:
      - {name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 2}}
      constraints:
      - matchAttribute: resource.kubernetes.io/pcieRoot
---
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: train
    image: train:1
    resources: {requests: {cpu: 30, memory: 10Gi}, claims: [{name: pair}]}
  resourceClaims: [{name: pair, resourceClaimTemplateName: pair}]
"""


@asynccontextmanager
async def _cluster(root: Path) -> AsyncIterator[tuple[ControlPlane, Path]]:
    """An API server with two simulated nodes, and its kubeconfig."""
    profile, drivers = NODES.resolved()
    machine = msgspec.structs.replace(
        read_machine(root), processors=profile.cpus, memory_bytes=profile.memory_gib * 2**30
    )
    node = NodeOptions(name="", address="127.0.0.1", version="v1.37.0", labels=profile.labels)
    made = SimulatedSet(names=NODES.names, node=node, machine=machine, drivers=drivers)
    async with control_plane(Settings(directory=root / "server", port=0), MemoryStore()) as plane:
        kubeconfig = root / "kubeconfig"
        plane.server.access.write_admin_kubeconfig(kubeconfig, plane.server.url)
        client = plane.client()
        for each in device_classes():
            await client.resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False).create(encode(each))
        options = SimulatedOptions(sets=(made,), address="127.0.0.1", root=root / "nodes")
        programs = ProcessRuntime(root / "runtime", plane.clock, plane.ids)
        nodes = SimulatedNodes(client, plane.informers, plane.clock, plane.ids, options, programs)
        plane.start("nodes", nodes.run)
        start_controllers(plane)
        async with asyncio.timeout(WAIT_S):
            await nodes.are_ready.wait()
            while any(each["spec"].get("taints") for each in (await _nodes(client).list()).items):
                await asyncio.sleep(0.05)
        yield plane, kubeconfig


def _nodes(client: Client) -> Any:
    return client.resource("", "v1", "nodes", namespaced=False)


async def test_nodes_that_are_planned_give_what_they_give_when_they_are_there(tmp_path: Path) -> None:
    manifest, nodes, empty = tmp_path / "train.yaml", tmp_path / "nodes.json", tmp_path / "empty.yaml"
    manifest.write_text(MANIFEST)
    nodes.write_bytes(msgspec.json.encode(NodeFile((NODES,))))
    empty.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n")
    planned = allot("plan", str(manifest), "-f", str(empty), "--add", str(nodes), "-o", "json").lines[0]["changed"]
    async with _cluster(tmp_path) as (plane, kubeconfig):
        arguments = ("plan", str(manifest), "--kubeconfig", str(kubeconfig), "-o", "json")
        there = (await asyncio.to_thread(allot, *arguments)).lines[0]["now"]
        process = await _watches(plane, kubeconfig)
        port = urlsplit(plane.server.url).port
    await _tells_that_the_server_is_gone(process, port)
    assert planned == there
    assert there["scheduled"] == 2 * 4


async def _watches(plane: ControlPlane, kubeconfig: Path) -> asyncio.subprocess.Process:
    """The view is printed again when something changes."""
    arguments = ("top", "devices", "--watch", "-o", "json", "--kubeconfig", str(kubeconfig))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "allot",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # Whoever runs these tests in the background has it ignored, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    async with asyncio.timeout(WAIT_S):
        first = json.loads(await process.stdout.readline())
        classes = plane.client().resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
        await classes.create(encode(device_class("none", "false")))
        second = json.loads(await process.stdout.readline())
    assert {row["name"]: row["free"] for row in first["rows"]}["gpu.nvidia.com"] == 16
    assert {row["name"] for row in second["rows"]} - {row["name"] for row in first["rows"]} == {"none"}
    return process


async def _hang_up(port: int | None, times: int) -> None:
    """In the place of the server, until so many have called."""
    calls = asyncio.Semaphore(0)

    def called(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.release()
        writer.close()

    async with await asyncio.start_server(called, "127.0.0.1", port):
        for _ in range(times):
            await calls.acquire()


async def _tells_that_the_server_is_gone(process: asyncio.subprocess.Process, port: int | None) -> None:
    """Once for all informers; and Ctrl-C ends it."""
    assert process.stderr is not None
    async with asyncio.timeout(WAIT_S):
        told = (await process.stderr.readline()).decode()
        await _hang_up(port, times=5)
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert await process.stderr.read() == b""
    assert told.startswith("note: perhaps out of date: the server went away at ")
