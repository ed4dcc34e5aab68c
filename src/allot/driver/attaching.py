"""A running controller: publishes the devices of a cluster, and attaches them where claims hold them.

Compares what claims hold with what is attached, device by device, whenever either changes: a device is detached from nodes where no claim
holds it, then attached where one does, then reported in the claim's status, for which the scheduler waits. All state is in the API and in
the hardware, so the process may die between any two steps; nothing is detached before both have been read.

A device that cannot be attached is tainted first, and only then reported as failed: when the scheduler deallocates it and looks for
another one, it does not find the same again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.backoff import Backoff
from allot.client.errors import ApiError
from allot.client.informer import Change, Informer, Object
from allot.client.leader import LeaderElector
from allot.client.typed import TypedResource
from allot.client.workqueue import RateLimiter, WorkQueue
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.meta import Condition
from allot.core.model.resource_v1 import (
    EFFECT_NO_SCHEDULE,
    Device,
    DeviceRequestAllocationResult,
    DeviceTaint,
    ResourceClaim,
)
from allot.core.selectors import nodes_named
from allot.core.validation.names import check_driver_name
from allot.driver.callbacks import call
from allot.driver.claims import AllocatedDevice, DeviceStatus, allocated_device, is_true
from allot.driver.configuration import ConfigError, decode_configs
from allot.driver.controller import AttachError, Attachment, Controller
from allot.driver.inventory import Inventory
from allot.driver.metrics import DriverMetrics
from allot.driver.plugin import DriverFailed
from allot.driver.publishing import REPAIR_DELAY_S, SlicePublisher
from allot.driver.status import StatusWriter
from allot.http1.health import serving_health
from allot.process.clock import Clock, SystemClock
from allot.process.ids import Ids, SystemIds
from allot.process.supervise import answer_or_failure, supervise

_log = logging.getLogger("allot.driver")

# Pool and device.
DeviceKey = tuple[str, str]

_ANOTHERS = ResourceClaim()
_RETRY_FIRST_S = 1.0
_MESSAGE_LENGTH_MAX = 1024
# The API's limit for what `attach` returns.
_DATA_BYTES_MAX = 10 * 1024
_PUBLISHED_S = 10.0


class ControllerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a controller runs. lease_namespace: where candidates compete for the lead; empty: this is the only instance."""

    # For /healthz and /metrics; -1: nowhere, 0: any.
    address: str = "127.0.0.1"
    port: int = -1
    lease_namespace: str = ""
    # Unique among the candidates; the name of the pod.
    identity: str = ""
    repair_delay_s: float = REPAIR_DELAY_S


class _Hold(msgspec.Struct, frozen=True):
    """A claim that holds a device. node: where to attach it; empty if the allocation names none."""

    claim: ResourceClaim
    result: DeviceRequestAllocationResult
    node: str

    @property
    def incarnation(self) -> tuple[str, str]:
        """Distinguishes an allocation of a device from a later one for the same claim."""
        allocation = self.claim.status.allocation
        assert allocation is not None
        return self.claim.metadata.uid, allocation.allocation_timestamp or ""

    @property
    def claim_key(self) -> tuple[str, str, str]:
        """Namespace, name and uid."""
        metadata = self.claim.metadata
        return metadata.namespace, metadata.name, metadata.uid


class _Blocked(msgspec.Struct, frozen=True):
    """A tainted device. reason: the end of the taint's key."""

    until: float
    reason: str


