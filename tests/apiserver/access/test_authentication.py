"""Who is behind a request."""

from __future__ import annotations

import base64
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from allot.apiserver.access.authentication import (
    Authenticator,
    Credentials,
    bearer_token,
    read_static_tokens,
    without_websocket_token,
)
from allot.apiserver.access.certificates import SCHEDULER, CertificateAuthority
from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.access.setup import Access
from allot.apiserver.errors import StatusError
from allot.core.access.attributes import ANONYMOUS, User
from allot.process.clock import ManualClock


def certificate(access: Access) -> bytes:
    pair = access.certificates.client("scheduler", SCHEDULER)
    return x509.load_pem_x509_certificate(pair.certificate).public_bytes(serialization.Encoding.DER)


def token(access: Access, objects: Any) -> str:
    return access.tokens.issue(objects.put("serviceaccounts", "team", "bot"), access.tokens.audiences, 3600)


async def refused(access: Access, **credentials: Any) -> bool:
    with pytest.raises(StatusError) as error:
        await access.authenticator.authenticate(Credentials(**credentials))
    return error.value.code == 401


async def test_without_a_credential_one_is_anonymous(access: Access) -> None:
    for authorization in ("", "Bearer", "Bearer ", "Basic YTpi", "rubbish"):
        assert await access.authenticator.authenticate(Credentials(authorization=authorization)) is ANONYMOUS


async def test_a_certificate_makes_its_user(access: Access) -> None:
    user = await access.authenticator.authenticate(Credentials(certificate=certificate(access)))
    assert user.name == "system:kube-scheduler"


async def test_a_service_accounts_token_makes_its_user(access: Access, objects: Any) -> None:
    given_token = token(access, objects)
    for authorization in (f"Bearer {given_token}", f"bearer {given_token}", f" Bearer {given_token} "):
        user = await access.authenticator.authenticate(Credentials(authorization=authorization))
        assert user.name == "system:serviceaccount:team:bot"


async def test_a_certificate_goes_before_a_token(access: Access, objects: Any) -> None:
    both = Credentials(certificate=certificate(access), authorization=f"Bearer {token(access, objects)}")
    user = await access.authenticator.authenticate(both)
    assert user.name == "system:kube-scheduler"


async def test_a_credential_that_does_not_hold_is_refused(access: Access) -> None:
    assert await refused(access, authorization="Bearer rubbish")
    assert await refused(access, certificate=b"rubbish")
    stranger = CertificateAuthority.create(access.certificates.authority.certificate.not_valid_before_utc)
    foreign = stranger.issue_client(SCHEDULER, stranger.certificate.not_valid_before_utc)
    der = x509.load_pem_x509_certificate(foreign.certificate).public_bytes(serialization.Encoding.DER)
    assert await refused(access, certificate=der)
    assert await refused(access, certificate=der, authorization="Bearer rubbish")


async def test_a_websocket_carries_its_token_among_the_protocols(access: Access, objects: Any) -> None:
    encoded = base64.urlsafe_b64encode(token(access, objects).encode()).rstrip(b"=").decode()
    offered = f"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.{encoded}"
    user = await access.authenticator.authenticate(Credentials(websocket_protocols=offered))
    assert user.name == "system:serviceaccount:team:bot"
    assert without_websocket_token(offered) == "v5.channel.k8s.io"
    assert await refused(access, websocket_protocols=offered.split(", ")[1])
    assert await refused(access, websocket_protocols="v5.channel.k8s.io,base64url.bearer.authorization.k8s.io.!")
    assert await refused(access, websocket_protocols="v5.channel.k8s.io,base64url.bearer.authorization.k8s.io.é")


async def test_static_tokens_come_from_a_file(access: Access, tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text('secret,alice,uid-1,"dev,ops"\nother, bob, 2\n\n')
    authenticator = Authenticator(access.certificates.authority, clock, access.tokens, read_static_tokens(path))
    alice = await authenticator.authenticate(Credentials(authorization="Bearer secret"))
    assert alice == User("alice", "uid-1", ("dev", "ops", "system:authenticated"))
    bob = await authenticator.authenticate(Credentials(authorization="Bearer other"))
    assert bob == User("bob", "2", ("system:authenticated",))


@pytest.mark.parametrize(("mode", "told"), [(0o644, True), (0o640, True), (0o600, False), (0o400, False)])
def test_a_token_file_keeps_its_mode_and_others_reading_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, told: bool
) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text("secret,alice,1\n")
    path.chmod(mode)
    read_static_tokens(path)
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert (f"(mode {mode:04o}); hint: chmod 600 {path}" in caplog.text) is told


async def test_a_token_holds_beside_a_certificate_or_a_token_that_does_not(access: Access, objects: Any) -> None:
    given_token = token(access, objects)
    encoded = base64.urlsafe_b64encode(given_token.encode()).rstrip(b"=").decode()
    offered = f"v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.{encoded}"
    for credentials in (
        Credentials(certificate=b"rubbish", authorization=f"Bearer {given_token}"),
        Credentials(authorization="Bearer rubbish", websocket_protocols=offered),
        Credentials(authorization=f"Bearer {given_token}", websocket_protocols=offered + "!"),
    ):
        assert (await access.authenticator.authenticate(credentials)).name == "system:serviceaccount:team:bot"


@pytest.mark.parametrize("content", ["secret,alice", "secret,,1", ",alice,1", 'a,b,c,"open', "a,b,c\na,d,e", "\xff"])
def test_a_token_file_with_mistakes_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokens.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(SecretFileError, match=r"tokens\.csv"):
        read_static_tokens(path)
    with pytest.raises(SecretFileError, match="does not exist"):
        read_static_tokens(tmp_path / "missing")


# Servers turn bytes that are no characters into lone surrogates.
headers = st.text(st.characters(exclude_characters="\r\n", categories=None) | st.just("\udcff"), max_size=300)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(headers, headers, st.binary(max_size=300))
async def test_random_credentials_never_make_a_user(access: Access, header: str, protocols: str, der: bytes) -> None:
    for credentials in (
        Credentials(authorization=header),
        Credentials(authorization=f"Bearer {header}"),
        Credentials(websocket_protocols=protocols),
        Credentials(websocket_protocols=f"a,base64url.bearer.authorization.k8s.io.{protocols}"),
        Credentials(certificate=der),
    ):
        try:
            assert await access.authenticator.authenticate(credentials) is ANONYMOUS
        except StatusError as error:
            assert error.code == 401
    assert isinstance(bearer_token(header), str)
