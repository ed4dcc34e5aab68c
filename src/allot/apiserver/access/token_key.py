"""The keys of service-account tokens: one signs; it and others verify.

The signing key is in the data directory (`sa.key`, `sa.pub`; ECDSA P-256 when created here), or is that of a
cluster created by kubeadm: RSA or ECDSA, PEM in any of the usual forms. kube-controller-manager can use the same file.
Knows signatures, not what tokens mean.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jwt
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.types import Options

from allot.apiserver.access.secret_files import SecretFileError, read_given_secret, read_secret, write_secret

TOKEN_LENGTH_MAX = 32 * 1024
_VERIFIED_MAX = 10_000
# Shorter ones can be broken; the time to verify grows with the square of the length.
_RSA_BITS_MIN, _RSA_BITS_MAX = 2048, 16_384
_CURVES = {"secp256r1": ("P-256", "ES256"), "secp384r1": ("P-384", "ES384"), "secp521r1": ("P-521", "ES512")}
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_EXPECTED = "expected an RSA key of 2048 to 16384 bits or an ECDSA key on P-256, P-384 or P-521"
_UNCHECKED: Options = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


class VerifyingKey(msgspec.Struct, frozen=True):
    """A public key and the only algorithm it is used with; the algorithm that a token names is not trusted."""

    key: PublicKey
    algorithm: str
    id: str

    @classmethod
    def of(cls, key: PublicKey) -> VerifyingKey:
        """A cached key."""
        algorithm = "RS256" if isinstance(key, rsa.RSAPublicKey) else _CURVES[key.curve.name][1]
        der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return cls(key, algorithm, _base64url(hashlib.sha256(der).digest()))

    def as_json_web_key(self) -> dict[str, str]:
        """The key in the format for others."""
        head = {"use": "sig", "kid": self.id, "alg": self.algorithm}
        if isinstance(self.key, rsa.RSAPublicKey):
            numbers = self.key.public_numbers()
            return {**head, "kty": "RSA", "n": _number(numbers.n), "e": _number(numbers.e)}
        point = self.key.public_numbers()
        size = (self.key.curve.key_size + 7) // 8
        curve = _CURVES[self.key.curve.name][0]
        return {**head, "kty": "EC", "crv": curve, "x": _number(point.x, size), "y": _number(point.y, size)}


class TokenKey:
    """Signs claims, and returns the claims of tokens signed by it or one of the other keys."""

    def __init__(self, key: PrivateKey, others: Iterable[VerifyingKey] = ()) -> None:
        self._key = key
        self._own = VerifyingKey.of(key.public_key())
        self.key_id = self._own.id
        # By id, so that the same key in two files counts once.
        self._keys = {one.id: one for one in (self._own, *others)}
        # Token -> claims: a token comes with every request, and verifying a signature takes 100 us.
        self._verified: dict[str, dict[str, Any]] = {}

    @classmethod
    def open(cls, directory: Path, others: Iterable[VerifyingKey] = ()) -> TokenKey:
        """The key in a directory, created if there is none."""
        path = directory / "sa.key"
        pem = read_secret(path)
        if pem is None:
            key = ec.generate_private_key(ec.SECP256R1())
            pem = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
            write_secret(path, pem)
        found = cls(_private(path, pem), others)
        write_secret(directory / "sa.pub", found.public_pem)
        return found

    @classmethod
    def read(cls, path: Path, others: Iterable[VerifyingKey] = ()) -> TokenKey:
        """The key in a file that a user named."""
        return cls(_private(path, read_given_secret(path, "service-account key")), others)

    @property
    def public_pem(self) -> bytes:
        """The public key."""
        key = self._own.key
        return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    @property
    def algorithms(self) -> list[str]:
        """The algorithms that tokens may be signed with."""
        return sorted({key.algorithm for key in self._keys.values()})

    def sign(self, claims: dict[str, Any]) -> str:
        """The claims as a token."""
        return jwt.encode(claims, self._key, algorithm=self._own.algorithm, headers={"kid": self.key_id})

    def verify(self, token: str) -> dict[str, Any] | None:
        """The claims of a token signed by one of the keys, None for any other text. Times and meaning are not checked."""
        known = self._verified.get(token)
        if known is not None:
            return known
        if len(token) > TOKEN_LENGTH_MAX or token.count(".") != 2:
            return None
        claims = self._claims(token)
        if claims is None:
            return None
        if len(self._verified) >= _VERIFIED_MAX:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _claims(self, token: str) -> dict[str, Any] | None:
        try:
            named = self._keys.get(str(jwt.get_unverified_header(token).get("kid", "")))
            # A token that names none of the keys may be signed by any.
            for key in (named,) if named is not None else self._keys.values():
                try:
                    return jwt.decode(token, key.key, algorithms=[key.algorithm], options=_UNCHECKED)
                except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
                    continue
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            # The content is untrusted; deep nesting causes the RecursionError.
            return None
        return None

    def key_set(self) -> dict[str, Any]:
        """The public keys for others to verify tokens with (`/openid/v1/jwks`)."""
        return {"keys": [key.as_json_web_key() for key in self._keys.values()]}


def read_verifying_keys(path: Path) -> tuple[VerifyingKey, ...]:
    """All keys in a file that a user named: public keys, private keys or certificates."""
    content = read_given_secret(path, "service-account key", secret_part=b"PRIVATE KEY")
    found = tuple(VerifyingKey.of(_public(path, block[0], block[1])) for block in _PEM.finditer(content))
    if not found:
        raise SecretFileError(f"service-account key {path}: holds no key: {_EXPECTED}")
    return found


def _private(path: Path, pem: bytes) -> PrivateKey:
    try:
        loaded = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise SecretFileError(f"service-account key {path}: is not a private key: {error}") from error
    if not isinstance(loaded, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) or not _is_fit(loaded.public_key()):
        raise SecretFileError(f"service-account key {path}: {_EXPECTED}")
    return loaded


def _public(path: Path, pem: bytes, kind: bytes) -> PublicKey:
    if kind.endswith(b"PRIVATE KEY"):
        return _private(path, pem).public_key()
    try:
        if kind == b"CERTIFICATE":
            loaded: object = x509.load_pem_x509_certificate(pem).public_key()
        else:
            loaded = serialization.load_pem_public_key(pem)
    except (ValueError, TypeError) as error:
        raise SecretFileError(f"service-account key {path}: is not a key: {error}") from error
    if not isinstance(loaded, rsa.RSAPublicKey | ec.EllipticCurvePublicKey) or not _is_fit(loaded):
        raise SecretFileError(f"service-account key {path}: {_EXPECTED}")
    return loaded


def _is_fit(key: PublicKey) -> bool:
    if isinstance(key, rsa.RSAPublicKey):
        return _RSA_BITS_MIN <= key.key_size <= _RSA_BITS_MAX
    return key.curve.name in _CURVES


def _number(value: int, size: int = 0) -> str:
    return _base64url(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
