"""The cost of the resource claim controller: creating claims from templates, releasing claims, and how long a pod waits for its claim.

    python benchmarks/controllers.py [--quick]

One process with an API server on SQLite (durable), shared informers and the controller, as `allot up` has them. Processor
time is that of the whole process, so that the API server's part of each write is in it; what the same pods cost without the
controller is taken off. Numbers depend on the machine: compare runs on the same one.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvloop

from allot.apiserver.assembly import Settings
from allot.client.api import Client, PatchType
from allot.controlplane.components import start_controllers
from allot.controlplane.plane import ControlPlane, control_plane
from allot.process.interpreter import tune
from allot.store.sqlite import SqliteStore

COUNT = 300 if "--quick" in sys.argv else 3000
AT_ONCE = 32
NAMESPACE = "default"
FINALIZER = "resource.kubernetes.io/delete-protection"

TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "gpu", "namespace": NAMESPACE},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}},
}


def pod(name: str) -> dict[str, Any]:
    """A pod with one claim from the template."""
    container = {"name": "main", "image": "registry.example.com/train:1", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    metadata = {"name": name, "namespace": NAMESPACE}
    spec = {"containers": [container], "resourceClaims": claims}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Cost:
    """Processor time and time of day of a piece of work."""

    def __init__(self) -> None:
        self._processor, self._wall = time.process_time(), time.perf_counter()

    def per_pod_us(self) -> float:
        """Processor time for each pod so far."""
        return (time.process_time() - self._processor) / COUNT * 1e6

    def pods_per_second(self) -> float:
        """Pods in a second so far."""
        return COUNT / (time.perf_counter() - self._wall)


async def each(work: Callable[[int], Awaitable[Any]]) -> None:
    """Do something for every pod, some at once."""

    async def some(first: int) -> None:
        for number in range(first, COUNT, AT_ONCE):
            await work(number)

    async with asyncio.TaskGroup() as tasks:
        for first in range(AT_ONCE):
            tasks.create_task(some(first))


class Bench:
    """The measurements on one control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        client: Client = plane.client()
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        self._templates = client.resource("resource.k8s.io", "v1", "resourceclaimtemplates", namespaced=True)

    async def run(self) -> None:
        """Everything, in order."""
        await self._templates.create(TEMPLATE)
        alone = Cost()
        await each(lambda number: self._pods.create(pod(f"alone-{number}")))
        alone_us = alone.per_pod_us()
        await each(lambda number: self._pods.delete(f"alone-{number}", NAMESPACE, grace_period_seconds=0))
        start_controllers(self._plane, ["resourceclaim-controller"])
        await self._wait_for_one()
        together = Cost()
        await each(lambda number: self._pods.create(pod(f"pod-{number}")))
        await self._until(self._all_recorded)
        made_us, made_per_second = together.per_pod_us() - alone_us, together.pods_per_second()
        print(
            f"claims made       {made_us:6.0f} µs/pod of processor time, {made_per_second:6.0f} pods/s with their pods"
        )
        await each(self._allocate)
        finish = Cost()
        await each(self._finish)
        finish_us = finish.per_pod_us()
        await self._until(self._none_left)
        print(
            f"claims released   {finish.per_pod_us():6.0f} µs/pod of processor time with the pods' own status"
            f" (which was written after {finish_us:.0f}), {finish.pods_per_second():6.0f} pods/s"
        )
        await self._latency()

    async def _wait_for_one(self) -> None:
        await self._pods.create(pod("first"))
        await self._until(lambda: self._is_recorded("first"))

    async def _latency(self) -> None:
        waits = []
        for number in range(min(COUNT, 200)):
            started = time.perf_counter()
            await self._pods.create(pod(f"lone-{number}"))
            await self._until(lambda number=number: self._is_recorded(f"lone-{number}"), pause_s=0)  # type: ignore[misc]
            waits.append((time.perf_counter() - started) * 1e3)
        waits.sort()
        middle, late = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
        print(f"pod until claim   {middle:6.1f} ms in the middle, {late:.1f} ms at worst of a hundred, one at a time")

    async def _allocate(self, number: int) -> None:
        """What the scheduler writes."""
        found = await self._pods.get(f"pod-{number}", NAMESPACE)
        claim = await self._claims.get(found["status"]["resourceClaimStatuses"][0]["resourceClaimName"], NAMESPACE)
        result = {"request": "gpu", "driver": "gpu.example.com", "pool": f"node-{number}", "device": "gpu-0"}
        consumer = {"resource": "pods", "name": found["metadata"]["name"], "uid": found["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
        await self._claims.update_status({**claim, "status": status})

    async def _finish(self, number: int) -> None:
        patch = {"status": {"phase": "Succeeded"}}
        await self._pods.patch(f"pod-{number}", patch, PatchType.MERGE, NAMESPACE, subresource="status")

    async def _is_recorded(self, name: str) -> bool:
        return "resourceClaimStatuses" in (await self._pods.get(name, NAMESPACE))["status"]

    async def _all_recorded(self) -> bool:
        listed = await self._pods.list(NAMESPACE, page_size=0)
        return all("resourceClaimStatuses" in item["status"] for item in listed.items)

    async def _none_left(self) -> bool:
        listed = await self._claims.list(NAMESPACE, page_size=0)
        return len(listed.items) <= 1

    async def _until(self, check: Callable[[], Awaitable[bool]], pause_s: float = 0.02) -> None:
        while not await check():
            await asyncio.sleep(pause_s)


async def main() -> None:
    """Run all measurements."""
    tune()
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory) / "store.db")
        settings = Settings(directory=Path(directory) / "pki", port=0)
        async with control_plane(settings, store) as plane:
            await Bench(plane).run()


if __name__ == "__main__":
    uvloop.run(main())
