"""Prepares and unprepares claims: each independently, each once, with idempotent answers.

A claim is recorded as started before the driver is called and as completed afterwards, so that after a crash at any point it is
known what may be set up. Preparation continues after the kubelet's timeout; a retry joins the
same work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from allot.client.errors import ApiError, NotFound, Unreachable
from allot.core.model.classic import controller_of
from allot.core.model.resource_v1 import Device, DeviceRequestAllocationResult, ResourceClaim
from allot.driver.callbacks import call
from allot.driver.cdi import CdiError, Edits, qualified
from allot.driver.cdi_files import CdiFiles
from allot.driver.checkpoint import Checkpoint, CheckpointError, Phase, Record, RecordedDevice
from allot.driver.claims import (
    AllocatedDevice,
    Claim,
    DeviceStatus,
    Preparation,
    Prepared,
    PrepareError,
    allocated_device,
    as_preparation,
    is_true,
    prepared_claim,
)
from allot.driver.configuration import ConfigError, decode_configs
from allot.driver.driver import Driver
from allot.driver.inventory import Inventory
from allot.driver.metadata import MetadataFiles
from allot.driver.metrics import DriverMetrics
from allot.driver.operation_lock import OperationLock
from allot.driver.overlap import find_overlap
from allot.process.clock import Clock
from allot.process.supervise import answer_or_failure

_log = logging.getLogger("allot.driver")

ERROR_LENGTH_MAX = 4000


class Failure(Exception):
    """Why a claim is not prepared or unprepared, as a message for its pod."""


class ClaimName(msgspec.Struct, frozen=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name}"


class FetchClaim(Protocol):
    """Reads a claim from the API server."""

    async def __call__(self, namespace: str, name: str) -> ResourceClaim:
        """The claim; ApiError."""


ClaimResult = tuple[RecordedDevice, ...] | Failure
# Request, pool, device and share.
DeviceKey = tuple[str, str, str, str]


class Preparer:
    """Prepares and unprepares the claims of a driver."""

    def __init__(
        self,
        driver: Driver,
        *,
        checkpoint: Checkpoint,
        cdi: CdiFiles,
        common_cdi_ids: tuple[str, ...],
        metadata: MetadataFiles | None,
        operation_lock: OperationLock,
        fetch: FetchClaim,
        inventory: Callable[[], Inventory],
        rescan: Callable[[], Awaitable[None]],
        set_status: Callable[[ClaimName, AllocatedDevice, DeviceStatus], None],
        spawn: Callable[[Coroutine[Any, Any, ClaimResult]], asyncio.Task[ClaimResult]],
        metrics: DriverMetrics,
        clock: Clock,
    ) -> None:
        self._driver = driver
        self._checkpoint = checkpoint
        self._cdi = cdi
        self._common_cdi_ids = common_cdi_ids
        self._metadata = metadata
        self._operation_lock = operation_lock
        self._fetch = fetch
        self._inventory = inventory
        self._rescan = rescan
        self._set_status = set_status
        self._spawn = spawn
        self._metrics = metrics
        self._clock = clock
        # Running tasks; those that retries join, by operation and claim UID; and the claim
        # that the driver is handling now, for messages.
        self._under_way: set[asyncio.Task[ClaimResult]] = set()
        self._joinable: dict[tuple[str, str], asyncio.Task[ClaimResult]] = {}
        self._claim_locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}
        self._busy_with = ""

    # --- for the service ---

    async def prepare(self, claim: ClaimName, deadline: float) -> ClaimResult:
        """The devices of a claim once they are ready, by the deadline (on the monotonic clock)."""
        return await self._joined("prepare", claim, deadline, self._prepare)

    async def unprepare(self, claim: ClaimName, deadline: float) -> ClaimResult:
        """Undo; returns no devices when done."""
        return await self._joined("unprepare", claim, deadline, self._unprepare)

    async def drain(self) -> None:
        """Wait for running operations."""
        while self._under_way:
            await asyncio.wait(tuple(self._under_way))

    def abandon(self) -> None:
        """Stop waiting for running operations; the checkpoint records that they were started."""
        for task in tuple(self._under_way):
            task.cancel()

    async def _joined(
        self, operation: str, claim: ClaimName, deadline: float, work: Callable[[ClaimName], Awaitable[ClaimResult]]
    ) -> ClaimResult:
        key = (operation, claim.uid)
        task = self._joinable.get(key)
        if task is None:
            task = self._spawn(self._measured(operation, claim, work))
            self._under_way.add(task)
            # Later requests run after this one; none joins an earlier opposite operation.
            self._joinable.pop(("unprepare" if operation == "prepare" else "prepare", claim.uid), None)
            self._joinable[key] = task
            task.add_done_callback(lambda done: self._forget(key, done))
        left = max(deadline - self._clock.monotonic(), 0.0)
        done, _ = await asyncio.wait((task,), timeout=left)
        if not done:
            waits = f" (the driver is busy with {self._busy_with})" if self._busy_with not in ("", str(claim)) else ""
            return Failure(f"{claim}: {operation} did not finish in time and continues{waits}; retry")
        return task.result()

    def _forget(self, key: tuple[str, str], task: asyncio.Task[ClaimResult]) -> None:
        self._under_way.discard(task)
        if self._joinable.get(key) is task:
            del self._joinable[key]

    async def _measured(
        self, operation: str, claim: ClaimName, work: Callable[[ClaimName], Awaitable[ClaimResult]]
    ) -> ClaimResult:
        started = self._clock.monotonic()
        lock, users = self._claim_locks.setdefault(claim.uid, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                answer = await answer_or_failure(lambda: work(claim))
        finally:
            users.pop()
            if not users:
                self._claim_locks.pop(claim.uid, None)
        outcome = _told(answer, operation, claim)
        self._metrics.observe(operation, self._clock.monotonic() - started, isinstance(outcome, Failure))
        if isinstance(outcome, Failure):
            _log.warning("%s: %s", operation, outcome)
        elif _log.isEnabledFor(logging.INFO):
            devices = ", ".join(each.device for each in outcome)
            _log.info("%s of %s done%s", operation, claim, f": {devices}" if devices else "")
        return outcome

    # --- preparing ---

    async def _prepare(self, name: ClaimName) -> ClaimResult:
        object_ = await self._fetched(name)
        if object_ is None:
            # The API server is unreachable; prepared claims stay prepared.
            async with self._operation_lock.held():
                record = self._completed(name.uid)
                if record is None:
                    raise Failure(f"{name}: the API server cannot be reached")
                return record.devices
        results = _own_results(self._driver.name, name, object_)
        devices = await self._allocated(name, object_, results)
        async with self._operation_lock.held():
            record = self._completed(name.uid)
            if record is not None:
                if _is_for(record, devices):
                    return record.devices
                # Reallocated without having been unprepared; the old setup is for other devices.
                await self._undo(record, name)
            begun = self._begin(name, devices)
            if self._driver.serialize:
                return await self._carry_out(name, object_, devices, begun)
        answer = await self._ask(name, object_, devices, begun)
        async with self._operation_lock.held():
            return self._finish(name, object_, devices, answer)

    async def _fetched(self, name: ClaimName) -> ResourceClaim | None:
        try:
            object_ = await self._fetch(name.namespace, name.name)
        except NotFound:
            raise Failure(f"{name}: not found") from None
        except Unreachable as error:
            if self._checkpoint.get(name.uid) is not None:
                return None
            raise Failure(f"{name}: fetch: {error}") from None
        except ApiError as error:
            raise Failure(f"{name}: fetch: {error}") from None
        if object_.metadata.uid != name.uid:
            raise Failure(f"{name}: got replaced: has UID {object_.metadata.uid}, expected {name.uid}")
        if object_.status.allocation is None:
            raise Failure(f"{name}: not allocated")
        return object_

    async def _allocated(
        self, name: ClaimName, object_: ResourceClaim, results: list[DeviceRequestAllocationResult]
    ) -> tuple[AllocatedDevice, ...]:
        allocation = object_.status.allocation
        assert allocation is not None
        try:
            configs = decode_configs(self._driver.name, allocation.devices.config, self._driver.configs)
        except ConfigError as error:
            raise Failure(f"{name}: {error}") from None
        declared = self._declared(results)
        if None in declared and self._completed(name.uid) is None:
            await self._rescan()
            declared = self._declared(results)
            for result, device in zip(results, declared, strict=True):
                if device is None:
                    self._check_undeclared(name, object_, result)
        return tuple(
            allocated_device(object_, result, configs, device) for result, device in zip(results, declared, strict=True)
        )

    def _check_undeclared(self, name: ClaimName, object_: ResourceClaim, result: DeviceRequestAllocationResult) -> None:
        """Failure unless the driver's controller has attached a device that this node does not declare: a pod that no scheduler placed
        may arrive before that."""
        where = f"{name}: device {result.device} of pool {result.pool}"
        if not self._driver.has_controller:
            raise Failure(f"{where}: the driver does not have it")
        if controller_of(object_):
            # Allocated by the controller itself, which has attached it.
            return
        if not result.binding_conditions:
            raise Failure(f"{where}: allocated without binding conditions, so it may not be attached")
        if not all(is_true(object_, result, condition) for condition in result.binding_conditions):
            raise Failure(f"{where}: its controller has not attached it yet")

    def _declared(self, results: list[DeviceRequestAllocationResult]) -> list[Device | None]:
        inventory = self._inventory()
        return [inventory.device(result.pool, result.device) for result in results]

    def _completed(self, uid: str) -> Record | None:
        """The record of a claim that is ready, its CDI file included."""
        record = self._checkpoint.get(uid)
        if record is None or record.phase is not Phase.COMPLETED:
            return None
        if record.spec is not None and not self._cdi.has_claim(uid):
            self._cdi.write_claim(uid, record.spec)
        return record

    def _begin(self, name: ClaimName, devices: tuple[AllocatedDevice, ...]) -> Record:
        for uid, reason in self._checkpoint.unreadable.items():
            if uid != name.uid:
                raise Failure(f"{name}: {reason}; until claim {uid} is unprepared, the free devices are unknown")
        recorded = tuple(
            RecordedDevice(
                request=device.request,
                pool=device.pool,
                device=device.name,
                share_id=device.share_id,
                admin_access=device.admin_access,
            )
            for device in devices
        )
        overlap = find_overlap(name.uid, recorded, self._checkpoint, self._inventory())
        if overlap:
            raise Failure(f"{name}: {overlap}")
        earlier = self._checkpoint.get(name.uid)
        record = Record(
            uid=name.uid,
            namespace=name.namespace,
            name=name.name,
            phase=Phase.STARTED,
            devices=recorded,
            state=earlier.state if earlier is not None else None,
        )
        self._checkpoint.put(record)
        return record

    async def _carry_out(
        self, name: ClaimName, object_: ResourceClaim, devices: tuple[AllocatedDevice, ...], begun: Record
    ) -> ClaimResult:
        return self._finish(name, object_, devices, await self._ask(name, object_, devices, begun))

    async def _ask(
        self, name: ClaimName, object_: ResourceClaim, devices: tuple[AllocatedDevice, ...], begun: Record
    ) -> Preparation:
        def save(state: Any) -> None:
            record = self._checkpoint.get(name.uid)
            assert record is not None, f"{name} is being prepared and has no record"
            self._checkpoint.put(msgspec.structs.replace(record, state=state))

        def tell(device: AllocatedDevice, status: DeviceStatus) -> None:
            self._set_status(name, device, status)

        claim = Claim(object_, devices, save, begun.state, tell)
        self._busy_with = str(name)
        try:
            return as_preparation(await call(self._driver.prepare, claim))
        finally:
            self._busy_with = ""

    def _finish(
        self, name: ClaimName, object_: ResourceClaim, devices: tuple[AllocatedDevice, ...], answer: Preparation
    ) -> ClaimResult:
        """Write files first, then the record: after a crash in between, the next attempt rewrites them."""
        prepared = _by_device(name, devices, answer)
        edits = self._edits(name, devices, prepared)
        spec = self._cdi.spec_of(dict(edits.values())) if edits else None
        if spec is not None:
            self._cdi.write_claim(name.uid, spec)
        else:
            self._cdi.remove_claim(name.uid)
        metadata_ids = self._metadata.write(object_, devices, prepared) if self._metadata is not None else {}
        begun = self._checkpoint.get(name.uid)
        record = Record(
            uid=name.uid,
            namespace=name.namespace,
            name=name.name,
            phase=Phase.COMPLETED,
            devices=tuple(self._recorded(device, prepared, edits, metadata_ids) for device in devices),
            spec=spec,
            metadata_requests=tuple(dict.fromkeys(device.base_request for device in devices)) if self._metadata else (),
            state=answer.state if answer.state is not None or begun is None else begun.state,
        )
        self._checkpoint.put(record)
        for device in devices:
            given = prepared.get(_key(device))
            if given is not None and given.status is not None:
                self._set_status(name, device, given.status)
        return record.devices

    def _edits(
        self, name: ClaimName, devices: tuple[AllocatedDevice, ...], prepared: Mapping[DeviceKey, Prepared]
    ) -> dict[DeviceKey, tuple[str, Edits]]:
        """The CDI device of each device, if it needs one: its name and edits."""
        edits: dict[DeviceKey, tuple[str, Edits]] = {}
        taken: set[str] = set()
        for device in devices:
            given = prepared.get(_key(device))
            if given is None or given.edits.is_empty:
                continue
            cdi_name = self._cdi.device_name(name.uid, device.name, device.share_id)
            if cdi_name in taken:
                # The same device name in another pool, or the same device again with admin access.
                cdi_name = f"{cdi_name}-{len(taken)}"
            taken.add(cdi_name)
            edits[_key(device)] = cdi_name, given.edits
        return edits

    def _recorded(
        self,
        device: AllocatedDevice,
        prepared: Mapping[DeviceKey, Prepared],
        edits: Mapping[DeviceKey, tuple[str, Edits]],
        metadata_ids: dict[str, str],
    ) -> RecordedDevice:
        """A device with its CDI names. metadata_ids: by request, without those of earlier devices."""
        ids: list[str] = []
        given = prepared.get(_key(device))
        if given is not None:
            # The first name identifies the device in the pod's status, so common names come last.
            if _key(device) in edits:
                ids.append(qualified(self._cdi.kind, edits[_key(device)][0]))
            ids += [*given.cdi_ids, *self._common_cdi_ids]
        # Once per request: a container that names it gets the file.
        if metadata_id := metadata_ids.pop(device.base_request, ""):
            ids.append(metadata_id)
        return RecordedDevice(
            request=device.request,
            pool=device.pool,
            device=device.name,
            share_id=device.share_id,
            admin_access=device.admin_access,
            cdi_ids=tuple(ids),
        )

    # --- unpreparing ---

    async def _unprepare(self, name: ClaimName) -> ClaimResult:
        async with self._operation_lock.held():
            record = self._checkpoint.get(name.uid)
            if record is None:
                if name.uid not in self._checkpoint.unreadable:
                    return ()
                record = Record(uid=name.uid, namespace=name.namespace, name=name.name, phase=Phase.STARTED)
            if self._driver.serialize:
                await self._undo(record, name)
                return ()
        await self._undo(record, name)
        return ()

    async def _undo(self, record: Record, name: ClaimName) -> None:
        self._busy_with = str(name)
        try:
            await call(self._driver.unprepare, prepared_claim(record))
        finally:
            self._busy_with = ""
        # The record is removed last, so that leftovers of a crash can be found.
        self._cdi.remove_claim(record.uid)
        if self._metadata is not None:
            self._metadata.remove(record.uid, record.namespace, record.name, record.metadata_requests)
        self._checkpoint.remove(record.uid)


def _own_results(driver: str, name: ClaimName, object_: ResourceClaim) -> list[DeviceRequestAllocationResult]:
    assert object_.status.allocation is not None
    results = [result for result in object_.status.allocation.devices.results if result.driver == driver]
    if not results:
        raise Failure(f"{name}: no device of driver {driver} is allocated")
    return results


def _key(device: AllocatedDevice) -> DeviceKey:
    return device.request, device.pool, device.name, device.share_id or ""


def _is_for(record: Record, devices: tuple[AllocatedDevice, ...]) -> bool:
    recorded = {(each.request, each.pool, each.device, each.share_id or "") for each in record.devices}
    return recorded == {_key(device) for device in devices}


def _by_device(name: ClaimName, devices: tuple[AllocatedDevice, ...], answer: Preparation) -> dict[DeviceKey, Prepared]:
    known = {_key(device) for device in devices}
    prepared: dict[DeviceKey, Prepared] = {}
    for each in answer.devices:
        key = _key(each.device)
        if key not in known:
            raise Failure(f"{name}: the driver prepared device {each.device.name}, which the claim does not hold")
        if key in prepared:
            raise Failure(f"{name}: the driver prepared device {each.device.name} twice")
        prepared[key] = each
    return prepared


def _told(answer: ClaimResult | Exception, operation: str, name: ClaimName) -> ClaimResult:
    """The result for the kubelet; unexpected failures are also logged with a traceback."""
    match answer:
        case tuple() | Failure():
            return answer
        case PrepareError():
            text = f"{name}: {answer}"
        case CdiError() | CheckpointError():
            text = f"{name}: {answer}"
        case OSError():
            _log.error("%s of %s failed", operation, name, exc_info=answer)
            text = f"{name}: {operation}: {answer}"
        case _:
            _log.error("%s of %s failed", operation, name, exc_info=answer)
            text = f"{name}: {operation} failed in the driver: {type(answer).__name__}: {answer}"
    return Failure(text if len(text) <= ERROR_LENGTH_MAX else text[: ERROR_LENGTH_MAX - 3] + "...")
