"""Claims from a driver's point of view: what to prepare, the result, and what to unprepare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from allot.core.model.meta import Condition
from allot.core.model.resource_v1 import (
    AllocatedDeviceStatus,
    Device,
    DeviceAttribute,
    DeviceRequestAllocationResult,
    NetworkDeviceData,
    ResourceClaim,
)
from allot.core.quantity import Quantity
from allot.driver.cdi import Edits
from allot.driver.checkpoint import Record
from allot.driver.configuration import Config, base_request, configs_for

T = TypeVar("T")


class PrepareError(Exception):
    """Raised by a driver that cannot prepare or unprepare a claim: the text is shown on the pod, without a traceback."""


class AllocatedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of this driver, or a share of one, that a claim holds."""

    # As in the allocation: `request`, or `request/alternative`.
    request: str
    pool: str
    name: str
    share_id: str | None = None
    admin_access: bool = False
    # The claim's share of the capacities of a shared device.
    consumed_capacity: Mapping[str, Quantity] = {}
    binding_conditions: tuple[str, ...] = ()
    # Parameters that apply, lowest precedence first.
    configs: tuple[Config, ...] = ()
    # The device as the driver declares it; None if it no longer does, or if its controller declares it.
    declared: Device | None = None
    # The data of the driver's controller from attaching the device: any JSON value.
    data: Any = None

    @property
    def base_request(self) -> str:
        """The request without the alternative that was chosen."""
        return base_request(self.request)

    def config(self, type_: type[T], default: T) -> T:
        """The parameters of a type with the highest precedence, or the default."""
        for config in reversed(self.configs):
            if isinstance(config.value, type_):
                return config.value
        return default


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A driver's report about a device in the status of its claim."""

    conditions: tuple[Condition, ...] = ()
    # Any JSON value of at most 10 KiB.
    data: Any = None
    network: NetworkDeviceData | None = None


class Prepared(msgspec.Struct, frozen=True):
    """A device that is ready, and what a container gets with it."""

    device: AllocatedDevice
    edits: Edits = Edits()
    # CDI names in other spec files, besides that of the edits.
    cdi_ids: tuple[str, ...] = ()
    status: DeviceStatus | None = None
    # For the metadata file in the container; the declared attributes unless given.
    metadata: Mapping[str, DeviceAttribute] | None = None
    network: NetworkDeviceData | None = None


class Preparation(msgspec.Struct, frozen=True):
    """All devices of a claim, and the driver's own data for unprepare (any JSON value)."""

    devices: tuple[Prepared, ...] = ()
    state: Any = None


class Claim:
    """A claim to prepare, with only this driver's devices."""

    def __init__(
        self,
        object_: ResourceClaim,
        devices: tuple[AllocatedDevice, ...],
        save: Callable[[Any], None],
        state: Any = None,
        tell: Callable[[AllocatedDevice, DeviceStatus], None] = lambda _device, _status: None,
    ) -> None:
        self.object = object_
        self.devices = devices
        # What an earlier, unfinished attempt saved.
        self.state = state
        self._save = save
        self._tell = tell

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return self.object.metadata.uid

    @property
    def namespace(self) -> str:
        """metadata.namespace."""
        return self.object.metadata.namespace

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.object.metadata.name

    def save(self, state: Any) -> None:
        """Record something before doing it, so that it can be undone after a crash."""
        self._save(state)

    def set_status(self, device: AllocatedDevice, status: DeviceStatus) -> None:
        """Report on a device in the claim's status, soon, whether or not preparing it succeeds."""
        self._tell(device, status)

    def __repr__(self) -> str:
        return f"Claim({self.namespace}/{self.name}, {self.uid})"


class HeldDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a prepared claim."""

    request: str
    pool: str
    name: str
    share_id: str | None = None
    admin_access: bool = False


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared claim from the checkpoint: its API object may be gone."""

    uid: str
    namespace: str
    name: str
    devices: tuple[HeldDevice, ...] = ()
    # The data that `prepare` returned, or last saved if it did not finish; None without either.
    state: Any = None
    is_completed: bool = True


def prepared_claim(record: Record) -> PreparedClaim:
    """A record as the driver sees it."""
    return PreparedClaim(
        uid=record.uid,
        namespace=record.namespace,
        name=record.name,
        devices=tuple(
            HeldDevice(
                request=device.request,
                pool=device.pool,
                name=device.device,
                share_id=device.share_id,
                admin_access=device.admin_access,
            )
            for device in record.devices
        ),
        state=record.state,
        is_completed=record.phase == "PrepareCompleted",
    )


def allocated_device(
    claim: ResourceClaim, result: DeviceRequestAllocationResult, configs: Sequence[Config], declared: Device | None
) -> AllocatedDevice:
    """A result of an allocation as a driver sees it. configs: of all requests."""
    status = device_status(claim, result)
    return AllocatedDevice(
        request=result.request,
        pool=result.pool,
        name=result.device,
        share_id=result.share_id,
        admin_access=bool(result.admin_access),
        consumed_capacity=result.consumed_capacity,
        binding_conditions=result.binding_conditions,
        configs=configs_for(result.request, configs),
        declared=declared,
        data=status.data.value() if status is not None and status.data is not None else None,
    )


def device_status(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    """The report on a device in the status of its claim."""
    key = (result.driver, result.pool, result.device, result.share_id or "")
    for status in claim.status.devices:
        if (status.driver, status.pool, status.device, status.share_id or "") == key:
            return status
    return None


def is_true(claim: ResourceClaim, result: DeviceRequestAllocationResult, condition: str) -> bool:
    """Whether a condition of a device is reported as true."""
    status = device_status(claim, result)
    conditions = status.conditions if status is not None else ()
    return any(each.type == condition and each.status == "True" for each in conditions)


def as_preparation(answer: Preparation | Iterable[Prepared] | None) -> Preparation:
    """The result of a driver's `prepare` as a Preparation. TypeError for any other type."""
    if answer is None:
        return Preparation()
    if isinstance(answer, Preparation):
        return answer
    if not isinstance(answer, Iterable):
        raise TypeError(f"prepare returned {type(answer).__name__}, expected Prepared values or a Preparation")
    devices = tuple(answer)
    for device in devices:
        if not isinstance(device, Prepared):
            raise TypeError(f"prepare returned {type(device).__name__} among devices, expected Prepared")
    return Preparation(devices)
