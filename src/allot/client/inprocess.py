"""The transport to an API server in the same process, without sockets and without encoding.

The composition root provides the handlers: this module knows the shape of their values, not the API server.
The server does validation, authorization and watches; errors are the same as for a remote client.
Returned objects are the server's own and shared: never change them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import unquote

import msgspec

from allot.client.deadlines import Deadlines
from allot.client.errors import DeadlineExceeded, Unreachable, error_from_answer
from allot.client.transport import JSON, REQUEST_TIMEOUT_S, Response, WatchEvent


class PlainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the server's handlers, without the user, which the composition root adds."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = {}
    body: Any = None
    content_type: str = JSON
    user_agent: str = ""


class AnsweredObject(Protocol):
    """The shape of one object as an answer."""

    @property
    def object(self) -> dict[str, Any]:
        """The object."""

    @property
    def status(self) -> int:
        """The code."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the caller."""


class _Stored(Protocol):
    @property
    def object(self) -> dict[str, Any]: ...


class AnsweredList(Protocol):
    """The shape of a list as an answer."""

    @property
    def api_version(self) -> str:
        """Of the list."""

    @property
    def kind(self) -> str:
        """Of the list."""

    @property
    def entries(self) -> Sequence[_Stored]:
        """The objects."""

    @property
    def resource_version(self) -> str:
        """The version of the list."""

    @property
    def continue_token(self) -> str:
        """Where the next page starts."""

    @property
    def remaining(self) -> int | None:
        """How many more there are."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the caller."""


class AnsweredWatch(Protocol):
    """The shape of a watch as an answer."""

    def batches(self) -> AsyncGenerator[Sequence[WatchEvent], None]:
        """Batches of available events until the watch ends."""

    async def close(self) -> None:
        """Stop watching."""


class _Refusal(Protocol):
    """The shape of the server's error."""

    code: int
    headers: dict[str, str]

    def status(self) -> dict[str, Any]: ...


_NO_HEADERS: Mapping[str, str] = {}

Answer = AnsweredObject | AnsweredList | AnsweredWatch
Handle = Callable[[PlainRequest], Awaitable[Answer]]
# Paths outside the API (discovery, /version, /openapi): path and headers to status and JSON value or bytes.
HandlePath = Callable[[str, Mapping[str, str]], Awaitable[tuple[int, Any]]]


class InProcessTransport:
    """Carries requests to handlers in this process. refused: the class of their errors."""

    def __init__(
        self,
        handle: Handle,
        refused: type[Exception],
        *,
        handle_path: HandlePath | None = None,
        user_agent: str = "allot",
    ) -> None:
        self._handle = handle
        self._handle_path = handle_path
        self._refused = refused
        self._user_agent = user_agent
        self._closed = False
        self._deadlines = Deadlines()

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> Response:
        """One request and its answer."""
        text = f"{method} {path}"
        self._check_open(text)
        plain = plain_request(method, path, query or {}, body, content_type, self._user_agent)
        try:
            with self._deadlines.within(timeout):
                if plain is None:
                    return await self._ask_path(path, headers or {})
                answer = await self._handle(plain)
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {timeout:g} s", request=text) from error
        except self._refused as error:
            return _refusal_response(error)
        object_ = getattr(answer, "object", None)
        if object_ is not None:
            one = cast(AnsweredObject, answer)
            return Response(one.status, _NO_HEADERS, object_, one.warnings)
        if hasattr(answer, "close"):
            await cast(AnsweredWatch, answer).close()
            raise Unreachable("a watch is opened with stream()", request=text)
        return _listed(cast(AnsweredList, answer))

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,  # noqa: ARG002
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,  # noqa: ARG002
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """An open watch."""
        text = f"GET {path} (watch)"
        self._check_open(text)
        plain = plain_request("GET", path, {**(query or {}), "watch": "true"}, None, JSON, self._user_agent)
        if plain is None:
            raise error_from_answer(404, None, text)
        try:
            async with asyncio.timeout(timeout):
                watch = cast(AnsweredWatch, await self._handle(plain))
        except TimeoutError as error:
            raise DeadlineExceeded(f"no answer within {timeout:g} s", request=text) from error
        except self._refused as error:
            refusal = cast(_Refusal, error)
            raise error_from_answer(refusal.code, refusal.status(), text) from error
        events = _Events(watch, self._refused, text)
        try:
            yield events
        finally:
            await events.close()

    async def close(self) -> None:
        """Refuse further requests, as after a server shutdown."""
        self._closed = True

    async def _ask_path(self, path: str, headers: Mapping[str, str]) -> Response:
        if self._handle_path is None:
            return Response(404, {}, b"404 page not found")
        status, body = await self._handle_path(path, headers)
        return Response(status, {}, body)

    def _check_open(self, text: str) -> None:
        if self._closed:
            raise Unreachable("the transport is closed", request=text)


