"""Keeps a background task alive: logs a failure and restarts the task after a pause.

The only place besides `cli/main.py` that catches every exception; elsewhere the narrowest class is caught, or none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from allot.process.clock import Clock

Answer = TypeVar("Answer")

_log = logging.getLogger("allot")

PAUSE_FIRST_S = 0.1
PAUSE_MAX_S = 30.0


async def supervise(name: str, run: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Run until cancelled or done; pauses grow with each failure, and start over after a minute without one."""
    pause = PAUSE_FIRST_S
    while True:
        started = clock.monotonic()
        try:
            await run()
            return
        except Exception:
            _log.exception("%s failed, starting it again in %.1f s", name, pause)
        if clock.monotonic() - started > 60:
            pause = PAUSE_FIRST_S
        await clock.sleep(pause)
        pause = min(pause * 2, PAUSE_MAX_S)


async def answer_or_none(name: str, ask: Callable[[], Awaitable[Answer]]) -> Answer | None:
    """The answer, or None after a bug of ours, which is logged with its traceback."""
    try:
        return await ask()
    except Exception:
        _log.exception("%s failed", name)
        return None


def result_or_none(name: str, ask: Callable[[], Answer]) -> Answer | None:
    """Like `answer_or_none`, for a plain function."""
    try:
        return ask()
    except Exception:
        _log.exception("%s failed", name)
        return None


async def answer_or_failure(ask: Callable[[], Awaitable[Answer]]) -> Answer | Exception:
    """The answer, or the exception raised instead, for third-party code whose failure is an answer too."""
    try:
        return await ask()
    except Exception as failure:
        return failure


async def until(stop: asyncio.Event, work: Awaitable[None]) -> None:
    """Do the work until it is done or a stop comes."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
    if not working.cancelled():
        working.result()
