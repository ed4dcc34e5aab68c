"""An etcd of our own for `allot up --etcd`: found on this machine, with its data in the data directory, for this machine only."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from allot.cli.errors import CommandError
from allot.process.children import Child, Hear
from allot.process.clock import Clock

NAME = "etcd"
_START_S = 30.0
_POLL_S = 0.05


class NoEtcd(CommandError):
    """There is no etcd, or it does not start."""

    exit_code = 3


def find_etcd() -> Path:
    """The program: named by $ALLOT_ETCD (or in that folder), on the PATH, or where scripts/fetch-etcd puts it. NoEtcd."""
    named = os.environ.get("ALLOT_ETCD", "")
    if named and Path(named).is_file():
        return Path(named)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "allot" / "etcd"
    for folder in filter(None, (named, os.environ.get("PATH"), str(cache))):
        found = shutil.which(NAME, path=folder)
        if found:
            return Path(found)
    raise NoEtcd("no etcd on this machine", "install one, or say where it is: ALLOT_ETCD=/path/to/etcd")


@asynccontextmanager
async def etcd_running(
    program: Path, folder: Path, clock: Clock, hear: Hear, changed: Callable[[], None]
) -> AsyncIterator[tuple[Child, str]]:
    """An etcd that accepts connections, and its URL. folder: for its data."""
    client, peer = (f"http://127.0.0.1:{_free_port()}" for _ in range(2))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    command = [
        *(str(program), "--name", "allot", "--data-dir", str(folder), "--log-level", "warn"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"allot={peer}"),
    ]
    child = Child(NAME, command, clock, hear, changed=changed)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(child.run())
        try:
            await _until_listening(client, clock)
            yield child, client
        finally:
            running.cancel()


async def _until_listening(url: str, clock: Clock) -> None:
    host, _, port = url.removeprefix("http://").partition(":")
    until = clock.monotonic() + _START_S
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
            return
        except OSError:
            if clock.monotonic() > until:
                raise NoEtcd(f"etcd does not listen at {url} after {_START_S:g} s", "its log says why") from None
        await clock.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
