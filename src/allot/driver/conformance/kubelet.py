"""The kubelet from a driver's point of view: finds its socket, registers it, asks it to prepare claims, watches its health.

Speaks the real gRPC over the real sockets. Does not run pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec

from allot.driver.service import HEALTH_V1, HEALTH_V1ALPHA1, PLUGIN_TYPE, V1, V1BETA1
from allot.wire import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    plugin_registration_pb2,
)

GET_INFO_TIMEOUT_S = 1.0
NOTIFY_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 45.0
_POLL_S = 0.02
_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
_SERVICES: Mapping[str, tuple[str, Any]] = {
    V1: ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    V1BETA1: ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}
_HEALTH: Mapping[str, Any] = {HEALTH_V1: dra_health_v1_pb2, HEALTH_V1ALPHA1: dra_health_v1alpha1_pb2}


class KubeletError(Exception):
    """An error that the kubelet would report about a driver."""


class ClaimRef(msgspec.Struct, frozen=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


class PreparedDevice(msgspec.Struct, frozen=True):
    """A device in a driver's answer."""

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str = ""


class Entry(msgspec.Struct, frozen=True):
    """A claim in a driver's answer."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class Info(msgspec.Struct, frozen=True):
    """A driver's registration info."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]


async def get_info(socket: Path, timeout_s: float = GET_INFO_TIMEOUT_S) -> Info:
    """Query a registration socket."""
    messages = plugin_registration_pb2
    async with _channel(socket) as channel:
        method = channel.unary_unary(
            "/pluginregistration.Registration/GetInfo",
            request_serializer=messages.InfoRequest.SerializeToString,
            response_deserializer=messages.PluginInfo.FromString,
        )
        answer = await _call("GetInfo", method(messages.InfoRequest(), timeout=timeout_s))
    return Info(answer.type, answer.name, answer.endpoint, tuple(answer.supported_versions))


async def notify(socket: Path, is_registered: bool, error: str = "", timeout_s: float = NOTIFY_TIMEOUT_S) -> None:
    """Report the registration result at a registration socket."""
    messages = plugin_registration_pb2
    async with _channel(socket) as channel:
        method = channel.unary_unary(
            "/pluginregistration.Registration/NotifyRegistrationStatus",
            request_serializer=messages.RegistrationStatus.SerializeToString,
            response_deserializer=messages.RegistrationStatusResponse.FromString,
        )
        status = messages.RegistrationStatus(plugin_registered=is_registered, error=error)
        await _call("NotifyRegistrationStatus", method(status, timeout=timeout_s))


