"""The actions of probes and hooks: a command in a container, a request, a connection, a pause."""

from __future__ import annotations

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import grpc

from allot.core.model.containers_v1 import HTTPGetAction, TCPSocketAction
from allot.core.model.core_v1 import Container
from allot.core.model.meta import IntOrString
from allot.core.network.ranges import is_of_pod
from allot.http1.answers import read_body, read_head
from allot.http1.heads import BadHead
from allot.network.client import PodNetwork, dial_address
from allot.network.relays import Listener, Relays
from allot.node.runtimes.port import Runtime, RuntimeFailure

_SAID_MAX = 1024
_CALLS_MAX = 4
_PATH_CHARACTERS = "/?&=%:@!$'()*+,;~-._#[]"


class ActionFailure(Exception):
    """An action did not succeed; the text is for an event."""


class Actions:
    """Runs actions. address: where a pod's ports are; network: for addresses that exist only in the pod network."""

    def __init__(self, runtime: Runtime, network: PodNetwork | None = None) -> None:
        self._runtime = runtime
        self._network = network

    async def run_command(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> str:
        """Run a command; ActionFailure if it does not exit with 0."""
        try:
            code, said = await self._runtime.exec_sync(container_id, command, timeout_s)
        except TimeoutError:
            raise ActionFailure(f"command timed out: {list(command)} timed out after {timeout_s:g}s") from None
        except RuntimeFailure as error:
            raise ActionFailure(str(error)) from error
        text = said.decode(errors="replace")[:_SAID_MAX]
        if code != 0:
            raise ActionFailure(text or f"command exited with {code}")
        return text

    async def request(
        self,
        action: HTTPGetAction,
        container: Container,
        address: str,
        timeout_s: float,
        *,
        takes_any_status: bool = False,
    ) -> str:
        """Send a request; ActionFailure if it does not succeed. takes_any_status: hooks accept any answer."""
        host, port = action.host or address, _port(action.port, container)
        scheme = action.scheme.lower() or "http"
        url = f"{scheme}://{_bracketed(host)}:{port}{_path(action.path)}"
        try:
            asked = _head(action, f"{_bracketed(host)}:{port}")
            async with asyncio.timeout(timeout_s):
                status, body = await self._exchange(host, port, asked, is_tls=scheme == "https")
        except TimeoutError:
            raise ActionFailure(f'Get "{url}": context deadline exceeded') from None
        except (OSError, EOFError, asyncio.LimitOverrunError, BadHead, ValueError) as error:
            raise ActionFailure(f'Get "{url}": {_told(error)}') from error
        if not takes_any_status and not 200 <= status < 400:
            raise ActionFailure(f"HTTP probe failed with statuscode: {status}")
        return body

    async def _exchange(self, host: str, port: int, asked: bytes, *, is_tls: bool) -> tuple[int, str]:
        context = None
        if is_tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        made = await dial_address(self._network, host, port)
        reader, writer = await asyncio.open_connection(sock=made, ssl=context, server_hostname=host if is_tls else None)
        try:
            writer.write(asked)
            status, received = await read_head(reader)
            said = b""
            async for piece in read_body(reader, received):
                said += piece
                if len(said) >= _SAID_MAX:
                    break
            return status, said[:_SAID_MAX].decode(errors="replace")
        finally:
            writer.close()

    async def dial(self, action: TCPSocketAction, container: Container, address: str, timeout_s: float) -> str:
        """Open a connection."""
        host, port = action.host or address, _port(action.port, container)
        try:
            async with asyncio.timeout(timeout_s):
                made = await dial_address(self._network, host, port)
        except (OSError, TimeoutError) as error:
            raise ActionFailure(f"dial tcp {_bracketed(host)}:{port}: connect: {_told(error)}") from None
        made.close()
        return ""

    async def ask_health(self, port: int, service: str, address: str, timeout_s: float) -> str:
        """Query gRPC's health service; ActionFailure if it does not report SERVING."""
        name = service.encode()
        # grpc.health.v1: the request has the service's name, the answer a number; 1 is SERVING.
        asked = b"\x0a" + bytes((len(name),)) + name if 0 < len(name) < 128 else b""
        try:
            async with (
                self._way_to(address, port) as target,
                grpc.aio.insecure_channel(target) as channel,
            ):
                check: Any = channel.unary_unary("/grpc.health.v1.Health/Check")
                answer = await check(asked, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                raise ActionFailure(
                    f'timeout: failed to connect service "{address}:{port}" within {timeout_s:g}s'
                ) from None
            raise ActionFailure(f"service unhealthy: {error.code().name}: {error.details()}") from None
        if answer != b"\x08\x01":
            raise ActionFailure("service unhealthy (responded with NOT_SERVING)")
        return ""

    @asynccontextmanager
    async def _way_to(self, address: str, port: int) -> AsyncIterator[str]:
        """The gRPC target of a pod: our own socket, because gRPC opens connections itself."""
        if self._network is None or not is_of_pod(address):
            yield f"{_bracketed(address)}:{port}"
            return
        network, relays = self._network, Relays(_CALLS_MAX)
        with tempfile.TemporaryDirectory(prefix="allot-") as folder:
            path = f"{folder}/grpc"
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(path)
            listening.listen(1)
            listener = Listener(listening, lambda one: relays.start(one, lambda: network.dial(address, port)))
            try:
                yield f"unix:{path}"
            finally:
                listener.close()
                await relays.close()


def _port(port: IntOrString, container: Container) -> int:
    if isinstance(port, int):
        return port
    for each in container.ports:
        if each.name == port:
            return each.container_port
    if port.isdigit():
        return int(port)
    raise ActionFailure(f"couldn't find port: {port} in container {container.name}")


def _head(action: HTTPGetAction, place: str) -> bytes:
    """A request on a separate connection; ValueError for an invalid header."""
    headers = {"Host": place, "User-Agent": "kube-probe/allot", "Accept": "*/*", "Connection": "close"}
    for each in action.http_headers:
        known = next((name for name in headers if name.lower() == each.name.lower()), each.name)
        headers[known] = each.value
    lines = [
        f"GET {quote(_path(action.path), safe=_PATH_CHARACTERS)} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("a header of the probe has a line end")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _told(error: BaseException) -> str:
    return (getattr(error, "strerror", None) or str(error) or "i/o timeout").lower()


def _path(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
