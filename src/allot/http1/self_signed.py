"""Self-signed server certificates, passed to the clients that must trust them."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Clocks differ a little between machines.
_BACKDATED = timedelta(minutes=5)
_COMMON_NAME_MAX = 64


class SelfSigned(msgspec.Struct, frozen=True):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


def self_signed(common_name: str, names: Iterable[str], now: float, lasts: timedelta) -> SelfSigned:
    """A new certificate for host names and addresses."""
    private = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:_COMMON_NAME_MAX])])
    begins = datetime.fromtimestamp(now, UTC)
    alternatives = [_general_name(name) for name in dict.fromkeys(names)]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins - _BACKDATED)
        .not_valid_after(begins + lasts)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(private, hashes.SHA256())
    )
    key = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return SelfSigned(made.public_bytes(serialization.Encoding.PEM), key)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
