"""Connections to addresses from objects: to kubelets, with the server's own client certificate, to extension API servers, with
that of the front proxy, and to pods, Services and other ports of nodes, without credentials.

A user who can write an address into an object must not be able to make the server connect to this machine, its links, or itself. So
addresses are checked here, right before they are dialled, and the checked address is the one that is dialled: names are
resolved once.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path

import msgspec

from allot.apiserver.access.certificates import KUBELET_CLIENT, Certificates, KeyPair
from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.errors import StatusError, bad_request
from allot.apiserver.proxies.failures import in_go_words
from allot.core.access.addresses import parse_address, refusal
from allot.core.network.ranges import is_of_pod
from allot.core.validation.addresses import Address
from allot.network.client import PodNetwork, dial_address

CONNECT_S = 10.0
HEAD_BYTES_MAX = 64 * 1024
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_KUBELET_CLIENT_FILE = "apiserver-kubelet-client"


class Secured(msgspec.Struct, frozen=True):
    """How an extension API server is asked: with which trust and certificate, and by which name it must be known."""

    context: ssl.SSLContext
    name: str


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes.

    kubelet: only kubelets see the server's certificate. prefix: the path that leads there through the
    server, for proxied requests. secured, headers: for extension API servers, with who asks. lasts: a watch, which ends when
    the server stops.
    """

    host: str
    port: int
    path: str
    kubelet: bool = False
    tls: bool = False
    prefix: str = ""
    secured: Secured | None = None
    headers: tuple[tuple[str, str], ...] = ()
    lasts: bool = False

    @property
    def place(self) -> str:
        """host:port."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def refused(self, why: str) -> StatusError:
        """400 for an address that is not dialled; if no client has named it, 503."""
        text = f"address not allowed: {why}"
        return bad_request(text) if self.secured is None else self.unreachable(text)

    def unreachable(self, why: object) -> StatusError:
        """503 that says what went wrong."""
        if self.secured is not None:
            # Upstream's words, without any of its own.
            why = in_go_words(why, self.host, self.port) if isinstance(why, Exception) else why
            return StatusError(503, "ServiceUnavailable", str(why))
        if isinstance(why, Exception):
            why = str(why) or type(why).__name__
        began = "error trying to reach service" if self.prefix else "error dialing backend"
        return StatusError(503, "ServiceUnavailable", f"{began}: {self.place}: {why}")


class Dialler:
    """Opens connections, but never to this machine's loopback and links, nor to the control plane's own endpoints."""

    def __init__(
        self,
        certificates: Certificates,
        *,
        kubelets_on_loopback: bool = False,
        kubelet_authority: Path | None = None,
        own: Iterable[tuple[str, int]] = (),
    ) -> None:
        """kubelets_on_loopback: nodes may have loopback addresses; pods never do. kubelet_authority: signs the
        certificates of kubelets, which are not verified otherwise. own: host and port of every endpoint of the control plane."""
        self._certificates = certificates
        self._kubelets_on_loopback = kubelets_on_loopback
        self._authority = kubelet_authority
        self._own = set(own)
        # The route to pods whose addresses exist only in their own network.
        self.pod_network: PodNetwork | None = None
        self._kubelet_context: tuple[KeyPair, ssl.SSLContext] | None = None
        self._plain_context = _unverified()
        if kubelet_authority is not None:
            self._context_for_kubelets()

    def keep_from(self, host: str, port: int) -> None:
        """Add an endpoint of the control plane, which is never dialled."""
        self._own.add((host, port))

    async def connect(self, to: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection; 400 for an address that is not allowed, 503 without an answer."""
        try:
            async with asyncio.timeout(CONNECT_S):
                if self.pod_network is not None and not to.kubelet and is_of_pod(to.host):
                    return await self._speak(to, self._context(to), await self.pod_network.dial(to.host, to.port))
                *others, last = await self._addresses(to)
                for address in others:
                    try:
                        return await self._open(address, to)
                    except OSError:
                        continue
                return await self._open(last, to)
        except (OSError, TimeoutError) as error:
            raise to.unreachable(error) from error

    async def _open(self, address: Address, to: Upstream) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = self._context(to)
        return await self._speak(to, context, await dial_address(None, str(address), to.port))

    async def _speak(
        self, to: Upstream, context: ssl.SSLContext | None, made: socket.socket
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Streams on a connection, which is closed with them."""
        name = None if context is None else to.host if to.secured is None else to.secured.name
        return await asyncio.open_connection(sock=made, ssl=context, server_hostname=name, limit=HEAD_BYTES_MAX)

    def _context(self, to: Upstream) -> ssl.SSLContext | None:
        if to.secured is not None:
            return to.secured.context
        if not to.tls:
            return None
        return self._context_for_kubelets() if to.kubelet else self._plain_context

    async def _addresses(self, to: Upstream) -> list[Address]:
        """The addresses that may be dialled. All addresses of a name must be allowed, as upstream."""
        literal = parse_address(to.host)
        if literal is not None:
            found = [literal]
        elif (to.kubelet or to.secured is not None) and _NAME.fullmatch(to.host):
            found = await _resolve(to.host)
        else:
            raise to.refused(f"{to.host[:253]!r} is not an address")
        for address in found:
            await self._judge(address, to)
        return found

    async def _judge(self, address: Address, to: Upstream) -> None:
        why = refusal(address)
        if why and address.is_loopback:
            if to.kubelet and self._kubelets_on_loopback:
                why = ""
            elif to.kubelet:
                why += "; start the server with --loopback-kubelets if its nodes are on this machine"
            elif to.secured is None:
                why += "; use kubectl port-forward, which goes through the node"
        if not why and await self._is_own(address, to.port):
            why = f"{to.place} is the control plane's own"
        if why:
            raise to.refused(why)

    async def _is_own(self, address: Address, port: int) -> bool:
        hosts = sorted(host for host, own in self._own if own == port)
        if not hosts:
            return False
        # The server may listen on all addresses, and others may lead here.
        if address.is_loopback or _is_of_this_machine(address):
            return True
        for host in hosts:
            literal = parse_address(host)
            if address in ([literal] if literal is not None else await _resolve(host)):
                return True
        return False

    def _context_for_kubelets(self) -> ssl.SSLContext:
        """TLS with the server's own client certificate, which is recreated before it expires."""
        pair = self._certificates.client(_KUBELET_CLIENT_FILE, KUBELET_CLIENT)
        if self._kubelet_context is None or self._kubelet_context[0] != pair:
            context = _unverified() if self._authority is None else _verified(self._authority)
            path = self._certificates.directory / _KUBELET_CLIENT_FILE
            context.load_cert_chain(f"{path}.crt", f"{path}.key")
            self._kubelet_context = (pair, context)
        return self._kubelet_context[1]


def _unverified() -> ssl.SSLContext:
    """Kubelets sign their certificates themselves unless told otherwise, and pods are asked by address: upstream does not
    verify either, without --kubelet-certificate-authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _verified(authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise SecretFileError(f"kubelet certificate authority {authority}: {error.strerror or error}") from error
    return context


async def _resolve(host: str) -> list[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    addresses = [parse_address(each[4][0]) for each in found]
    if not addresses or None in addresses:
        # An address with a zone, which is link-local.
        raise bad_request(f"address not allowed: {host} has an address that is not allowed")
    return [address for address in addresses if address is not None]


def _is_of_this_machine(address: Address) -> bool:
    """Whether an address is this machine's: its source address would be the same one. Nothing is sent."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return parse_address(probe.getsockname()[0]) == address
    except OSError:
        return False
