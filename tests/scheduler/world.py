"""A control plane without controllers for tests of the scheduler: an API server on SQLite, and short names for objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from allot.apiserver.assembly import Settings
from allot.client.api import Client, PatchType
from allot.client.errors import NotFound
from allot.client.informers import Informers
from allot.controlplane.plane import ControlPlane, control_plane
from allot.controlplane.users import SCHEDULER
from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates
from allot.scheduler.configuration import SchedulerConfiguration
from allot.scheduler.loop import Options, Scheduler
from allot.store.sqlite import SqliteStore
from waiting import WAIT_S

Object = dict[str, Any]
DRIVER = "gpu.example.com"


class World:
    """What tests do to a cluster, and what they see of it."""

    def __init__(self, plane: ControlPlane, gates: FeatureGates) -> None:
        self.plane = plane
        self.gates = gates
        self.client: Client = plane.client()
        self.pods = self.client.resource("", "v1", "pods", namespaced=True)
        # The scheduler that a module's tests share.
        self.current: Scheduler
        self.claims = self.client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)

    # --- schedulers ---

    def scheduler(
        self,
        configuration: SchedulerConfiguration | None = None,
        *,
        client: Client | None = None,
        informers: Informers | None = None,
        is_guarded: bool = True,
    ) -> Scheduler:
        return Scheduler(
            client or self.plane.client(SCHEDULER, "kube-scheduler"),
            informers or self.plane.informers,
            self.plane.clock,
            self.plane.ids,
            configuration,
            self.gates,
            options=Options(is_guarded=is_guarded, gated_grace_s=0.2),
        )

    def start(self, scheduler: Scheduler, name: str = "scheduler") -> Scheduler:
        self.plane.start(name, scheduler.run)
        return scheduler

    # --- objects ---

    async def make(self, kind: str, object_: Object) -> Object:
        resource = await self.client.of_name(kind)
        return await resource.create({"apiVersion": resource.api_version, "kind": "", **object_})

    async def namespace(self, name: str) -> None:
        await self.client.resource("", "v1", "namespaces", namespaced=False).create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )

    async def node(self, name: str, cpu: str = "4", **more: Any) -> Object:
        nodes = self.client.resource("", "v1", "nodes", namespaced=False)
        spec = more.pop("spec", {})
        await nodes.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **more.pop("labels", {})}},
            }
        )
        # New nodes are not ready, says a taint; the node lifecycle controller would take it off.
        await nodes.patch(name, {"spec": {"taints": None, **spec}}, PatchType.MERGE)
        resources = {"cpu": cpu, "memory": "32Gi", "pods": "110", **more}
        status = {"capacity": resources, "allocatable": resources}
        patch = {"status": status}
        return await nodes.patch(name, patch, PatchType.MERGE, subresource="status")

    async def devices(
        self, node: str, count: int, *, slice_name: str = "slice", driver: str = DRIVER, **more: Any
    ) -> Object:
        return await self.client.resource("resource.k8s.io", "v1", "resourceslices", namespaced=False).create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node}-{slice_name}"},
                "spec": {
                    "driver": driver,
                    "nodeName": node,
                    "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": f"gpu-{index}", **more} for index in range(count)],
                },
            }
        )

    async def device_class(self, name: str = "gpu", **spec: Any) -> Object:
        return await self.client.resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False).create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}], **spec},
            }
        )

    async def claim(self, namespace: str, name: str, count: int = 1, class_: str = "gpu") -> Object:
        request = {"name": "gpu", "exactly": {"deviceClassName": class_, "count": count}}
        return await self.claims.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"devices": {"requests": [request]}},
            }
        )

    async def pod(
        self, namespace: str, name: str, *claims: str, cpu: str = "100m", spec: Object | None = None, **requests: str
    ) -> Object:
        resources: Object = {"requests": {"cpu": cpu, **requests}}
        resources["limits"] = dict(requests)
        container: Object = {"name": "c", "image": "i", "resources": resources}
        if claims:
            resources["claims"] = [{"name": claim} for claim in claims]
        return await self.pods.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": namespace},
                "spec": {
                    "containers": [container],
                    "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
                    **(spec or {}),
                },
            }
        )

    # --- seeing ---

    async def bound(self, namespace: str, name: str) -> str:
        """Wait until a pod has a node; its name."""
        pod = await self.until(
            lambda: self.pods.get(name, namespace), lambda pod: pod["spec"].get("nodeName"), f"pod {name} to be bound"
        )
        return str(pod["spec"]["nodeName"])

    async def all_bound(self, namespace: str, count: int) -> list[Object]:
        listed = await self.until(
            lambda: self.pods.list(namespace),
            lambda listed: sum(bool(pod["spec"].get("nodeName")) for pod in listed.items) >= count,
            f"{count} pods to be bound",
        )
        return list(listed.items)

    async def refused(self, namespace: str, name: str) -> Object:
        """Wait until a pod's condition says that it got no node; the condition."""
        pod = await self.until(
            lambda: self.pods.get(name, namespace),
            lambda pod: condition(pod, "PodScheduled") is not None,
            f"pod {name} to be refused",
        )
        found = condition(pod, "PodScheduled")
        assert found is not None
        return found

    async def events(self, namespace: str, reason: str, count: int = 1) -> list[Object]:
        events = self.client.resource("events.k8s.io", "v1", "events", namespaced=True)

        async def found() -> list[Object]:
            listed = await events.list(namespace)
            return [event for event in listed.items if event["reason"] == reason]

        return await self.until(found, lambda seen: len(seen) >= count, f"{count} events {reason}")

    async def until(self, ask: Callable[[], Any], holds: Callable[[Any], Any], what: str) -> Any:
        seen: Any = None
        try:
            async with asyncio.timeout(WAIT_S):
                while True:
                    try:
                        seen = await ask()
                        if holds(seen):
                            return seen
                    except NotFound:
                        pass
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"waited in vain for {what}; last seen: {seen}") from None

    async def holders(self) -> dict[tuple[str, str], list[str]]:
        """Who holds which device."""
        held: dict[tuple[str, str], list[str]] = {}
        for claim in (await self.claims.list()).items:
            allocation = claim.get("status", {}).get("allocation") or {}
            for result in allocation.get("devices", {}).get("results", []):
                held.setdefault((result["pool"], result["device"]), []).append(claim["metadata"]["name"])
        return held


def condition(pod: Object, type_: str) -> Object | None:
    found: Object | None = next((each for each in pod["status"].get("conditions", []) if each["type"] == type_), None)
    return found


@asynccontextmanager
async def world(path: Path, *, all_gates: bool = False, is_guarded: bool = True) -> AsyncIterator[World]:
    """is_guarded: the server refuses to allocate what another claim holds; Kubernetes' own does not."""
    gates = ALL_GATES if all_gates else DEFAULT_GATES
    settings = Settings(
        directory=path / "pki",
        port=0,
        gates=gates,
        disabled_admission=frozenset() if is_guarded else frozenset({"AllocationGuard"}),
    )
    async with control_plane(settings, SqliteStore(path / "state.db")) as plane:
        yield World(plane, gates)
