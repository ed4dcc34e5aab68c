"""Service-account tokens: made, bound, expired, taken back."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jwt.types import Options

from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.access.service_account_tokens import ISSUER, SECRET_TYPE, Authenticated, InvalidToken
from allot.apiserver.access.setup import Access
from allot.apiserver.access.token_key import TokenKey
from allot.apiserver.access.token_requests import request_token
from allot.apiserver.errors import StatusError
from allot.process.clock import ManualClock

# The clock of these tests stands still somewhere else than the machine's.
WHENEVER: Options = {"verify_exp": False, "verify_iat": False, "verify_nbf": False}


class Requests:
    """Asks for tokens and checks them."""

    def __init__(self, access: Access, objects: Any, clock: ManualClock) -> None:
        self.access, self.objects, self.clock = access, objects, clock
        objects.put("serviceaccounts", "team", "bot", "sa-uid")

    async def ask(self, *, metadata: Any = None, **spec: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"spec": spec}
        if metadata is not None:
            body["metadata"] = metadata
        return await request_token(self.access.tokens, self.objects, self.clock, "team", "bot", body)

    async def token(self, **spec: Any) -> str:
        return str((await self.ask(**spec))["status"]["token"])

    async def check(self, token: str, *audiences: str) -> Authenticated | None:
        return await self.access.tokens.authenticate(token, audiences)

    async def refusal(self, token: str, *audiences: str) -> str:
        with pytest.raises(InvalidToken) as error:
            await self.check(token, *audiences)
        return str(error.value)

    async def error(self, **spec: Any) -> StatusError:
        with pytest.raises(StatusError) as error:
            await self.ask(**spec)
        return error.value

    def bind(self, kind: str, name: str, uid: str = "") -> dict[str, Any]:
        return {"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}}


@pytest.fixture
def requests(access: Access, objects: Any, clock: ManualClock) -> Requests:
    return Requests(access, objects, clock)


async def test_a_token_lives_an_hour_unless_asked_otherwise(requests: Requests) -> None:
    answer = await requests.ask()
    assert answer["spec"]["expirationSeconds"] == 3600
    assert answer["spec"]["audiences"] == [ISSUER]
    token = answer["status"]["token"]
    found = await requests.check(token)
    assert found is not None
    assert found.user.name == "system:serviceaccount:team:bot"
    assert found.user.uid == "sa-uid"
    assert found.user.groups == ("system:serviceaccounts", "system:serviceaccounts:team", "system:authenticated")
    requests.clock.advance(3599)
    assert await requests.check(token) is not None
    requests.clock.advance(2)
    assert await requests.refusal(token) == "service account token has expired"


async def test_claims_are_those_of_kubernetes(requests: Requests) -> None:
    requests.objects.put("nodes", "", "n1", "node-uid")
    requests.objects.put("pods", "team", "p", "pod-uid", spec={"serviceAccountName": "bot", "nodeName": "n1"})
    token = await requests.token(expirationSeconds=600, **requests.bind("Pod", "p"))
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["iss"] == ISSUER
    assert claims["sub"] == "system:serviceaccount:team:bot"
    assert claims["exp"] - claims["iat"] == 600
    assert claims["kubernetes.io"] == {
        "namespace": "team",
        "serviceaccount": {"name": "bot", "uid": "sa-uid"},
        "pod": {"name": "p", "uid": "pod-uid"},
        "node": {"name": "n1", "uid": "node-uid"},
    }
    assert jwt.get_unverified_header(token) == {
        "alg": "ES256",
        "typ": "JWT",
        "kid": requests.access.tokens.key.key_id,
    }
    found = await requests.check(token)
    assert found is not None
    extra = {key.rpartition("/")[2]: values for key, values in found.user.extra.items()}
    assert extra.pop("credential-id")[0].startswith("JTI=")
    assert extra == {"pod-name": ("p",), "pod-uid": ("pod-uid",), "node-name": ("n1",), "node-uid": ("node-uid",)}


async def test_anybody_can_verify_a_token_with_the_published_key(requests: Requests) -> None:
    (published,) = requests.access.tokens.key.key_set()["keys"]
    claims = jwt.decode(await requests.token(), jwt.PyJWK(published), audience=ISSUER, options=WHENEVER)
    assert claims["sub"] == "system:serviceaccount:team:bot"


async def test_audiences_are_kept_apart(requests: Requests) -> None:
    vault = await requests.token(audiences=["vault", "other"])
    assert "is invalid for the target audiences" in await requests.refusal(vault)
    found = await requests.check(vault, "vault", "nobody")
    assert found is not None
    assert found.audiences == ("vault",)
    assert await requests.refusal(await requests.token(), "vault")


@pytest.mark.parametrize(
    ("kind", "plural", "namespace"), [("Pod", "pods", "team"), ("Secret", "secrets", "team"), ("Node", "nodes", "")]
)
async def test_a_bound_token_dies_with_what_it_is_bound_to(
    requests: Requests, kind: str, plural: str, namespace: str
) -> None:
    spec = {"serviceAccountName": "bot"}
    requests.objects.put(plural, namespace, "x", spec=spec)
    token = await requests.token(**requests.bind(kind, "x"))
    assert await requests.check(token) is not None
    requests.objects.put(plural, namespace, "x", "another-uid", spec=spec)
    assert "does not match the UID in the token" in await requests.refusal(token)
    requests.objects.remove(plural, namespace, "x")
    assert "has been deleted" in await requests.refusal(token)


async def test_a_token_dies_with_its_service_account(requests: Requests) -> None:
    token = await requests.token()
    requests.objects.put("serviceaccounts", "team", "bot", "another-uid")
    assert "UID" in await requests.refusal(token)
    requests.objects.remove("serviceaccounts", "team", "bot")
    assert await requests.refusal(token) == "service account team/bot has been deleted"


async def test_a_token_outlives_the_deletion_of_its_pod_by_a_minute(requests: Requests) -> None:
    pod = requests.objects.put("pods", "team", "p", spec={"serviceAccountName": "bot"})
    token = await requests.token(**requests.bind("Pod", "p"))
    pod["metadata"]["deletionTimestamp"] = requests.clock.now()
    requests.clock.advance(59)
    assert await requests.check(token) is not None
    requests.clock.advance(10)
    assert "has been deleted" in await requests.refusal(token)


async def test_projected_tokens_live_a_year_but_say_when_to_renew(requests: Requests) -> None:
    requests.objects.put("pods", "team", "p", spec={"serviceAccountName": "bot"})
    answer = await requests.ask(expirationSeconds=3607, **requests.bind("Pod", "p"))
    claims = jwt.decode(answer["status"]["token"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 365 * 24 * 3600
    assert claims["kubernetes.io"]["warnafter"] - claims["iat"] == 3607
    unbound = jwt.decode(await requests.token(expirationSeconds=3607), options={"verify_signature": False})
    assert unbound["exp"] - unbound["iat"] == 3607


@pytest.mark.parametrize(
    ("seconds", "detail"),
    [
        (599, "may not specify a duration less than 10 minutes"),
        (-1, "may not specify a duration less than 10 minutes"),
        (2**32 + 1, "may not specify a duration larger than 2^32 seconds"),
    ],
)
async def test_lifetimes_have_bounds(requests: Requests, seconds: int, detail: str) -> None:
    error = await requests.error(expirationSeconds=seconds)
    assert error.code == 422
    assert error.details is not None
    assert error.details["causes"] == [
        {
            "reason": "FieldValueInvalid",
            "message": f"Invalid value: {seconds}: {detail}",
            "field": "spec.expirationSeconds",
        }
    ]


async def test_requests_that_cannot_be_met_say_why(requests: Requests) -> None:
    requests.objects.put("pods", "team", "p", "pod-uid", spec={"serviceAccountName": "other"})
    error = await requests.error(**requests.bind("Pod", "p"))
    assert (error.code, error.message) == (
        400,
        'cannot bind token for serviceaccount "bot" to pod running with different serviceaccount name.',
    )
    assert (await requests.error(**requests.bind("Pod", "gone"))).message == 'pods "gone" not found'
    assert (await requests.error(**requests.bind("Service", "s"))).message == (
        "cannot bind token to object of type /v1, Kind=Service"
    )
    requests.objects.put("secrets", "team", "s", "secret-uid")
    error = await requests.error(**requests.bind("Secret", "s", "wrong"))
    assert error.code == 409
    assert (await requests.error(metadata={"name": "other"})).code == 422
    assert (await requests.error(metadata={"uid": "other"})).code == 409
    requests.objects.remove("serviceaccounts", "team", "bot")
    assert (await requests.error()).message == 'serviceaccounts "bot" not found'


@pytest.mark.parametrize("spec", ["text", 7, {"expirationSeconds": "1"}, {"audiences": [1]}, {"boundObjectRef": []}])
async def test_a_request_of_the_wrong_shape_is_a_bad_request(requests: Requests, spec: Any) -> None:
    with pytest.raises(StatusError) as error:
        await request_token(
            requests.access.tokens, requests.objects, requests.clock, "team", "bot", {"metadata": {}, "spec": spec}
        )
    assert error.value.code == 400


async def test_a_token_in_a_secret_works_until_the_secret_goes(requests: Requests) -> None:
    account = await requests.objects.get("serviceaccounts", "", "team", "bot")
    token = requests.access.tokens.issue_legacy(account, "bot-token")
    assert await requests.refusal(token)
    data = {"token": base64.b64encode(token.encode()).decode()}
    requests.objects.put("secrets", "team", "bot-token", type=SECRET_TYPE, data=data)
    requests.clock.advance(10 * 365 * 24 * 3600)
    found = await requests.check(token)
    assert found is not None
    assert found.user.name == "system:serviceaccount:team:bot"
    requests.objects.put("secrets", "team", "bot-token", type=SECRET_TYPE, data={"token": "!"})
    assert await requests.refusal(token)
    requests.objects.put("secrets", "team", "bot-token", type="Opaque", data=data)
    assert await requests.refusal(token)


async def test_what_others_signed_is_nobodys_token(requests: Requests) -> None:
    token = await requests.token()
    claims = jwt.decode(token, options={"verify_signature": False})
    foreign = TokenKey(ec.generate_private_key(ec.SECP256R1())).sign(claims)
    header, payload, _ = token.split(".")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    symmetric = jwt.encode(claims, "secret" * 8, algorithm="HS256")
    for forged in (foreign, f"{header}.{payload}.", f"{unsigned}.{payload}.", symmetric, token + "x", token[:-2]):
        assert await requests.check(forged) is None


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"kubernetes.io": 7},
        {"kubernetes.io": {"namespace": "team"}, "aud": ISSUER, "exp": 2**40},
        {"kubernetes.io": {"namespace": "team", "serviceaccount": []}, "aud": [ISSUER], "exp": 2**40, "sub": "x"},
        {"exp": "soon", "aud": [ISSUER]},
        {"exp": 2**40, "aud": {"a": "b"}},
    ],
)
async def test_signed_rubbish_is_refused(requests: Requests, claims: dict[str, Any]) -> None:
    token = requests.access.tokens.key.sign({"iss": ISSUER, **claims})
    assert await requests.refusal(token)


def _nested(depth: int) -> str:
    return base64.urlsafe_b64encode(b'{"a":' + b"[" * depth + b"]" * depth + b"}").rstrip(b"=").decode()


def test_deep_and_long_texts_are_no_tokens(access: Access) -> None:
    key = access.tokens.key
    assert key.verify(f"{_nested(10_000)}.{_nested(10)}.AAAA") is None
    assert key.verify("a.b." + "c" * 10_000_000) is None


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_a_token_with_any_byte_changed_is_no_token(access: Access, data: st.DataObject) -> None:
    key = access.tokens.key
    token = key.sign({"iss": ISSUER, "exp": 1})
    position = data.draw(st.integers(0, len(token) - 1))
    character = data.draw(st.characters(max_codepoint=0x7F))
    forged = token[:position] + character + token[position + 1 :]
    claims = key.verify(forged)
    # The last character of a part may carry bits that decoding ignores.
    assert claims is None or claims == {"iss": ISSUER, "exp": 1}


def test_the_key_is_kept_and_its_owners_only(tmp_path: Path) -> None:
    first = TokenKey.open(tmp_path)
    assert TokenKey.open(tmp_path).key_id == first.key_id
    assert (tmp_path / "sa.key").stat().st_mode & 0o777 == 0o600
    (tmp_path / "sa.key").write_bytes(b"rubbish")
    with pytest.raises(SecretFileError, match=r"sa\.key"):
        TokenKey.open(tmp_path)


def test_published_keys_are_json(access: Access) -> None:
    assert b'"kty":"EC"' in msgspec.json.encode(access.tokens.key.key_set())


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        *(
            (claim, value)
            for claim in ("exp", "nbf")
            for value in ("4102444800", "x", True, {}, [1], 10**400, -1, 1e999)
        ),
        ("exp", None),
        ("exp", float("nan")),
        *(("aud", value) for value in ({ISSUER: 1}, [[ISSUER]], 1, None, [])),
        *(("sub", value) for value in (1, None, ["system:serviceaccount:team:bot"])),
        *(("jti", value) for value in (1, ["a"], {"a": "b"})),
        *(("kubernetes.io", value) for value in (None, "x", [], {}, {"namespace": 1, "serviceaccount": {"name": 2}})),
        ("kubernetes.io", {"namespace": "team", "serviceaccount": "bot"}),
        ("kubernetes.io", {"namespace": "team", "serviceaccount": {"name": "bot", "uid": "sa-uid"}, "pod": "x"}),
    ],
)
async def test_a_claim_of_another_type_holds_no_token(requests: Requests, claim: str, value: Any) -> None:
    claims = jwt.decode(await requests.token(), options={"verify_signature": False})
    signed = requests.access.tokens.key.sign({**claims, claim: value})
    with pytest.raises(InvalidToken):
        await requests.check(signed)
