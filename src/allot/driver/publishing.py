"""Keeps the ResourceSlices of a driver in line with its pools (`core.lifecycle.slice_publishing` decides what to write).

A new list of devices is published at once. Changes by others, such as a starting kubelet that deletes all slices of its
node, are noticed by a watch and repaired after a pause, so that two instances of a driver do not fight at full speed. Before
a write the slices are listed, so own writes need not be remembered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.backoff import Backoff
from allot.client.errors import ApiError, Conflict, NotFound
from allot.client.informer import Informer
from allot.client.typed import TypedResource
from allot.core.lifecycle.slice_publishing import Pool, Writes, check_pools, plan_removal, plan_writes
from allot.core.model.core_v1 import Node
from allot.core.model.meta import OwnerReference
from allot.core.model.resource_v1 import Device, ResourceSlice, ResourceSliceSpec
from allot.driver.metrics import DriverMetrics
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.driver")

Publish = Callable[[tuple[Pool, ...]], None]

REPAIR_DELAY_S = 30.0
# Device fields that a server drops while their feature is off.
_GATES = {
    "taints": "DRADeviceTaints",
    "consumes_counters": "DRAPartitionableDevices",
    "allow_multiple_allocations": "DRAConsumableCapacity",
    "capacity": "DRAConsumableCapacity",
    "binding_conditions": "DRADeviceBindingConditions",
    "binding_failure_conditions": "DRADeviceBindingConditions",
    "binds_to_node": "DRADeviceBindingConditions",
    "node_allocatable_resources": "DRANodeAllocatableResources",
    "attributes": "DRAListTypeAttributes",
}


class SlicePublisher:
    """Publishes the pools of one driver. node_name: empty for a controller, which has all pools that do not belong to a node. cluster_pool: this
    pool on any node, instead of the node's pools. publish: publishes instead, for many drivers at once; called with new pools
    unchanged."""

    def __init__(
        self,
        client: Client,
        driver: str,
        node_name: str,
        metrics: DriverMetrics,
        clock: Clock,
        ids: Ids,
        *,
        cluster_pool: str = "",
        repair_delay_s: float = REPAIR_DELAY_S,
        publish: Publish | None = None,
    ) -> None:
        self._client = client
        self._driver = driver
        self._node_name = node_name
        self._metrics = metrics
        self._clock = clock
        self._ids = ids
        self._cluster_pool = cluster_pool
        self._repair_delay_s = repair_delay_s
        self._publish = publish
        self._backoff = Backoff(clock, ids)
        self._pools: tuple[Pool, ...] | None = None
        self._owner: OwnerReference | None = None
        self._accepted: dict[str, tuple[ResourceSliceSpec, ResourceSliceSpec]] = {}
        self._due_at = float("inf")
        self._news = asyncio.Event()
        # Problems of the pools that were set last; then they are not published.
        self.problems: tuple[str, ...] = ()
        # Counts completed syncs, for waiters.
        self.synced = asyncio.Event()
        self._informer: Informer[None] | None = None

    async def ready(self) -> str:
        """Why the cluster does not know the devices or cannot be reached; empty if all is well. Does not query the server: thousands of
        nodes are checked every few seconds."""
        if self.problems:
            return f"slices are not published: {self.problems[0]}"
        if self._informer is not None and self._informer.problem:
            return f"the API server is not reached: {self._informer.problem}"
        return "" if self.synced.is_set() else "slices are not published yet"

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The published pools."""
        return self._pools or ()

    def set(self, pools: Sequence[Pool]) -> None:
        """Publish exactly these pools from now on. Problems are logged and kept in `problems`."""
        wanted = tuple(pools)
        if wanted == self._pools:
            return
        if self._publish is not None:
            self._pools = wanted
            self._publish(wanted)
            self.synced.set()
            return
        self.problems = check_pools(self._driver, wanted)
        for problem in self.problems:
            _log.error("not published: %s", problem)
            self._metrics.problem("devices")
        if self.problems:
            return
        self._pools = wanted
        self.synced.clear()
        self.sync_after(0.0)

    def sync_after(self, seconds: float) -> None:
        """Check the slices after this time, or earlier."""
        self._due_at = min(self._due_at, self._clock.monotonic() + seconds)
        self._news.set()

    async def run(self) -> None:
        """Publish and repair until cancelled."""
        if self._publish is not None:
            return
        typed = await self._resource()
        informer: Informer[None] = Informer(
            typed.resource, lambda _object: None, self._clock, self._ids, field_selector=self._field_selector()
        )
        self._informer = informer
        # Also on a retry after a failure.
        self.sync_after(0.0)
        informer.add_handler(lambda _change: self.sync_after(self._repair_delay_s))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(informer.run())
            tasks.create_task(self._sync_loop(typed))

    async def _resource(self) -> TypedResource[ResourceSlice]:
        while True:
            try:
                return await self._client.typed_as_served(ResourceSlice)
            except ApiError as error:
                await self._pause(error)

    def _field_selector(self) -> str:
        driver = f"spec.driver={self._driver}"
        return driver if self._cluster_pool else f"{driver},spec.nodeName={self._node_name}"

    def _is_own(self, slice_: ResourceSlice) -> bool:
        if slice_.spec.driver != self._driver or slice_.metadata.deletion_timestamp is not None:
            return False
        if self._cluster_pool:
            return slice_.spec.pool.name == self._cluster_pool
        # The field selector requests only these, but not all servers support it.
        return (slice_.spec.node_name or "") == self._node_name

    async def _sync_loop(self, typed: TypedResource[ResourceSlice]) -> None:
        while True:
            await self._until_due()
            pools = self._pools
            if pools is None:
                continue
            try:
                await self._sync(typed, pools)
            except (Conflict, NotFound) as error:
                # Another writer was faster; check again.
                _log.info("slices of %s: %s", self._driver, error)
                self.sync_after(self._backoff.next_s() * 0.1)
            except ApiError as error:
                await self._pause(error)
                self.sync_after(0.0)
            else:
                self._backoff.reset()
                if self._pools is pools:
                    self.synced.set()

    async def _until_due(self) -> None:
        while (left := self._due_at - self._clock.monotonic()) > 0:
            self._news.clear()
            try:
                async with asyncio.timeout(left if left < 1e6 else None):
                    await self._news.wait()
            except TimeoutError:
                pass
        self._due_at = float("inf")

    async def _pause(self, error: ApiError) -> None:
        _log.warning("slices of %s: %s", self._driver, error)
        self._metrics.problem("slices")
        await self._clock.sleep(max(self._backoff.next_s(), error.retry_after_s or 0.0))

    async def _sync(self, typed: TypedResource[ResourceSlice], pools: tuple[Pool, ...]) -> None:
        if self._owner is None:
            self._owner = await self._find_owner()
        listed = await typed.list(field_selector=self._field_selector())
        existing: dict[str, list[ResourceSlice]] = {}
        for slice_ in listed.items:
            if self._is_own(slice_):
                existing.setdefault(slice_.spec.pool.name, []).append(slice_)
        wanted = {pool.name for pool in pools}
        for name in sorted(set(existing) - wanted):
            await self._write(typed, plan_removal(existing[name]))
        for pool in pools:
            writes = plan_writes(self._driver, pool, existing.get(pool.name, ()), self._owner, self._accepted)
            await self._write(typed, writes)

    async def _find_owner(self) -> OwnerReference | None:
        if self._cluster_pool or not self._node_name:
            return None
        try:
            node = await self._client.typed(Node).get(self._node_name)
        except NotFound:
            # Unlike other NotFound errors here, which mean that another writer was faster.
            raise ApiError(f"node {self._node_name!r} does not exist yet; is --node-name right?") from None
        return OwnerReference(
            api_version="v1", kind="Node", name=self._node_name, uid=node.metadata.uid, controller=True
        )

    async def _write(self, typed: TypedResource[ResourceSlice], writes: Writes) -> None:
        for slice_ in writes.deletes:
            metadata = slice_.metadata
            try:
                await typed.delete(metadata.name, uid=metadata.uid, resource_version=metadata.resource_version)
            except NotFound:
                pass
            self._accepted.pop(metadata.name, None)
            self._metrics.wrote_slice("delete")
        for update in writes.updates:
            stored = await typed.update(msgspec.structs.replace(update.slice, spec=update.spec))
            self._accept(stored, update.spec)
            self._metrics.wrote_slice("update")
        for slice_ in writes.creates:
            stored = await typed.create(slice_)
            self._accept(stored, slice_.spec)
            self._metrics.wrote_slice("create")

    def _accept(self, stored: ResourceSlice, sent: ResourceSliceSpec) -> None:
        name = stored.metadata.name
        dropped = dropped_fields(sent, stored.spec)
        if not dropped:
            self._accepted.pop(name, None)
            return
        self._accepted[name] = (sent, stored.spec)
        gates = ", ".join(sorted({_GATES[field] for field in dropped if field in _GATES})) or "a feature"
        _log.warning("slice %s: the server dropped %s; probably off there: %s", name, ", ".join(sorted(dropped)), gates)
        self._metrics.problem("dropped-fields")


def dropped_fields(sent: ResourceSliceSpec, stored: ResourceSliceSpec) -> frozenset[str]:
    """The fields of devices, and of the slice itself, that the server dropped or changed."""
    fields = {
        name
        for name in ("shared_counters", "per_device_node_selection", "partition_type_attribute", "skip_node_operations")
        if getattr(sent, name) != getattr(stored, name)
    }
    for before, after in zip(sent.devices or (), stored.devices or (), strict=False):
        if before != after:
            fields |= {name for name in Device.__struct_fields__ if _differs(name, before, after)}
    return frozenset(fields)


def _differs(name: str, sent: Any, stored: Any) -> bool:
    before, after = getattr(sent, name), getattr(stored, name)
    if name == "taints":
        return [(taint.key, taint.value, taint.effect) for taint in before] != [
            (taint.key, taint.value, taint.effect) for taint in after
        ]
    return bool(before != after)
