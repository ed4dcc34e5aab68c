"""The base class of a driver's controller, which runs once in a cluster, for devices that must be attached to a node before use.

It lists the devices, and attaches and detaches them. `attaching` does everything else: the devices are published
for the nodes that could have them, a device that the scheduler has chosen is attached to the pod's node while the pod waits, and detached
when no claim holds it. On the node the same driver runs with `has_controller = True`.

Each method may be a plain function, which runs in a thread, or `async def`, which runs on the event loop and must not block.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import Any, ClassVar, Protocol

import msgspec

from allot.client.api import Client
from allot.core.lifecycle.slice_publishing import Pool
from allot.driver.claims import AllocatedDevice
from allot.driver.configuration import ConfigKind


class Attachment(msgspec.Struct, frozen=True, order=True):
    """A device attached to a node."""

    pool: str
    device: str
    node: str


class AttachError(Exception):
    """Raised by a controller that cannot attach or detach a device: the text is shown in the claim's status, without a traceback.

    blames_device: the device is withheld for a while (`Controller.retry_s`), so that the pod gets another one.
    """

    def __init__(self, text: str, *, blames_device: bool = True) -> None:
        super().__init__(text)
        self.blames_device = blames_device


class Cluster(Protocol):
    """What a running controller can do. Safe to use from any thread."""

    @property
    def client(self) -> Client:
        """The API client, with the controller's own permissions. Only on the event loop, so from `async` methods."""

    def changed(self) -> None:
        """Devices or attachments have changed: check them now."""


class Controller:
    """A controller for devices that are attached to nodes."""

    # The driver's name, the same as that of its part on the nodes.
    name: ClassVar[str] = ""
    # The kinds of parameters that claims and classes may give.
    configs: ClassVar[tuple[ConfigKind, ...]] = ()
    # How often `pools` and `attached` are called without a trigger; 0: never.
    rescan_s: ClassVar[float] = 60.0
    # The conditions in a claim's status that a pod waits for, and that make it give up. Every device gets them.
    attached_condition: ClassVar[str] = "Attached"
    failed_condition: ClassVar[str] = "AttachFailed"
    # The timeout of an attachment. The scheduler itself gives up after ten minutes.
    attach_timeout_s: ClassVar[float] = 300.0
    # How long a device that could not be attached or detached stays tainted.
    retry_s: ClassVar[float] = 60.0
    # How many devices are attached or detached at a time.
    workers: ClassVar[int] = 8

    cluster: Cluster

    def pools(self) -> Iterable[Pool] | Awaitable[Iterable[Pool]]:
        """All devices, attached or not: pools for all nodes, or for those that a selector matches. Best first."""
        raise NotImplementedError(f"{type(self).__name__}.pools")

    def attached(self) -> Iterable[Attachment] | Awaitable[Iterable[Attachment]]:
        """Current attachments according to the hardware. Those without a claim are detached."""
        raise NotImplementedError(f"{type(self).__name__}.attached")

    def attach(self, device: AllocatedDevice, node: str) -> Any:
        """Attach a device to a node. May be called again after a failure or a crash. AttachError refuses. The return value, any JSON
        value of at most 10 KiB, is available to the part on the node (`AllocatedDevice.data`)."""
        raise NotImplementedError(f"{type(self).__name__}.attach")

    def detach(self, attachment: Attachment) -> Awaitable[None] | None:
        """Undo `attach`, complete or partial. AttachError: it is retried later."""
        raise NotImplementedError(f"{type(self).__name__}.detach")

    def start(self) -> Awaitable[None] | None:
        """Called when this instance becomes the leader, before any other call."""

    def stop(self) -> Awaitable[None] | None:
        """Called on shutdown. Attached devices stay attached."""
