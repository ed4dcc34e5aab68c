"""The port through which the client library reaches an API server, and its values.

`HttpTransport` (in `http`) and `InProcessTransport` (in `inprocess`) implement it. Answers of any status are returned, not
raised, so that errors are created in one place (`api`); only a missing answer is an exception here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, runtime_checkable

import msgspec

REQUEST_TIMEOUT_S = 30.0

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class Response(msgspec.Struct, frozen=True):
    """An answer. body: a JSON value if the answer was JSON, else bytes. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: Any = None
    # The server's warnings (Warning headers), in order.
    warnings: tuple[str, ...] = ()

    @property
    def retry_after_s(self) -> float | None:
        """When to retry, if the server said so in seconds."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


class WatchEvent(Protocol):
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR with its object, which is shared and must not be changed."""

    @property
    def type(self) -> str:
        """The type of the event."""

    @property
    def object(self) -> dict[str, Any]:
        """The object of the event."""


class ReadEvent(msgspec.Struct, frozen=True):
    """An event that was read from text."""

    type: str
    object: dict[str, Any]


@runtime_checkable
class BatchedEvents(Protocol):
    """Events of a watch, also available in batches."""

    def batches(self) -> AsyncIterator[Sequence[WatchEvent]]:
        """Non-empty batches of unread events."""


class Transport(Protocol):
    """Carries requests to an API server."""

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
        """One request and its answer. path is percent-encoded. body: a JSON value, or raw bytes.

        Unreachable (DeadlineExceeded) if no answer arrived within the timeout, including retries.
        """

    def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """An open watch. ApiError if it is refused; Unreachable if it cannot be opened within the timeout, breaks, or
        continues beyond the duration."""

    async def close(self) -> None:
        """Release everything."""
