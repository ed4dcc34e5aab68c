"""Serves the dashboard: an address, TLS unless it is loopback, and the login link."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from allot.dashboard.door import Door
from allot.dashboard.links import link_of, read_link, token_in, write_link
from allot.dashboard.server import Dashboard, Shown
from allot.dashboard.sessions import Sessions
from allot.http1.requests import serving
from allot.http1.self_signed import self_signed
from allot.process.clock import Clock

_CONNECTIONS_MAX = 512
_CERTIFICATE_LASTS = timedelta(days=365)


class ServingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """hosts: further names of the server; external_url: its address behind a proxy; certificate, key: PEM files, both or
    none; link_file: the file with the next login link; an existing one stays valid; session_key: the file with the key that signs
    sessions. handle: of a socket on which another process listens already, instead of address and port."""

    address: str = "127.0.0.1"
    port: int = 0
    hosts: tuple[str, ...] = ()
    external_url: str = ""
    certificate: Path | None = None
    key: Path | None = None
    link_file: Path | None = None
    session_key: Path | None = None
    handle: int | None = None


@asynccontextmanager
async def dashboard_serving(
    shown: Shown,
    options: ServingOptions,
    clock: Clock,
    announce: Callable[[str], None],
    notes: tuple[str, ...] = (),
) -> AsyncIterator[str]:
    """Serve until the block ends; yields the first link. announce: receives each link. OSError, ssl.SSLError, BadKey."""
    context = _context(options, clock)
    bound = 0
    links: list[str] = []

    def told(token: str) -> None:
        own = f"{'https' if context is not None else 'http'}://{_host(options)}:{bound}"
        links.append(link_of(options.external_url.rstrip("/") or own, token))
        if options.link_file is not None:
            write_link(options.link_file, links[-1])
        announce(links[-1])

    kept = token_in(read_link(options.link_file)) if options.link_file is not None else ""
    door = Door(Sessions(clock, options.external_url, options.session_key), _names(options), told, kept)
    dashboard = Dashboard(shown, door, notes=notes)
    listening = socket.socket(fileno=options.handle) if options.handle is not None else None
    serves = serving(
        dashboard.answer,
        clock,
        options.address,
        options.port,
        context,
        connections=_CONNECTIONS_MAX,
        listening=listening,
    )
    try:
        async with serves as bound:
            door.open(bound)
            yield links[0]
    finally:
        if options.link_file is not None:
            options.link_file.unlink(missing_ok=True)


def _host(options: ServingOptions) -> str:
    """What to call the server in links."""
    if ipaddress.ip_address(options.address).is_unspecified:
        return options.hosts[0] if options.hosts else "127.0.0.1"
    return f"[{options.address}]" if ":" in options.address else options.address


def _names(options: ServingOptions) -> tuple[str, ...]:
    """Names of the server besides those of this machine."""
    proxy = urlsplit(options.external_url).hostname
    own = () if is_loopback(options.address) else (_host(options),)
    return (*options.hosts, *own, *((proxy,) if proxy else ()))


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach the address."""
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
