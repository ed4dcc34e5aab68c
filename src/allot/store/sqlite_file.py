"""The SQLite file behind `sqlite`: an append-only log of changes, read whole at start-up and pruned as history is dropped.

One row per change: its revision, the key, and the new JSON text or NULL for a deletion. The current state of a key is its
newest row; the state a change replaced is the previous row. So a write is one append, and pruning is the removal of rows that a
newer row, itself no longer history, replaced. A checksum in each row catches what SQLite's own checks miss.

Blocking; used from one thread. Knows SQLite and what its errors mean for the operator, but not watches or waiting.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from allot.process.ids import SystemIds
from allot.store.entry import DecodedObjects, Entry, LastState
from allot.store.marker import Mark, Marker, marker_path
from allot.store.port import Event, EventType, StoreUnavailable
from allot.store.sqlite_errors import damaged, database_error, disk_full, file_error
from allot.store.sqlite_inspection import APPLICATION_ID, LOCK_TIMEOUT_S, SCHEMA_VERSION, FileState, Found, inspect
from allot.store.sqlite_wal import log_path

_log = logging.getLogger("allot.store")

_SCHEMA = (
    "CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, checksum INTEGER NOT NULL)",
    "CREATE TABLE bounds (compacted INTEGER NOT NULL)",
    "INSERT INTO bounds VALUES (0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# Added after the first format; older releases ignore it. starts: how often the file was opened.
_IDENTITY = "CREATE TABLE IF NOT EXISTS identity (store TEXT NOT NULL, starts INTEGER NOT NULL)"

# Four values per row, below the 999 that every SQLite accepts in a statement.
ROWS_PER_STATEMENT = 240
# Copy the write-ahead log into the database when it has this many pages (16 MiB).
CHECKPOINT_PAGES = 4000
# What accepting a loss adds to revisions. Clients may know higher ones than the marker; etcd's guide for restoring
# a backup gives this number.
REVISIONS_LEFT_OUT = 1_000_000_000
# With less room than this the disk counts as full: a small write may still fit into the log, but not a typical one.
ROOM_MIN_BYTES = 128 * 1024


class Contents(msgspec.Struct):
    """What the file holds."""

    entries: dict[str, Entry]
    history: list[Event]
    revision: int
    compacted: int


class SqliteFile:
    """An open file. Every method raises StoreUnavailable, with what to do, if SQLite cannot.

    accept_loss: what is missing is gone for good, what is there counts, and revisions continue beyond any that clients know."""

    def __init__(self, path: Path, *, accept_loss: bool = False) -> None:
        self._path = path
        self._marker_lags = False
        found = inspect(path)
        if found.loss is not None:
            if not accept_loss:
                raise found.loss
            _log.warning("accepted: %s", found.loss)
        try:
            # Contains Secrets: for the owner only. SQLite gives its other files the same mode.
            path.touch(mode=0o600)
            # No implicit transactions: a single statement is its own durable transaction.
            self._connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        except OSError as error:
            raise file_error(path, error) from error
        except sqlite3.Error as error:
            raise database_error(path, error) from error
        try:
            self._marker = self._begin(found, accept_loss)
        except StoreUnavailable:
            self._connection.close()
            raise

    def _begin(self, found: Found, accept_loss: bool) -> Marker:
        """Lock the file, and record in it and in the marker that it was opened again."""
        state = found.state or FileState("", 0, 0)
        mark = found.mark or Mark(store=state.store or SystemIds().new_uid())
        if found.mark is None and found.state is not None and not state.store:
            _log.warning("store file %s: had no marker yet; it may be incomplete", self._path)
        now = Mark(
            store=state.store or mark.store,
            starts=max(state.starts, mark.starts) + 1,
            revision=max(state.revision, mark.revision) + REVISIONS_LEFT_OUT if accept_loss else state.revision,
        )
        marker: Marker | None = None
        try:
            self._take()
            # Before the database records that it has one.
            marker = Marker(marker_path(self._path), mark)
            self._note(now, accept_loss)
            marker.set(now)
        except (OSError, sqlite3.Error) as error:
            if marker is not None:
                marker.abandon()
            if isinstance(error, OSError):
                raise file_error(self._path, error) from error
            raise database_error(self._path, error) from error
        return marker

    def _take(self) -> None:
        run = self._connection.execute
        # Before anything is read, so that the lock is taken on first access and kept: one server per file.
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        # FULL: a commit returns after the write-ahead log is on disk.
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        run("BEGIN IMMEDIATE")

    def _note(self, mark: Mark, accept_loss: bool) -> None:
        """Commit the open transaction into the database itself, so that it does not depend on the log."""
        run = self._connection.execute
        if not run("SELECT count(*) FROM sqlite_master WHERE name = 'log'").fetchone()[0]:
            for statement in _SCHEMA:
                run(statement)
        run(_IDENTITY)
        run("DELETE FROM identity")
        run("INSERT INTO identity VALUES (?, ?)", (mark.store, mark.starts))
        if accept_loss:
            # A watch from an earlier revision fails as compacted, and its client lists again.
            run("UPDATE bounds SET compacted = ?", (mark.revision,))
            run("DELETE FROM log WHERE value IS NULL OR revision NOT IN (SELECT max(revision) FROM log GROUP BY key)")
        run("COMMIT")
        run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    # -- reading ------------------------------------------------------------------------------------------------------

    def load(self, kept: DecodedObjects) -> Contents:
        """Everything in the file."""
        try:
            (compacted,) = self._connection.execute("SELECT compacted FROM bounds").fetchone()
            rows = self._connection.execute("SELECT revision, key, value, checksum FROM log ORDER BY revision")
            with closing(rows):
                return self._replay(rows, compacted, kept)
        except (sqlite3.Error, TypeError) as error:
            # TypeError: a row of an unexpected shape, so the file was damaged or changed by hand.
            raise database_error(self._path, error) from error

    def _replay(
        self, rows: Iterable[tuple[int, str, bytes | None, int]], compacted: int, kept: DecodedObjects
    ) -> Contents:
        contents = Contents({}, [], max(compacted, 1), compacted)
        entries, history = contents.entries, contents.history
        for revision, key, value, checksum in rows:
            if _checksum(revision, key, value) != checksum:
                raise damaged(self._path, f"the checksum of revision {revision}, key {key!r} is wrong")
            before = entries.get(key)
            contents.revision = max(contents.revision, revision)
            if value is None:
                if before is None:
                    raise damaged(self._path, f"revision {revision} deletes key {key!r}, which does not exist")
                event = Event(EventType.DELETED, LastState(before, revision), before, revision)
                del entries[key]
            else:
                entry = Entry(key, None, revision, value, kept)
                event = Event(EventType.ADDED if before is None else EventType.MODIFIED, entry, before, revision)
                entries[key] = entry
            if revision > compacted:
                history.append(event)
        return contents

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, events: Sequence[Event]) -> None:
        """Make changes durable, all or none."""
        try:
            # A single statement, where possible, leaves the interpreter once for the whole group, the wait for the disk
            # included; meanwhile the event loop runs.
            if len(events) <= ROWS_PER_STATEMENT:
                self._insert(events)
            else:
                self._connection.execute("BEGIN IMMEDIATE")
                for start in range(0, len(events), ROWS_PER_STATEMENT):
                    self._insert(events[start : start + ROWS_PER_STATEMENT])
                self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise database_error(self._path, error) from error
        self._advance(events[-1].revision)

    def _advance(self, revision: int) -> None:
        try:
            self._marker.advance(revision)
        except OSError as error:
            # The changes are still on disk. A marker that lags behind detects less, but never raises a false alarm.
            if not self._marker_lags:
                _log.warning("marker %s: cannot be written: %s", marker_path(self._path), error)
            self._marker_lags = True
        else:
            self._marker_lags = False

    def _insert(self, events: Sequence[Event]) -> None:
        values: list[int | str | bytes | None] = []
        for event in events:
            key = event.entry.key
            value = None if event.type is EventType.DELETED else event.entry.encoded
            values += (event.revision, key, value, _checksum(event.revision, key, value))
        rows = ",".join(("(?,?,?,?)",) * len(events))
        self._connection.execute(f"INSERT INTO log VALUES {rows}", values)

    def prune(self, dropped: Sequence[Event], compacted: int) -> None:
        """Remove the rows that only served dropped history, and record how far history now goes back."""
        revisions = [event.before.revision for event in dropped if event.before is not None]
        revisions += [event.revision for event in dropped if event.type is EventType.DELETED]
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("UPDATE bounds SET compacted = ?", (compacted,))
            for start in range(0, len(revisions), ROWS_PER_STATEMENT):
                part = revisions[start : start + ROWS_PER_STATEMENT]
                marks = ",".join("?" * len(part))
                self._connection.execute(f"DELETE FROM log WHERE revision IN ({marks})", part)
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise database_error(self._path, error) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                # SQLite has already rolled back, or cannot; report the first error.
                return

    def check_room(self, *, doubtful: bool) -> None:
        """Whether a write would work now. Tries one only when in doubt: it takes room itself."""
        try:
            disk = os.statvfs(self._path)
        except OSError as error:
            raise file_error(self._path, error) from error
        # Some room is reserved for root.
        if (disk.f_bavail if os.geteuid() else disk.f_bfree) * disk.f_frsize < ROOM_MIN_BYTES:
            raise disk_full(self._path)
        if not doubtful:
            return
        try:
            self._connection.execute("UPDATE bounds SET compacted = compacted")
        except sqlite3.Error as error:
            self._roll_back()
            raise database_error(self._path, error) from error

    def close(self) -> None:
        """Close the file. SQLite copies the write-ahead log into it and removes the log."""
        try:
            self._connection.close()
        except sqlite3.Error as error:
            self._marker.abandon()
            raise database_error(self._path, error) from error
        try:
            # It stays if there was no room to copy it.
            self._marker.close(cleanly=not log_path(self._path).exists())
        except OSError as error:
            raise file_error(self._path, error) from error


def _checksum(revision: int, key: str, value: bytes | None) -> int:
    seed = zlib.crc32(f"{revision} {key} {'' if value is None else '='}".encode())
    return seed if value is None else zlib.crc32(value, seed)
