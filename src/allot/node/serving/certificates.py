"""The agent's serving certificate: self-signed, created once and kept, like the kubelet's default."""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from allot.http1.self_signed import self_signed

_DAYS = 365
_RENEW_DAYS = 30


def server_context(folder: Path, name: str, address: str, authority: bytes, now: float) -> ssl.SSLContext:
    """TLS with our certificate; clients may present one from the cluster's authority (PEM, may be empty)."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate, key = folder / "kubelet.crt", folder / "kubelet.key"
    if not _is_good(certificate, key, now):
        _make(certificate, key, name, address, now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["http/1.1"])
    if authority:
        context.load_verify_locations(cadata=authority.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def _is_good(certificate: Path, key: Path, now: float) -> bool:
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
    except (OSError, ValueError):
        return False
    left = found.not_valid_after_utc - datetime.fromtimestamp(now, UTC)
    return key.exists() and left > timedelta(days=_RENEW_DAYS)


def _make(certificate: Path, key: Path, name: str, address: str, now: float) -> None:
    made = self_signed(f"{name}@{int(now)}", (name, "localhost", address), now, timedelta(days=_DAYS))
    handle = os.open(key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(made.key)
    certificate.write_bytes(made.certificate)
