"""Who one is: nobody, somebody by certificate or token, or somebody who only says so."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from allot.apiserver.access.certificates import ADMIN as MASTER
from allot.apiserver.access.certificates import CertificateAuthority, KeyPair
from security.servers import ADMIN_TOKEN, POWERLESS_TOKEN, Both, Server

pytestmark = pytest.mark.slow

NOW = datetime.now(UTC)
WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


# --- nobody ---


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version", "/livez/ping"])
def test_nobody_may_ask_whether_the_server_lives(both: Both, path: str) -> None:
    assert both.send("GET", path, who=None).status == (403 if path == "/livez/ping" else 200)


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/api", "/apis", "/api/v1", "/apis/apps/v1", "/openapi/v2", "/openapi/v3", "/metrics", "/logs"),
        *("/api/v1/pods", "/api/v1/namespaces/default/secrets", "/api/v1/nodes/n/proxy/", "/nonsense", "/api/v1/x"),
        *("/.well-known/openid-configuration", "/openid/v1/jwks", "/debug/pprof", "/apis/x.example.com/v1/things"),
    ],
)
def test_nobody_gets_403_everywhere_else(both: Both, path: str) -> None:
    answer = both.send("GET", path, who=None)
    assert (answer.status, "system:anonymous" in answer.message) == (403, True)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ["/healthz", "/version", WHO_AM_I, "/api/v1/namespaces"])
def test_nobody_changes_nothing(both: Both, method: str, path: str) -> None:
    assert both.send(method, path, {}, who=None).status == 403


# --- headers ---


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        # No credential, whatever is said.
        ({"Authorization": "Bearer"}, 403),
        ({"Authorization": f"Bearer  {ADMIN_TOKEN}"}, 403),
        ({"Authorization": "Basic YWRtaW46YWRtaW4="}, 403),
        ({"Authorization": ADMIN_TOKEN}, 403),
        ({"Authorization": f"Token {ADMIN_TOKEN}"}, 403),
        ({"Proxy-Authorization": f"Bearer {ADMIN_TOKEN}"}, 403),
        ({"Cookie": f"Authorization=Bearer {ADMIN_TOKEN}"}, 403),
        ({"X-Remote-User": "administrator", "X-Remote-Group": "system:masters"}, 403),
        ({"X-Forwarded-User": "administrator"}, 403),
        # A credential that does not hold.
        ({"Authorization": "Bearer rubbish"}, 401),
        ({"Authorization": f"Bearer {ADMIN_TOKEN}x"}, 401),
        ({"Authorization": f"Bearer {ADMIN_TOKEN[:-1]}"}, 401),
        ({"Authorization": f"Bearer {ADMIN_TOKEN.upper()}"}, 401),
        ({"Authorization": f"Bearer {ADMIN_TOKEN},"}, 401),
        ({"Authorization": f'Bearer "{ADMIN_TOKEN}"'}, 401),
        ({"Authorization": "Bearer \u00e9"}, 401),
        ({"Authorization": "Bearer " + "a" * 60_000}, 401),
        # One that does.
        ({"Authorization": f"Bearer {ADMIN_TOKEN}"}, 200),
        ({"Authorization": f"bEARER {ADMIN_TOKEN}"}, 200),
        ({"Authorization": f"Bearer {ADMIN_TOKEN} and more"}, 200),
        # Rights that are asked for and not had.
        ({"Authorization": f"Bearer {POWERLESS_TOKEN}"}, 403),
        ({"Authorization": f"Bearer {POWERLESS_TOKEN}", "X-Remote-Group": "system:masters"}, 403),
    ],
)
def test_what_a_header_says_is_not_what_one_is(both: Both, headers: Mapping[str, str], status: int) -> None:
    assert both.send("GET", "/api/v1/secrets", who=None, headers=headers).status == status


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [(ADMIN_TOKEN, "rubbish", 200), ("rubbish", ADMIN_TOKEN, 401), (POWERLESS_TOKEN, ADMIN_TOKEN, 403)],
)
def test_the_first_of_two_authorizations_counts(both: Both, first: str, second: str, status: int) -> None:
    head = f"GET /api/v1/secrets HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {first}\r\n"
    request = f"{head}Authorization: Bearer {second}\r\nConnection: close\r\n\r\n".encode()
    for server in both.every:
        assert server.raw(request).startswith(b"HTTP/1.1 %d " % status), server.name


@pytest.mark.parametrize(
    ("protocols", "upgrade", "status"),
    [
        (f"v5.channel.k8s.io, {{prefix}}{ADMIN_TOKEN}", True, 200),
        (f"v5.channel.k8s.io, {{prefix}}{ADMIN_TOKEN}", False, 403),
        (f"{{prefix}}{ADMIN_TOKEN}", True, 401),
        ("v5.channel.k8s.io, {prefix}rubbish", True, 401),
        (f"a, {{prefix}}{ADMIN_TOKEN}, {{prefix}}{ADMIN_TOKEN}", True, 401),
    ],
)
def test_a_token_among_protocols_counts_for_websockets(both: Both, protocols: str, upgrade: bool, status: int) -> None:
    encoded = []
    for protocol in protocols.split(", "):
        if protocol.startswith("{prefix}"):
            content = base64.urlsafe_b64encode(protocol.removeprefix("{prefix}").encode()).rstrip(b"=").decode()
            protocol = f"base64url.bearer.authorization.k8s.io.{content}"
        encoded.append(protocol)
    headers = {"Sec-WebSocket-Protocol": ", ".join(encoded)}
    if upgrade:
        headers |= {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert both.send("GET", "/api/v1/secrets", who=None, headers=headers).status == status


# --- certificates ---


def certificate(
    authority: CertificateAuthority,
    *names: tuple[x509.ObjectIdentifier, str],
    begin: timedelta = -timedelta(days=1),
    end: timedelta = timedelta(days=1),
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.CLIENT_AUTH,
) -> KeyPair:
    """A certificate of an authority as it would not make it itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
    signer = serialization.load_pem_private_key(authority.pair.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    issuer, serial = authority.certificate.subject, x509.random_serial_number()
    builder = x509.CertificateBuilder(issuer, subject, key.public_key(), serial, NOW + begin, NOW + end)
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), private)


