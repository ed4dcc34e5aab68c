"""Checks SQLite's write-ahead log before SQLite does, to distinguish a log that ends early from a damaged one.

SQLite reads its log up to the first frame with a wrong checksum and treats that as the end. After a crash that is right: the
last commit may be partial. But if an earlier frame was damaged later, SQLite would silently drop all commits after
it. A commit starts only when the previous one is on disk, so two commits after a wrong frame prove damage.

The format is described on sqlite.org/fileformat2.html, "The Write-Ahead Log". A log exists only if the last process did not
close its store, so this costs nothing after a clean shutdown.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_WORDS_32 = 0xFFFFFFFF


class _Frame(msgspec.Struct, frozen=True):
    """One page in the log. commit: it ends a transaction. sums: the checksum as stored."""

    raw: bytes
    page: bytes
    salts: tuple[int, int]
    commit: bool
    sums: tuple[int, int]


def log_path(database: Path) -> Path:
    """Where SQLite keeps the log of a database."""
    return database.with_name(database.name + "-wal")


def damage_in_log(database: Path) -> str | None:
    """What is wrong with the log beside a database; None if nothing is, or there is no log."""
    try:
        with log_path(database).open("rb") as file:
            return _damage(file)
    except FileNotFoundError:
        return None


def _damage(file: BinaryIO) -> str | None:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    magic, _, page_bytes, _, salt_1, salt_2, sum_1, sum_2 = _HEADER.unpack(header)
    order = ">" if magic == _MAGIC_BIG else "<"
    sums = _checksum(header[:24], (0, 0), order)
    frames = _frames(file, page_bytes)
    if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or sums != (sum_1, sum_2):
        # The store uses a page size of 4096; the header cannot be trusted.
        file.seek(_HEADER.size)
        frames = _frames(file, 4096)
        first = next(frames, None)
        if first is None or _commits(frames, first.salts) + first.commit < 2:
            return None
        return "the header of its write-ahead log is unreadable"
    for number, frame in enumerate(frames, start=1):
        sums = _checksum(frame.page, _checksum(frame.raw[:8], sums, order), order)
        # Different salts: a frame left over from before the log last restarted. No current frame can follow it.
        if frame.salts != (salt_1, salt_2) or frame.sums != sums:
            behind = _commits(frames, (salt_1, salt_2)) + frame.commit
            return (
                f"frame {number} of its write-ahead log is unreadable, {behind} commits behind it"
                if behind >= 2
                else None
            )
    return None


def _frames(file: BinaryIO, page_bytes: int) -> Iterator[_Frame]:
    while True:
        raw = file.read(_FRAME.size)
        page = file.read(page_bytes)
        if len(raw) < _FRAME.size or len(page) < page_bytes:
            return
        _, pages_after, salt_1, salt_2, sum_1, sum_2 = _FRAME.unpack(raw)
        yield _Frame(raw, page, (salt_1, salt_2), pages_after > 0, (sum_1, sum_2))


def _commits(frames: Iterator[_Frame], salts: tuple[int, int]) -> int:
    return sum(frame.commit for frame in frames if frame.salts == salts)


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    """SQLite's checksum, continued from that of the preceding data."""
    first, second = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for even, odd in zip(words, words, strict=True):
        first = (first + even + second) & _WORDS_32
        second = (second + odd + first) & _WORDS_32
    return first, second
