"""Times of API objects in seconds since 1970, and back. The current time is always an argument."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds_of(time: str) -> float:
    """The seconds of a time in API format (RFC 3339)."""
    return datetime.fromisoformat(time).timestamp()


def time_of(seconds: float) -> str:
    """A time in API format, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
