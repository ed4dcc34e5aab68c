"""How long a pod with one claim takes from being bound to running, on a node of processes.

    python benchmarks/node.py [--quick]

Control plane (durable, SQLite), agent and driver (`examples/drivers/dice.py`) are separate processes, as in use. Measured
by a watch: from the event in which the pod has a node to the one in which it runs. Pods come one after the other, each deleted
before the next, then as many at a time as there are devices. Times are of the day: other work on the machine is in them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.client.http import HttpTransport
from allot.client.kubeconfig import connection_from_environment
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds

COUNT = 20 if "--quick" in sys.argv else 100
AT_ONCE = 4
_ROOT = Path(__file__).resolve().parents[1]
_CLASS = {
    "metadata": {"name": "dice"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dice.example.com"'}}]},
}
_REQUESTS = {"devices": {"requests": [{"name": "dice", "exactly": {"deviceClassName": "dice"}}]}}
_TEMPLATE = {"metadata": {"name": "dice"}, "spec": {"spec": _REQUESTS}}


@contextmanager
def running(folder: Path, name: str, *command: str) -> Iterator[None]:
    """A process with its output in a file."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


class Watch:
    """When each pod was bound and when it ran."""

    def __init__(self, client: Client) -> None:
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self.bound: dict[str, float] = {}
        self.ran: dict[str, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        version = (await self._pods.list("default")).resource_version
        async with self._pods.watch("default", resource_version=version, timeout_seconds=3600) as events:
            async for event in events:
                name, now = event.object["metadata"].get("name", ""), time.perf_counter()
                if (event.object.get("spec") or {}).get("nodeName"):
                    self.bound.setdefault(name, now)
                if (event.object.get("status") or {}).get("phase") == "Running":
                    self.ran.setdefault(name, now)

    async def one(self, name: str) -> float:
        """Create a pod, wait until it runs, remove it; milliseconds from bound to running."""
        container = {
            "name": "main",
            "image": "none",
            "command": ["sleep", "600"],
            "resources": {"claims": [{"name": "dice"}]},
        }
        claims = [{"name": "dice", "resourceClaimTemplateName": "dice"}]
        spec = {"containers": [container], "resourceClaims": claims, "terminationGracePeriodSeconds": 1}
        await self._pods.create({"metadata": {"name": name}, "spec": spec}, "default")
        while name not in self.ran:
            await asyncio.sleep(0.002)
        await self._pods.delete(name, "default")
        while True:
            try:
                await self._pods.get(name, "default")
            except NotFound:
                return (self.ran[name] - self.bound[name]) * 1000
            await asyncio.sleep(0.01)


async def until(what: str, look: Any) -> None:
    """Wait for something."""
    for _ in range(600):
        try:
            if await look():
                return
        except ApiError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit(f"{what}: not within a minute")


async def measure(kubeconfig: Path) -> None:
    """All numbers."""
    while not kubeconfig.exists():
        await asyncio.sleep(0.05)
    connection = connection_from_environment(os.environ, kubeconfig=kubeconfig, context="")
    client = Client(HttpTransport(connection, SystemClock(), SystemIds(), environ=os.environ, user_agent="benchmark"))
    slices = client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)

    async def has_slice() -> bool:
        return bool((await slices.list()).items)

    await until("a driver's slice", has_slice)
    await client.resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False).create(_CLASS)
    templates = client.resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)
    await templates.create(_TEMPLATE, "default")
    watch = Watch(client)
    watching = asyncio.create_task(watch.run())
    await asyncio.sleep(0.5)
    await watch.one("first")
    report("one after the other", [await watch.one(f"a-{number}") for number in range(COUNT)])
    times: list[float] = []
    for start in range(0, COUNT, AT_ONCE):
        times += await asyncio.gather(*(watch.one(f"b-{start + each}") for each in range(AT_ONCE)))
    report(f"{AT_ONCE} at a time", times)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await client.close()


def report(what: str, milliseconds: list[float]) -> None:
    """One line."""
    ordered = sorted(milliseconds)
    half, most = ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)]
    print(f"bound to running with one claim, {what}: p50 {half:.0f} ms, p99 {most:.0f} ms ({len(ordered)} pods)")


def main() -> None:
    """Start everything, measure, stop."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="allot-") as name:
        folder = Path(name)
        kubeconfig, root, cdi = folder / "kubeconfig", folder / "node", folder / "cdi"
        plane = (
            "-m",
            "allot",
            "up",
            "--node",
            "none",
            "--data-dir",
            str(folder / "data"),
            "--kubeconfig",
            str(kubeconfig),
            "--port",
            port,
        )
        agent = ("-m", "allot", "node", "--kubeconfig", str(kubeconfig), "--name", "n1", "--root-dir", str(root))
        dice = (str(_ROOT / "examples/drivers/dice.py"), "--node-name", "n1", "--kubeconfig", str(kubeconfig))
        with running(folder, "up", *plane):
            while not kubeconfig.exists():
                time.sleep(0.05)
            with (
                running(folder, "node", *agent, "--port", "0", "--cdi-spec-dir", str(cdi)),
                running(folder, "dice", *dice, "--port", "-1", "--kubelet-root", str(root), "--cdi-dir", str(cdi)),
            ):
                asyncio.run(measure(kubeconfig))


if __name__ == "__main__":
    main()
