"""A driver on sockets that does what a test says: gRPC servers without anything of the project's own driver side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import grpc

from allot.wire import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    plugin_registration_pb2,
)

_PLUGIN = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}
_HEALTH = {"v1.DRAResourceHealth": dra_health_v1_pb2, "v1alpha1.DRAResourceHealth": dra_health_v1alpha1_pb2}
BOTH = ("v1.DRAPlugin", "v1beta1.DRAPlugin")

# Given the operation, the uids, and how to answer as usual; what comes back goes on the wire.
Around = Callable[[str, Sequence[str], Callable[[], Any]], Awaitable[Any]]


class DriverOnSockets:
    """One instance of a driver."""

    def __init__(
        self,
        root: Path,
        name: str = "gpu.example.com",
        *,
        versions: Sequence[str] = BOTH,
        instance: str = "",
        common_socket: bool = False,
        endpoint: Path | None = None,
    ) -> None:
        self.name = name
        self.versions = tuple(versions)
        self.type = "DRAPlugin"
        self.registration = root / "plugins_registry" / f"{name}{instance}-reg.sock"
        self.common_socket = common_socket
        self.endpoint = self.registration if common_socket else endpoint or root / "plugins" / f"{name}{instance}.sock"
        self.registration.parent.mkdir(parents=True, exist_ok=True)
        self.endpoint.parent.mkdir(parents=True, exist_ok=True)
        # What was asked: (version, operation, uids).
        self.calls: list[tuple[str, str, tuple[str, ...]]] = []
        self.prepared: set[str] = set()
        self.infos = 0
        self.statuses: list[tuple[bool, str]] = []
        self.around: Around | None = None
        self.raw_info: bytes | None = None
        self.info_failures = 0
        self.info_delay_s = 0.0
        self.notify_failures = 0
        self.health: asyncio.Queue[Any] = asyncio.Queue()
        self.health_streams: list[str] = []
        # By claim; else these.
        self.devices: dict[str, list[dict[str, Any]]] = {}
        self.default_devices: Sequence[dict[str, Any]] = (
            {"request_names": ["req"], "pool_name": "node-1", "device_name": "gpu-0"},
        )
        self._servers: dict[Path, grpc.aio.Server] = {}

    # --- life ---

    async def start(self) -> DriverOnSockets:
        """Both servers, the service first."""
        await self.start_service()
        await self.start_registration()
        return self

    async def stop(self) -> None:
        """Both; the sockets go."""
        for path in list(self._servers):
            await self._stop(path)

    async def start_service(self) -> None:
        """The DRAPlugin service."""
        if not self.common_socket:
            await self._start(self.endpoint, self._service_handlers())

    async def start_registration(self) -> None:
        """The registration service."""
        handlers = [self._registration_handler()]
        if self.common_socket:
            handlers += self._service_handlers()
        await self._start(self.registration, handlers)

    async def stop_service(self) -> None:
        """The DRAPlugin service."""
        await self._stop(self.endpoint)

    async def stop_registration(self) -> None:
        """The registration service."""
        await self._stop(self.registration)

    async def _start(self, path: Path, handlers: Sequence[Any]) -> None:
        path.unlink(missing_ok=True)
        server = grpc.aio.server()
        server.add_generic_rpc_handlers(tuple(handlers))
        server.add_insecure_port(f"unix:{quote(str(path))}")
        await server.start()
        self._servers[path] = server

    async def _stop(self, path: Path) -> None:
        server = self._servers.pop(path, None)
        if server is not None:
            await server.stop(0)
            path.unlink(missing_ok=True)

    # --- services ---

    def _registration_handler(self) -> Any:
        async def info(_: bytes, context: Any) -> bytes:
            self.infos += 1
            await asyncio.sleep(self.info_delay_s)
            if self.info_failures:
                self.info_failures -= 1
                await context.abort(grpc.StatusCode.UNKNOWN, "not now")
            if self.raw_info is not None:
                return self.raw_info
            endpoint = "" if self.common_socket else str(self.endpoint)
            message = plugin_registration_pb2.PluginInfo(
                type=self.type, name=self.name, endpoint=endpoint, supported_versions=self.versions
            )
            return message.SerializeToString()

        async def notify(raw: bytes, context: Any) -> bytes:
            status = plugin_registration_pb2.RegistrationStatus.FromString(raw)
            self.statuses.append((status.plugin_registered, status.error))
            if self.notify_failures:
                self.notify_failures -= 1
                await context.abort(grpc.StatusCode.UNKNOWN, "not now")
            return b""

        return _handler("pluginregistration.Registration", {"GetInfo": info, "NotifyRegistrationStatus": notify})

    def _service_handlers(self) -> list[Any]:
        handlers = []
        for version in self.versions:
            if version in _PLUGIN:
                service, wire = _PLUGIN[version]
                calls = {
                    operation: self._call(version, wire, operation)
                    for operation in ("NodePrepareResources", "NodeUnprepareResources")
                }
                handlers.append(_handler(service, calls))
            if version in _HEALTH:
                handlers.append(_stream_handler(version, self._watch(version)))
        return handlers

    def _call(self, version: str, wire: Any, operation: str) -> Any:
        async def call(raw: bytes, context: Any) -> bytes:
            uids = tuple(claim.uid for claim in getattr(wire, f"{operation}Request").FromString(raw).claims)
            self.calls.append((version, operation, uids))

            def answer() -> Any:
                return self._prepare(wire, uids) if operation == "NodePrepareResources" else self._unprepare(wire, uids)

            made = answer() if self.around is None else await self.around(operation, uids, answer)
            if isinstance(made, str):
                await context.abort(grpc.StatusCode.INTERNAL, made)
            return made if isinstance(made, bytes) else made.SerializeToString()

        return call

    def _prepare(self, wire: Any, uids: Sequence[str]) -> Any:
        self.prepared |= set(uids)
        return wire.NodePrepareResourcesResponse(
            claims={
                uid: wire.NodePrepareResourceResponse(
                    devices=[
                        wire.Device(**{"cdi_device_ids": [f"{self.name}/claim={uid}-{number}"], **device})
                        for number, device in enumerate(self.devices.get(uid, self.default_devices))
                    ]
                )
                for uid in uids
            }
        )

    def _unprepare(self, wire: Any, uids: Sequence[str]) -> Any:
        self.prepared -= set(uids)
        return wire.NodeUnprepareResourcesResponse(claims={uid: wire.NodeUnprepareResourceResponse() for uid in uids})

    def _watch(self, version: str) -> Any:
        async def watch(_: bytes, context: Any) -> Any:
            self.health_streams.append(version)
            while True:
                report = await self.health.get()
                if report is None:
                    return
                if isinstance(report, bytes):
                    yield report
                    return
                if isinstance(report, grpc.StatusCode):
                    await context.abort(report, "said the test")
                wire = _HEALTH[version]
                devices = [
                    wire.DeviceHealth(
                        device=wire.DeviceIdentifier(pool_name=pool, device_name=device),
                        health=health,
                        message=message,
                        health_check_timeout_seconds=timeout,
                    )
                    for pool, device, health, message, timeout in report
                ]
                yield wire.NodeWatchResourcesResponse(devices=devices).SerializeToString()

        return watch

    def say(self, health: int, message: str = "", *, device: str = "gpu-0", timeout: int = 0) -> None:
        """Report about one device."""
        self.health.put_nowait([("node-1", device, health, message, timeout)])

    def asked(self, operation: str) -> list[tuple[str, ...]]:
        """The uids of each call."""
        return [uids for _, each, uids in self.calls if each == operation]


class CountedSocket:
    """Stands before the service of a driver that has not registered yet, and counts who connects."""

    def __init__(self, driver: DriverOnSockets) -> None:
        self._service, self._path = driver.endpoint, driver.endpoint.with_name(f"{driver.endpoint.name}.between")
        driver.endpoint = self._path
        self.connections = 0
        self._accepted: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._closed = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._accept, str(self._path))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        self._server.close()
        for writer, task in self._accepted.items():
            # A task that is cancelled before its first step runs nothing of its own, so it cannot close this.
            writer.close()
            task.cancel()
        await asyncio.gather(*self._accepted.values(), return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closed:  # accepted by the server before it was closed, handed over after
            writer.close()
            return
        self.connections += 1
        self._accepted[writer] = asyncio.create_task(self._forward(reader, writer))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # The driver may be gone by now: what was accepted is closed all the same.
        async with _closing(writer):
            from_driver, to_driver = await asyncio.open_unix_connection(str(self._service))
            async with _closing(to_driver):
                await asyncio.gather(_copy(reader, to_driver), _copy(from_driver, writer))


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def _handler(service: str, calls: dict[str, Any]) -> Any:
    handlers: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(call) for name, call in calls.items()}
    return grpc.method_handlers_generic_handler(service, handlers)


def _stream_handler(service: str, watch: Any) -> Any:
    return grpc.method_handlers_generic_handler(
        service, {"NodeWatchResources": grpc.unary_stream_rpc_method_handler(watch)}
    )
