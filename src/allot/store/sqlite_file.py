"""The SQLite file behind `sqlite`: an append-only log of changes, read whole at start-up and pruned as history is dropped.

One row for each change: its revision, the key, and the new JSON text or NULL for a deletion. The present state of a key is its
newest row; the state a change replaced is the row before. So a write is one append, and pruning is the removal of rows that a
newer row, itself no longer history, replaced. A checksum in each row finds what SQLite's own checks do not.

Blocking; used from one thread. Knows SQLite and what its errors mean for the operator; knows nothing of watches or waiting.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from allot.store.entry import DecodedObjects, Entry, LastState
from allot.store.port import Event, EventType, StoreUnavailable
from allot.store.sqlite_wal import damage_in_log

# "allo": tells our files from other programs' databases.
APPLICATION_ID = 0x616C6C6F
SCHEMA_VERSION = 1

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE log (revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, checksum INTEGER NOT NULL);
CREATE TABLE bounds (compacted INTEGER NOT NULL);
INSERT INTO bounds VALUES (0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""

# Four values a row, below the 999 that every SQLite accepts in a statement.
ROWS_PER_STATEMENT = 240
# Copy the write-ahead log into the database when it has this many pages (16 MiB).
CHECKPOINT_PAGES = 4000
LOCK_TIMEOUT_S = 2.0


class Contents(msgspec.Struct):
    """What the file holds."""

    entries: dict[str, Entry]
    history: list[Event]
    revision: int
    compacted: int


class SqliteFile:
    """An open file. Every method raises StoreUnavailable, with what to do, if SQLite cannot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            # Secrets are in here: for the owner only. SQLite gives its other files the rights of this one.
            path.touch(mode=0o600)
            damage = damage_in_log(path)
            if damage is not None:
                raise self._damaged(damage)
            # No implicit transactions: a statement of its own is its own durable transaction.
            self._connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None)
        except OSError as error:
            raise self._not_writable(error) from error
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise self._unavailable(error) from error
        except StoreUnavailable:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        run = self._connection.execute
        # Before anything is read, so that the lock is taken with the first access and kept: one server for each file.
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        # FULL: a commit returns after the write-ahead log is on the disk.
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        tables = run("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not tables:
            self._connection.executescript(_SCHEMA)
        application = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise StoreUnavailable(f"store file {self._path}: is another program's database; give another data folder")
        if version != SCHEMA_VERSION:
            raise StoreUnavailable(
                f"store file {self._path}: has format {version}, this release reads {SCHEMA_VERSION}; "
                "use the release that wrote it, or give another data folder"
            )
        # Pages that nothing points to any more would be missing without an error. 60 ms for 100,000 objects.
        (answer,) = run("PRAGMA quick_check(1)").fetchone()
        if answer != "ok":
            raise self._damaged(answer.replace("\n", " "))

    # -- reading ------------------------------------------------------------------------------------------------------

    def load(self, kept: DecodedObjects) -> Contents:
        """Everything in the file."""
        try:
            (compacted,) = self._connection.execute("SELECT compacted FROM bounds").fetchone()
            rows = self._connection.execute("SELECT revision, key, value, checksum FROM log ORDER BY revision")
            with closing(rows):
                return self._replay(rows, compacted, kept)
        except (sqlite3.Error, TypeError) as error:
            # TypeError: a row of another shape than ours, so the file was damaged or changed by hand.
            raise self._unavailable(error) from error

    def _replay(
        self, rows: Iterable[tuple[int, str, bytes | None, int]], compacted: int, kept: DecodedObjects
    ) -> Contents:
        contents = Contents({}, [], max(compacted, 1), compacted)
        entries, history = contents.entries, contents.history
        for revision, key, value, checksum in rows:
            if _checksum(revision, key, value) != checksum:
                raise self._damaged(f"the checksum of revision {revision}, key {key!r} is wrong")
            before = entries.get(key)
            contents.revision = max(contents.revision, revision)
            if value is None:
                if before is None:
                    raise self._damaged(f"revision {revision} deletes key {key!r}, which is not there")
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
            # One statement, where it suffices, is one trip out of the interpreter for the whole group, the wait for the disk
            # included; the event loop runs meanwhile.
            if len(events) <= ROWS_PER_STATEMENT:
                self._insert(events)
                return
            self._connection.execute("BEGIN IMMEDIATE")
            for start in range(0, len(events), ROWS_PER_STATEMENT):
                self._insert(events[start : start + ROWS_PER_STATEMENT])
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._unavailable(error) from error

    def _insert(self, events: Sequence[Event]) -> None:
        values: list[int | str | bytes | None] = []
        for event in events:
            key = event.entry.key
            value = None if event.type is EventType.DELETED else event.entry.encoded
            values += (event.revision, key, value, _checksum(event.revision, key, value))
        rows = ",".join(("(?,?,?,?)",) * len(events))
        self._connection.execute(f"INSERT INTO log VALUES {rows}", values)

    def prune(self, dropped: Sequence[Event], compacted: int) -> None:
        """Remove the rows that only served dropped history, and note how far history goes back now."""
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
            raise self._unavailable(error) from error

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                # SQLite has rolled back by itself, or cannot; the first error is the one to tell.
                return

    def close(self) -> None:
        """Let go of the file. SQLite copies the write-ahead log into it and removes the log."""
        try:
            self._connection.close()
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    # -- errors -------------------------------------------------------------------------------------------------------

    def _damaged(self, what: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"store file {self._path}: is damaged: {what}; restore it from a copy, or move it away to start empty"
        )

    def _not_writable(self, error: Exception) -> StoreUnavailable:
        return StoreUnavailable(
            f"store file {self._path}: cannot be opened for writing: {error}; "
            "check that its folder exists and belongs to this user, or give another data folder"
        )

    def _unavailable(self, error: Exception) -> StoreUnavailable:
        # The names are SQLite's result codes; extended codes begin with the name of the code that they refine.
        name = getattr(error, "sqlite_errorname", None) or ""
        # Without a code: the driver could not make sense of a row.
        if not name or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return self._damaged(str(error))
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StoreUnavailable(
                f"store file {self._path}: is in use by another process; stop it, or give another data folder"
            )
        if name.startswith("SQLITE_FULL"):
            return StoreUnavailable(f"store file {self._path}: the disk is full; nothing was written; free some space")
        if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            return self._not_writable(error)
        # A failed write to the log can still come to light when the file is opened next.
        return StoreUnavailable(
            f"store file {self._path}: {error} ({name}); the outcome of the write is not known; check the disk and its quota"
        )


def _checksum(revision: int, key: str, value: bytes | None) -> int:
    seed = zlib.crc32(f"{revision} {key} {'' if value is None else '='}".encode())
    return seed if value is None else zlib.crc32(value, seed)
