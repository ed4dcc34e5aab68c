"""Keys of service-account tokens: kubeadm's RSA keys in every form, others' keys, and tokens that claim what they are not."""

from __future__ import annotations

import base64
import hmac
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.access.token_key import PrivateKey, TokenKey, VerifyingKey, read_verifying_keys

CLAIMS = {"iss": "https://kubernetes.default.svc", "sub": "system:serviceaccount:team:bot"}
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ECDSA = {name: ec.generate_private_key(curve) for name, curve in (
    ("ES256", ec.SECP256R1()), ("ES384", ec.SECP384R1()), ("ES512", ec.SECP521R1()))}  # fmt: skip


def private(path: Path, key: PrivateKeyTypes, form: PrivateFormat = PrivateFormat.TraditionalOpenSSL) -> Path:
    path.write_bytes(key.private_bytes(Encoding.PEM, form, NoEncryption()))
    path.chmod(0o600)
    return path


def public_pem(key: PrivateKey, form: PublicFormat = PublicFormat.SubjectPublicKeyInfo) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, form)


def certificate(key: PrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tokens")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


@pytest.mark.parametrize("form", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8], ids=["PKCS1", "PKCS8"])
def test_an_rsa_key_signs_and_verifies(tmp_path: Path, form: PrivateFormat) -> None:
    key = TokenKey.read(private(tmp_path / "sa.key", RSA, form))
    token = key.sign(CLAIMS)
    assert jwt.get_unverified_header(token) == {"alg": "RS256", "typ": "JWT", "kid": key.key_id}
    assert key.verify(token) == CLAIMS
    # As any other program verifies it.
    assert jwt.decode(token, RSA.public_key(), algorithms=["RS256"]) == CLAIMS


@pytest.mark.parametrize("algorithm", ECDSA)
def test_curves_have_their_algorithms(tmp_path: Path, algorithm: str) -> None:
    key = TokenKey.read(private(tmp_path / "sa.key", ECDSA[algorithm]))
    assert key.algorithms == [algorithm]
    assert jwt.decode(key.sign(CLAIMS), ECDSA[algorithm].public_key(), algorithms=[algorithm]) == CLAIMS


def test_a_directory_with_an_rsa_key_is_taken_as_it_is(tmp_path: Path) -> None:
    private(tmp_path / "sa.key", RSA)
    key = TokenKey.open(tmp_path)
    assert key.algorithms == ["RS256"]
    assert (tmp_path / "sa.pub").read_bytes() == public_pem(RSA)


@pytest.mark.parametrize(
    "content",
    [
        public_pem(RSA),
        public_pem(RSA, PublicFormat.PKCS1),
        certificate(RSA),
        RSA.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        b"some words before\n" + public_pem(ECDSA["ES384"]) + b"and between\n" + public_pem(RSA),
    ],
    ids=["public", "PKCS1 public", "certificate", "private", "several"],
)
def test_tokens_of_other_keys_are_verified(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "others.pem"
    path.write_bytes(content)
    key = TokenKey(ECDSA["ES256"], read_verifying_keys(path))
    theirs = TokenKey(RSA)
    assert key.verify(theirs.sign(CLAIMS)) == CLAIMS
    assert TokenKey(ECDSA["ES256"]).verify(theirs.sign(CLAIMS)) is None
    # Nothing says which key it was, as in tokens from before keys had ids.
    assert key.verify(jwt.encode(CLAIMS, RSA, algorithm="RS256")) == CLAIMS
    assert key.verify(key.sign(CLAIMS)) == CLAIMS


def test_an_open_file_of_public_keys_is_nothing_to_warn_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "sa.pub"
    path.write_bytes(public_pem(RSA))
    path.chmod(0o644)
    read_verifying_keys(path)
    assert not caplog.records
    private(path, RSA).chmod(0o644)
    read_verifying_keys(path)
    assert "can be used by other users" in caplog.text


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (rsa.generate_private_key(public_exponent=65537, key_size=1024), "expected an RSA key of 2048 to 16384 bits"),
        (ec.generate_private_key(ec.SECP256K1()), "ECDSA key on P-256, P-384 or P-521"),
        (ed25519.Ed25519PrivateKey.generate(), "expected an RSA key"),
    ],
    ids=["short", "other curve", "other kind"],
)
def test_unfit_keys_are_refused(tmp_path: Path, key: PrivateKeyTypes, message: str) -> None:
    path = private(tmp_path / "sa.key", key, PrivateFormat.PKCS8)
    for read in (TokenKey.read, read_verifying_keys):
        with pytest.raises(SecretFileError, match=message):
            read(path)


@pytest.mark.parametrize("content", [b"", b"rubbish", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"])
def test_a_file_without_keys_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sa.pub"
    path.write_bytes(content)
    with pytest.raises(SecretFileError, match=r"sa\.pub"):
        read_verifying_keys(path)


def test_a_token_is_verified_by_the_keys_algorithm_and_not_by_its_own() -> None:
    """The public key is known to everybody: as the secret of HS256 it would let everybody sign."""
    key = TokenKey(RSA, (VerifyingKey.of(ECDSA["ES256"].public_key()),))
    for secret in (public_pem(RSA), public_pem(RSA, PublicFormat.PKCS1)):
        assert key.verify(_forged("HS256", secret, key.key_id)) is None
        assert key.verify(_forged("HS256", secret)) is None
    assert key.verify(_forged("none", b"", key.key_id)) is None
    # A key of ours by name, another one by signature.
    other = TokenKey(rsa.generate_private_key(public_exponent=65537, key_size=2048))
    stolen = jwt.encode(CLAIMS, other._key, algorithm="RS256", headers={"kid": key.key_id})
    assert key.verify(stolen) is None
    # Other hashes of the same key are not asked for either.
    assert key.verify(jwt.encode(CLAIMS, RSA, algorithm="RS512", headers={"kid": key.key_id})) is None


def _forged(algorithm: str, secret: bytes, key_id: str = "") -> str:
    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    header = {"alg": algorithm, "typ": "JWT", **({"kid": key_id} if key_id else {})}
    content = part(header) + b"." + part(CLAIMS)
    signature = hmac.digest(secret, content, "sha256") if secret else b""
    return (content + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


def test_published_keys_are_those_of_all(tmp_path: Path) -> None:
    path = tmp_path / "others.pem"
    path.write_bytes(public_pem(RSA) + public_pem(ECDSA["ES512"]) + public_pem(RSA))
    keys = TokenKey(ECDSA["ES256"], read_verifying_keys(path)).key_set()["keys"]
    assert [(key["kty"], key["alg"], key.get("crv")) for key in keys] == [
        ("EC", "ES256", "P-256"),
        ("RSA", "RS256", None),
        ("EC", "ES512", "P-521"),
    ]
    for key in keys:
        # Read by somebody else, they verify what was signed.
        signer = RSA if key["kty"] == "RSA" else ECDSA[key["alg"]]
        read = jwt.PyJWK(key)
        assert jwt.decode(jwt.encode(CLAIMS, signer, algorithm=key["alg"]), read.key, algorithms=[key["alg"]]) == CLAIMS
