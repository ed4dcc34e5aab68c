"""Where browsers come to: an address, TLS unless nobody else can reach it, and the link that lets one in."""

from __future__ import annotations

import ipaddress
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from allot.dashboard.door import Door
from allot.dashboard.following import Followed
from allot.dashboard.server import Dashboard
from allot.http1.requests import serving
from allot.http1.self_signed import self_signed
from allot.process.clock import Clock

_CONNECTIONS_MAX = 512
_CERTIFICATE_LASTS = timedelta(days=365)


class ServingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """hosts: further names of the server; certificate, key: files of PEM, both or none; link_file: where the link is kept, for others."""

    address: str = "127.0.0.1"
    port: int = 0
    hosts: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    link_file: Path | None = None


@asynccontextmanager
async def dashboard_serving(
    followed: Followed,
    options: ServingOptions,
    clock: Clock,
    announce: Callable[[str], None],
    notes: tuple[str, ...] = (),
) -> AsyncIterator[str]:
    """Serve until the block ends; the first link. announce: told that and each later link. OSError, ssl.SSLError."""
    context = _context(options, clock)
    bound = 0

    def link(token: str) -> str:
        host = f"[{options.address}]" if ":" in options.address else options.address
        if ipaddress.ip_address(options.address).is_unspecified:
            host = options.hosts[0] if options.hosts else "127.0.0.1"
        return f"{'https' if context is not None else 'http'}://{host}:{bound}/#token={token}"

    def told(token: str) -> None:
        found = link(token)
        links.append(found)
        if options.link_file is not None:
            _write_link(options.link_file, found)
        announce(found)

    links: list[str] = []
    door = Door((*options.hosts, options.address), told)
    dashboard = Dashboard(followed, door, secure=context is not None, notes=notes)
    try:
        async with serving(
            dashboard.answer, clock, options.address, options.port, context, connections=_CONNECTIONS_MAX
        ) as bound:
            door.open(bound)
            yield links[0]
    finally:
        if options.link_file is not None:
            options.link_file.unlink(missing_ok=True)


def is_loopback(address: str) -> bool:
    """Whether nobody but this machine gets there."""
    return ipaddress.ip_address(address).is_loopback


def _context(options: ServingOptions, clock: Clock) -> ssl.SSLContext | None:
    if options.certificate is None and is_loopback(options.address):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if options.certificate is not None:
        context.load_cert_chain(options.certificate, options.key)
        return context
    names = (options.address, "localhost", *options.hosts)
    made = self_signed("allot-dashboard", names, clock.seconds(), _CERTIFICATE_LASTS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pair.pem"
        path.touch(mode=0o600)
        path.write_bytes(made.certificate + made.key)
        context.load_cert_chain(path)
    return context


def _write_link(path: Path, link: str) -> None:
    """For the owner alone: whoever has the link is let in."""
    new = path.with_name(f"{path.name}.new")
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(link)
    new.replace(path)
