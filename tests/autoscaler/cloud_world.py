"""An API server with an autoscaler and a cloud whose machines become real Node objects with slices, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from allot.autoscaler.loop import Autoscaler
from allot.autoscaler.options import AutoscalerOptions
from allot.autoscaler.provider import POOL_LABEL, Provider, TemplateNode
from allot.autoscaler.simulated_cloud import CloudPool, SimulatedCloud
from allot.cli.autoscaler_sources import AutoscalerSources
from allot.cli.up.cloud import cloud_pools
from allot.client.api import Client, PatchType
from allot.client.errors import NotFound
from allot.client.informers import Informers
from allot.core.autoscaling.templates import Template
from allot.core.model.encoding import encode_struct
from allot.devices.gpu.classes import device_classes
from allot.devices.pool_files import parse_pools
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from controllers.cluster import Cluster, cluster

QUICK = AutoscalerOptions(
    scan_interval_s=0.05,
    max_node_provision_time_s=0.6,
    backoff_initial_s=30.0,
    scale_down_unneeded_time_s=0.2,
    scale_down_delay_after_add_s=0.0,
    scale_down_delay_after_failure_s=0.1,
    max_pod_eviction_time_s=0.3,
)


def pools_of(*texts: str, **changes: Any) -> list[CloudPool]:
    """Pools as `--pool` has them, whose machines come at once."""
    return [
        replace(pool, **{"boot_s": 0.0, "driver_s": 0.0, **changes})
        for pool in cloud_pools(parse_pools(texts, "--pool").pools)
    ]


@asynccontextmanager
async def gpu_cluster(folder: Path) -> AsyncIterator[Cluster]:
    """A server with the classes of the GPU driver."""
    async with cluster(folder) as found:
        for each in device_classes():
            body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **encode_struct(each)}
            await found.create("deviceclasses", body)
        yield found


async def pod(made: Cluster, name: str, *, gpu: bool = True, node: str = "", **more: Any) -> None:
    """A pod, with its claim if it wants a GPU."""
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "x"}], **more}
    metadata: dict[str, Any] = {"name": name, "namespace": "default"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": True}
    metadata["ownerReferences"] = [owner]
    if node:
        spec["nodeName"] = node
    if gpu:
        request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
        claim = {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}
        await made.create("resourceclaims", {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        spec["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    await made.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


class ApiMachines:
    """Machines become Nodes with slices."""

    def __init__(self, cluster: Cluster, pools: Mapping[str, TemplateNode]) -> None:
        self._cluster = cluster
        self._pools = pools
        self._made: dict[str, Template] = {}

    async def start(self, pool: str, name: str, provider_id: str) -> None:
        """Register."""
        told = self._pools[pool]
        made = self._made[name] = Template(node=told.node, slices=told.slices or ()).named(name)
        node = replace(made.node, spec=replace(made.node.spec, provider_id=provider_id))
        body = {"apiVersion": "v1", "kind": "Node", **encode_struct(node)}
        body["metadata"] = {"name": name, "labels": {**node.metadata.labels, POOL_LABEL: pool}}
        body["status"] = {**body["status"], "conditions": [{"type": "Ready", "status": "True"}]}
        await self._cluster.create("nodes", body)
        # What the node lifecycle controller does when a node is ready.
        taints = body["spec"].get("taints")
        await self._cluster.of("nodes").patch(name, {"spec": {"taints": taints}}, PatchType.MERGE)

    async def publish(self, name: str) -> None:
        """Devices."""
        for slice_ in self._made[name].slices:
            body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **encode_struct(slice_)}
            body["metadata"] = {"name": slice_.metadata.name}
            await self._cluster.create("resourceslices", body)

    async def stop(self, name: str) -> None:
        """Gone."""
        made = self._made.pop(name, None)
        try:
            await self._cluster.of("nodes").delete(name)
        except NotFound:
            pass
        for slice_ in made.slices if made is not None else ():
            try:
                await self._cluster.of("resourceslices").delete(slice_.metadata.name)
            except NotFound:
                pass


class World:
    """What a test looks at."""

    def __init__(
        self, cluster: Cluster, cloud: SimulatedCloud, autoscaler: Autoscaler, registry: CollectorRegistry
    ) -> None:
        self.cluster = cluster
        self.cloud = cloud
        self.autoscaler = autoscaler
        self.registry = registry

    async def nodes(self) -> list[str]:
        """The pools of all nodes."""
        return [node["metadata"]["labels"][POOL_LABEL] for node in await self.cluster.items("nodes")]

    async def machines(self) -> list[str]:
        """The pools of all machines, with what is the matter with them."""
        groups = await self.cloud.groups()
        return [
            f"{group.id}{each.error_code and ':' + each.error_code}"
            for group in groups
            for each in await self.cloud.instances(group.id)
        ]

    async def status(self) -> str:
        """The text of the config map."""
        found = await self.cluster.client.resource("", "v1", "configmaps", namespaced=True).list("kube-system")
        return next(
            (each["data"]["status"] for each in found.items if each["metadata"]["name"] == "cluster-autoscaler-status"),
            "",
        )


@asynccontextmanager
async def running_cloud(
    cluster: Cluster, pools: list[CloudPool], folder: Path, **options: Any
) -> AsyncIterator[SimulatedCloud]:
    """A cloud whose machines come and go."""
    machines = ApiMachines(cluster, {pool.name: pool.template for pool in pools})
    cloud = SimulatedCloud(pools, machines, SystemClock(), folder / "cloud.json", **options)
    task = asyncio.create_task(cloud.run())
    try:
        yield cloud
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def running_autoscaler(
    cluster: Cluster,
    provider: Provider,
    options: AutoscalerOptions = QUICK,
    profile_template: Callable[[str], Template | None] = lambda _profile: None,
    client: Client | None = None,
) -> AsyncIterator[tuple[Autoscaler, CollectorRegistry]]:
    """An autoscaler on a cluster. client: of a user who may do less than everything."""
    clock, ids, registry = SystemClock(), SystemIds(), CollectorRegistry()
    client = client or cluster.client
    informers = Informers(client, clock, ids)
    made = Autoscaler(client, clock, ids, provider, options, profile_template, registry)
    sources = AutoscalerSources(client, informers, clock, made)
    await sources.connect()
    tasks = [asyncio.create_task(informers.run()), asyncio.create_task(made.run(sources.wait_synced))]
    tasks.append(asyncio.create_task(sources.run(pause_s=0.1)))
    try:
        yield made, registry
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def world(
    cluster: Cluster,
    pools: list[CloudPool],
    folder: Path,
    options: AutoscalerOptions = QUICK,
    client: Client | None = None,
    **cloud_options: Any,
) -> AsyncIterator[World]:
    """Both."""
    async with (
        running_cloud(cluster, pools, folder, **cloud_options) as cloud,
        running_autoscaler(cluster, cloud, options, client=client) as (autoscaler, registry),
    ):
        yield World(cluster, cloud, autoscaler, registry)