class _Events:
    """The events of a watch, one by one or in batches. One reader at a time.

    The server ends a watch when its time is up. A remote watch that continues beyond it is a broken connection, which cannot
    happen here.
    """

    __slots__ = ("_batches", "_refused", "_text", "_unread", "_watch")

    def __init__(self, watch: AnsweredWatch, refused: type[Exception], text: str) -> None:
        self._watch = watch
        self._refused = refused
        self._text = text
        self._batches = watch.batches()
        self._unread: deque[WatchEvent] = deque()

    def __aiter__(self) -> _Events:
        return self

    async def __anext__(self) -> WatchEvent:
        if not self._unread:
            try:
                self._unread.extend(await anext(self._batches))
            except self._refused as error:
                raise self._failure(error) from error
        return self._unread.popleft()

    async def batches(self) -> AsyncIterator[Sequence[WatchEvent]]:
        if self._unread:
            unread, self._unread = tuple(self._unread), deque()
            yield unread
        try:
            async for batch in self._batches:
                yield batch
        except self._refused as error:
            raise self._failure(error) from error

    async def close(self) -> None:
        """Stop watching."""
        await self._watch.close()
        await self._batches.aclose()

    def _failure(self, error: Exception) -> Exception:
        refusal = cast(_Refusal, error)
        return error_from_answer(refusal.code, refusal.status(), self._text)


class _Collection(NamedTuple):
    """A parsed collection path: all objects of a resource, perhaps in one namespace."""

    group: str
    version: str
    resource: str
    namespace: str


# By path: a client requests the same few all the time.
_collections: dict[str, _Collection] = {}
_COLLECTIONS_MAX = 10_000


def plain_request(
    method: str, path: str, query: Mapping[str, str], body: Any, content_type: str, user_agent: str
) -> PlainRequest | None:
    """The request for a method and path; None for paths that are not API objects."""
    found = _known(path) or _read(path)
    if found is None:
        return None
    (group, version, resource, namespace), name, subresource = found
    return PlainRequest(
        verb=_VERBS.get(method) or _verb(method, name, query),
        group=group,
        version=version,
        resource=resource,
        namespace=namespace,
        name=name,
        subresource=subresource,
        query=query,
        body=body,
        content_type=content_type,
        user_agent=user_agent,
    )


def _known(path: str) -> tuple[_Collection, str, str] | None:
    """Collection, name and subresource of a path below a known collection."""
    collection = _collections.get(path)
    if collection is not None:
        return collection, "", ""
    above, _, last = path.rpartition("/")
    if not last or "%" in last:
        return None
    collection = _collections.get(above)
    if collection is not None:
        return collection, last, ""
    above, _, name = above.rpartition("/")
    collection = _collections.get(above)
    return (collection, name, last) if collection is not None and name and "%" not in name else None


def _read(path: str) -> tuple[_Collection, str, str] | None:
    parts = path.strip("/").split("/")
    if "%" in path:
        parts = [unquote(part) for part in parts]
    if len(parts) >= 3 and parts[0] == "api":
        group, version, rest = "", parts[1], parts[2:]
    elif len(parts) >= 4 and parts[0] == "apis":
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    # /namespaces/x and its status are the namespace itself, everything else below it is inside the namespace.
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1 and not group:
        namespace = rest[1]
    collection = _Collection(group, version, rest[0], namespace)
    # A path below namespaces may be an object in one, so it is ambiguous.
    if rest[0] != "namespaces" and len(rest) <= 3 and "%" not in path and not path.endswith("/"):
        if len(_collections) >= _COLLECTIONS_MAX:
            _collections.clear()
        _collections[path.rsplit("/", len(rest) - 1)[0] if len(rest) > 1 else path] = collection
    return collection, rest[1] if len(rest) > 1 else "", "/".join(rest[2:])


_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method == "GET":
        if query.get("watch") in ("true", "1"):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return method.lower()


def _listed(listed: AnsweredList) -> Response:
    metadata: dict[str, Any] = {"resourceVersion": listed.resource_version}
    if listed.continue_token:
        metadata["continue"] = listed.continue_token
    if listed.remaining is not None:
        metadata["remainingItemCount"] = listed.remaining
    items = [entry.object for entry in listed.entries]
    body = {"apiVersion": listed.api_version, "kind": listed.kind, "metadata": metadata, "items": items}
    return Response(200, {}, body, listed.warnings)


def _refusal_response(error: Exception) -> Response:
    refusal = cast(_Refusal, error)
    headers = {name.lower(): value for name, value in refusal.headers.items()}
    return Response(refusal.code, headers, refusal.status())
