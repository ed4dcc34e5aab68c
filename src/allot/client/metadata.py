"""Reads only the metadata of objects, for code that needs nothing else from large numbers of them.

Over the network this saves most of the traffic. A transport in the same process shares whole objects for free and may ignore
this, so users must not rely on the rest being absent.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from allot.client.transport import JSON, REQUEST_TIMEOUT_S, Response, Transport, WatchEvent

_ONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class MetadataTransport:
    """A transport whose lists and watches return only metadata if the server supports it. Closing it has no effect."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

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
        """One request; pages of lists, which have a limit, are requested as metadata."""
        if method == "GET" and query is not None and "limit" in query:
            headers = {"Accept": _LIST, **(headers or {})}
        return await self._transport.request(method, path, query, body, content_type, headers, timeout)

    def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """A watch of metadata."""
        return self._transport.stream(path, query, {"Accept": _ONE, **(headers or {})}, timeout, duration)

    async def close(self) -> None:
        """Does nothing: the underlying transport has another owner."""
