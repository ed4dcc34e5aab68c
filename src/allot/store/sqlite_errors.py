"""What SQLite's errors mean for the operator: which file, what is wrong, what to do."""

from __future__ import annotations

import errno
from pathlib import Path

from allot.store.port import Fault, StoreUnavailable

ACCEPT_LOSS = "--accept-data-loss"


def damaged(path: Path, what: str) -> StoreUnavailable:
    """The file's content is not what was written."""
    return StoreUnavailable(
        f"store file {path}: is damaged: {what}; restore it from a copy, or move it away and start empty with {ACCEPT_LOSS}",
        Fault.DAMAGED,
    )


def disk_full(path: Path) -> StoreUnavailable:
    """There is no room for a write."""
    return StoreUnavailable(
        f"store file {path}: the disk is full; nothing was written; free some space", Fault.DISK_FULL
    )


def file_error(path: Path, error: OSError) -> StoreUnavailable:
    """The operating system refused."""
    if error.errno == errno.EROFS:
        return _read_only(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(path)
    return _not_writable(path, error)


def database_error(path: Path, error: Exception) -> StoreUnavailable:
    """SQLite or its driver failed. The names are SQLite's result codes; extended codes begin with the one they refine."""
    name = getattr(error, "sqlite_errorname", None) or ""
    # Without a code: the driver could not make sense of a row.
    if not name or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged(path, str(error))
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreUnavailable(
            f"store file {path}: is in use by another process; stop it, or use another data directory"
        )
    # The log's index, created when a log is checked, is the only thing that reading ever enlarges.
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR_SHMSIZE")):
        return disk_full(path)
    if name.startswith("SQLITE_READONLY"):
        return _read_only(path)
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM")):
        return _not_writable(path, error)
    # A failed write to the log may surface only when the file is next opened.
    return StoreUnavailable(
        f"store file {path}: {error} ({name}); the outcome of the write is unknown; check the disk and its quota",
        Fault.DISK_ERROR,
    )


def _read_only(path: Path) -> StoreUnavailable:
    return StoreUnavailable(
        f"store file {path}: the disk is read-only; mount it for writing, or use another data directory",
        Fault.READ_ONLY,
    )


def _not_writable(path: Path, error: Exception) -> StoreUnavailable:
    return StoreUnavailable(
        f"store file {path}: cannot be opened for writing: {error}; "
        "check that its directory exists and belongs to this user, or use another data directory"
    )
