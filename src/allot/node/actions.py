"""What probes and hooks do: a command in a container, a request, a connection, a pause."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import aiohttp
import grpc

from allot.core.model.pods_v1 import Container, HttpAction, IntOrString, SocketAction
from allot.node.runtimes.port import Runtime, RuntimeFailure

_SAID_MAX = 1024


class ActionFailure(Exception):
    """An action did not succeed; the text is for an event."""


class Actions:
    """Carries actions out. address: where a pod's ports are."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def run_command(self, container_id: str, command: tuple[str, ...], timeout_s: float) -> str:
        """A command; ActionFailure if it does not end with 0."""
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

    async def request(self, action: HttpAction, container: Container, address: str, timeout_s: float) -> str:
        """A request; ActionFailure if the answer is no success."""
        host = action.host or address
        url = f"{action.scheme.lower() or 'http'}://{_bracketed(host)}:{_port(action.port, container)}{_path(action.path)}"
        headers = {each.name: each.value for each in action.http_headers}
        headers.setdefault("User-Agent", "kube-probe/allot")
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            timeout = aiohttp.ClientTimeout(total=timeout_s)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url, headers=headers, ssl=context, allow_redirects=False) as answer,
            ):
                body = (await answer.content.read(_SAID_MAX)).decode(errors="replace")
                if not 200 <= answer.status < 400:
                    raise ActionFailure(f"HTTP probe failed with statuscode: {answer.status}")
                return body
        except TimeoutError:
            raise ActionFailure(f'Get "{url}": context deadline exceeded') from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ActionFailure(f'Get "{url}": {error}') from error

    async def dial(self, action: SocketAction, container: Container, address: str, timeout_s: float) -> str:
        """A connection."""
        host, port = action.host or address, _port(action.port, container)
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(host, port)
        except (OSError, TimeoutError) as error:
            told = (getattr(error, "strerror", None) or "i/o timeout").lower()
            raise ActionFailure(f"dial tcp {_bracketed(host)}:{port}: connect: {told}") from None
        writer.close()
        return ""

    async def ask_health(self, port: int, service: str, address: str, timeout_s: float) -> str:
        """The health service of gRPC; ActionFailure if it does not say that it serves."""
        name = service.encode()
        # grpc.health.v1: the request has the service's name, the answer a number, of which 1 is good.
        asked = b"\x0a" + bytes((len(name),)) + name if 0 < len(name) < 128 else b""
        try:
            async with grpc.aio.insecure_channel(f"{_bracketed(address)}:{port}") as channel:
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


def _port(port: IntOrString, container: Container) -> int:
    if isinstance(port, int):
        return port
    for each in container.ports:
        if each.name == port:
            return each.container_port
    if port.isdigit():
        return int(port)
    raise ActionFailure(f"couldn't find port: {port} in container {container.name}")


def _path(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
