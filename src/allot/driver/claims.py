"""Claims as a driver meets them: what to prepare, what it made of it, and what is left to unprepare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from allot.core.model.meta import Condition
from allot.core.model.resource_v1 import Device, DeviceAttribute, NetworkDeviceData, ResourceClaim
from allot.core.quantity import Quantity
from allot.driver.cdi import Edits
from allot.driver.checkpoint import Record
from allot.driver.configuration import Config, base_request

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
    # What the claim takes of the capacities of a shared device.
    consumed_capacity: Mapping[str, Quantity] = {}
    binding_conditions: tuple[str, ...] = ()
    # Parameters that apply, the lowest precedence first.
    configs: tuple[Config, ...] = ()
    # The device as the driver declared it; None if it does so no longer.
    declared: Device | None = None

    @property
    def base_request(self) -> str:
        """The request without the alternative that was chosen."""
        return base_request(self.request)

    def config(self, type_: type[T], default: T) -> T:
        """The parameters of a type that win, or the default."""
        for config in reversed(self.configs):
            if isinstance(config.value, type_):
                return config.value
        return default


class DeviceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver tells about a device in the status of its claim."""

    conditions: tuple[Condition, ...] = ()
    # Any JSON value of at most 10 KiB.
    data: Any = None
    network: NetworkDeviceData | None = None


class Prepared(msgspec.Struct, frozen=True):
    """A device that is ready, and what a container gets with it."""

    device: AllocatedDevice
    edits: Edits = Edits()
    # CDI names of other spec files, besides that of the edits.
    cdi_ids: tuple[str, ...] = ()
    status: DeviceStatus | None = None
    # For the metadata file in the container; the declared attributes unless given.
    metadata: Mapping[str, DeviceAttribute] | None = None
    network: NetworkDeviceData | None = None


class Preparation(msgspec.Struct, frozen=True):
    """All devices of a claim, and what the driver wants to find again when it unprepares (any JSON value)."""

    devices: tuple[Prepared, ...] = ()
    state: Any = None


class Claim:
    """A claim to prepare. Only devices of this driver are in it."""

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
        # What an earlier attempt that did not finish has saved.
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
        """Note something before it is done, so that it can be undone if the driver dies in between."""
        self._save(state)

    def set_status(self, device: AllocatedDevice, status: DeviceStatus) -> None:
        """Tell something about a device in the claim's status, soon, whatever comes of preparing it."""
        self._tell(device, status)

    def __repr__(self) -> str:
        return f"Claim({self.namespace}/{self.name}, {self.uid})"


class HeldDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a claim that was prepared."""

    request: str
    pool: str
    name: str
    share_id: str | None = None
    admin_access: bool = False


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that was prepared, as far as the checkpoint tells: its API object may be gone."""

    uid: str
    namespace: str
    name: str
    devices: tuple[HeldDevice, ...] = ()
    # What `prepare` returned, or saved last if it did not finish; None if it did neither.
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


def as_preparation(answer: Preparation | Iterable[Prepared] | None) -> Preparation:
    """What a driver's `prepare` returned, in one form. TypeError if it is something else."""
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
