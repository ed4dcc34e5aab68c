"""Times of API objects in seconds since 1970, and back. What time it is now is always an argument."""

from __future__ import annotations

from datetime import UTC, datetime


def seconds_of(time: str) -> float:
    """The seconds of a time as API objects carry it (RFC 3339)."""
    return datetime.fromisoformat(time).timestamp()


def time_of(seconds: float) -> str:
    """A time as API objects carry it, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