class RunningController:
    """A running controller. Use `running_controller`."""

    def __init__(
        self, controller: Controller, client: Client, options: ControllerOptions, clock: Clock, ids: Ids
    ) -> None:
        problems = check_driver_name(controller.name, "name")
        if problems:
            raise DriverFailed(f"controller of driver {controller.name!r}: {problems[0].error}")
        self.controller = controller
        self.registry = CollectorRegistry()
        self.metrics = DriverMetrics(self.registry, controller.name)
        # Of /healthz and /metrics, once they are served.
        self.address = ""
        self._client = client
        self._options = options
        self._clock = clock
        self._ids = ids
        self._loop = asyncio.get_running_loop()
        self.publisher = SlicePublisher(
            client, controller.name, "", self.metrics, clock, ids, repair_delay_s=options.repair_delay_s
        )
        self._status = StatusWriter(client, controller.name, self.metrics, clock, ids, is_controller=True)
        self._pools: tuple[Pool, ...] = ()
        self._inventory = Inventory()
        self._holds: dict[DeviceKey, dict[str, _Hold]] = {}
        self._attached: dict[DeviceKey, set[str]] = {}
        # What `attach` returned in this instance.
        self._data: dict[Attachment, Any] = {}
        # Counts attachments and detachments of a device, so that stale reports of the hardware are ignored.
        self._steps: dict[DeviceKey, int] = {}
        self._blocked: dict[DeviceKey, _Blocked] = {}
        # Allocations that were reported as failed: the scheduler deallocates them.
        self._failed: dict[DeviceKey, set[tuple[str, str]]] = {}
        # Attachments past their deadline; the device is unavailable until they end.
        self._overdue: dict[DeviceKey, asyncio.Task[Any]] = {}
        limiter: RateLimiter[DeviceKey] = RateLimiter(clock, first_s=_RETRY_FIRST_S, max_s=controller.retry_s)
        self._queue: WorkQueue[DeviceKey] = WorkQueue(clock, limiter=limiter)
        self._rescan_wanted = asyncio.Event()
        # Set once attachments and claims have been read.
        self.ready = asyncio.Event()

    # --- what the controller sees (`controller.Cluster`) ---

    @property
    def client(self) -> Client:
        """The API server."""
        return self._client

    def changed(self) -> None:
        """Check devices and attachments now."""
        self._loop.call_soon_threadsafe(self._rescan_wanted.set)

    # --- life ---

    async def run(self) -> None:
        """Lead until cancelled, or until the lease is lost (DriverFailed)."""
        options = self._options
        if not options.lease_namespace:
            await self._lead()
            return
        lease = f"{self.controller.name}-controller".lower()
        elector = LeaderElector(
            self._client,
            self._clock,
            self._ids,
            namespace=options.lease_namespace,
            name=lease,
            identity=options.identity or self._ids.new_uid(),
        )
        await elector.run(self._lead)
        raise DriverFailed(f"controller of driver {self.controller.name}: lease {lease} is lost, another one leads now")

    async def _lead(self) -> None:
        self.controller.cluster = self
        self.metrics.watch_devices(lambda: sum(len(pool.devices) for pool in self.publisher.pools))
        typed = await self._claims()
        informer = Informer(typed.resource, partial(self._decode, typed), self._clock, self._ids)
        informer.add_handler(self._claim_changed)
        await call(self.controller.start)
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, run in (
                    ("claims", informer.run),
                    ("slices", self.publisher.run),
                    ("claim status", self._status.run),
                ):
                    tasks.create_task(supervise(f"{self.controller.name}: {name}", run, self._clock), name=name)
                await self._first_look()
                await informer.wait_synced()
                self.ready.set()
                tasks.create_task(supervise(f"{self.controller.name}: devices", self._rescan_loop, self._clock))
                for number in range(self.controller.workers):
                    tasks.create_task(self._work(), name=f"worker {number}")
        finally:
            self.ready.clear()
            for task in self._overdue.values():
                task.cancel()
            failure = await answer_or_failure(lambda: call(self.controller.stop))
            if isinstance(failure, Exception):
                _log.error("the controller failed to stop", exc_info=failure)

    async def _claims(self) -> TypedResource[ResourceClaim]:
        backoff = Backoff(self._clock, self._ids)
        while True:
            try:
                return await self._client.typed_as_served(ResourceClaim)
            except ApiError as error:
                _log.warning("claims of %s: %s", self.controller.name, error)
                await self._clock.sleep(max(backoff.next_s(), error.retry_after_s or 0.0))

    def _decode(self, typed: TypedResource[ResourceClaim], object_: Object) -> ResourceClaim:
        """A claim changed; claims without devices of this driver, possibly many, are not kept."""
        allocation = (object_.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        is_own = any(result.get("driver") == self.controller.name for result in results)
        return typed.decode(object_) if is_own else _ANOTHERS

    # --- devices and what is attached ---

    async def _first_look(self) -> None:
        """Wait until the hardware has answered once; nothing can be decided before."""
        backoff = Backoff(self._clock, self._ids)
        while not await self._rescan():
            await self._clock.sleep(backoff.next_s())

    async def _rescan_loop(self) -> None:
        while True:
            self._rescan_wanted.clear()
            try:
                async with asyncio.timeout(self.controller.rescan_s or None):
                    await self._rescan_wanted.wait()
            except TimeoutError:
                pass
            await self._rescan()

    async def _rescan(self) -> bool:
        """Read devices and attachments; returns whether both succeeded. Otherwise the previous ones stay."""
        pools = await answer_or_failure(lambda: call(self.controller.pools))
        problem = pools if isinstance(pools, Exception) else self._take_pools(pools)
        if problem is not None:
            _log.error("controller of %s failed to list its pools", self.controller.name, exc_info=problem)
            self.metrics.problem("devices")
        before = dict(self._steps)
        attached = await answer_or_failure(lambda: call(self.controller.attached))
        if isinstance(attached, Exception):
            _log.error("controller of %s failed to list attached devices", self.controller.name, exc_info=attached)
            self.metrics.problem("attached")
            return False
        found: dict[DeviceKey, set[str]] = {}
        for each in attached:
            found.setdefault((each.pool, each.device), set()).add(each.node)
        for key in sorted({*found, *self._attached, *self._holds}):
            # Devices attached or detached meanwhile: our own state is newer.
            if self._steps.get(key, 0) == before.get(key, 0):
                self._attached[key] = found.get(key, set())
            self._queue.add(key)
        return problem is None

    def _take_pools(self, answer: Any) -> Exception | None:
        pools = tuple(answer)
        for pool in pools:
            if not isinstance(pool, Pool):
                return TypeError(f"pools returned {type(pool).__name__}, expected pools")
            if pool.node_name is not None:
                return ValueError(f"pool {pool.name!r} is on node {pool.node_name!r}, expected a selector or all nodes")
        self._pools = tuple(self._complete(pool) for pool in pools)
        self._inventory = Inventory(self._pools)
        self._publish()
        return None

    def _complete(self, pool: Pool) -> Pool:
        """The pool with binding conditions on its devices."""
        controller = self.controller

        def complete(device: Device) -> Device:
            return msgspec.structs.replace(
                device,
                binds_to_node=True,
                binding_conditions=device.binding_conditions or (controller.attached_condition,),
                binding_failure_conditions=device.binding_failure_conditions or (controller.failed_condition,),
            )

        has_place = pool.node_selector or pool.all_nodes or pool.per_device_node_selection
        return msgspec.structs.replace(
            pool,
            devices=tuple(complete(each) for each in pool.devices),
            all_nodes=pool.all_nodes if has_place else True,
        )

    def _publish(self) -> None:
        """The pools, with taints on unavailable devices."""
        self.publisher.set(tuple(self._with_taints(pool) for pool in self._pools))

    def _with_taints(self, pool: Pool) -> Pool:
        def tainted(device: Device) -> Device:
            blocked = self._blocked.get((pool.name, device.name))
            if blocked is None:
                return device
            taint = DeviceTaint(key=f"{self.controller.name}/{blocked.reason}", effect=EFFECT_NO_SCHEDULE)
            return msgspec.structs.replace(device, taints=(*device.taints, taint))

        return msgspec.structs.replace(pool, devices=tuple(tainted(device) for device in pool.devices))

    async def _block(self, key: DeviceKey, reason: str) -> None:
        """Taint a device for a while; returns when the slices have the taint, or cannot be written."""
        self._blocked[key] = _Blocked(self._clock.monotonic() + self.controller.retry_s, reason)
        self._publish()
        try:
            async with asyncio.timeout(_PUBLISHED_S):
                await self.publisher.synced.wait()
        except TimeoutError:
            # The waiting pod still learns of the failure, and may get the same device again.
            _log.warning("device %s of pool %s: its taint is not published yet", key[1], key[0])
        self._queue.add_after(key, self.controller.retry_s)

    def _unblock_if_due(self, key: DeviceKey) -> None:
        blocked = self._blocked.get(key)
        if blocked is not None and blocked.until <= self._clock.monotonic():
            del self._blocked[key]
            self._publish()

    # --- claims ---

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        for claim in (change.old, change.new):
            for key, hold in self._holds_of(claim).items():
                holds = self._holds.setdefault(key, {})
                if claim is change.new:
                    holds[hold.claim.metadata.uid] = hold
                else:
                    holds.pop(hold.claim.metadata.uid, None)
                    if not holds:
                        del self._holds[key]
                self._queue.add(key)

    def _holds_of(self, claim: ResourceClaim | None) -> Mapping[DeviceKey, _Hold]:
        allocation = claim.status.allocation if claim is not None else None
        if claim is None or allocation is None:
            return {}
        nodes = nodes_named(allocation.node_selector)
        node = nodes[0] if len(nodes) == 1 else ""
        return {
            (result.pool, result.device): _Hold(claim, result, node)
            for result in allocation.devices.results
            if result.driver == self.controller.name and not result.admin_access
        }

    # --- one device ---

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                failure = await answer_or_failure(partial(self._reconcile, key))
                if isinstance(failure, Exception):
                    _log.error("device %s of pool %s", key[1], key[0], exc_info=failure)
                    self._queue.add_rate_limited(key)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: DeviceKey) -> None:
        """Attach a device where claims hold it, and detach it elsewhere."""
        self._unblock_if_due(key)
        if key in self._overdue:
            # The device is queued again when it ends.
            return
        holds = tuple(self._holds.get(key, {}).values())
        self._forget_failures(key, holds)
        wanted: dict[str, list[_Hold]] = {}
        for hold in holds:
            if not hold.node:
                self._fail(hold, "the allocation names no node: is the feature DRADeviceBindingConditions off?")
            elif not self._has_failed(key, hold):
                wanted.setdefault(hold.node, []).append(hold)
        attached = self._attached.setdefault(key, set())
        for node in sorted(attached - set(wanted)):
            if not await self._detach(key, node):
                for waiting in wanted.values():
                    await self._refuse(key, waiting, f"is still attached to node {node}")
                return
        for node, waiting in sorted(wanted.items()):
            if node not in attached or self._owes_data(key, node, waiting):
                await self._attach(key, node, waiting)
            else:
                self._tell_attached(key, waiting)
        if not attached and not holds:
            self._attached.pop(key, None)
        self._queue.forget(key)

    def _owes_data(self, key: DeviceKey, node: str, holds: list[_Hold]) -> bool:
        """Whether an earlier instance attached the device without reporting it: it is attached again to get the data for the report."""
        return Attachment(*key, node) not in self._data and not all(self._is_told(hold) for hold in holds)

    def _has_failed(self, key: DeviceKey, hold: _Hold) -> bool:
        return hold.incarnation in self._failed.get(key, ()) or is_true(
            hold.claim, hold.result, self._failure_of(hold.result)
        )

    def _forget_failures(self, key: DeviceKey, holds: tuple[_Hold, ...]) -> None:
        left = self._failed.get(key, set()) & {hold.incarnation for hold in holds}
        if left:
            self._failed[key] = left
        else:
            self._failed.pop(key, None)

    async def _attach(self, key: DeviceKey, node: str, holds: list[_Hold]) -> None:
        others = self._attached[key] - {node}
        declared = self._inventory.device(*key)
        if others and not (declared is not None and declared.allow_multiple_allocations):
            await self._refuse(
                key, holds, f"is attached to node {min(others)}, where another claim holds it", blames=False
            )
            return
        try:
            device = self._allocated(holds[0], declared)
        except ConfigError as error:
            await self._refuse(key, holds, str(error), blames=False)
            return
        for hold in holds:
            self._tell(hold, "False", "Attaching", f"attaching device {key[1]} to node {node}")
        self._steps[key] = self._steps.get(key, 0) + 1
        started = self._clock.monotonic()
        task = asyncio.ensure_future(answer_or_failure(lambda: call(self.controller.attach, device, node)))
        done, _ = await asyncio.wait((task,), timeout=self.controller.attach_timeout_s)
        if not done:
            self._overdue[key] = task
            task.add_done_callback(partial(self._ended_late, key, node))
            await self._refuse(
                key, holds, f"was not attached to node {node} within {self.controller.attach_timeout_s:g} s"
            )
            return
        answer = _checked(task.result())
        self._steps[key] += 1
        self.metrics.observe("attach", self._clock.monotonic() - started, isinstance(answer, Exception))
        if isinstance(answer, Exception):
            blames = answer.blames_device if isinstance(answer, AttachError) else True
            await self._refuse(key, holds, _told("attach", key, answer), blames=blames)
            return
        _log.info("device %s of pool %s: attached to node %s", key[1], key[0], node)
        self._attached[key].add(node)
        self._data[Attachment(*key, node)] = answer
        self._tell_attached(key, holds)

    def _ended_late(self, key: DeviceKey, node: str, task: asyncio.Task[Any]) -> None:
        """A late attachment has ended: if the device is attached after all, it is detached again."""
        del self._overdue[key]
        self._steps[key] = self._steps.get(key, 0) + 1
        if not task.cancelled() and not isinstance(task.result(), Exception):
            self._attached.setdefault(key, set()).add(node)
        self._queue.add(key)

    async def _detach(self, key: DeviceKey, node: str) -> bool:
        """Detach a device; returns whether that succeeded. Otherwise it is retried."""
        started = self._clock.monotonic()
        self._steps[key] = self._steps.get(key, 0) + 1
        attachment = Attachment(*key, node)
        answer = await answer_or_failure(lambda: call(self.controller.detach, attachment))
        self._steps[key] += 1
        self.metrics.observe("detach", self._clock.monotonic() - started, isinstance(answer, Exception))
        if isinstance(answer, Exception):
            _log.warning("device %s of pool %s: %s", key[1], key[0], _told("detach", key, answer))
            await self._block(key, "detach-failed")
            self._queue.add_rate_limited(key)
            return False
        _log.info("device %s of pool %s: detached from node %s", key[1], key[0], node)
        self._attached[key].discard(node)
        self._data.pop(attachment, None)
        return True

    def _allocated(self, hold: _Hold, declared: Device | None) -> AllocatedDevice:
        """ConfigError."""
        allocation = hold.claim.status.allocation
        assert allocation is not None
        configs = decode_configs(self.controller.name, allocation.devices.config, self.controller.configs)
        return allocated_device(hold.claim, hold.result, configs, declared)

    # --- reporting ---

    async def _refuse(self, key: DeviceKey, holds: list[_Hold], text: str, *, blames: bool = True) -> None:
        """Fail the claims that wait for a device, after tainting it for the scheduler."""
        if blames:
            await self._block(key, "attach-failed")
        for hold in holds:
            self._fail(hold, text)

    def _fail(self, hold: _Hold, text: str) -> None:
        key = (hold.result.pool, hold.result.device)
        if self._has_failed(key, hold):
            return
        namespace, name, _ = hold.claim_key
        _log.warning("claim %s/%s: device %s of pool %s: %s", namespace, name, key[1], key[0], text)
        self.metrics.problem("attach")
        self._failed.setdefault(key, set()).add(hold.incarnation)
        self._tell(hold, "False", "AttachFailed", text, failed=True)

    def _tell_attached(self, key: DeviceKey, holds: list[_Hold]) -> None:
        for hold in holds:
            if not self._is_told(hold):
                data = self._data.get(Attachment(*key, hold.node))
                self._tell(hold, "True", "Attached", f"attached to node {hold.node}", data=data)

    def _is_told(self, hold: _Hold) -> bool:
        return is_true(hold.claim, hold.result, self._condition_of(hold.result))

    def _tell(
        self, hold: _Hold, status: str, reason: str, message: str, *, failed: bool = False, data: Any = None
    ) -> None:
        message = message[:_MESSAGE_LENGTH_MAX]
        conditions = [Condition(type=self._condition_of(hold.result), status=status, reason=reason, message=message)]
        if failed:
            conditions.append(
                Condition(type=self._failure_of(hold.result), status="True", reason=reason, message=message)
            )
        result = hold.result
        device = (result.pool, result.device, result.share_id or "")
        self._status.set(hold.claim_key, device, DeviceStatus(conditions=tuple(conditions), data=data))

    def _condition_of(self, result: DeviceRequestAllocationResult) -> str:
        return result.binding_conditions[0] if result.binding_conditions else self.controller.attached_condition

    def _failure_of(self, result: DeviceRequestAllocationResult) -> str:
        failures = result.binding_failure_conditions
        return failures[0] if failures else self.controller.failed_condition


