"""Signs certificates for approved requests, with the cluster's authority or one from files.

Of a request, a certificate gets the key, the common attributes of the subject and the alternative names, as upstream; other
attributes and all extensions are left out, so that nobody chooses their own uid or becomes an authority.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from allot.apiserver.access.certificates import is_authority
from allot.apiserver.access.secret_files import SecretFileError
from allot.core.access.certificate_requests import alternative_names, decoded_request
from allot.core.lifecycle.signing_requests import CannotSign, SigningOrder
from allot.core.quoting import quoted as quote
from allot.process.clock import Clock

# Clocks differ a little between machines. The end moves as well, unless that were more than a hundredth of the time.
_BACKDATED = timedelta(minutes=5)
_SHORT = timedelta(hours=8)

# In the order of Go's certificates.
_ATTRIBUTES = (
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.POSTAL_CODE,
    NameOID.COMMON_NAME,
    NameOID.SERIAL_NUMBER,
)
# Of these, the last one counts.
_SINGLE = (NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER)
_USAGES = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_PURPOSES = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": x509.ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": x509.ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": x509.ObjectIdentifier("2.16.840.1.113730.4.1"),
}

_Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey
Authority = tuple[x509.Certificate, _Key]


class RequestSigner:
    """An authority as a signer of requests. open_authority: asked each time, so that files may be replaced."""

    def __init__(self, open_authority: Callable[[], Authority], clock: Clock) -> None:
        self._open_authority = open_authority
        self._clock = clock

    def sign(self, order: SigningOrder) -> str:
        """A certificate in PEM; CannotSign if there can be none."""
        try:
            certificate, key = self._open_authority()
            request = decoded_request(order.request)
            if request is None or not request.is_signature_valid:
                raise CannotSign("unable to verify certificate request signature")
            builder = _builder(request, order.usages, certificate)
            start, end = _validity(order, certificate, datetime.fromtimestamp(self._clock.seconds(), UTC))
            builder = builder.not_valid_before(start).not_valid_after(end)
            signed = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
        except SecretFileError as error:
            raise CannotSign(str(error)) from error
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.DuplicateExtension) as error:
            raise CannotSign(f"failed to sign certificate: {error}") from error
        return signed.public_bytes(serialization.Encoding.PEM).decode()


def read_authority(certificate_file: Path, key_file: Path) -> Authority:
    """An authority from its files; SecretFileError if they are not one."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_file.read_bytes())
        key = serialization.load_pem_private_key(key_file.read_bytes(), password=None)
    except OSError as error:
        raise SecretFileError(f"file {error.filename}: cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SecretFileError(f"certificate authority {certificate_file} with {key_file}: {error}") from error
    problem = ""
    if not isinstance(key, _Key):
        problem = "the key is of a kind that does not sign"
    elif key.public_key() != certificate.public_key():
        problem = "the key does not belong to the certificate"
    elif not is_authority(certificate):
        problem = "is not the certificate of an authority"
    if problem or not isinstance(key, _Key):
        raise SecretFileError(f"certificate authority {certificate_file} with {key_file}: {problem}")
    return certificate, key


# --- building ---


def _validity(order: SigningOrder, authority: x509.Certificate, now: datetime) -> tuple[datetime, datetime]:
    """From when until when: never beyond the authority's own end."""
    last = authority.not_valid_after_utc
    if now >= last:
        raise CannotSign(
            f"refusing to sign a certificate that expired in the past: NotAfter={last:%Y-%m-%d %H:%M:%S} UTC"
        )
    duration = timedelta(seconds=order.duration_s)
    end = now + (duration if duration < _SHORT else duration - _BACKDATED)
    return now - _BACKDATED, min(end, last)


def _builder(
    request: x509.CertificateSigningRequest, usages: Sequence[str], authority: x509.Certificate
) -> x509.CertificateBuilder:
    unknown = [usage for usage in usages if usage not in _USAGES and usage not in _PURPOSES]
    if unknown:
        raise CannotSign(f"unrecognized usage values: [{' '.join(map(quote, unknown))}]")
    subject, names = _subject(request.subject), alternative_names(request)
    builder = x509.CertificateBuilder(authority.subject, subject).serial_number(x509.random_serial_number())
    builder = builder.public_key(request.public_key())
    bits = {_USAGES[usage] for usage in usages if usage in _USAGES}
    if bits:
        flags = {name: name in bits for name in _USAGES.values()}
        builder = builder.add_extension(x509.KeyUsage(**flags), critical=True)
    purposes = [oid for usage, oid in _PURPOSES.items() if usage in usages]
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(dict.fromkeys(purposes)), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_identifier(authority), critical=False)
    if names:
        # The only name if there is no subject.
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=not list(subject))
    return builder


def _subject(requested: x509.Name) -> x509.Name:
    parts = []
    for oid in _ATTRIBUTES:
        found = dict.fromkeys(requested.get_attributes_for_oid(oid))
        if found:
            parts.append(x509.RelativeDistinguishedName(list(found)[-1:] if oid in _SINGLE else found))
    return x509.Name(parts)


def _key_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        own = x509.SubjectKeyIdentifier.from_public_key(authority.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)
