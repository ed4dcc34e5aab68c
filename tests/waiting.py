"""Waiting for a condition, the one way in which tests wait.

Nothing here says how long something may take: a busy machine takes longer, and what takes for ever fails after `WAIT_S`, which is
less than pytest's own limit for a test, so that the failure says what did not come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

Found = TypeVar("Found")
WAIT_S = 60.0
_POLL_S = 0.05
# In the process of the test itself a look is cheap.
_POLL_INSIDE_S = 0.01


def wait_for(what: str, look: Callable[[], Found | None], seconds: float = WAIT_S) -> Found:
    """What a look finds as soon as it is true."""
    end = time.monotonic() + seconds
    while True:
        begin = time.monotonic()
        if found := look():
            return found
        assert begin < end, f"{what}: not within {seconds:g} s; last seen: {found!r}"
        # A look that starts processes must not take the processor away from what is waited for, nor from other tests.
        time.sleep(max(_POLL_S, 2 * (time.monotonic() - begin)))


async def until(look: Callable[[], Any], what: str = "", seconds: float = WAIT_S) -> Any:
    """What a look finds as soon as it is true; a look may have to be awaited."""
    found: Any = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = look()
                if isinstance(found, Awaitable):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(_POLL_INSIDE_S)
    except TimeoutError:
        raise AssertionError(
            f"{what or 'what was waited for'}: not within {seconds:g} s; last seen: {found!r}"
        ) from None
