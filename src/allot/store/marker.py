"""A small file beside a database with the store's minimum revision, so that a later loss is detected.

SQLite cannot tell a truncated or removed log from a short one, nor an emptied file from a new database. The marker
tells the difference. It is written after a commit is on disk and before it is acknowledged, so it never claims what could be
lost, and whatever was acknowledged before the process was killed is claimed. It is not flushed for each commit: after a power
failure it may lag behind, and then finds less.

Two slots, written in turn, each with a checksum: a write that was cut off leaves the other slot. One line of JSON each, so that
people can read it.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

# A slot is within a sector of the disk, which is written whole or not at all.
SLOT_BYTES = 512
_SLOTS = 2
_CHECKSUM_BYTES = 9


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """How far a store had progressed. starts: how often it was opened. closed: everything was in the database and the log removed."""

    store: str
    starts: int = 0
    revision: int = 0
    closed: bool = False


class MarkerDamaged(Exception):
    """Neither slot can be read."""


def marker_path(database: Path) -> Path:
    """The path of a database's marker."""
    return database.with_name(database.name + ".revision")


def read_marker(path: Path) -> Mark | None:
    """The marker, or None if there is none. OSError, MarkerDamaged."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    slots = (content[start : start + SLOT_BYTES] for start in range(0, SLOT_BYTES * _SLOTS, SLOT_BYTES))
    marks = [mark for mark in map(_decode, slots) if mark is not None]
    if not marks:
        raise MarkerDamaged
    return max(marks, key=lambda mark: (mark.starts, mark.revision, mark.closed))


class Marker:
    """A marker that is open for writing. Every method raises OSError."""

    def __init__(self, path: Path, mark: Mark) -> None:
        """Replaces the whole file atomically: there is never half a marker."""
        self._mark = mark
        self._slot = 0
        beside = path.with_name(path.name + ".new")
        beside.unlink(missing_ok=True)
        self._descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(self._descriptor, _encode(mark) * _SLOTS)
            os.fsync(self._descriptor)
            beside.replace(path)
            _sync_folder(path.parent)
        except OSError:
            os.close(self._descriptor)
            beside.unlink(missing_ok=True)
            raise

    def advance(self, revision: int) -> None:
        """Record that the store has reached this revision. Not flushed."""
        self._mark = Mark(store=self._mark.store, starts=self._mark.starts, revision=revision)
        self._slot ^= 1
        os.pwrite(self._descriptor, _encode(self._mark), self._slot * SLOT_BYTES)

    def set(self, mark: Mark) -> None:
        """Replace the mark; it is on disk when this returns."""
        self._mark = mark
        os.pwrite(self._descriptor, _encode(mark) * _SLOTS, 0)
        os.fsync(self._descriptor)

    def close(self, *, cleanly: bool) -> None:
        """cleanly: everything is in the database itself, and the log is gone."""
        try:
            self.set(msgspec.structs.replace(self._mark, closed=cleanly))
        finally:
            os.close(self._descriptor)

    def abandon(self) -> None:
        """Close the file as it is."""
        os.close(self._descriptor)


def _encode(mark: Mark) -> bytes:
    text = msgspec.json.encode(mark)
    return b"%08x %s\n" % (zlib.crc32(text), text.ljust(SLOT_BYTES - _CHECKSUM_BYTES - 1))


def _decode(slot: bytes) -> Mark | None:
    text = slot[_CHECKSUM_BYTES:].rstrip()
    if slot[:_CHECKSUM_BYTES] != b"%08x " % zlib.crc32(text):
        return None
    try:
        return msgspec.json.decode(text, type=Mark)
    except msgspec.DecodeError:
        return None


def _sync_folder(folder: Path) -> None:
    """Make a change to the directory itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
