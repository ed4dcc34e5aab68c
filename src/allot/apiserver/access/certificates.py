"""The server's certificate authority: created at the first start, stored in the data directory, used for server and clients.

Keys are ECDSA P-256. The authority is valid for ten years, certificates for one; a certificate is replaced when less than a month is
left or when the names it is for have changed. All files are readable by their owner only.

A second authority signs only the certificate of the front proxy: with it this server asks extension API servers in the name of
users. It is separate, so that no client certificate can ever be mistaken for that of the proxy.

Also verifies client certificates and returns their user. Does not know what such a user may do.
"""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from allot.apiserver.access.secret_files import SecretFileError, make_private_directory, read_secret, write_secret
from allot.core.access.attributes import MASTERS_GROUP, NODES_GROUP, User, authenticated_groups
from allot.core.access.service_accounts import CREDENTIAL_ID
from allot.process.clock import Clock

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 365
RENEWAL_DAYS = 30
RENEWAL_CHECK_SECONDS = 12 * 3600.0
# Clocks differ a little between machines.
_BACKDATED = timedelta(minutes=5)
# The OID for the user's uid in the subject, as in Kubernetes since 1.33.
_UID_OID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
_VERIFIED_MAX = 10_000
# OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python has no name for.
_NO_CHECK_TIME = 0x200000

SERVICE_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
SERVICE_ADDRESSES = ("127.0.0.1", "::1", "10.96.0.1")


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes


class InvalidCertificate(Exception):
    """An invalid client certificate; the text says why."""


class Identity(msgspec.Struct, frozen=True):
    """The subject of a client certificate."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = Identity("kubernetes-admin", (MASTERS_GROUP,))
SCHEDULER = Identity("system:kube-scheduler")
# The server itself, as a client of kubelets. It may use their API (system:kubelet-api-admin) but not the server's.
KUBELET_CLIENT = Identity("kube-apiserver-kubelet-client")
# The server itself, as a client of extension API servers.
FRONT_PROXY = Identity("front-proxy-client")
_AUTHORITY, _FRONT_PROXY_AUTHORITY = "ca", "front-proxy-ca"


def node_identity(node: str) -> Identity:
    """The subject of a node agent's certificate."""
    return Identity(f"system:node:{node}", (NODES_GROUP,))


class _Verified(msgspec.Struct, frozen=True):
    """A client certificate that we signed: its user and validity period."""

    user: User | None
    since: float
    until: float


class CertificateAuthority:
    """Signs certificates and verifies those it signed."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key
        self._key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        # DER -> its content; verifying a signature repeatedly is expensive.
        self._verified: dict[bytes, _Verified] = {}

    @classmethod
    def create(cls, now: datetime, name: str = "allot-ca") -> CertificateAuthority:
        """A new authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key.public_key(), now, AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, pair: KeyPair) -> CertificateAuthority:
        """An authority from its files; ValueError if they are invalid."""
        certificate, key = _parse(pair)
        if not is_authority(certificate):
            raise ValueError("is not the certificate of an authority")
        return cls(certificate, key)

    @property
    def pair(self) -> KeyPair:
        """Certificate and key, for storage."""
        return KeyPair(self.pem, _key_pem(self._key))

    @property
    def key(self) -> ec.EllipticCurvePrivateKey:
        """The key that signs."""
        return self._key

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue_server(self, names: Iterable[str], now: datetime) -> KeyPair:
        """A server certificate for host names and addresses."""
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        return self._issue(subject, ExtendedKeyUsageOID.SERVER_AUTH, now, alternatives)

    def issue_client(self, identity: Identity, now: datetime) -> KeyPair:
        """A client certificate: the common name is the user, the organizations are its groups."""
        organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
        subject = x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH, now, None)

    def _issue(
        self,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        now: datetime,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        # Nothing outlives the authority: clients would refuse the chain.
        days = min(CERTIFICATE_DAYS, (self.certificate.not_valid_after_utc - now).days)
        builder = _builder(subject, self.certificate.subject, key.public_key(), now, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._key_id)
        builder = builder.add_extension(authority, critical=False)
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key))

    def authenticate(self, der: bytes, now: float) -> User | None:
        """The user of a client certificate, None if it has no common name; InvalidCertificate if we did not sign it,
        it is expired or not yet valid, or it has another purpose. The handshake ignores validity: it is checked here, for
        every request."""
        known = self._verified.get(der)
        if known is None:
            known = self._verify(der)
            if len(self._verified) >= _VERIFIED_MAX:
                self._verified.clear()
            self._verified[der] = known
        if now > known.until:
            raise InvalidCertificate("certificate has expired")
        if now < known.since:
            raise InvalidCertificate("certificate is not yet valid")
        return known.user

    def _verify(self, der: bytes) -> _Verified:
        try:
            certificate = x509.load_der_x509_certificate(der)
            certificate.verify_directly_issued_by(self.certificate)
            _check_is_for_clients(certificate)
            user = _user(certificate, der)
        except InvalidSignature as error:
            raise InvalidCertificate("certificate signed by unknown authority") from error
        except (ValueError, TypeError, x509.InvalidVersion, x509.DuplicateExtension) as error:
            raise InvalidCertificate(str(error)) from error
        return _Verified(
            user,
            max(each.not_valid_before_utc.timestamp() for each in (certificate, self.certificate)),
            min(each.not_valid_after_utc.timestamp() for each in (certificate, self.certificate)),
        )


