"""The base class of every driver. A subclass lists and prepares devices; `run` does the rest.

Each method may be a plain function, which runs in a thread, or `async def`, which runs on the event loop and must not block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Protocol

import msgspec

from allot.client.api import Client
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import Device, DeviceAttribute, NetworkDeviceData
from allot.driver.cdi import Edits
from allot.driver.claims import Claim, DeviceStatus, Preparation, Prepared, PreparedClaim
from allot.driver.configuration import ConfigKind

Devices = Iterable[Device] | Pool | Iterable[Pool]
Answer = Preparation | Iterable[Prepared] | None


class Health(IntEnum):
    """The health of a device. The numbers are those of the protocol."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a device. pool: by default the node's own."""

    name: str
    health: Health = Health.HEALTHY
    message: str = ""
    pool: str = ""


class Node(Protocol):
    """The environment of a running driver. Safe to use from any thread."""

    @property
    def name(self) -> str:
        """The node that the driver runs on."""

    @property
    def client(self) -> Client:
        """The API client, with the driver's own permissions. Only on the event loop, so from `async` methods."""

    def prepared(self) -> tuple[PreparedClaim, ...]:
        """The claims that are prepared or partly prepared."""

    def changed(self) -> None:
        """Devices or their health have changed: check them now."""

    def set_status(self, claim: Claim | PreparedClaim, device: str, status: DeviceStatus, pool: str = "") -> None:
        """Report on a device in its claim's status, soon."""

    def update_metadata(
        self,
        claim: Claim | PreparedClaim,
        device: str,
        *,
        attributes: Mapping[str, DeviceAttribute] | None = None,
        network: NetworkDeviceData | None = None,
    ) -> None:
        """Change the file that describes a device to containers; new containers see it."""


class Driver:
    """A driver for the devices of one node."""

    # The driver's name in slices, classes and claims: a DNS name that belongs to its author.
    name: ClassVar[str] = ""
    # The kinds of parameters that claims and classes may give.
    configs: ClassVar[tuple[ConfigKind, ...]] = ()
    # Whether claims are prepared one at a time.
    serialize: ClassVar[bool] = True
    # How often devices are checked without a trigger; 0: never.
    rescan_s: ClassVar[float] = 60.0
    # After how long without reports the kubelet considers a device's health unknown. Reports are at least twice as frequent.
    health_timeout_s: ClassVar[float] = 30.0
    # The class part of CDI names: `k8s.<driver name>/<this>`.
    cdi_class: ClassVar[str] = "claim"
    # Whether containers find a file that describes their devices (KEP-5304).
    has_device_metadata: ClassVar[bool] = False
    # A pool that the driver shares on all nodes, instead of the node's own pools.
    cluster_pool: ClassVar[str] = ""
    # Whether a controller (`allot.driver.Controller`) publishes the devices and attaches them to nodes. Then this part need not declare
    # devices, and prepares claims for undeclared ones.
    has_controller: ClassVar[bool] = False

    node: Node

    def devices(self) -> Devices | Awaitable[Devices]:
        """The devices (in a pool named after the node), or pools. Best first."""
        if self.has_controller:
            return ()
        raise NotImplementedError(f"{type(self).__name__}.devices")

    def prepare(self, claim: Claim) -> Answer | Awaitable[Answer]:
        """Set up the devices of a claim. May be called again after a failure or a crash. PrepareError refuses."""
        raise NotImplementedError(f"{type(self).__name__}.prepare")

    def unprepare(self, claim: PreparedClaim) -> Awaitable[None] | None:
        """Undo `prepare`, complete or partial. The claim's object may be gone."""

    def health(self) -> Iterable[DeviceHealth] | Awaitable[Iterable[DeviceHealth]]:
        """The health of the devices. Not overridden: health is not reported."""
        raise NotImplementedError(f"{type(self).__name__}.health")

    def edits_for_all(self) -> Edits:
        """Edits for every container with a device of this driver, in addition to those of `prepare`."""
        return Edits()

    def start(self) -> Awaitable[None] | None:
        """Called after the checkpoint is read (`self.node.prepared()`), before any request: clean up unknown state."""

    def rebooted(self, claims: tuple[PreparedClaim, ...]) -> Awaitable[None] | None:
        """Called before `start` with the claims prepared before a reboot, which are then forgotten."""

    def stop(self) -> Awaitable[None] | None:
        """Called on shutdown. Prepared claims stay prepared."""

    @property
    def reports_health(self) -> bool:
        """Whether the driver implements `health`."""
        return _own(self.health) is not Driver.health


def _own(method: Callable[..., Any]) -> Any:
    return getattr(method, "__func__", method)
