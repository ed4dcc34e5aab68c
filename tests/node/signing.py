"""A signer for tests: what a cluster's user brings for certificates of pods."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

Object = dict[str, Any]


class Signer:
    """An authority of its own."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.certificate = self._signed(self._name, self._key.public_key(), is_authority=True)

    def answer(self, request: Object) -> Object:
        """The status of a PodCertificateRequest that is granted."""
        asked = x509.load_der_x509_csr(b64decode(request["spec"]["stubPKCS10Request"]))
        assert asked.is_signature_valid
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, request["spec"]["podName"])])
        now = datetime.now(UTC).replace(microsecond=0)
        return {
            "certificateChain": self._signed(subject, asked.public_key()),
            "notBefore": _text(now - timedelta(minutes=5)),
            "beginRefreshAt": _text(now + timedelta(hours=12)),
            "notAfter": _text(now + timedelta(days=1) - timedelta(minutes=5)),
            "conditions": [
                {
                    "type": "Issued",
                    "status": "True",
                    "reason": "Tested",
                    "message": "as asked",
                    "lastTransitionTime": _text(now),
                }
            ],
        }

    def _signed(self, subject: x509.Name, key: Any, *, is_authority: bool = False) -> str:
        now = datetime.now(UTC).replace(microsecond=0)
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(days=1) - timedelta(minutes=5))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM).decode()


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
