"""The simulated cloud beside the simulated nodes: machines that come become nodes of the process, and autoscalers ask it over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from allot.autoscaler.external_grpc import serving
from allot.autoscaler.provider import POOL_LABEL, PROFILE_LABEL, TemplateNode
from allot.autoscaler.simulated_cloud import CloudPool, SimulatedCloud, Window
from allot.client.errors import ApiError
from allot.core.autoscaling.pools import MILLION
from allot.devices.pool_files import PoolFile, PoolSpec, template_of
from allot.node.simulated_nodes import SimulatedNodes, SimulatedSet
from allot.process.clock import Clock
from allot.process.supervise import supervise

_STATE = "cloud.json"
# What Cluster Autoscaler waits, by its options; divided by the cloud's factor.
_TIMES_S = {
    "scan-interval": 10.0,
    "max-node-provision-time": 900.0,
    "initial-node-group-backoff-duration": 300.0,
    "max-node-group-backoff-duration": 1800.0,
    "node-group-backoff-reset-timeout": 10_800.0,
    "scale-down-unneeded-time": 600.0,
    "scale-down-delay-after-add": 600.0,
    "scale-down-delay-after-failure": 180.0,
}
_SHORTEST_S = 0.2


class _Machines:
    """Machines of the cloud as nodes of this process."""

    def __init__(self, nodes: SimulatedNodes, kinds: Mapping[str, SimulatedSet]) -> None:
        self._nodes = nodes
        self._kinds = kinds

    async def start(self, pool: str, name: str, provider_id: str) -> None:
        """Its node registers."""
        kind = self._kinds[pool]
        await self._nodes.add(replace(kind, node=replace(kind.node, provider_id=provider_id)), name)

    async def publish(self, name: str) -> None:
        """Its drivers are there."""
        await self._nodes.publish(name)

    async def stop(self, name: str) -> None:
        """It is gone; tried until the API knows."""
        while True:
            try:
                await self._nodes.remove(name)
                return
            except ApiError:
                await asyncio.sleep(_SHORTEST_S)


def cloud_pools(pools: Sequence[PoolSpec]) -> list[CloudPool]:
    """Pools as the cloud has them."""
    found = []
    for pool in pools:
        template, _ = template_of(pool)
        metadata = template.node.metadata
        labels = {**metadata.labels, POOL_LABEL: pool.name, PROFILE_LABEL: pool.machine}
        node = replace(template.node, metadata=replace(metadata, labels=labels))
        found.append(
            CloudPool(
                name=pool.name,
                template=TemplateNode(node=node, slices=template.slices),
                min_size=pool.min,
                max_size=pool.max,
                initial=pool.min if pool.initial is None else pool.initial,
                price=pool.price_millionths / MILLION,
                spot=pool.spot,
                boot_s=pool.provisioning.boot_s,
                driver_s=pool.provisioning.driver_s,
                stock=pool.stock,
                windows=tuple(Window(*each) for each in pool.stock_windows()),
                failing=pool.faults.failing,
                silent=pool.faults.silent,
                deaf=pool.faults.deaf,
                reclaims_per_hour=pool.faults.reclaims_per_hour,
            )
        )
    return found


async def run_cloud(
    given: PoolFile, nodes: SimulatedNodes, kinds: Mapping[str, SimulatedSet], clock: Clock, root: Path, socket: Path
) -> None:
    """Until cancelled."""
    cloud = SimulatedCloud(
        cloud_pools(given.pools),
        _Machines(nodes, kinds),
        clock,
        root / _STATE,
        seed=given.cloud.seed,
        factor=given.cloud.time_factor,
        quota=given.cloud.quota,
    )
    socket.unlink(missing_ok=True)
    async with serving(cloud, f"unix:{socket}"):
        await supervise("the cloud", cloud.run, clock)


def autoscaler_arguments(given: PoolFile, folder: Path, socket: Path) -> list[str]:
    """The options of `allot autoscaler` for this cloud: its times run as fast as the cloud's. folder: for its configuration."""
    config = folder / "cloud-config.json"
    config.write_bytes(msgspec.json.encode({"address": f"unix:{socket}"}))
    factor = given.cloud.time_factor
    times = [f"--{name}={max(seconds / factor, _SHORTEST_S):.3f}s" for name, seconds in _TIMES_S.items()]
    return ["--cloud-provider", "externalgrpc", "--cloud-config", str(config), "--expander", "price", *times]
