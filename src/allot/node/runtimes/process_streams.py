"""Streams to processes: programs started inside a container, the container itself through its shim, and ports."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import struct
import termios
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from allot.node.runtimes import shim
from allot.node.runtimes.port import RuntimeFailure

_CHUNK_BYTES = 64 * 1024
_QUEUE_MAX = 32
_CONNECT_S = 10.0
_END_S = 2.0


class AttachedStreams:
    """A container, through its shim."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, folder: Path) -> AttachedStreams:
        """Connect to the shim of a folder; OSError if it does not exist."""
        # A socket path may have only 107 characters; this way the folder's path does not count.
        handle = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        try:
            path = f"/proc/self/fd/{handle}/attach.sock"
            async with asyncio.timeout(_CONNECT_S):
                reader, writer = await asyncio.open_unix_connection(path)
        finally:
            os.close(handle)
        return cls(reader, writer)

    async def send(self, kind: int, data: bytes) -> None:
        """Send a frame."""
        self._writer.write(shim.FRAME.pack(kind, len(data)) + data)
        await self._writer.drain()

    async def write(self, data: bytes) -> None:
        """Send input; empty ends it, if the container is configured so."""
        try:
            await self.send(shim.INPUT if data else shim.END_INPUT, data)
        except ConnectionError:
            pass  # the container has ended; its output shows that

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """The container's output from now on."""
        try:
            while True:
                kind, length = shim.FRAME.unpack(await self._reader.readexactly(shim.FRAME.size))
                data = await self._reader.readexactly(length)
                if kind == shim.ENDED:
                    return
                yield kind, data
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""
        await self.send(shim.RESIZE, struct.pack(">HH", columns, rows))

    async def exit_code(self) -> int:
        """The container's own end is reported elsewhere."""
        return 0

    async def close(self) -> None:
        """Detach; the container keeps running."""
        self._writer.close()


class ProgramStreams:
    """A program of this machine with pipes or a terminal."""

    def __init__(self, process: asyncio.subprocess.Process, master: int, is_asked: bool) -> None:
        self._process = process
        self._is_asked = is_asked
        self._master = master
        self._said: asyncio.Queue[tuple[int, bytes] | None] = asyncio.Queue(_QUEUE_MAX)
        self._tasks: list[asyncio.Task[None]] = []
        self._typing = asyncio.Lock()

    @classmethod
    async def start(
        cls, helper: Sequence[str], command: Sequence[str], *, tty: bool, stdin: bool, is_asked: bool
    ) -> ProgramStreams:
        """Start a program through a helper; RuntimeFailure if that is not possible. The helper gets the number of a socket, and sends the other
        side of a terminal over it. is_asked: whether it ends the program on request."""
        terminal, theirs = socket.socketpair()
        pipe, none = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *(*helper, str(theirs.fileno()) if tty else "-", *command),
                stdin=pipe if stdin and not tty else none,
                stdout=pipe,
                stderr=pipe,
                start_new_session=True,
                env={},
                pass_fds=(theirs.fileno(),) if tty else (),
            )
            theirs.close()
            master = await _receive(terminal) if tty else -1
        except (OSError, ValueError) as error:
            raise RuntimeFailure("ExecError", str(error)) from error
        finally:
            theirs.close()
            terminal.close()
        streams = cls(process, master, is_asked)
        streams._follow()
        return streams

    def _follow(self) -> None:
        if self._master >= 0:
            asyncio.get_running_loop().add_reader(self._master, self._master_readable)
            self._readable = asyncio.Event()
            self._tasks.append(asyncio.create_task(self._pump_terminal()))
            return
        assert self._process.stdout is not None and self._process.stderr is not None, "both are pipes"
        self._left = 2
        for kind, reader in ((1, self._process.stdout), (2, self._process.stderr)):
            self._tasks.append(asyncio.create_task(self._pump(kind, reader)))

    async def _pump(self, kind: int, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            await self._said.put((kind, data))
        self._left -= 1
        if not self._left:
            await self._said.put(None)

    def _master_readable(self) -> None:
        asyncio.get_running_loop().remove_reader(self._master)
        self._readable.set()

    async def _pump_terminal(self) -> None:
        while True:
            await self._readable.wait()
            self._readable.clear()
            try:
                data = os.read(self._master, _CHUNK_BYTES)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""
            if data == b"":
                await self._said.put(None)
                return
            if data:
                await self._said.put((1, data))
            asyncio.get_running_loop().add_reader(self._master, self._master_readable)

    async def write(self, data: bytes) -> None:
        """Send input; empty ends it."""
        if self._master >= 0:
            async with self._typing:
                await self._type(data)
            return
        if self._process.stdin is None:
            return
        try:
            if data:
                self._process.stdin.write(data)
                await self._process.stdin.drain()
            else:
                self._process.stdin.close()
        except (ConnectionError, RuntimeError):
            pass  # it no longer reads

    async def _type(self, data: bytes) -> None:
        # On a terminal, the end of input is a key.
        left = data or b"\x04"
        while left:
            try:
                left = left[os.write(self._master, left) :]
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError:
                return

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """The program's output."""
        while (said := await self._said.get()) is not None:
            yield said

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""
        if self._master >= 0:
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def exit_code(self) -> int:
        """Wait for its end."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def close(self) -> None:
        """End it if it has not ended."""
        # The helper of a sandbox ends the program, then itself; a program on the machine itself may ignore the request.
        for number in (signal.SIGTERM, signal.SIGKILL) if self._is_asked else (signal.SIGKILL,):
            if self._process.returncode is not None:
                break
            try:
                os.killpg(self._process.pid, number)
            except OSError:
                pass
            try:
                async with asyncio.timeout(_END_S):
                    await self._process.wait()
            except TimeoutError:
                pass
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._master >= 0:
            asyncio.get_running_loop().remove_reader(self._master)
            os.close(self._master)
            self._master = -1


async def _receive(terminal: socket.socket) -> int:
    """Receive the side of a terminal that is sent over a socket; -1 if none comes."""
    terminal.setblocking(False)
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(terminal, ready.set)
    try:
        await ready.wait()
        _, handles, _, _ = socket.recv_fds(terminal, 1, 1)
    finally:
        loop.remove_reader(terminal)
    if not handles:
        return -1
    os.set_inheritable(handles[0], False)
    os.set_blocking(handles[0], False)
    return handles[0]


class PortStreams:
    """A connection to a port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def write(self, data: bytes) -> None:
        """Send to the port; empty: nothing follows."""
        try:
            if data:
                self._writer.write(data)
                await self._writer.drain()
            elif self._writer.can_write_eof():
                self._writer.write_eof()
        except (ConnectionError, RuntimeError, OSError):
            pass  # its output shows the end

    async def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Data from the port."""
        try:
            while data := await self._reader.read(_CHUNK_BYTES):
                yield 1, data
        except OSError:
            return

    async def resize(self, columns: int, rows: int) -> None:
        """Ports have no terminal."""

    async def exit_code(self) -> int:
        """Ports have no exit code."""
        return 0

    async def close(self) -> None:
        """Disconnect."""
        self._writer.close()


async def connect_port(host: str, port: int) -> PortStreams:
    """Connect; RuntimeFailure without an answer."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            return PortStreams(*await asyncio.open_connection(host, port))
    except (OSError, TimeoutError) as error:
        told = (getattr(error, "strerror", None) or str(error) or "no answer").lower()
        raise RuntimeFailure("PortForwardError", f"dial tcp {host}:{port}: connect: {told}") from error
