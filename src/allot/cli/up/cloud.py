"""The simulated cloud of the simulated nodes: new machines become nodes of the process, and autoscalers connect over a socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from allot.autoscaler.external_grpc import serving
from allot.autoscaler.provider import POOL_LABEL, PROFILE_LABEL, TemplateNode
from allot.autoscaler.simulated_cloud import CloudPool, SimulatedCloud, Window
from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.informer import Change
from allot.client.informers import Informers
from allot.core.autoscaling.pools import MILLION
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.compute_classes import GROUP, PLURAL, VERSION, ComputeClass
from allot.devices.class_pools import OFFERS_MAX, offers_of
from allot.devices.pool_files import PoolFile, PoolSpec, template_of
from allot.node.simulated_nodes import SimulatedNodes, SimulatedSet
from allot.process.clock import Clock
from allot.process.supervise import supervise

_log = logging.getLogger("allot.autoscaler")

_STATE = "cloud.json"
# What Cluster Autoscaler waits, by its options; divided by the cloud's factor.
_TIMES_S = {
    "scan-interval": 10.0,
    "max-node-provision-time": 900.0,
    "initial-node-group-backoff-duration": 300.0,
    "max-node-group-backoff-duration": 1800.0,
    "node-group-backoff-reset-timeout": 10_800.0,
    "scale-down-unneeded-time": 600.0,
    "scale-down-unready-time": 1200.0,
    "scale-down-delay-after-add": 600.0,
    "scale-down-delay-after-failure": 180.0,
}
_SHORTEST_S = 0.2


# What the nodes of a pool are.
MakeSet = Callable[[PoolSpec], SimulatedSet]


class _Machines:
    """Machines of the cloud as nodes of this process."""

    def __init__(self, nodes: SimulatedNodes, make: MakeSet) -> None:
        self._nodes = nodes
        self._make = make
        # Pools that may have nodes.
        self._specs: dict[str, PoolSpec] = {}
        self._kinds: dict[str, SimulatedSet] = {}

    def know(self, specs: Iterable[PoolSpec]) -> None:
        """There may be nodes of these pools."""
        self._specs |= {spec.name: spec for spec in specs}

    def kind(self, pool: str) -> SimulatedSet:
        """What the nodes of a pool are."""
        if pool not in self._kinds:
            self._kinds[pool] = self._make(self._specs[pool])
        return self._kinds[pool]

    async def start(self, pool: str, name: str, provider_id: str) -> None:
        """Its node registers."""
        kind = self.kind(pool)
        await self._nodes.add(replace(kind, node=replace(kind.node, provider_id=provider_id)), name)

    async def publish(self, name: str) -> None:
        """Let its drivers publish."""
        await self._nodes.publish(name)

    async def stop(self, name: str) -> None:
        """Remove it; retried until the API reflects it."""
        while True:
            try:
                await self._nodes.remove(name)
                return
            except ApiError:
                await asyncio.sleep(_SHORTEST_S)


def cloud_pools(pools: Sequence[PoolSpec], *, on_demand: bool = False) -> list[CloudPool]:
    """The cloud's pools. on_demand: they are created on first use."""
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
                origin=msgspec.json.encode(pool).decode() if on_demand else "",
            )
        )
    return found


class _Offers:
    """Pools that are created on demand for existing ComputeClasses."""

    def __init__(self, given: PoolFile, cloud: SimulatedCloud, machines: _Machines, nodes: SimulatedNodes) -> None:
        self._given = given
        self._cloud = cloud
        self._machines = machines
        self._nodes = nodes
        self._classes: dict[str, ComputeClass] = {}
        self._news = asyncio.Event()

    def put_again(self) -> None:
        """Pools that an earlier process created."""
        specs = [msgspec.json.decode(origin, type=PoolSpec) for origin in self._cloud.made_before.values()]
        self._machines.know(specs)
        for pool in cloud_pools(specs):
            self._cloud.put(pool)

    def changed(self, change: Change[dict[str, Any]]) -> None:
        """For an informer of ComputeClasses."""
        if change.old is not None and change.new is not None and change.old.get("spec") == change.new.get("spec"):
            # A status change is irrelevant.
            return
        if change.new is None:
            self._classes.pop(change.key, None)
        else:
            try:
                self._classes[change.key] = decode_served(without_managed_fields(change.new), ComputeClass)
            except DecodeError as error:
                _log.warning("ComputeClass %s: %s", change.key, error)
        self._news.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            kept = self._given.cloud.reservations
            specs = [spec for _, each in sorted(self._classes.items()) for spec in offers_of(each, kept)]
            if len(specs) > OFFERS_MAX:
                _log.warning(
                    "%d pools could be created for ComputeClasses; only the first %d are", len(specs), OFFERS_MAX
                )
            specs = specs[:OFFERS_MAX]
            self._machines.know(specs)
            # Pods that want their devices are known to want them before there is a node.
            await self._nodes.create_classes([self._machines.kind(spec.name) for spec in specs])
            self._cloud.offer(cloud_pools(specs, on_demand=True))


async def run_cloud(
    given: PoolFile,
    nodes: SimulatedNodes,
    make: MakeSet,
    client: Client,
    informers: Informers,
    clock: Clock,
    root: Path,
    socket: Path,
) -> None:
    """Run until cancelled. make: defines the nodes of a pool."""
    machines = _Machines(nodes, make)
    machines.know(given.pools)
    cloud = SimulatedCloud(
        cloud_pools(given.pools),
        machines,
        clock,
        root / _STATE,
        seed=given.cloud.seed,
        factor=given.cloud.time_factor,
        quota=given.cloud.quota,
    )
    offers = _Offers(given, cloud, machines, nodes)
    offers.put_again()
    if (await client.discovery()).find_name(f"{PLURAL}.{GROUP}") is not None:
        informers.dynamic(GROUP, VERSION, PLURAL, namespaced=False).add_handler(offers.changed)
    socket.unlink(missing_ok=True)
    async with serving(cloud, f"unix:{socket}"), asyncio.TaskGroup() as tasks:
        tasks.create_task(supervise("pools for ComputeClasses", offers.run, clock))
        await supervise("the cloud", cloud.run, clock)


def autoscaler_arguments(given: PoolFile, folder: Path, socket: Path) -> list[str]:
    """The options of `allot autoscaler` for this cloud: its times run as fast as the cloud's. folder: for its configuration."""
    config = folder / "cloud-config.json"
    config.write_bytes(msgspec.json.encode({"address": f"unix:{socket}"}))
    factor = given.cloud.time_factor
    times = [f"--time-factor={factor:g}"]
    times += [f"--{name}={max(seconds / factor, _SHORTEST_S):.3f}s" for name, seconds in _TIMES_S.items()]
    return ["--cloud-provider", "externalgrpc", "--cloud-config", str(config), "--expander", "price", *times]
