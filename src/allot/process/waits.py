"""Waiting for something that may never happen."""

from __future__ import annotations

import asyncio


async def happens_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, but not longer than this; returns whether it has happened. None: as long as it takes."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