MASTERS = ((NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "administrator"))
EXPIRED = {"begin": -timedelta(days=2), "end": -timedelta(days=1)}
EARLY = {"begin": timedelta(days=1), "end": timedelta(days=2)}


@pytest.mark.parametrize(
    ("times", "token", "status"),
    [
        ({}, "", 200),
        ({}, "rubbish", 200),
        (EXPIRED, "", 401),
        (EXPIRED, "rubbish", 401),
        (EXPIRED, ADMIN_TOKEN, 200),
        (EXPIRED, POWERLESS_TOKEN, 403),
        (EARLY, "", 401),
        (EARLY, ADMIN_TOKEN, 200),
    ],
)
def test_a_certificate_counts_while_it_is_in_force_and_a_token_beside_it_always(
    both: Both, times: dict[str, timedelta], token: str, status: int
) -> None:
    who = {server.name: certificate(server.authority, *MASTERS, **times) for server in both.every}
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    assert both.send("GET", "/api/v1/secrets", who=who, headers=headers).status == status


ORGANIZATION, NAME = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME


@pytest.mark.parametrize(
    ("names", "api", "secrets"),
    [
        # A name: /api is for system:authenticated, secrets are for system:masters.
        ([(NAME, "jane")], 200, 403),
        ([(NAME, "system:masters")], 200, 403),
        ([(NAME, "system:anonymous")], 403, 403),
        ([(NAME, "system:anonymous"), (ORGANIZATION, "system:masters")], 200, 200),
        ([(NAME, "jane"), (ORGANIZATION, "system:unauthenticated")], 403, 403),
        ([(NAME, "jane"), (ORGANIZATION, "a,system:masters")], 200, 403),
        ([(NAME, "jane"), (ORGANIZATION, "a\nsystem:masters")], 200, 403),
        ([(NAME, "jane"), (ORGANIZATION, "System:Masters")], 200, 403),
        ([(NAME, "jane"), (NameOID.ORGANIZATIONAL_UNIT_NAME, "system:masters")], 200, 403),
        ([(NAME, "jane"), (ORGANIZATION, "a"), (ORGANIZATION, "system:masters")], 200, 200),
        # No name, so nobody: whatever groups there are.
        ([(ORGANIZATION, "system:masters")], 403, 403),
        ([(NameOID.EMAIL_ADDRESS, "administrator")], 403, 403),
    ],
)
def test_reserved_and_odd_names_give_nothing(
    both: Both, names: list[tuple[x509.ObjectIdentifier, str]], api: int, secrets: int
) -> None:
    who = {server.name: certificate(server.authority, *names) for server in both.every}
    assert both.send("GET", "/api", who=who).status == api
    assert both.send("GET", "/api/v1/secrets", who=who).status == secrets


