"""The slices of all simulated nodes: published before any driver runs, and updated when a driver reports changes.

One watch for all nodes notices deleted slices; they are recreated after a pause, as by a driver. Changes by
others are left alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.informer import Change, Informer
from allot.core.lifecycle.slice_publishing import Pool, plan_writes
from allot.core.model.meta import OwnerReference
from allot.core.model.resource_v1 import ResourceSlice
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.waits import happens_within

_log = logging.getLogger("allot.node")

REPAIR_DELAY_S = 30.0
_RETRY_S = 5.0


class SimulatedSlices:
    """Maintains slices. pools_of: what the drivers of a node publish initially, with their names; uid_of: the uid of a Node, empty while there is
    none."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        pools_of: Mapping[str, Callable[[], Sequence[tuple[str, Pool]]]],
        uid_of: Callable[[str], str],
        repair_delay_s: float = REPAIR_DELAY_S,
    ) -> None:
        self._slices = client.typed(ResourceSlice)
        self._clock = clock
        self._pools_of = pools_of
        self._uid_of = uid_of
        self._repair_delay_s = repair_delay_s
        # Pools that differ from the initial ones, by node and driver.
        self._changed: dict[tuple[str, str], tuple[Pool, ...]] = {}
        # Nodes whose slices must be checked, and when.
        self._due: dict[str, float] = {}
        self._news = asyncio.Event()
        self._informer: Informer[str] = Informer(
            self._slices.resource, lambda slice_: slice_["spec"].get("nodeName", ""), clock, ids
        )
        self._informer.add_handler(self._slice_changed)

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run())
            while True:
                now = self._clock.monotonic()
                for node in [node for node, at in self._due.items() if at <= now]:
                    del self._due[node]
                    if not await self._refresh(node):
                        self._look(node, _RETRY_S)
                await self._until_due()

    def changed(self, node: str, driver: str, pools: tuple[Pool, ...]) -> None:
        """A running driver reports its pools."""
        usual = tuple(pool for name, pool in self._pools_of[node]() if name == driver)
        if pools == self._changed.get((node, driver), usual):
            return
        if pools == usual:
            del self._changed[node, driver]
        else:
            self._changed[node, driver] = pools
        self._look(node, 0.0)

    async def published(self) -> dict[str, list[ResourceSlice]]:
        """The existing slices of our nodes."""
        found: dict[str, list[ResourceSlice]] = {}
        for each in (await self._slices.list()).items:
            node = each.spec.node_name or ""
            if node in self._pools_of:
                found.setdefault(node, []).append(each)
        return found

    async def publish(self, node: str, existing: Sequence[ResourceSlice]) -> None:
        """Update the slices of a node to what its drivers report; failures are retried."""
        try:
            await self._publish(node, existing)
        except ApiError as error:
            _log.warning("node %s: slices not published: %s", node, error)
            self._look(node, _RETRY_S)

    async def _refresh(self, node: str) -> bool:
        """Like `publish`, with the current slices; returns whether that worked."""
        try:
            await self._publish(node, (await self._slices.list(field_selector=f"spec.nodeName={node}")).items)
        except ApiError as error:
            _log.warning("node %s: slices not published: %s", node, error)
            return False
        return True

    async def _publish(self, node: str, existing: Sequence[ResourceSlice]) -> None:
        uid = self._uid_of(node)
        if not uid:
            # They come with the node.
            return
        owner = OwnerReference(api_version="v1", kind="Node", name=node, uid=uid, controller=True)
        for driver, pool in self._pools(node):
            own = [each for each in existing if each.spec.driver == driver and each.spec.pool.name == pool.name]
            writes = plan_writes(driver, pool, own, owner)
            for each in writes.deletes:
                await self._slices.delete(each.metadata.name)
            for update in writes.updates:
                await self._slices.update(msgspec.structs.replace(update.slice, spec=update.spec))
            for created in writes.creates:
                await self._slices.create(created)

    def _pools(self, node: str) -> list[tuple[str, Pool]]:
        usual = self._pools_of[node]()
        drivers = dict.fromkeys(name for name, _ in usual)
        return [
            (driver, pool)
            for driver in drivers
            for pool in self._changed.get((node, driver), tuple(pool for name, pool in usual if name == driver))
        ]

    def _slice_changed(self, change: Change[str]) -> None:
        if change.new is None and change.object in self._pools_of:
            self._look(change.object, self._repair_delay_s)

    def _look(self, node: str, seconds: float) -> None:
        at = self._clock.monotonic() + seconds
        self._due[node] = min(self._due.get(node, at), at)
        self._news.set()

    async def _until_due(self) -> None:
        self._news.clear()
        left = min(self._due.values(), default=float("inf")) - self._clock.monotonic()
        if left <= 0:
            return
        await happens_within(self._news, left if self._due else None)
