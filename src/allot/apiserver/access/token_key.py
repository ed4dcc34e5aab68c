"""The key that signs service-account tokens: a JSON Web Key kept in the data directory (`sa.key`, `sa.pub`).

ES256 with a P-256 key; kube-controller-manager can be given the same file. Knows signatures, not what tokens mean.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.types import Options

from allot.apiserver.access.secret_files import SecretFileError, read_given_secret, read_secret, write_secret

ALGORITHM = "ES256"
TOKEN_LENGTH_MAX = 32 * 1024
_VERIFIED_MAX = 10_000
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


class TokenKey:
    """Signs claims and gives back those it has signed."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self._public = key.public_key()
        der = self._public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        self.key_id = _base64url(hashlib.sha256(der).digest())
        # Token -> claims: a token comes with every request, and verifying a signature takes 100 us.
        self._verified: dict[str, dict[str, Any]] = {}

    @classmethod
    def open(cls, directory: Path) -> TokenKey:
        """The key kept in a directory, made if there is none."""
        path = directory / "sa.key"
        pem = read_secret(path)
        if pem is None:
            key = ec.generate_private_key(ec.SECP256R1())
            pem = key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
            write_secret(path, pem)
        found = cls._loaded(path, pem)
        write_secret(directory / "sa.pub", found.public_pem)
        return found

    @classmethod
    def read(cls, path: Path) -> TokenKey:
        """The key in a file that a user has named."""
        return cls._loaded(path, read_given_secret(path, "service-account key"))

    @classmethod
    def _loaded(cls, path: Path, pem: bytes) -> TokenKey:
        try:
            loaded = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise SecretFileError(f"service-account key {path}: is not a private key: {error}") from error
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or not isinstance(loaded.curve, ec.SECP256R1):
            raise SecretFileError(f"service-account key {path}: expected an ECDSA P-256 key")
        return cls(loaded)

    @property
    def public_pem(self) -> bytes:
        """The public key."""
        return self._public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def sign(self, claims: dict[str, Any]) -> str:
        """The claims as a token."""
        return jwt.encode(claims, self._key, algorithm=ALGORITHM, headers={"kid": self.key_id})

    def verify(self, token: str) -> dict[str, Any] | None:
        """The claims of a token that this key signed, None for any other text. Times and meaning are not looked at."""
        known = self._verified.get(token)
        if known is not None:
            return known
        if len(token) > TOKEN_LENGTH_MAX or token.count(".") != 2:
            return None
        try:
            claims = jwt.decode(token, self._public, algorithms=[ALGORITHM], options=_UNCHECKED)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            # Whatever is in there comes from anybody; deep nesting is the RecursionError.
            return None
        if len(self._verified) >= _VERIFIED_MAX:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def key_set(self) -> dict[str, Any]:
        """The public key for others to verify tokens with (`/openid/v1/jwks`)."""
        numbers = self._public.public_numbers()
        return {
            "keys": [
                {
                    "use": "sig",
                    "kty": "EC",
                    "kid": self.key_id,
                    "crv": "P-256",
                    "alg": ALGORITHM,
                    "x": _base64url(numbers.x.to_bytes(32, "big")),
                    "y": _base64url(numbers.y.to_bytes(32, "big")),
                }
            ]
        }


def _base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