def test_the_user_that_a_certificate_makes_is_the_same_on_both(both: Both) -> None:
    for names in ([(NAME, "jane"), (ORGANIZATION, "dev")], [(NAME, "first"), (NAME, "last"), (ORGANIZATION, "b")]):
        told = []
        for server in both.every:
            answer = server.send("POST", WHO_AM_I, REVIEW, who=certificate(server.authority, *names))
            user = answer.value["status"]["userInfo"]
            told.append((user["username"], user["groups"]))
        assert told[0][0] == names[-2][1]
        assert told == told[:1] * len(told)


@pytest.mark.parametrize(("beside", "status"), [("", 401), (ADMIN_TOKEN, 200)])
def test_a_certificate_of_a_foreign_authority_or_for_servers_gives_nothing(
    both: Both, beside: str, status: int
) -> None:
    stranger = CertificateAuthority.create(NOW - timedelta(days=1))
    for server in both.every:
        foreign = stranger.issue_client(MASTER, NOW)
        of_a_server = certificate(server.authority, *MASTERS, usage=ExtendedKeyUsageOID.SERVER_AUTH)
        for pair in (foreign, of_a_server):
            # docs/reference/differences.md: here the handshake ends.
            assert status_or_end(server, pair, beside) == (None if server is both.allot else status)


def status_or_end(server: Server, pair: KeyPair, token: str) -> int | None:
    """The status, None if there is no connection."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        return server.send("GET", "/api/v1/secrets", who=pair, headers=headers).status
    except OSError:
        return None


# --- service accounts' tokens ---


class Account:
    """A service account on a server, with the key that signs its tokens."""

    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        key = server.folder / ("data/pki/sa.key" if server.name == "allot" else "sa.key")
        self.key = serialization.load_pem_private_key(key.read_bytes(), None)
        self.algorithm = "ES256" if isinstance(self.key, ec.EllipticCurvePrivateKey) else "RS256"
        server.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "bot"}})
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/bot/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        self.token: str = server.create(path, request)["status"]["token"]
        self.claims: dict[str, Any] = jwt.decode(self.token, options={"verify_signature": False})
        self.header = jwt.get_unverified_header(self.token)

    @property
    def public(self) -> bytes:
        """What everybody may know of the key."""
        encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        public: bytes = self.key.public_key().public_bytes(encoding, form)
        return public

    def signed(self, claims: Any, header: Mapping[str, Any] | None = None) -> str:
        """A token with the server's signature: what a thief of the key, or a program that shares it, could make."""
        payload = claims if isinstance(claims, bytes) else _json(claims)
        return jwt.api_jws.encode(payload, self.key, self.algorithm, headers={**self.header, **(header or {})})  # type: ignore[arg-type]

    def status(self, token: str) -> int:
        """What is answered to the token."""
        return self.server.send("POST", WHO_AM_I, REVIEW, who=f"token:{token}").status


@pytest.fixture(scope="session")
def accounts(both: Both) -> list[Account]:
    """One on each server."""
    both.create("/api/v1/namespaces", {"metadata": {"name": "tokens"}})
    return [Account(server, "tokens") for server in both.every]


