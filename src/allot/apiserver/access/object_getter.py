"""What authentication needs to know about stored objects."""

from __future__ import annotations

from typing import Any, Protocol


class ObjectGetter(Protocol):
    """The server's own reads, without authorization."""

    async def get(self, plural: str, group: str, namespace: str, name: str) -> dict[str, Any] | None:
        """One object; None if it does not exist."""
