"""Authorization of the agent's clients: certificates of the cluster's authority and tokens, with access reviews by the API server."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.http1.heads import HttpError
from allot.http1.requests import Request
from allot.node.serving.refusals import Refusals
from allot.process.clock import Clock

_ALLOWED_S, _DENIED_S, _TOKEN_S = 300.0, 30.0, 120.0
_KEPT_MAX = 1000
_SUBRESOURCES = (
    ("/stats", "stats"),
    ("/metrics", "metrics"),
    ("/logs", "log"),
    ("/healthz", "healthz"),
    ("/pods", "pods"),
    ("/configz", "configz"),
)


class Asker(msgspec.Struct, frozen=True):
    """The client."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""


class Authorization:
    """Asks the API server, and caches the answer for a while."""

    def __init__(self, client: Client, clock: Clock, node: str, refusals: Refusals) -> None:
        self._reviews = client.resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
        self._tokens = client.resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
        self._clock = clock
        self.node = node
        self._refusals = refusals
        self._known: dict[bytes, tuple[float, Asker | None]] = {}
        self._decided: dict[tuple[Asker, str, str], tuple[float, bool]] = {}

    async def check(self, request: Request) -> None:
        """HttpError unless the request is allowed."""
        asker = await self._who(request)
        if asker is None:
            raise HttpError(401, f"Unauthorized: {self._refusal(request)}")
        verb = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "DELETE": "delete"}.get(
            request.method, ""
        )
        special = next(
            (name for path, name in _SUBRESOURCES if request.path == path or request.path.startswith(f"{path}/")), ""
        )
        for subresource in dict.fromkeys((special or "proxy", "proxy")):
            if await self._may(asker, verb, subresource):
                return
        text = f"Forbidden (user={asker.user}, verb={verb}, resource=nodes, subresource(s)=[{special or 'proxy'}])"
        raise HttpError(403, text)

    async def _who(self, request: Request) -> Asker | None:
        subject = request.subject
        if subject.get("commonName"):
            groups = (*subject.get("organizationName", ()), "system:authenticated")
            return Asker(subject["commonName"][-1], groups)
        kind, _, token = request.header("authorization").partition(" ")
        # Tokens are ASCII; skip the review for anything else.
        if kind.lower() != "bearer" or not token or not token.isascii():
            return None
        key = hashlib.sha256(token.encode()).digest()
        now = self._clock.monotonic()
        known = self._known.get(key)
        if known is None or known[0] < now:
            if len(self._known) >= _KEPT_MAX:
                self._known.clear()
            known = self._known[key] = (now + _TOKEN_S, await self._review_token(token))
        return known[1]

    def _refusal(self, request: Request) -> str:
        """Why the client is unknown."""
        if request.header("authorization"):
            return "expected a bearer token that the API server knows"
        self._refusals.without_certificate(f"{request.method} {request.path}")
        return "expected a client certificate of the cluster's authority, or a bearer token"

    async def _review_token(self, token: str) -> Asker | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status: dict[str, Any] = (await self._ask(self._tokens, review)).get("status") or {}
        user = status.get("user") or {}
        if not status.get("authenticated"):
            return None
        return Asker(str(user.get("username", "")), tuple(user.get("groups") or ()), str(user.get("uid", "")))

    async def _may(self, asker: Asker, verb: str, subresource: str) -> bool:
        key, now = (asker, verb, subresource), self._clock.monotonic()
        known = self._decided.get(key)
        if known is not None and known[0] >= now:
            return known[1]
        attributes = {
            "verb": verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": subresource,
            "name": self.node,
        }
        spec = {"user": asker.user, "groups": list(asker.groups), "uid": asker.uid, "resourceAttributes": attributes}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        allowed = bool(((await self._ask(self._reviews, review)).get("status") or {}).get("allowed"))
        if len(self._decided) >= _KEPT_MAX:
            self._decided.clear()
        self._decided[key] = (now + (_ALLOWED_S if allowed else _DENIED_S), allowed)
        return allowed

    async def _ask(self, resource: Any, review: dict[str, Any]) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = await resource.create(review)
        except ApiError as error:
            raise HttpError(500, f"Authorization error ({error.message})") from error
        return answer
