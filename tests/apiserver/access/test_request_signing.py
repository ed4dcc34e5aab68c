"""Certificates for requests: what they get of the request, and for how long."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from allot.apiserver.access.certificates import CertificateAuthority
from allot.apiserver.access.request_signing import RequestSigner, read_authority
from allot.apiserver.access.secret_files import SecretFileError
from allot.core.lifecycle.signing_requests import CannotSign, SigningOrder
from allot.process.clock import ManualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ec.generate_private_key(ec.SECP256R1())
AUTHORITY = CertificateAuthority.create(NOW)
UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")


def request(*attributes: tuple[x509.ObjectIdentifier, str], extensions: tuple[x509.ExtensionType, ...] = ()) -> str:
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    builder = x509.CertificateSigningRequestBuilder(subject)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return base64.b64encode(builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)).decode()


def signed(
    asked: str, *usages: str, hours: float = 1, at: datetime = NOW, authority: CertificateAuthority = AUTHORITY
) -> x509.Certificate:
    signer = RequestSigner(lambda: (authority.certificate, authority.key), ManualClock(at.timestamp()))
    order = SigningOrder(request=asked, usages=usages, duration_s=hours * 3600)
    return x509.load_pem_x509_certificate(signer.sign(order).encode())


JANE = request((NameOID.COMMON_NAME, "jane"))


def test_a_client_becomes_the_user_of_the_request() -> None:
    asked = request((NameOID.COMMON_NAME, "jane"), (NameOID.ORGANIZATION_NAME, "a"), (NameOID.ORGANIZATION_NAME, "b"))
    certificate = signed(asked, "client auth", "key encipherment")
    user = AUTHORITY.authenticate(certificate.public_bytes(serialization.Encoding.DER), NOW.timestamp())
    assert user is not None
    assert (user.name, user.groups) == ("jane", ("a", "b", "system:authenticated"))
    assert certificate.public_key() == KEY.public_key()
    usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.key_encipherment, usage.value.digital_signature) == (True, True, False)


def test_a_request_can_choose_neither_its_uid_nor_to_be_an_authority() -> None:
    asked = request(
        (UID, "0"),
        (NameOID.COMMON_NAME, "root"),
        (NameOID.COMMON_NAME, "jane"),
        extensions=(x509.BasicConstraints(ca=True, path_length=None), x509.ExtendedKeyUsage([UID])),
    )
    certificate = signed(asked, "client auth")
    assert certificate.subject == x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    found = certificate.extensions
    assert not found.get_extension_for_class(x509.BasicConstraints).value.ca
    assert list(found.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_alternative_names_are_kept_and_count_alone_without_a_subject() -> None:
    names = [x509.DNSName("a.b"), x509.IPAddress(ip_address("10.0.0.1")), x509.RegisteredID(UID)]
    certificate = signed(request(extensions=(x509.SubjectAlternativeName(names),)), "server auth")
    extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert list(extension.value) == names[:2]
    assert extension.critical


@pytest.mark.parametrize(("hours", "seconds"), [(1, 3600), (7.9, 28440), (8, 28500), (24, 86100)])
def test_it_starts_five_minutes_ago_and_a_long_one_ends_so_much_earlier(hours: float, seconds: int) -> None:
    certificate = signed(JANE, "client auth", hours=hours)
    assert certificate.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert certificate.not_valid_after_utc == NOW + timedelta(seconds=seconds)


def test_it_ends_with_its_authority() -> None:
    end = AUTHORITY.certificate.not_valid_after_utc
    assert signed(JANE, "client auth", hours=24, at=end - timedelta(hours=2)).not_valid_after_utc == end
    with pytest.raises(CannotSign, match="expired in the past"):
        signed(JANE, "client auth", at=end)


@pytest.mark.parametrize(
    ("asked", "usages", "message"),
    [
        (JANE, ("telling",), r'unrecognized usage values: \["telling"\]'),
        (JANE, ("encipher only",), "failed to sign certificate: encipher_only"),
        ("bm8=", ("any",), "unable to verify certificate request signature"),
    ],
)
def test_what_cannot_be_signed_is_said(asked: str, usages: tuple[str, ...], message: str) -> None:
    with pytest.raises(CannotSign, match=message):
        signed(asked, *usages)


def write(folder: Path, authority: x509.Certificate, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (folder / "ca.key").write_bytes(pem)


def test_files_of_an_authority_with_an_rsa_key_are_read_each_time(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kubernetes")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=1))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    write(tmp_path, builder.sign(key, hashes.SHA256()), key)
    files = tmp_path / "ca.crt", tmp_path / "ca.key"
    signer = RequestSigner(lambda: read_authority(*files), ManualClock(NOW.timestamp()))
    order = SigningOrder(request=JANE, usages=("client auth",), duration_s=3600)
    first = x509.load_pem_x509_certificate(signer.sign(order).encode())
    first.verify_directly_issued_by(read_authority(*files)[0])
    write(tmp_path, AUTHORITY.certificate, AUTHORITY.key)
    x509.load_pem_x509_certificate(signer.sign(order).encode()).verify_directly_issued_by(AUTHORITY.certificate)
    files[1].write_bytes(b"")
    with pytest.raises(CannotSign, match=r"certificate authority .*ca.crt with .*ca.key"):
        signer.sign(order)


def test_what_is_no_authority_is_refused_by_name(tmp_path: Path) -> None:
    files = tmp_path / "ca.crt", tmp_path / "ca.key"
    with pytest.raises(SecretFileError, match=r"file .*ca.crt: cannot be read: No such file"):
        read_authority(*files)
    write(tmp_path, signed(JANE, "client auth"), KEY)
    with pytest.raises(SecretFileError, match="is not the certificate of an authority"):
        read_authority(*files)
    write(tmp_path, AUTHORITY.certificate, KEY)
    with pytest.raises(SecretFileError, match="the key does not belong to the certificate"):
        read_authority(*files)