class Certificates:
    """The certificate files below a directory: two authorities, `server` and one pair per client, as `.crt` and `.key`."""

    def __init__(self, directory: Path, clock: Clock, names: Sequence[str] = ()) -> None:
        """names: host names and addresses of this server besides the usual ones."""
        self.directory = directory
        self._clock = clock
        self._names = tuple(dict.fromkeys((*SERVICE_NAMES, *SERVICE_ADDRESSES, *filter(None, names))))
        make_private_directory(directory)
        self.authority = self._open_authority(_AUTHORITY, "allot-ca")
        # Signs the front proxy's certificate and nothing else.
        self.front_proxy_authority = self._open_authority(_FRONT_PROXY_AUTHORITY, _FRONT_PROXY_AUTHORITY)
        self._contexts: list[ssl.SSLContext] = []
        self.renew()

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.seconds(), UTC)

    @property
    def ca_file(self) -> Path:
        """The authority's certificate, for clients."""
        return self.directory / "ca.crt"

    def _open_authority(self, file_name: str, name: str) -> CertificateAuthority:
        pair = self._read(file_name)
        if pair is None:
            authority = CertificateAuthority.create(self._now(), name)
            self._write(file_name, authority.pair)
            return authority
        try:
            return CertificateAuthority.load(pair)
        except (ValueError, TypeError) as error:
            path = self.directory / f"{file_name}.crt"
            raise SecretFileError(f"certificate authority {path} with {file_name}.key: {error}") from error

    def renew(self) -> bool:
        """Recreate the server's certificate if it is missing, expires soon or is for other names; returns whether that was needed.

        Call it periodically: contexts from `server_context` use the new certificate for new connections.
        """
        pair = self._read("server")
        if (
            pair is not None
            and self._is_good(pair, self.authority)
            and _names_of(pair) == {str(_general_name(n)) for n in self._names}
        ):
            return False
        self._write("server", self.authority.issue_server(self._names, self._now()))
        for context in self._contexts:
            context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        return True

    async def keep_renewed(self) -> None:
        """Renew the server's certificate in time, while the server runs."""
        while True:
            await self._clock.sleep(RENEWAL_CHECK_SECONDS)
            self.renew()

    def client(self, file_name: str, identity: Identity) -> KeyPair:
        """The stored certificate of a client, recreated if it is missing, expires soon or has another subject."""
        return self._client(file_name, identity, self.authority)

    def front_proxy(self) -> tuple[KeyPair, Path]:
        """The certificate with which extension API servers are asked, and its path without the ending."""
        pair = self._client(FRONT_PROXY.name, FRONT_PROXY, self.front_proxy_authority)
        return pair, self.directory / FRONT_PROXY.name

    def _client(self, file_name: str, identity: Identity, authority: CertificateAuthority) -> KeyPair:
        pair = self._read(file_name)
        if pair is None or not self._is_good(pair, authority) or _identity_of(pair) != identity:
            pair = authority.issue_client(identity, self._now())
            self._write(file_name, pair)
        return pair

    def server_context(self) -> ssl.SSLContext:
        """TLS 1.2 and above with the server's certificate; client certificates are optional. One that has
        expired does not fail the handshake: its sender may also have a token, and otherwise gets an answer."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        accepted = self.authority.pem + self.front_proxy_authority.pem
        context.load_verify_locations(cadata=accepted.decode())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= _NO_CHECK_TIME
        context.set_alpn_protocols(["http/1.1"])
        self._contexts.append(context)
        return context

    def _is_good(self, pair: KeyPair, authority: CertificateAuthority) -> bool:
        """Whether a pair is ours and lasts long enough. An unreadable one is replaced: we can always issue another."""
        try:
            certificate, _ = _parse(pair)
            certificate.verify_directly_issued_by(authority.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return certificate.not_valid_after_utc - self._now() > timedelta(days=RENEWAL_DAYS)

    def _read(self, name: str) -> KeyPair | None:
        certificate = read_secret(self.directory / f"{name}.crt")
        key = read_secret(self.directory / f"{name}.key")
        if name in (_AUTHORITY, _FRONT_PROXY_AUTHORITY) and (certificate is None) != (key is None):
            raise SecretFileError(
                f"certificate authority in {self.directory}: only one of {name}.crt and {name}.key exists; "
                "restore the other, or remove both to start with a new authority (clients need new kubeconfigs then)"
            )
        return None if certificate is None or key is None else KeyPair(certificate, key)

    def _write(self, name: str, pair: KeyPair) -> None:
        write_secret(self.directory / f"{name}.key", pair.key)
        write_secret(self.directory / f"{name}.crt", pair.certificate)


# --- building and reading ---


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), now - _BACKDATED, now + timedelta(days=days)
    )
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _parse(pair: KeyPair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key is not an elliptic curve key")
    if key.public_key() != certificate.public_key():
        raise ValueError("the key does not belong to the certificate")
    return certificate, key


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether a certificate may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _check_is_for_clients(certificate: x509.Certificate) -> None:
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.UnrecognizedExtension) and extension.critical:
            raise InvalidCertificate("unhandled critical extension")
        if isinstance(value, x509.ExtendedKeyUsage) and not {
            ExtendedKeyUsageOID.CLIENT_AUTH,
            ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
        } & set(value):
            raise InvalidCertificate("certificate specifies an incompatible key usage")


def _texts(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(
        value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        for value in (attribute.value for attribute in certificate.subject.get_attributes_for_oid(oid))
    )


def _user(certificate: x509.Certificate, der: bytes) -> User | None:
    """The user of a certificate: the common name, with organizations as groups; None without a common name."""
    names = _texts(certificate, NameOID.COMMON_NAME)
    if not names or not names[-1]:
        return None
    uids = _texts(certificate, _UID_OID)
    if len(uids) > 1 or uids == ("",):
        raise InvalidCertificate("expected one UID that is not empty")
    extra = {CREDENTIAL_ID: (f"X509SHA256={hashlib.sha256(der).hexdigest()}",)}
    groups = authenticated_groups(names[-1], _texts(certificate, NameOID.ORGANIZATION_NAME))
    return User(names[-1], uids[0] if uids else "", groups, extra)


def _identity_of(pair: KeyPair) -> Identity:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    names = _texts(certificate, NameOID.COMMON_NAME)
    return Identity(names[-1] if names else "", _texts(certificate, NameOID.ORGANIZATION_NAME))


def _names_of(pair: KeyPair) -> set[str]:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name) for name in names}
