"""Work beside the event loop: a thread processes large requests, so that others are served meanwhile.

There is one such thread. It takes turns with the event loop every half millisecond (`process.interpreter`), so that a
request of megabytes slows others down but does not block them. Small requests are processed directly: handing one over would cost
more than processing it.

Code here runs concurrently with the event loop. It may use only its arguments, which no one else changes, and caches
whose every step is atomic: one lookup, one insertion, one clearing, or one assignment of everything that belongs together.
It must not iterate over what the event loop changes, wait, or write.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from allot.apiserver.errors import too_many_requests
from allot.apiserver.request import RAW

P = ParamSpec("P")
T = TypeVar("T")

# Bodies and stored objects of this size take about 30 ms.
LARGE_BYTES = 32 * 1024
WAITING_MAX = 400


class Aside:
    """One thread for large requests."""

    def __init__(self) -> None:
        # The thread is started on demand.
        self._thread = ThreadPoolExecutor(1, "allot-large")
        self._waiting = 0

    async def run(self, size_bytes: int, work: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of the work, done here or in the thread depending on size; 429 if too much is waiting."""
        if size_bytes <= LARGE_BYTES:
            return work(*arguments, **named)
        if self._waiting >= WAITING_MAX:
            raise too_many_requests(f"{WAITING_MAX} large requests are waiting to be worked on")
        self._waiting += 1
        try:
            # Cancellation withdraws work that has not started.
            return await asyncio.wrap_future(
                self._thread.submit(_without_collector, partial(work, *arguments, **named))
            )
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Stop; running work ends by itself."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _without_collector(work: Callable[[], T]) -> T:
    """Do work that creates a million values and frees nearly all of them itself: the collector would scan them again
    and again, each time blocking everything for a fifth of a second."""
    if not gc.isenabled():
        return work()
    gc.disable()
    try:
        return work()
    finally:
        gc.enable()


def size_of(body: Any) -> int:
    """The size of a body; 0 for an in-process one, from one of our own components."""
    return len(body) if isinstance(body, RAW) else 0
