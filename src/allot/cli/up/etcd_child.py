"""The private etcd of `allot up --etcd`: a program on this machine, with its data in the data directory, for one client only.

Access to a cluster's etcd is full access to the cluster. Other users of this machine can reach the port:
etcd requires a certificate of an authority that is created at each start and stored in files of this user.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from allot.apiserver.access.certificates import CertificateAuthority, Identity, KeyPair
from allot.apiserver.access.secret_files import make_private_directory, write_secret
from allot.cli.errors import CommandError
from allot.process.children import Child, Hear
from allot.process.clock import Clock

NAME = "etcd"
_START_S = 30.0
_POLL_S = 0.05


class NoEtcd(CommandError):
    """etcd is not installed, or does not start."""

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
    raise NoEtcd("no etcd on this machine", "install etcd, or set its path: ALLOT_ETCD=/path/to/etcd")


class Etcd(msgspec.Struct, frozen=True):
    """A running etcd and its credentials."""

    child: Child
    url: str
    ca_file: Path
    cert_file: Path
    key_file: Path


@asynccontextmanager
async def etcd_running(
    program: Path, folder: Path, clock: Clock, hear: Hear, changed: Callable[[], None]
) -> AsyncIterator[Etcd]:
    """An etcd that accepts connections. folder: for its data and the certificates."""
    client, peer = (f"https://127.0.0.1:{_free_port()}" for _ in range(2))
    data, secrets = folder / "data", folder / "pki"
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    _issue(secrets, datetime.fromtimestamp(clock.seconds(), UTC))
    ca, server, key = (str(secrets / name) for name in ("ca.crt", "server.crt", "server.key"))
    command = [
        *(str(program), "--name", "allot", "--data-dir", str(data), "--log-level", "warn"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"allot={peer}"),
        *("--client-cert-auth", "--trusted-ca-file", ca, "--cert-file", server, "--key-file", key),
        *("--peer-client-cert-auth", "--peer-trusted-ca-file", ca, "--peer-cert-file", server, "--peer-key-file", key),
    ]
    child = Child(NAME, command, clock, hear, changed=changed)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(child.run())
        try:
            await _until_listening(client, clock)
            yield Etcd(child, client, secrets / "ca.crt", secrets / "client.crt", secrets / "client.key")
        finally:
            running.cancel()


def _issue(folder: Path, now: datetime) -> None:
    """Certificates for etcd and its only client; the authority's key is discarded."""
    make_private_directory(folder)
    authority = CertificateAuthority.create(now)
    write_secret(folder / "ca.crt", authority.pem)
    _write(folder, "server", authority.issue_server(("127.0.0.1",), now))
    _write(folder, "client", authority.issue_client(Identity("allot"), now))


def _write(folder: Path, name: str, pair: KeyPair) -> None:
    write_secret(folder / f"{name}.crt", pair.certificate)
    write_secret(folder / f"{name}.key", pair.key)


async def _until_listening(url: str, clock: Clock) -> None:
    host, _, port = url.removeprefix("https://").partition(":")
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