def _json(value: Any) -> bytes:
    """Also what JSON has no words for, NaN and numbers without end."""
    return json.dumps(value).encode()


def _encoded(value: Any) -> str:
    content = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def test_a_token_and_its_double_with_our_signature_hold(accounts: list[Account]) -> None:
    for account in accounts:
        assert account.status(account.token) == 201
        assert account.status(account.signed(account.claims)) == 201


LATER = 4_102_444_800
CLAIMS: dict[str, dict[str, Any]] = {
    "exp is text": {"exp": str(LATER)},
    "exp is a word": {"exp": "never"},
    "exp is true": {"exp": True},
    "exp is a list": {"exp": [LATER]},
    "exp is an object": {"exp": {"$date": LATER}},
    "exp has no end": {"exp": float("inf")},
    "exp is no number": {"exp": float("nan")},
    "exp was yesterday": {"exp": NOW.timestamp() - 86400},
    "exp is negative": {"exp": -1},
    "nbf is tomorrow": {"nbf": NOW.timestamp() + 86400},
    "nbf is text": {"nbf": "now"},
    "nbf has 400 digits": {"nbf": 10**400},
    "aud is somebody else": {"aud": ["https://example.com"]},
    "aud is an object": {"aud": {"https://kubernetes.default.svc": 1}},
    "aud is a number": {"aud": 7},
    "sub is a list": {"sub": ["system:serviceaccount:tokens:bot"]},
    "iss is somebody else": {"iss": "https://example.com"},
    "no account": {"kubernetes.io": {"namespace": "tokens"}},
    "the account is text": {"kubernetes.io": {"namespace": "tokens", "serviceaccount": "bot"}},
    "the namespace is a number": {"kubernetes.io": {"namespace": 7, "serviceaccount": {"name": "bot"}}},
    "another uid": {"kubernetes.io": {"namespace": "tokens", "serviceaccount": {"name": "bot", "uid": "x"}}},
    "a path for a name": {"kubernetes.io": {"namespace": "..", "serviceaccount": {"name": "../bot", "uid": "x"}}},
    "kubernetes.io is text": {"kubernetes.io": "tokens"},
}


@pytest.mark.parametrize("told", CLAIMS)
def test_claims_that_do_not_hold_are_401_even_with_our_signature(accounts: list[Account], told: str) -> None:
    for account in accounts:
        token = account.signed({**account.claims, **CLAIMS[told]})
        assert account.status(token) == 401, account.server.name


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 10**400},
        {"aud": []},
        {"sub": "system:admin"},
        {"sub": "system:serviceaccount:kube-system:default"},
    ],
)
def test_claims_that_contradict_each_other_are_401(accounts: list[Account], claims: dict[str, Any]) -> None:
    # kube-apiserver looks at the account alone, and takes no audience for its own.
    account = accounts[0]
    assert account.status(account.signed({**account.claims, **claims})) == 401


@pytest.mark.parametrize("payload", [b"", b"[]", b'"text"', b"7", b"null", b"{", b"[" * 5_000 + b"]" * 5_000])
def test_claims_that_are_no_object_are_401(accounts: list[Account], payload: bytes) -> None:
    for account in accounts:
        assert account.status(account.signed(payload)) == 401


def test_of_a_claim_that_is_there_twice_no_reader_sees_the_better_one(accounts: list[Account]) -> None:
    for account in accounts:
        expired = _json({**account.claims, "exp": 1})
        assert account.status(account.signed(b'{"exp":%d,' % LATER + expired[1:])) == 401


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": ""},
        {"alg": "HS256"},
        {"alg": "ES256K"},
        {"alg": 7},
        {"alg": ["ES256"]},
        {"alg": "ES256", "crit": ["exp"], "b64": False},
        {"alg": "ES256", "kid": "../../../../dev/null"},
        {"alg": "ES256", "jwk": {"kty": "oct", "k": "AA"}},
        {"alg": "ES256", "jku": "http://127.0.0.1:1/keys"},
        {"alg": "ES256", "x5c": ["AAAA"]},
        [],
        "text",
    ],
)
@pytest.mark.parametrize("signature", ["", "AA", "A" * 86])
def test_headers_choose_neither_key_nor_algorithm(accounts: list[Account], header: Any, signature: str) -> None:
    for account in accounts:
        assert account.status(f"{_encoded(header)}.{_encoded(account.claims)}.{signature}") == 401


