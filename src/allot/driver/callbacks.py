"""Calls a driver's methods: plain functions in a thread, so that slow hardware blocks nothing, coroutines on the event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any


async def call(method: Callable[..., Any], *arguments: Any) -> Any:
    """Call a method; returns its result or raises its exception."""
    if inspect.iscoroutinefunction(method):
        return await method(*arguments)
    answer = await asyncio.to_thread(_listed, method, arguments)
    # A plain function may return an awaitable, such as a wrapped coroutine function.
    return await answer if isinstance(answer, Awaitable) else answer


def _listed(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    answer = method(*arguments)
    # A generator does its work when it is consumed, which belongs in the thread.
    return list(answer) if inspect.isgenerator(answer) else answer
