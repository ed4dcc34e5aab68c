"""The agent's client of the `launcher`: starts holders and shims, and receives their results."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

import allot
from allot.node.runtimes.port import RuntimeFailure

_START_S = 30.0


def small_program(module: str) -> tuple[str, ...]:
    """The command of one of our modules, without site-packages, which would double the start time."""
    source = str(Path(allot.__file__).parents[1])
    code = f"import sys; sys.path.append({source!r}); from allot.node.runtimes.{module} import main; main()"
    return (sys.executable, "-I", "-S", "-B", "-c", code)


class Lease:
    """A holder ends at the end of this block unless the agent keeps it. If the agent were killed, or gave up, before it has written the holder
    down, no one would ever end it."""

    def __init__(self) -> None:
        self.handle, self._ours = os.pipe()

    def __enter__(self) -> Self:
        return self

    def keep(self) -> None:
        """The holder is written down."""
        os.write(self._ours, b"k")

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        os.close(self.handle)


class Launcher:
    """Starts processes that outlive this one."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    async def start(self, wanted: dict[str, Any], handles: Sequence[int] = ()) -> int:
        """Start a process; returns its pid once it reports that it runs. RuntimeFailure in its own words if it does not. handles: more descriptors
        that it inherits."""
        told, tell = os.pipe()
        try:
            self._ask(msgspec.json.encode(wanted), [tell, *handles])
        except OSError as error:
            os.close(told)
            raise RuntimeFailure("RunContainerError", f"launcher: {(error.strerror or str(error)).lower()}") from error
        finally:
            os.close(tell)
        said = bytearray()
        try:
            async with asyncio.timeout(_START_S):
                await _read_all(told, said)
        except TimeoutError:
            if b" " in said:
                os.kill(int(said.partition(b" ")[0]), signal.SIGKILL)
            raise RuntimeFailure("RunContainerError", f"no answer within {_START_S:g} s") from None
        pid, _, answer = said.decode(errors="replace").partition(" ")
        if answer != "ok":
            raise RuntimeFailure(
                "RunContainerError", answer.removeprefix("error ") or "the process could not be started"
            )
        return int(pid)

    def _ask(self, wanted: bytes, handles: list[int]) -> None:
        for last in (False, True):
            try:
                socket.send_fds(self._connected(), [wanted], handles)
                return
            except (BrokenPipeError, ConnectionError):
                # It was killed; start another one.
                self.close()
                if last:
                    raise

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            command = (*small_program("launcher"), "serve", str(theirs.fileno()))
            try:
                self._program = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                    env={},
                )
            finally:
                theirs.close()
        return self._socket

    def close(self) -> None:
        """End the launcher; what it has started keeps running."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._program is not None:
            self._program.wait()
            self._program = None


async def _read_all(handle: int, into: bytearray) -> None:
    """Read a pipe until its end."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(handle, "rb", 0)
    )
    try:
        while part := await reader.read(4096):
            into += part
    finally:
        transport.close()
