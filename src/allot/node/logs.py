"""Container logs on disk, in the format of the container runtime interface: reading, following, choosing.

A line is `time stream tag text`; the tag P means that the line continues in the next entry.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from allot.process.beneath import open_file

_BLOCK_BYTES = 64 * 1024
_FOLLOW_S = 0.1
_TAIL_LINES, _TAIL_BYTES = 80, 2048


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The requested part of a log."""

    follow: bool = False
    timestamps: bool = False
    # Seconds since 1970.
    since: float | None = None
    tail: int | None = None
    limit_bytes: int | None = None
    # All, Stdout or Stderr.
    stream: str = "All"


class Line(msgspec.Struct, frozen=True):
    """An entry of a log."""

    time: bytes
    stream: bytes
    is_partial: bool
    text: bytes


def parse_line(line: bytes) -> Line | None:
    """Parse an entry; None if it is invalid."""
    parts = line.split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
        return None
    return Line(parts[0], parts[1], parts[2].startswith(b"P"), parts[3] if len(parts) == 4 else b"")


def tail_of(path: Path) -> str:
    """The end of a log, which may show why a container ended."""
    try:
        with _opened(path) as file:
            file.seek(_tail_start(file, _TAIL_LINES))
            lines = [parse_line(each) for each in file.read().splitlines()]
    except OSError:
        return ""
    text = b"".join(each.text + (b"" if each.is_partial else b"\n") for each in lines if each is not None)
    return text[-_TAIL_BYTES:].decode(errors="replace")


async def read_log(path: Path, options: LogOptions, is_running: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
    """A log piece by piece; when followed, until the container has ended. OSError if there is none."""
    left = options.limit_bytes
    file = _opened(path)
    try:
        if options.tail is not None:
            file.seek(_tail_start(file, options.tail) if options.tail else file.seek(0, 2))
        rest = b""
        while True:
            running = not options.follow or await is_running()
            block = file.read(_BLOCK_BYTES)
            if not block:
                if not options.follow:
                    return
                if _is_replaced(file, path):
                    file.close()
                    file, rest = _opened(path), b""
                    continue
                if not running:
                    return
                await asyncio.sleep(_FOLLOW_S)
                continue
            *lines, rest = (rest + block).split(b"\n")
            piece = b"".join(_shown(line, options) for line in lines)
            if left is not None:
                piece = piece[:left]
                left -= len(piece)
            if piece:
                yield piece
            if left == 0:
                return
            await asyncio.sleep(0)
    finally:
        file.close()


def _opened(path: Path) -> BinaryIO:
    """Open a log. Logs are regular files; anything else in their place is not read."""
    return os.fdopen(open_file(path), "rb")


def _is_replaced(file: BinaryIO, path: Path) -> bool:
    """Whether the log continues in a new file."""
    try:
        return os.fstat(file.fileno()).st_ino != path.stat().st_ino
    except OSError:
        return False


def _shown(raw: bytes, options: LogOptions) -> bytes:
    line = parse_line(raw)
    if line is None or (options.stream != "All" and line.stream != options.stream.lower().encode()):
        return b""
    if options.since is not None and _seconds(line.time) < options.since:
        return b""
    text = line.text if line.is_partial else line.text + b"\n"
    return line.time + b" " + text if options.timestamps else text


def _seconds(time: bytes) -> float:
    try:
        # Fractions beyond microseconds do not matter here.
        whole, _, fraction = time.decode().rstrip("Z").partition(".")
        base = datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()
        return base + float(f"0.{fraction or 0}")
    except ValueError:
        return 0.0


def _tail_start(file: BinaryIO, lines: int) -> int:
    """Where the last lines begin."""
    end = position = file.seek(0, 2)
    found = 0
    while position > 0:
        size = min(_BLOCK_BYTES, position)
        position -= size
        file.seek(position)
        block = file.read(size)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if position + at == end - 1:
                continue
            found += 1
            if found == lines:
                return position + at + 1
    return 0
