"""The values of handlers: a request without HTTP, a response without sockets.

HTTP is one adapter around them, the in-process transport another; both get the same validation, authorization and watch
behaviour because both use it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

import msgspec

from allot.core.access.attributes import ANONYMOUS, Attributes, User, selected_name
from allot.http1.heads import Pairs
from allot.store.port import Entry

__all__ = [
    "ANONYMOUS",
    "RAW",
    "ApiConnection",
    "ApiList",
    "ApiObject",
    "ApiRequest",
    "ApiResponse",
    "ApiWatch",
    "Attributes",
    "PathRequest",
    "User",
    "WatchEvent",
]


# A body that came over the wire.
RAW = (bytes, bytearray, memoryview)


class ApiRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for API objects. verb is Kubernetes' (get, list, watch, create, update, patch, delete, deletecollection)."""

    user: User
    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = {}
    # The body: a JSON value if in-process, raw bytes with content_type if it came over the wire.
    body: Any = None
    content_type: str = "application/json"
    user_agent: str = ""

    def attributes(self) -> Attributes:
        """For the authorizer."""
        selector = self.query.get("fieldSelector", "")
        name = self.name
        if not name and selector and self.verb in ("list", "watch"):
            name = selected_name(selector)
        return Attributes(
            user=self.user,
            verb=self.verb,
            group=self.group,
            version=self.version,
            resource=self.resource,
            subresource=self.subresource,
            namespace=self.namespace,
            name=name,
            field_selector=selector,
            label_selector=self.query.get("labelSelector", ""),
        )


class PathRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for something other than API objects: discovery, version, health. verb is the method in lower case."""

    user: User
    verb: str
    segments: tuple[str, ...]
    query: Mapping[str, str] = {}
    # The same with those that are given more than once.
    parameters: Pairs = ()
    accept: str = ""

    def attributes(self) -> Attributes:
        """For the authorizer."""
        return Attributes(user=self.user, verb=self.verb, path=f"/{'/'.join(self.segments)}")


class ApiConnection(msgspec.Struct, frozen=True):
    """A connection to a node as an answer: the transport has handled it, and it has ended."""

    status: int


class ApiObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object (or Status) as an answer. entry: set if it is stored, so that its JSON can be reused."""

    object: dict[str, Any]
    status: int = 200
    entry: Entry | None = None
    warnings: tuple[str, ...] = ()


class ApiList(msgspec.Struct, frozen=True, kw_only=True):
    """A list as an answer."""

    api_version: str
    kind: str
    entries: tuple[Entry, ...]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None
    warnings: tuple[str, ...] = ()


class WatchEvent:
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR with its object, which is read from its entry on demand."""

    __slots__ = ("_object", "entry", "type")

    def __init__(self, type_: str, object_: dict[str, Any] | None, entry: Entry | None = None) -> None:
        """Pass the object or its entry."""
        self.type = type_
        self.entry = entry
        self._object = object_

    @property
    def object(self) -> dict[str, Any]:
        """What the event is about."""
        if self._object is not None:
            return self._object
        assert self.entry is not None, "an event has an object or an entry"
        return self.entry.object


class ApiWatch(Protocol):
    """A watch as an answer."""

    def __aiter__(self) -> AsyncIterator[WatchEvent]:
        """Events until the watch ends."""

    async def close(self) -> None:
        """Stop watching."""


ApiResponse = ApiObject | ApiList | ApiWatch
