"""One connected device plugin: its options, its lists of devices, and calls to it."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from allot.core.lifecycle.plugin_devices import Device, Edits, Refused, check_edits
from allot.node.deviceplugins.messages import devices_of, edits_of
from allot.node.plugin_calls import (
    CHANNEL_OPTIONS,
    CallFailed,
    Identity,
    NotUsable,
    call,
    failure,
    identity_of,
    parse,
    socket_target,
)
from allot.wire import device_plugin_v1beta1_pb2 as wire

DIAL_TIMEOUT_S = 10.0
OPTIONS_TIMEOUT_S = 10.0
# The kubelet waits without end for these, and all its pods with it.
ALLOCATE_TIMEOUT_S = 120.0
PRE_START_TIMEOUT_S = 30.0
_SERVICE = "/v1beta1.DevicePlugin"

Answer = TypeVar("Answer", bound=Message)


def socket_identity(path: Path) -> Identity:
    """What tells a socket from a later one at its path; Refused if there is none."""
    try:
        status = os.lstat(path)
    except OSError as error:
        raise Refused(f"failed to dial device plugin: socket {str(path)[:200]!r}: {error.strerror}") from error
    if not stat.S_ISSOCK(status.st_mode):
        raise Refused(f"failed to dial device plugin: {str(path)[:200]!r} is not a socket")
    return identity_of(status)


class Endpoint:
    """A plugin that serves a resource on a socket. devices: its last list; None before the first."""

    def __init__(self, resource: str, path: Path, *, allocate_s: float = ALLOCATE_TIMEOUT_S) -> None:
        self.resource = resource
        self.path = path
        self.identity = socket_identity(path)
        self.options = wire.DevicePluginOptions()
        self.devices: Mapping[str, Device] | None = None
        self._allocate_s = allocate_s
        try:
            self._channel = grpc.aio.insecure_channel(socket_target(str(path)), options=CHANNEL_OPTIONS)
        except NotUsable as error:
            raise Refused(f"failed to dial device plugin: {error}") from error

    async def connect(self) -> None:
        """Connect, and ask for the plugin's options; Refused."""
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise Refused("failed to dial device plugin: context deadline exceeded") from error
        try:
            self.options = await self._call(
                "GetDevicePluginOptions", wire.Empty(), wire.DevicePluginOptions, OPTIONS_TIMEOUT_S
            )
        except CallFailed as error:
            raise Refused(f"failed to get device plugin options: {error}") from error

    async def close(self) -> None:
        """Disconnect; calls under way fail."""
        await self._channel.close()

    async def lists(self) -> AsyncGenerator[Mapping[str, Device], None]:
        """All devices of the plugin, each time they change, until it ends the stream; CallFailed if that breaks."""
        start: Any = self._channel.unary_stream(f"{_SERVICE}/ListAndWatch")
        stream = start(wire.Empty().SerializeToString())
        try:
            async for raw in stream:
                yield devices_of(self.resource, parse(raw, wire.ListAndWatchResponse).devices)
        except grpc.aio.AioRpcError as error:
            raise failure(error) from error
        finally:
            stream.cancel()

    async def preferred(self, available: Sequence[str], included: Sequence[str], size: int) -> tuple[str, ...]:
        """The devices that the plugin would choose; Refused."""
        request = wire.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=available, must_include_deviceIDs=included, allocation_size=size
        )
        try:
            answer = await self._call(
                "GetPreferredAllocation", request, wire.PreferredAllocationResponse, self._allocate_s
            )
        except CallFailed as error:
            raise Refused(f"device plugin GetPreferredAllocation rpc failed with err: {error}") from error
        return tuple(answer.container_responses[0].deviceIDs) if answer.container_responses else ()

    async def allocate(self, ids: Sequence[str]) -> Edits:
        """Tell the plugin which devices a container gets; returns what they add to it. Refused."""
        request = wire.AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        try:
            answer = await self._call("Allocate", request, wire.AllocateResponse, self._allocate_s)
        except CallFailed as error:
            raise Refused(str(error)) from error
        if not answer.container_responses:
            raise Refused("no containers return in allocation response")
        edits = edits_of(answer.container_responses[0])
        try:
            check_edits(edits)
        except Refused as error:
            raise Refused(f"invalid allocation response of device plugin {self.resource}: {error}") from error
        return edits

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Tell the plugin that a container with these devices is about to start; Refused."""
        request = wire.PreStartContainerRequest(devices_ids=ids)
        try:
            await self._call("PreStartContainer", request, wire.PreStartContainerResponse, PRE_START_TIMEOUT_S)
        except CallFailed as error:
            raise Refused(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    async def _call(self, method: str, request: Message, answer: type[Answer], timeout_s: float) -> Answer:
        return await call(self._channel, f"{_SERVICE}/{method}", request, answer, timeout_s)