async def find_sockets(directory: Path, count: int = 1, timeout_s: float = 20.0) -> tuple[Path, ...]:
    """Wait for this number of responding registration sockets; oldest first."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while True:
        found = []
        for path in sorted(directory.glob("*.sock"), key=lambda each: each.stat().st_mtime_ns):
            try:
                await get_info(path)
            except KubeletError:
                continue
            found.append(path)
        if len(found) >= count:
            return tuple(found)
        if asyncio.get_running_loop().time() > deadline:
            raise KubeletError(f"{len(found)} of {count} drivers answer below {directory} after {timeout_s:g} s")
        await asyncio.sleep(_POLL_S)


class DriverConnection:
    """A registered driver. version: by default the kubelet's choice."""

    def __init__(self, info: Info, channel: grpc.aio.Channel, version: str) -> None:
        self.info = info
        self.channel = channel
        self.version = version
        service, self._messages = _SERVICES[version]
        self._prepare = channel.unary_unary(
            f"/{service}/NodePrepareResources",
            request_serializer=self._messages.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=self._messages.NodePrepareResourcesResponse.FromString,
        )
        self._unprepare = channel.unary_unary(
            f"/{service}/NodeUnprepareResources",
            request_serializer=self._messages.NodeUnprepareResourcesRequest.SerializeToString,
            response_deserializer=self._messages.NodeUnprepareResourcesResponse.FromString,
        )

    async def prepare(self, claims: Iterable[ClaimRef], timeout_s: float = CALL_TIMEOUT_S) -> dict[str, Entry]:
        """Ask to prepare; returns the answers by UID. KubeletError if the answer is not one entry for each claim."""
        wanted = tuple(claims)
        request = self._messages.NodePrepareResourcesRequest(claims=self._named(wanted))
        answer = await _call("NodePrepareResources", self._prepare(request, timeout=timeout_s))
        entries = {
            uid: Entry(tuple(_device(each) for each in entry.devices), entry.error)
            for uid, entry in answer.claims.items()
        }
        _check_entries("NodePrepareResources", wanted, entries)
        return entries

    async def unprepare(self, claims: Iterable[ClaimRef], timeout_s: float = CALL_TIMEOUT_S) -> dict[str, str]:
        """Ask to unprepare; returns the error by UID, empty for none."""
        wanted = tuple(claims)
        request = self._messages.NodeUnprepareResourcesRequest(claims=self._named(wanted))
        answer = await _call("NodeUnprepareResources", self._unprepare(request, timeout=timeout_s))
        entries = {uid: entry.error for uid, entry in answer.claims.items()}
        _check_entries("NodeUnprepareResources", wanted, entries)
        return entries

    async def send_garbage(self) -> grpc.StatusCode:
        """Send invalid bytes; returns the code of the answer."""
        service, _ = _SERVICES[self.version]
        method: Any = self.channel.unary_unary(f"/{service}/NodePrepareResources")
        try:
            await method(b"\xff\xff\xff\xff", timeout=CALL_TIMEOUT_S)
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    @asynccontextmanager
    async def health(self, version: str = HEALTH_V1) -> AsyncIterator[AsyncIterator[Any]]:
        """The health stream. KubeletError while reading if there is none."""
        messages = _HEALTH[version]
        method = self.channel.unary_stream(
            f"/{version}/NodeWatchResources",
            request_serializer=messages.NodeWatchResourcesRequest.SerializeToString,
            response_deserializer=messages.NodeWatchResourcesResponse.FromString,
        )
        stream = method(messages.NodeWatchResourcesRequest())

        async def read() -> AsyncIterator[Any]:
            try:
                async for message in stream:
                    yield message
            except grpc.aio.AioRpcError as error:
                raise KubeletError(f"NodeWatchResources: {error.code().name}: {error.details()}") from error

        reports = read()
        try:
            yield reports
        finally:
            stream.cancel()

    def _named(self, claims: Iterable[ClaimRef]) -> list[Any]:
        return [self._messages.Claim(namespace=each.namespace, name=each.name, uid=each.uid) for each in claims]


@asynccontextmanager
async def registered(
    socket: Path, version: str = "", *, timeout_s: float | None = None
) -> AsyncIterator[DriverConnection]:
    """Register the driver at a socket as the kubelet does, and stay connected. timeout_s: for each call; by default the
    kubelet's."""
    info = await get_info(socket, timeout_s or GET_INFO_TIMEOUT_S)
    problem = check_info(info)
    if problem:
        await notify(socket, False, problem)
        raise KubeletError(problem)
    chosen = version or next(each for each in info.versions if each in _SERVICES)
    async with _channel(Path(info.endpoint) if info.endpoint else socket) as channel:
        await notify(socket, True, timeout_s=timeout_s or NOTIFY_TIMEOUT_S)
        yield DriverConnection(info, channel, chosen)


def check_info(info: Info) -> str:
    """Why the kubelet would refuse a driver; empty if it would not."""
    if info.type != PLUGIN_TYPE:
        return f"plugin type {info.type!r}, expected {PLUGIN_TYPE!r}"
    if not info.name:
        return "the plugin has no name"
    if not any(version in _SERVICES for version in info.versions):
        return f"versions {', '.join(info.versions)!r}, expected one of {', '.join(_SERVICES)}"
    return ""


def _channel(socket: Path) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)


async def _call(name: str, answer: Any) -> Any:
    try:
        return await answer
    except grpc.aio.AioRpcError as error:
        raise KubeletError(f"{name}: {error.code().name}: {error.details()}") from error


def _check_entries(name: str, wanted: tuple[ClaimRef, ...], entries: Mapping[str, Any]) -> None:
    uids = {claim.uid for claim in wanted}
    unknown = sorted(set(entries) - uids)
    if unknown:
        raise KubeletError(f"{name}: unknown claim UID {unknown[0]} in the answer")
    if len(entries) < len(uids):
        raise KubeletError(f"{name} skipped {len(uids) - len(entries)} ResourceClaims")


def _device(device: Any) -> PreparedDevice:
    return PreparedDevice(
        tuple(device.request_names),
        device.pool_name,
        device.device_name,
        tuple(device.cdi_device_ids),
        getattr(device, "share_id", ""),
    )
