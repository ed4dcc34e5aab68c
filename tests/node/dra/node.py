"""A node for tests: the real API server in this process, a ClaimPreparer with short periods, and short ways to make pods."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.errors import Forbidden
from allot.controlplane.clients import client_of
from allot.controlplane.users import node_user
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model.pods_v1 import decode_runnable
from allot.core.model.resource_v1 import ResourceClaim
from allot.node.dra.claim_preparer import ClaimPreparer, Periods
from allot.process.clock import Clock, SystemClock
from allot.process.ids import SystemIds
from allot.process.metrics import render
from controllers.cluster import Cluster, by_name, cluster
from controllers.cluster import claim as claim_object
from controllers.cluster import pod as pod_object
from node.dra.plugin import DriverOnSockets
from waiting import until

NODE = "node-1"
QUICK = Periods(
    call_s=5.0,
    registration_s=0.01,
    registration_pause_s=0.01,
    reconcile_s=60.0,
    wipe_s=60.0,
    redial_s=0.02,
    look_s=0.02,
)


class Node:
    """A node whose agent can be started and killed."""

    def __init__(self, cluster_: Cluster, root: Path, gates: FeatureGates) -> None:
        self.cluster = cluster_
        self.root = root
        self.gates = gates
        self.active: set[str] | None = set()
        # How often the agent has asked for them.
        self.looks = 0
        self.metrics = CollectorRegistry()
        self.drivers: list[DriverOnSockets] = []

    async def driver(self, name: str = "gpu.example.com", **more: Any) -> DriverOnSockets:
        """A driver that runs until the end of the test."""
        driver = await DriverOnSockets(self.root, name, **more).start()
        self.drivers.append(driver)
        return driver

    @property
    def client(self) -> Client:
        """With the rights of this node's agent."""
        return client_of(self.cluster.server, node_user(NODE))

    def preparer(self, periods: Periods = QUICK, clock: Clock | None = None) -> ClaimPreparer:
        """A preparer on this node's folder that does not run yet."""
        self.metrics = CollectorRegistry()
        return ClaimPreparer(
            self.client,
            NODE,
            self.root,
            clock or SystemClock(),
            SystemIds(),
            active_pods=self._active_pods,
            gates=self.gates,
            metrics=self.metrics,
            periods=periods,
        )

    def _active_pods(self) -> frozenset[str] | None:
        self.looks += 1
        return None if self.active is None else frozenset(self.active)

    async def looked(self, times: int) -> None:
        """Wait until the agent has asked for the active pods so often again."""
        before = self.looks
        await until(lambda: self.looks >= before + times)

    @asynccontextmanager
    async def running(self, periods: Periods = QUICK, clock: Clock | None = None) -> AsyncIterator[ClaimPreparer]:
        """A preparer that runs, and is killed in the end: nothing is said to anybody."""
        preparer = self.preparer(periods, clock)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(preparer.run())
            try:
                yield preparer
            finally:
                task.cancel()

    def text(self) -> str:
        """All metrics."""
        return render(self.metrics).decode()

    # --- objects ---

    async def pod(
        self,
        name: str,
        *claims: str,
        drivers: Sequence[str] = ("gpu.example.com",),
        reserve: bool = True,
        results: Sequence[dict[str, Any]] | None = None,
    ) -> Any:
        """A pod on this node with claims that are allocated and reserved for it; those that are there are shared."""
        made = await self.cluster.create(
            "pods", pod_object(name, claims=[by_name(each, each) for each in claims], node=NODE)
        )
        for each in claims:
            await self.claim(each, [made] if reserve else [], drivers=drivers, results=results)
            # The authorizer follows what pods use with a little delay.
            await until(lambda each=each: self._may_read(each))
        assert self.active is not None
        self.active.add(made["metadata"]["uid"])
        return made

    async def _may_read(self, claim: str) -> bool:
        try:
            await self.client.typed(ResourceClaim).get(claim, "default")
        except Forbidden:
            return False
        return True

    async def claim(
        self,
        name: str,
        consumers: Sequence[Any],
        *,
        drivers: Sequence[str] = ("gpu.example.com",),
        results: Sequence[dict[str, Any]] | None = None,
    ) -> Any:
        """A claim as the scheduler leaves it."""
        found = await self.cluster.get("resourceclaims", name)
        if found is None:
            found = await self.cluster.create("resourceclaims", claim_object(name))
        before = (found.get("status") or {}).get("reservedFor") or []
        reserved = [
            {"resource": "pods", "name": each["metadata"]["name"], "uid": each["metadata"]["uid"]} for each in consumers
        ]
        results = results or [{"driver": driver} for driver in drivers]
        status = {
            "allocation": {
                "devices": {
                    "results": [
                        {"request": "req", "pool": NODE, "device": f"{name}-{number}", **result}
                        for number, result in enumerate(results)
                    ]
                }
            },
            "reservedFor": [*before, *reserved],
        }
        return await self.cluster.of("resourceclaims").update_status({**found, "status": status})

    async def uid_of(self, claim: str) -> str:
        """The uid of a claim."""
        found = await self.cluster.get("resourceclaims", claim)
        assert found is not None
        return str(found["metadata"]["uid"])

    async def slice(self, name: str, driver: str = "gpu.example.com", node: str = NODE) -> None:
        """A ResourceSlice."""
        await self.cluster.create(
            "resourceslices",
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": name},
                "spec": {
                    "driver": driver,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0"}],
                },
            },
        )

    async def slices(self) -> list[str]:
        """The names of all slices."""
        return [each["metadata"]["name"] for each in await self.cluster.items("resourceslices")]

    def state(self) -> Any:
        """The claims in the state file."""
        outer = msgspec.json.decode((self.root / "dra_manager_state").read_bytes())
        return msgspec.json.decode(outer["Data"])["ClaimInfoStateList"]


@asynccontextmanager
async def node(directory: Path, gates: FeatureGates = DEFAULT_GATES) -> AsyncIterator[Node]:
    """A node in a cluster of its own. Sockets live in a folder with a short name: their paths have at most 107 bytes."""
    async with cluster(directory, gates) as found:
        await found.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        with tempfile.TemporaryDirectory(prefix="dra") as root:
            made = Node(found, Path(root), gates)
            try:
                yield made
            finally:
                for driver in made.drivers:
                    await driver.stop()


async def registered(preparer: ClaimPreparer, *drivers: str) -> None:
    """Wait until drivers are registered and connected."""
    for driver in drivers or ("gpu.example.com",):
        await until(lambda driver=driver: preparer.plugins.is_usable(driver))


def has_records(preparer: ClaimPreparer, pod: Any) -> bool:
    """Whether something is still recorded for a pod."""
    return any(pod["metadata"]["uid"] in record.pod_uids for record in preparer.records.values())


def cdi_devices(preparer: ClaimPreparer, pod: dict[str, Any], name: str) -> tuple[str, ...]:
    """The CDI devices of a container of a pod."""
    typed = decode_runnable(pod)
    container = typed.container(name)
    assert container is not None
    return preparer.cdi_devices(typed, container)
