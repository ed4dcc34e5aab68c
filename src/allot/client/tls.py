"""The client side of TLS: trusted authorities, and the client certificate.

Certificate files are re-read when they change, so that rotation needs no restart.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from allot.client.connection import Connection
from allot.client.credentials import Credential, CredentialError

# Modification time and size of a file; None if it does not exist.
_Stamp = tuple[int, int] | None


class TlsContexts:
    """Creates the SSL context of a connection, and a new one only after a change."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._files = tuple(
            path
            for path in (
                None if connection.ca_data else connection.ca_file,
                None if connection.client_certificate_data else connection.client_certificate_file,
                None if connection.client_key_data else connection.client_key_file,
            )
            if path is not None
        )
        self._context: ssl.SSLContext | None = None
        self._made_of: tuple[tuple[_Stamp, ...], Credential] | None = None

    def context(self, credential: Credential) -> ssl.SSLContext | None:
        """The context for the current certificate; None for a server without TLS."""
        if not self._connection.server.startswith("https:"):
            return None
        made_of = (tuple(_stamp(path) for path in self._files), credential)
        if self._context is not None and self._made_of == made_of:
            return self._context
        try:
            context = make_context(self._connection, credential)
        except CredentialError:
            # During a rotation, key and certificate may not match; continue with the previous pair.
            if self._context is None or self._made_of is None or self._made_of[1] != credential:
                raise
            return self._context
        self._context, self._made_of = context, made_of
        return context


def make_context(connection: Connection, credential: Credential) -> ssl.SSLContext:
    """A new context; CredentialError names what could not be used."""
    # Not ssl.create_default_context: since Python 3.13 it refuses certificate authorities without key identifiers, which some
    # clusters have.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if connection.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        _load_authorities(context, connection)
    if credential.certificate:
        _load_chain(context, credential.certificate, credential.key, f"{connection.source}: exec plugin's certificate")
    elif connection.has_client_certificate:
        certificate = connection.client_certificate_data or _read(connection, connection.client_certificate_file)
        key = connection.client_key_data or _read(connection, connection.client_key_file)
        _load_chain(context, certificate, key, f"{connection.source}: client certificate")
    return context


def _load_authorities(context: ssl.SSLContext, connection: Connection) -> None:
    if not connection.ca_data and connection.ca_file is None:
        context.load_default_certs()
        return
    data = connection.ca_data or _read(connection, connection.ca_file)
    try:
        context.load_verify_locations(cadata=data.decode())
    except (ssl.SSLError, ValueError) as error:
        where = "certificate-authority-data" if connection.ca_data else f"certificate-authority {connection.ca_file}"
        raise CredentialError(f"{connection.source}: {where}: expected certificates in PEM: {error}") from error


def _load_chain(context: ssl.SSLContext, certificate: bytes, key: bytes, what: str) -> None:
    # OpenSSL's interface accepts only files. The directory and the file are readable only by their owner.
    with tempfile.TemporaryDirectory(prefix="allot-") as folder:
        path = Path(folder) / "client.pem"
        path.touch(mode=0o600)
        path.write_bytes(certificate.rstrip() + b"\n" + key)
        try:
            # An empty password, or OpenSSL would ask for one on the terminal.
            context.load_cert_chain(path, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CredentialError(f"{what}: expected a certificate and its key in PEM: {error}") from error


def _read(connection: Connection, path: Path | None) -> bytes:
    assert path is not None, f"{connection.source}: a certificate without its other half"
    try:
        return path.read_bytes()
    except OSError as error:
        raise CredentialError(f"{connection.source}: cannot read {path}: {error.strerror}") from error


def _stamp(path: Path) -> _Stamp:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size
