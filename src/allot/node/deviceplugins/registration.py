"""The service where device plugins register: the kubelet's `device-plugins/kubelet.sock`.

A plugin names its own socket, which must be below the same folder: a name that leads out of it is refused. When the agent starts, it
removes all sockets there, as the kubelet does: plugins watch for that, and register again.
"""

from __future__ import annotations

import logging
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import grpc

from allot.core.lifecycle.plugin_devices import Refused, check_resource_name, check_version
from allot.node.socket_services import serving
from allot.wire import device_plugin_v1beta1_pb2 as wire

_log = logging.getLogger("allot.node.deviceplugins")

SOCKET = "kubelet.sock"
CALLS_MAX = 32


class RegistrationService:
    """Serves registrations. connect: connects to a plugin by resource and socket; Refused."""

    def __init__(self, folder: Path, connect: Callable[[str, Path], Awaitable[None]]) -> None:
        self._folder = folder
        self._connect = connect

    @property
    def path(self) -> Path:
        """Where it serves."""
        return self._folder / SOCKET

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on the socket, to the agent's user: a program that can connect can offer devices."""
        self._folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        remove_sockets(self._folder)
        method: Any = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=wire.RegisterRequest.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method})
        async with serving(self.path, (handler,), calls_max=CALLS_MAX):
            yield

    async def _register(
        self, asked: wire.RegisterRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> wire.Empty | None:
        try:
            check_version(asked.version)
            check_resource_name(asked.resource_name)
            await self._connect(asked.resource_name, socket_beneath(self._folder, asked.endpoint))
        except Refused as error:
            _log.warning("device plugin of %r cannot register: %s", asked.resource_name[:100], error)
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return wire.Empty()


def socket_beneath(folder: Path, endpoint: str) -> Path:
    """The socket that a plugin names; Refused if it is not below the folder, or is the agent's own."""
    told = f"endpoint {endpoint[:200]!r}"
    parts = PurePosixPath(endpoint).parts
    if not parts or "\0" in endpoint or endpoint.startswith("/") or ".." in parts:
        raise Refused(f"{told}: expected the name of a socket in {folder}")
    path = folder.joinpath(*parts)
    try:
        is_beneath = path.parent.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:
        raise Refused(f"{told}: {error}") from error
    if not is_beneath or path == folder / SOCKET:
        raise Refused(f"{told}: expected the name of a plugin's socket in {folder}")
    return path


def remove_sockets(folder: Path) -> None:
    """Remove what earlier agents and plugins left; other files are not touched."""
    for path in sorted(folder.iterdir()):
        try:
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()
        except OSError as error:
            _log.warning("socket %s is not removed: %s", path, error)
