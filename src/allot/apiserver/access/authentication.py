"""Authentication: the user behind a client certificate or a bearer token, or whom a front proxy names.

Credentials are tried in Kubernetes' order, and the first valid one decides: front proxy, certificate, bearer token, token of a
WebSocket. Headers of a front proxy count only with a certificate of its own authority, which signs nothing else.
A request with invalid credentials is always refused; one without credentials is from system:anonymous. Does not know what a
user may do.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
from collections.abc import Mapping
from pathlib import Path

import msgspec

from allot.apiserver.access.certificates import (
    FRONT_PROXY,
    KUBELET_CLIENT,
    CertificateAuthority,
    InvalidCertificate,
)
from allot.apiserver.access.secret_files import SecretFileError, read_given_secret
from allot.apiserver.access.service_account_tokens import Authenticated, InvalidToken, ServiceAccountTokens
from allot.apiserver.access.token_key import TOKEN_LENGTH_MAX
from allot.apiserver.errors import unauthorized
from allot.core.access.attributes import ANONYMOUS, User, authenticated_groups
from allot.core.access.front_proxy import remote_user
from allot.process.clock import Clock

# Browsers cannot set headers on a WebSocket, so the token travels as one of the protocols.
WEBSOCKET_PREFIX = "base64url.bearer.authorization.k8s.io."


class Credentials(msgspec.Struct, frozen=True):
    """The credentials of a request. websocket_protocols: what a WebSocket offers in Sec-WebSocket-Protocol; headers: all of them,
    for those of a front proxy."""

    certificate: bytes | None = None
    authorization: str = ""
    websocket_protocols: str = ""
    headers: tuple[tuple[str, str], ...] = ()


class Authenticator:
    """Finds the user behind credentials."""

    def __init__(
        self,
        authority: CertificateAuthority,
        clock: Clock,
        service_accounts: ServiceAccountTokens | None = None,
        static_tokens: Mapping[str, User] | None = None,
        front_proxies: CertificateAuthority | None = None,
    ) -> None:
        """front_proxies: signs the certificates of front proxies."""
        self._authority = authority
        self._front_proxies = front_proxies
        self._clock = clock
        self._service_accounts = service_accounts
        # Looked up by digest, so that lookup time reveals nothing about the tokens.
        self._static = {_digest(token): user for token, user in (static_tokens or {}).items()}

    def by_certificate(self, certificate: bytes) -> User | None:
        """The user of a client certificate, or None."""
        try:
            return self._certified(certificate)
        except InvalidCertificate:
            return None

    def _certified(self, certificate: bytes) -> User | None:
        """The user behind a client certificate. The one that servers present to kubelets is not accepted: a server that was
        directed to itself, or to another server, must not get in."""
        user = self._authority.authenticate(certificate, self._clock.seconds())
        if user is not None and user.name == KUBELET_CLIENT.name:
            raise InvalidCertificate("the certificate is for kubelets alone")
        return user

    def _by_front_proxy(self, credentials: Credentials) -> User | None:
        """The user that a front proxy names, None if it is not one or names no one."""
        if credentials.certificate is None or self._front_proxies is None:
            return None
        try:
            proxy = self._front_proxies.authenticate(credentials.certificate, self._clock.seconds())
        except InvalidCertificate:
            return None
        return remote_user(credentials.headers) if proxy is not None and proxy.name == FRONT_PROXY.name else None

    async def authenticate(self, credentials: Credentials) -> User:
        """The user, system:anonymous without credentials; 401 if none of the given credentials is valid."""
        failed: Exception | None = None
        named = self._by_front_proxy(credentials)
        if named is not None:
            return named
        try:
            if credentials.certificate is not None:
                user = self._certified(credentials.certificate)
                if user is not None:
                    return user
        except InvalidCertificate as error:
            failed = error
        for read, header in (
            (bearer_token, credentials.authorization),
            (websocket_token, credentials.websocket_protocols),
        ):
            try:
                token = read(header)
                found = await self.authenticate_token(token) if token else None
            except InvalidToken as error:
                failed = error
                continue
            if found is not None:
                return found.user
            if token:
                failed = InvalidToken("invalid bearer token")
        if failed is not None:
            raise unauthorized() from failed
        return ANONYMOUS

    async def authenticate_token(self, token: str, audiences: tuple[str, ...] = ()) -> Authenticated | None:
        """The user of a token, None if unknown; InvalidToken if it is no longer valid. Static tokens are for any audience."""
        if len(token) > TOKEN_LENGTH_MAX:
            return None
        user = self._static.get(_digest(token)) if self._static else None
        if user is not None:
            return Authenticated(user, audiences)
        if self._service_accounts is None:
            return None
        return await self._service_accounts.authenticate(token, audiences)


def bearer_token(authorization: str) -> str:
    """The token of an Authorization header, or empty."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.split(" ", 1)[0] if scheme.lower() == "bearer" else ""


def websocket_token(protocols: str) -> str:
    """The token among WebSocket protocols, or empty; InvalidToken if it cannot be read or is the only protocol."""
    offered = [protocol.strip() for protocol in protocols.split(",")]
    tokens = [protocol for protocol in offered if protocol.startswith(WEBSOCKET_PREFIX)]
    if not tokens:
        return ""
    # The protocol with the token is never selected, so there must be another one.
    if len(tokens) > 1 or len(offered) < 2:
        raise InvalidToken("expected one token among the protocols, and another protocol")
    encoded = tokens[0][len(WEBSOCKET_PREFIX) :]
    try:
        return base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise InvalidToken("the token among the protocols cannot be read") from error


def without_websocket_token(protocols: str) -> str:
    """The WebSocket protocols that may be selected."""
    offered = [protocol.strip() for protocol in protocols.split(",")]
    return ",".join(protocol for protocol in offered if protocol and not protocol.startswith(WEBSOCKET_PREFIX))


def read_static_tokens(path: Path) -> dict[str, User]:
    """Tokens from a file of lines `token,user,uid,"group,group"`; the groups may be missing."""
    content = read_given_secret(path, "token file")
    found: dict[str, User] = {}
    try:
        lines = list(csv.reader(io.StringIO(content.decode()), skipinitialspace=True, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise SecretFileError(f"token file {path}: {error}") from error
    for number, fields in enumerate(lines, start=1):
        if not fields:
            continue
        if len(fields) < 3 or not fields[0] or not fields[1]:
            raise SecretFileError(
                f'token file {path}, line {number}: expected token,user,uid and perhaps "group,group"'
            )
        if fields[0] in found:
            raise SecretFileError(f"token file {path}, line {number}: the token is in the file twice")
        groups = [group.strip() for group in fields[3].split(",") if group.strip()] if len(fields) > 3 else []
        found[fields[0]] = User(fields[1], fields[2], authenticated_groups(fields[1], groups))
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
