"""Keeps the network namespace of a cluster: created by a small program (`layout`), kept by descriptors, used by `inside`.

While they are open, the namespace exists with all connected pods, whichever other process is killed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import allot

_MAKE_S = 20.0
_BACKLOG = 128


class NetworkRefused(Exception):
    """This machine allows no such namespace; the text says why."""


class ClusterNetwork:
    """A network namespace, and the socket at which its inner process answers."""

    def __init__(self, users: int, network: int, listening: socket.socket) -> None:
        self._users = users
        self._network = network
        self._listening = listening

    @classmethod
    async def make(cls, path: Path) -> ClusterNetwork:
        """Create a network. path: of the socket. NetworkRefused."""
        users, network = await _lay_out()
        try:
            return cls(users, network, _listen(path))
        except BaseException:
            os.close(users)
            os.close(network)
            raise

    @property
    def command(self) -> list[str]:
        """The command of the inner process, which inherits the `handles`."""
        return [sys.executable, "-m", "allot.network.inside", *map(str, self.handles)]

    @property
    def handles(self) -> tuple[int, int, int]:
        """The socket, the user namespace, the network namespace."""
        return self._listening.fileno(), self._users, self._network

    def close(self) -> None:
        """Release it."""
        self._listening.close()
        os.close(self._users)
        os.close(self._network)


async def _lay_out() -> tuple[int, int]:
    """Create the user and the network namespace."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    source = str(Path(allot.__file__).parents[1])
    code = f"import sys; sys.path.append({source!r}); from allot.network.layout import main; main()"
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", "-B", "-c", code, str(theirs.fileno())),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
        )
        try:
            async with asyncio.timeout(_MAKE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            raise NetworkRefused(f"no answer within {_MAKE_S:g} s") from None
        ours.setblocking(False)
        said, handles, _, _ = socket.recv_fds(ours, 4096, 2)
    except BlockingIOError:
        said, handles = b"", []
    finally:
        theirs.close()
        ours.close()
    for each in handles:
        os.set_inheritable(each, False)
    if len(handles) != 2:
        raise NetworkRefused(said.decode(errors="replace") or "the kernel ended the attempt")
    return handles[0], handles[1]


def _listen(path: Path) -> socket.socket:
    """Listen at a path of any length that only this user can use."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    path.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    before = os.umask(0o177)
    try:
        listening.bind(f"/proc/self/fd/{folder}/{path.name}")
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(before)
        os.close(folder)
    return listening