def _checked(answer: Any) -> Any:
    """The result of `attach`; a failure if it does not fit in the claim's status. Then the device is not at fault, and is detached again."""
    if isinstance(answer, Exception):
        return answer
    try:
        size = len(msgspec.json.encode(answer))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        return AttachError(f"attach returned what is not a JSON value: {error}", blames_device=False)
    if size > _DATA_BYTES_MAX:
        return AttachError(
            f"attach returned {size} bytes of JSON, expected at most {_DATA_BYTES_MAX}", blames_device=False
        )
    return answer


def _told(operation: str, key: DeviceKey, failure: Exception) -> str:
    if isinstance(failure, AttachError):
        return str(failure)
    _log.error("%s of device %s of pool %s failed", operation, key[1], key[0], exc_info=failure)
    return f"{operation} failed in the controller: {type(failure).__name__}: {failure}"


@asynccontextmanager
async def running_controller(
    controller: Controller,
    client: Client,
    options: ControllerOptions = ControllerOptions(),  # noqa: B008
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> AsyncIterator[RunningController]:
    """A controller that runs while the context is open. DriverFailed if it cannot."""
    clock = clock or SystemClock()
    runs = RunningController(controller, client, options, clock, ids or SystemIds())
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        served = serving_health(options.address, options.port, runs.registry, clock)
        try:
            runs.address = await stack.enter_async_context(served)
        except OSError as error:
            where = f"{options.address}:{options.port}"
            text = f"controller of driver {controller.name}: cannot listen on {where}: {error.strerror}"
            raise DriverFailed(text) from error
        work = tasks.create_task(runs.run())
        try:
            yield runs
        finally:
            work.cancel()
