"""What an API server is led to: a listener that records what it is asked and by whom, and says what a test wants it to say."""

from __future__ import annotations

import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from allot.apiserver.access.certificates import CertificateAuthority
from ports import free_port

HELLO = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


class Asked(NamedTuple):
    """A request as it came in. subject: whom the client's certificate was for, empty without one."""

    head: bytes
    subject: dict[str, str]

    def has(self, text: str) -> bool:
        """Whether the head has a text in any case."""
        return text.lower().encode() in self.head.lower()


class Backend:
    """A listener on an address of this machine."""

    def __init__(self, address: str, answer: bytes, authority: CertificateAuthority | None) -> None:
        """authority: signs its certificate, and those of clients; without, it speaks plain HTTP."""
        self.asked: list[Asked] = []
        self._answer = answer
        self._context = _context(authority, address) if authority is not None else None
        self._socket = socket.create_server(
            (address, free_port()), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        )
        self.address = address
        # Not one that the kernel gives: a server at another address may have it, and proxies never lead to that number.
        self.port: int = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            connection.settimeout(20)
            try:
                self._answer_one(connection)
            except OSError:
                connection.close()

    def _answer_one(self, connection: socket.socket) -> None:
        subject: dict[str, str] = {}
        if self._context is not None:
            tls = self._context.wrap_socket(connection, server_side=True)
            certificate: Any = tls.getpeercert() or {}
            subject = {name: value for group in certificate.get("subject", ()) for name, value in group}
            connection = tls
        with connection:
            said = b""
            while b"\r\n\r\n" not in said and (data := connection.recv(65536)):
                said += data
            # What the server asks by itself of every node, for metrics.
            if not said.startswith((b"GET /metrics/resource", b"GET /metrics/pods")):
                self.asked.append(Asked(said, subject))
            connection.sendall(self._answer)


def _context(authority: CertificateAuthority, address: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pair = authority.issue_server((address,), datetime.now(UTC))
    with tempfile.NamedTemporaryFile() as both:
        both.write(pair.certificate + pair.key)
        both.flush()
        context.load_cert_chain(both.name)
    context.load_verify_locations(cadata=authority.pem.decode())
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@contextmanager
def backend(address: str, answer: bytes = HELLO, authority: CertificateAuthority | None = None) -> Iterator[Backend]:
    """A listener, until the block ends."""
    started = Backend(address, answer, authority)
    started.start()
    try:
        yield started
    finally:
        started.stop()


def network_address() -> str:
    """An address of this machine that is not a loopback one; the test is skipped if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent.
            probe.connect(("198.51.100.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback ones")
        address = str(probe.getsockname()[0])
    if address.startswith("127."):
        pytest.skip("this machine has no address but the loopback ones")
    return address
