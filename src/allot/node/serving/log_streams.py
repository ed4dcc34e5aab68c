"""Logs over HTTP, with the kubelet's parameters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from allot.core.lifecycle.times import seconds_of
from allot.http1.heads import HttpError
from allot.http1.requests import Request, Response
from allot.node.logs import LogOptions, read_log

# Numbers of this length always fit into 64 bits.
_DIGITS_MAX = 18


def stream_log(path: Path, options: LogOptions, is_running: Callable[[], Awaitable[bool]]) -> Response:
    """The requested part of a log; is_running: whether more may come."""
    return Response(_pieces(path, options, is_running), "text/plain")


async def _pieces(path: Path, options: LogOptions, is_running: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
    try:
        async for piece in read_log(path, options, is_running):
            yield piece
    except OSError as error:
        yield f"failed to read the log: {(error.strerror or str(error)).lower()}\n".encode()


def log_options(request: Request, now: float) -> LogOptions:
    """The requested options; HttpError."""

    def number(name: str, least: int) -> int | None:
        text = request.get(name)
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX or int(text) < least:
            raise HttpError(400, f'invalid {name}: "{text}"')
        return int(text)

    since: float | None = None
    if (seconds := number("sinceSeconds", 1)) is not None:
        since = now - seconds
    elif request.get("sinceTime"):
        try:
            since = seconds_of(request.get("sinceTime"))
        except ValueError:
            raise HttpError(400, f'invalid sinceTime: "{request.get("sinceTime")}"') from None
    return LogOptions(
        follow=request.flag("follow"),
        timestamps=request.flag("timestamps"),
        since=since,
        tail=number("tailLines", 0),
        limit_bytes=number("limitBytes", 1),
        stream=request.get("stream") or "All",
    )