def test_the_public_key_is_no_secret_to_sign_with(accounts: list[Account]) -> None:
    for account in accounts:
        signed = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(account.claims)}"
        signature = hmac.new(account.public, signed.encode(), hashlib.sha256).digest()
        assert account.status(f"{signed}.{_encoded(signature)}") == 401


def test_every_part_of_a_token_is_signed(accounts: list[Account]) -> None:
    for account in accounts:
        head, payload, signature = account.token.split(".")
        better = _encoded({**account.claims, "exp": LATER})
        for token in (
            f"{head}.{better}.{signature}",
            f"{head}.{payload}.",
            f"{head}.{payload}",
            f"{head}.{payload}.{signature}.{signature}",
            f".{payload}.{signature}",
            f"{head}.{payload}.{signature[:-4]}AAAA",
            f"{head}.{payload}.{signature}=x",
        ):
            assert account.status(token) == 401, token


def test_a_review_of_a_bad_token_says_no(accounts: list[Account]) -> None:
    for account in accounts:
        for token in (
            "rubbish",
            "a.b.c",
            "a" * 1_000_000,
            account.signed({**account.claims, "exp": "x"}),
            "\U0001f600\n",
        ):
            review = {"spec": {"token": token}}
            answer = account.server.send("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
            assert (answer.status, answer.value["status"].get("authenticated", False)) == (201, False)


def test_a_token_dies_with_its_account(both: Both, namespace: str) -> None:
    for server in both.every:
        account = Account(server, namespace)
        assert server.send("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/bot").status == 200
        # kube-apiserver remembers a token that held for ten seconds.
        if server is both.allot:
            assert account.status(account.token) == 401


# --- acting as somebody else ---


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Impersonate-User": "administrator"}, 403),
        ({"Impersonate-User": "powerless"}, 403),
        ({"Impersonate-User": "system:anonymous"}, 403),
        ({"Impersonate-User": "x", "Impersonate-Group": "system:masters"}, 403),
        ({"impersonate-user": "x", "IMPERSONATE-GROUP": "system:masters"}, 403),
        ({"Impersonate-User": "system:serviceaccount:kube-system:default"}, 403),
        ({"Impersonate-User": "system:node:n"}, 403),
        ({"Impersonate-User": "x", "Impersonate-Extra-scopes": "all"}, 403),
        ({"Impersonate-User": "x", "Impersonate-Uid": "1"}, 403),
    ],
)
@pytest.mark.parametrize("who", [None, f"token:{POWERLESS_TOKEN}"])
def test_nobody_acts_as_others_without_the_right(
    both: Both, who: str | None, headers: Mapping[str, str], status: int
) -> None:
    assert both.send("GET", "/api", who=who, headers=headers).status == status


def test_who_acts_as_somebody_has_their_rights_alone(both: Both) -> None:
    for name in ("jane", "system:anonymous"):
        assert both.send("GET", "/api/v1/secrets", headers={"Impersonate-User": name}).status == 403
    groups = {"Impersonate-User": "jane", "Impersonate-Group": "system:masters"}
    assert both.send("GET", "/api/v1/secrets", headers=groups).status == 200
    assert both.send("GET", "/api", headers={"Impersonate-User": "system:anonymous"}).status == 403


def test_reviews_are_for_those_who_may(both: Both) -> None:
    for path in (
        "/apis/authentication.k8s.io/v1/tokenreviews",
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews",
        "/api/v1/namespaces/default/serviceaccounts/default/token",
    ):
        assert both.send("POST", path, {}, who=f"token:{POWERLESS_TOKEN}").status == 403
        assert both.send("POST", path, {}, who=None).status == 403
