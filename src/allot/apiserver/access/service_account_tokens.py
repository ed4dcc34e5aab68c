"""Tokens of service accounts: their claims, and whether they are still valid.

A token is valid while its service account exists with the same uid, and while the pod, secret or node that it is
bound to does. Tokens in Secrets of type kubernetes.io/service-account-token never expire, but end with their Secret.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec

from allot.apiserver.access.object_getter import ObjectGetter
from allot.apiserver.access.token_key import TokenKey
from allot.core.access.attributes import User
from allot.core.access.service_accounts import (
    CREDENTIAL_ID,
    NODE_NAME,
    NODE_UID,
    POD_NAME,
    POD_UID,
    service_account_user,
    user_name,
)
from allot.core.validation.fields import quote
from allot.process.clock import Clock
from allot.process.ids import Ids

Object = Mapping[str, Any]

ISSUER = "https://kubernetes.default.svc.cluster.local"
LEGACY_ISSUER = "kubernetes/serviceaccount"
SECRET_TYPE = "kubernetes.io/service-account-token"
_CLAIM = "kubernetes.io"
_LEGACY = "kubernetes.io/serviceaccount/"
# How far clocks may differ, and how long tokens of a deleted object keep working.
_LEEWAY_SECONDS = 60.0
# Neither NaN nor infinite.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=2.0**53)]


class InvalidToken(Exception):
    """An invalid token; the text says why."""


class _Named(msgspec.Struct, frozen=True):
    """An object that a token names."""

    name: str
    uid: str = ""


class _Bound(msgspec.Struct, frozen=True):
    """The content of the claim `kubernetes.io`."""

    namespace: str
    serviceaccount: _Named
    pod: _Named | None = None
    secret: _Named | None = None
    node: _Named | None = None


class _Claims(msgspec.Struct, frozen=True, rename={"bound": _CLAIM}):
    """The claims of a token as we issue them, with checked types: a token whose time is not a number is invalid."""

    aud: str | tuple[str, ...]
    exp: _Seconds
    sub: str
    bound: _Bound
    nbf: _Seconds = 0.0
    jti: str = ""


class _LegacyClaims(
    msgspec.Struct,
    frozen=True,
    rename={
        "namespace": f"{_LEGACY}namespace",
        "secret": f"{_LEGACY}secret.name",
        "account": f"{_LEGACY}service-account.name",
        "uid": f"{_LEGACY}service-account.uid",
    },
):
    """The claims of the token in a Secret."""

    namespace: str
    secret: str
    account: str
    uid: str
    sub: str


class Authenticated(msgspec.Struct, frozen=True):
    """Whose token it is, and for which of the requested audiences."""

    user: User
    audiences: tuple[str, ...] = ()


class Binding(msgspec.Struct, frozen=True):
    """What a new token is bound to besides its service account."""

    pod: Object | None = None
    secret: Object | None = None
    node: Object | None = None


UNBOUND = Binding()


def legacy_claims(account: Object, secret_name: str) -> dict[str, Any]:
    """The claims of the token in a Secret of type kubernetes.io/service-account-token."""
    metadata = account["metadata"]
    return {
        "iss": LEGACY_ISSUER,
        f"{_LEGACY}namespace": metadata["namespace"],
        f"{_LEGACY}secret.name": secret_name,
        f"{_LEGACY}service-account.name": metadata["name"],
        f"{_LEGACY}service-account.uid": metadata.get("uid", ""),
        "sub": user_name(metadata["namespace"], metadata["name"]),
    }


class ServiceAccountTokens:
    """Issues and checks tokens."""

    def __init__(self, key: TokenKey, lookup: ObjectGetter, clock: Clock, ids: Ids, issuer: str = ISSUER) -> None:
        self.key = key
        self.issuer = issuer
        # What the server itself accepts.
        self.audiences: tuple[str, ...] = (issuer,)
        self._lookup = lookup
        self._clock = clock
        self._ids = ids

    def discovery(self, key_set_url: str) -> dict[str, Any]:
        """The document at `/.well-known/openid-configuration`, for others who verify tokens."""
        return {
            "issuer": self.issuer,
            "jwks_uri": key_set_url,
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": self.key.algorithms,
        }

    # --- issuing ---

    def issue(
        self, account: Object, audiences: Sequence[str], seconds: int, binding: Binding = UNBOUND, warn_after: int = 0
    ) -> str:
        """A token that expires after a number of seconds. warn_after: when its use should be reported, 0 for never."""
        now = int(self._clock.seconds())
        metadata = account["metadata"]
        bound: dict[str, Any] = {"namespace": metadata["namespace"], "serviceaccount": _reference(account)}
        for kind in ("pod", "secret", "node"):
            object_ = getattr(binding, kind)
            if object_ is not None:
                bound[kind] = _reference(object_)
        if warn_after:
            bound["warnafter"] = now + warn_after
        return self.key.sign(
            {
                "aud": list(audiences),
                "exp": now + seconds,
                "iat": now,
                "iss": self.issuer,
                "jti": self._ids.new_uid(),
                "kubernetes.io": bound,
                "nbf": now,
                "sub": user_name(metadata["namespace"], metadata["name"]),
            }
        )

    def issue_legacy(self, account: Object, secret_name: str) -> str:
        """The token for a Secret of type kubernetes.io/service-account-token."""
        return self.key.sign(legacy_claims(account, secret_name))

    # --- checking ---

    async def authenticate(self, token: str, audiences: Sequence[str] = ()) -> Authenticated | None:
        """Whose token it is; None if it is not one of ours, InvalidToken if it is not valid (any more)."""
        claims = self.key.verify(token)
        if claims is None:
            return None
        try:
            if claims.get("iss") == LEGACY_ISSUER:
                return await self._legacy(msgspec.convert(claims, _LegacyClaims), token)
            if claims.get("iss") == self.issuer:
                return await self._bound(msgspec.convert(claims, _Claims), tuple(audiences) or self.audiences)
        except msgspec.ValidationError as error:
            # Signed with our key, but not issued by us (kube-controller-manager may share the key).
            raise InvalidToken(f"the token's claims are malformed: {error}") from error
        return None

    async def _bound(self, claims: _Claims, wanted: tuple[str, ...]) -> Authenticated:
        self._check_times(claims)
        audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
        accepted = tuple(value for value in wanted if value in audiences)
        if not accepted:
            raise InvalidToken(
                f"token audiences {_listed(audiences)} is invalid for the target audiences {_listed(wanted)}"
            )
        bound = claims.bound
        namespace, account = bound.namespace, bound.serviceaccount
        if claims.sub != user_name(namespace, account.name):
            raise InvalidToken("the token's subject is not the service account that it names")
        await self._check("serviceaccounts", namespace, account, "service account")
        if bound.secret is not None:
            await self._check("secrets", namespace, bound.secret, "secret")
        if bound.pod is not None:
            await self._check("pods", namespace, bound.pod, "pod")
        elif bound.node is not None:
            await self._check("nodes", "", bound.node, "node")
        return Authenticated(service_account_user(namespace, account.name, account.uid, _extra(claims)), accepted)

    def _check_times(self, claims: _Claims) -> None:
        now = self._clock.seconds()
        if now > claims.exp:
            raise InvalidToken("service account token has expired")
        if now < claims.nbf - _LEEWAY_SECONDS:
            raise InvalidToken("service account token is not valid yet")

    async def _check(self, plural: str, namespace: str, reference: _Named, told: str) -> Object:
        """The object that a token refers to, if it still has the same uid and was not deleted a while ago."""
        name, uid = reference.name, reference.uid
        place = f"{namespace}/{name}" if namespace else name
        object_ = await self._lookup.get(plural, "", namespace, name)
        if object_ is None:
            raise InvalidToken(f"{told} {place} has been deleted")
        metadata = object_["metadata"]
        if uid != metadata.get("uid", ""):
            raise InvalidToken(
                f"the {told} UID ({metadata.get('uid', '')}) does not match the UID in the token ({uid})"
            )
        deleted = metadata.get("deletionTimestamp")
        if deleted and datetime.fromisoformat(deleted).timestamp() < self._clock.seconds() - _LEEWAY_SECONDS:
            raise InvalidToken(f"{told} {place} has been deleted")
        return object_

    async def _legacy(self, claims: _LegacyClaims, token: str) -> Authenticated:
        namespace, name, uid = claims.namespace, claims.account, claims.uid
        if claims.sub != user_name(namespace, name):
            raise InvalidToken("the token's subject is not the service account that it names")
        secret = await self._lookup.get("secrets", "", namespace, claims.secret)
        if secret is None or secret["metadata"].get("deletionTimestamp"):
            raise InvalidToken("service account token has been invalidated")
        if secret.get("type") != SECRET_TYPE or _token_in(secret) != token:
            raise InvalidToken("service account token does not match the one in its secret")
        await self._check("serviceaccounts", namespace, _Named(name, uid), "service account")
        return Authenticated(service_account_user(namespace, name, uid, {}), self.audiences)


def _reference(object_: Object) -> dict[str, str]:
    metadata = object_["metadata"]
    reference = {"name": metadata["name"]}
    if metadata.get("uid"):
        reference["uid"] = metadata["uid"]
    return reference


def _extra(claims: _Claims) -> dict[str, tuple[str, ...]]:
    """The user's extra values from a token: the credential ID, and where its pod runs."""
    extra: dict[str, tuple[str, ...]] = {}
    if claims.jti:
        extra[CREDENTIAL_ID] = (f"JTI={claims.jti}",)
    for named, name_key, uid_key in ((claims.bound.node, NODE_NAME, NODE_UID), (claims.bound.pod, POD_NAME, POD_UID)):
        if named is not None:
            extra[name_key] = (named.name,)
            if named.uid:
                extra[uid_key] = (named.uid,)
    return extra


def _token_in(secret: Object) -> str | None:
    try:
        return base64.b64decode((secret.get("data") or {}).get("token") or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _listed(values: Sequence[str]) -> str:
    return f"[{' '.join(quote(value) for value in values)}]"
