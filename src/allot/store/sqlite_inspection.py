"""Checks a database, its log and its marker before any change, and detects losses.

A store that starts with older state, or empty, is worse than one that does not start: clients act on what they see, and
controllers delete what has lost its owner. Everything here only reads; rejected files stay as they are. The checksums of
rows are checked later, when they are read.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import msgspec

from allot.store.marker import Mark, MarkerDamaged, marker_path, read_marker
from allot.store.port import Fault, StoreUnavailable
from allot.store.sqlite_errors import ACCEPT_LOSS, damaged, database_error, file_error
from allot.store.sqlite_wal import damage_in_log, log_path

# "allo": distinguishes our files from other programs' databases.
APPLICATION_ID = 0x616C6C6F
SCHEMA_VERSION = 1
LOCK_TIMEOUT_S = 2.0


class FileState(msgspec.Struct, frozen=True):
    """What a database says about itself. store: empty if it predates markers."""

    store: str
    starts: int
    revision: int


class Found(msgspec.Struct, frozen=True):
    """What was found. state: None if the database is missing or empty. loss: what is missing."""

    mark: Mark | None
    state: FileState | None
    loss: StoreUnavailable | None


def inspect(path: Path) -> Found:
    """Inspect the files of a store; StoreUnavailable if they cannot be used at all."""
    loss: StoreUnavailable | None = None
    mark: Mark | None = None
    try:
        try:
            mark = read_marker(marker_path(path))
        except MarkerDamaged:
            loss = _no_marker(path, "is damaged")
        size = path.stat().st_size if path.exists() else None
        log_size = log_path(path).stat().st_size if log_path(path).exists() else 0
        damage = damage_in_log(path) if size else None
    except OSError as error:
        raise file_error(path, error) from error
    if damage is not None:
        return Found(mark, None, damaged(path, damage))
    state = _state(path) if size else None
    if loss is None:
        loss = _loss(path, mark, state, size, log_size)
    return Found(mark, state, loss)


def _loss(
    path: Path, mark: Mark | None, state: FileState | None, size: int | None, log_size: int
) -> StoreUnavailable | None:
    if mark is None:
        return _no_marker(path, "is missing") if state is not None and state.store else None
    if state is None:
        if not mark.revision:
            return None
        what = "is missing" if size is None else "is empty" if not size else "has no objects in it"
        return _lost(path, f"{what}, but it had got to revision {mark.revision}", Fault.EMPTIED)
    if state.store and state.store != mark.store:
        return _lost(
            path,
            f"belongs to another store than its marker {marker_path(path).name} ({state.store}, not {mark.store})",
            Fault.FOREIGN,
        )
    if state.revision >= mark.revision:
        return None
    reached = f"revision {state.revision}, but the store had got to revision {mark.revision}"
    if state.starts < mark.starts or mark.closed:
        return _lost(path, f"is an older copy, of {reached}", Fault.OLDER_COPY)
    if not log_size:
        return _lost(
            path, f"its write-ahead log {log_path(path).name} is missing: there is {reached}", Fault.LOG_MISSING
        )
    return _lost(path, f"its write-ahead log {log_path(path).name} was cut: it ends with {reached}", Fault.LOG_CUT)


def _lost(path: Path, what: str, fault: Fault) -> StoreUnavailable:
    return StoreUnavailable(
        f"store file {path}: {what}; restore what is missing, or continue with the rest with {ACCEPT_LOSS}", fault
    )


def _no_marker(path: Path, what: str) -> StoreUnavailable:
    return _lost(
        path,
        f"its marker {marker_path(path).name} {what}, so the store may be incomplete",
        Fault.MARKER,
    )


def _state(path: Path) -> FileState | None:
    """The state from the database and its log. Read-only, so that closing does not write the log into the database."""
    index = path.with_name(path.name + "-shm")
    had_index = index.exists()
    try:
        # Without a log, no server has the file open: each creates one when it starts. SQLite would create one just to read.
        mode = "mode=ro" if log_path(path).exists() else "mode=ro&immutable=1"
        address = f"file:{quote(str(path.absolute()))}?{mode}"
        with closing(sqlite3.connect(address, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None)) as connection:
            return _read(path, connection)
    except (sqlite3.Error, TypeError) as error:
        # TypeError: a row of an unexpected shape, so the file was damaged or changed by hand.
        raise database_error(path, error) from error
    finally:
        if not had_index:
            index.unlink(missing_ok=True)


def _read(path: Path, connection: sqlite3.Connection) -> FileState | None:
    run = connection.execute
    tables = {name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return None
    if run("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreUnavailable(f"store file {path}: is another program's database; use another data directory")
    version = run("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA_VERSION:
        raise StoreUnavailable(
            f"store file {path}: has format {version}, this release reads {SCHEMA_VERSION}; "
            "use the release that wrote it, or use another data directory"
        )
    # Pages that nothing points to would be missing without an error. 60 ms for 100,000 objects.
    (answer,) = run("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise damaged(path, answer.replace("\n", " "))
    (revision,) = run("SELECT max(compacted, coalesce((SELECT max(revision) FROM log), 0), 1) FROM bounds").fetchone()
    store, starts = run("SELECT store, starts FROM identity").fetchone() if "identity" in tables else ("", 0)
    return FileState(store, starts, revision)
