"""Errors of reading. A message names the object, the value and what was expected; a hint says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allot.client.errors import ApiError


class ReadingError(Exception):
    """Something could not be read."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Unreadable(ReadingError):
    """Input that cannot be read or is not what was expected."""


class NoCluster(Unreadable):
    """The configuration for reaching a cluster is missing or wrong."""


class Invalid(ReadingError):
    """Objects that the API server would refuse."""


class Denied(ReadingError):
    """The server refused the request."""


class NotReached(ReadingError):
    """The API server cannot be reached."""

    def __init__(self, server: str, error: ApiError) -> None:
        # Some messages already name the server.
        message = error.message if server in error.message else f"API server {server}: {error.message}"
        super().__init__(message, "kubectl version shows whether it can be reached")
