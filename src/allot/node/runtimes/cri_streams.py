"""Streams to programs and ports behind a container runtime, at the address that it returns for them (`cri_spdy`)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from allot.node.runtimes.cri_spdy import SpdyClosed, SpdyConnection
from allot.node.runtimes.port import RuntimeFailure

COMMAND_PROTOCOL = "v4.channel.k8s.io"
PORT_PROTOCOL = "portforward.k8s.io"
_QUEUE_MAX = 32
# The maximum size of a status or an error message.
_ERROR_BYTES_MAX = 64 * 1024
# Between the end of the output and the status.
_STATUS_S = 10.0


class CriStreams:
    """Streams to one program or port."""

    def __init__(self, connection: SpdyConnection, what: str) -> None:
        """what: the reason of failures, `ExecError` and the like."""
        self._connection = connection
        self._what = what
        self._input: int | None = None
        self._resize: int | None = None
        self._error = 0
        # Streams that have not ended yet, and the kind of their data.
        self._said_on: dict[int, int] = {}
        self._problem = bytearray()
        self._said: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(_QUEUE_MAX)
        self._ended = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    @classmethod
    async def command(cls, url: str, *, stdin: bool, tty: bool, what: str) -> CriStreams:
        """A program, or the container itself."""
        self = cls(await SpdyConnection.open(url, COMMAND_PROTOCOL), what)
        async with self._opening():
            open_stream = self._connection.open_stream
            self._error = await open_stream({"streamType": "error"}, end=True)
            if stdin:
                self._input = await open_stream({"streamType": "stdin"})
            self._said_on[await open_stream({"streamType": "stdout"}, end=True)] = 1
            if tty:
                self._resize = await open_stream({"streamType": "resize"})
            else:
                self._said_on[await open_stream({"streamType": "stderr"}, end=True)] = 2
        return self

    @classmethod
    async def port(cls, url: str, number: int) -> CriStreams:
        """A port of a pod."""
        self = cls(await SpdyConnection.open(url, PORT_PROTOCOL), "PortForwardError")
        async with self._opening():
            about = {"port": str(number), "requestID": "0"}
            self._error = await self._connection.open_stream({"streamType": "error", **about}, end=True)
            self._input = await self._connection.open_stream({"streamType": "data", **about})
            self._said_on[self._input] = 1
        return self

    @contextlib.asynccontextmanager
    async def _opening(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException as error:
            await self._connection.close()
            if isinstance(error, SpdyClosed):
                raise RuntimeFailure(self._what, "the runtime's streaming server hung up") from error
            raise
        self._pump = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        """Dispatch incoming data until the connection ends."""
        output_open = True
        try:
            while True:
                stream, data, ended = await self._connection.receive()
                if stream == self._error:
                    if len(self._problem) < _ERROR_BYTES_MAX:
                        self._problem += data
                    if ended:
                        self._ended.set()
                elif stream in self._said_on:
                    if data:
                        await self._said.put((self._said_on[stream], data))
                    if ended:
                        del self._said_on[stream]
                        if not self._said_on and output_open:
                            output_open = False
                            await self._said.put(None)
        except SpdyClosed:
            pass
        finally:
            self._ended.set()
        if output_open:
            await self._said.put(None)

    async def write(self, data: bytes) -> None:
        """Send input; empty ends it."""
        if self._input is None:
            return
        try:
            await self._connection.send(self._input, data, end=not data)
        except SpdyClosed:
            pass  # its output reports the end

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Its output."""
        while (said := await self._said.get()) is not None:
            yield said
        # A port without a listener is reported at the end.
        if self._what == "PortForwardError":
            await self._settled()
            if self._problem:
                raise RuntimeFailure(self._what, self._problem.decode(errors="replace"))

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""
        if self._resize is not None:
            try:
                await self._connection.send(self._resize, b'{"Width":%d,"Height":%d}\n' % (columns, rows))
            except SpdyClosed:
                pass  # its output reports the end

    async def exit_code(self) -> int:
        """Wait for its end; RuntimeFailure if it could not be started."""
        await self._ended.wait()
        return exit_code_of(bytes(self._problem), self._what)

    async def close(self) -> None:
        """Hang up; the runtime ends a program that reads or writes."""
        await self._connection.close()
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)

    async def _settled(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_STATUS_S):
                await self._ended.wait()


def exit_code_of(told: bytes, what: str) -> int:
    """The exit code in a Kubernetes Status; RuntimeFailure if the program could not be run."""
    if not told:
        # Attach ends without a status when the container does; an exec without one was cut off.
        if what == "AttachError":
            return 0
        raise RuntimeFailure(what, "the runtime's streaming server hung up before the program ended")
    try:
        status: Any = msgspec.json.decode(told)
        if status["status"] == "Success":
            return 0
        if status.get("reason") == "NonZeroExitCode":
            for cause in status["details"]["causes"]:
                if cause.get("reason") == "ExitCode":
                    return int(cause["message"])
        message = str(status.get("message", ""))
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError):
        message = told.decode(errors="replace")
    raise RuntimeFailure(what, message)
