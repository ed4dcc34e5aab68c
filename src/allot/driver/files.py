"""Atomic file updates: a file has its old or its new content, even if the process dies.

New content is written beside the file and renamed. That holds against kill -9; it is not forced to the disk, since what is
written here is worthless after a reboot (devices have to be prepared again then).
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

from allot.process.beneath import remove_tree

_log = logging.getLogger("allot.driver")

_SUFFIX = ".new"


def replace_file(path: Path | str, data: bytes, mode: int = 0o600) -> None:
    """Replace the content of a file atomically. OSError if that fails; then the file is unchanged."""
    beside = _write_beside(path, data, mode)
    os.replace(beside, path)  # noqa: PTH105 - text is quicker than paths, and this is where the time of a driver goes


def exchange_file(path: Path | str, data: bytes, mode: int = 0o600) -> None:
    """As `replace_file`, for folders whose readers begin with `recover_files`.

    The old file is removed before the new one takes its name: file systems flush to disk on a rename over an existing file,
    and wait for that.
    """
    beside = _write_beside(path, data, mode)
    remove_file(path)
    os.rename(beside, path)  # noqa: PTH104


def _write_beside(path: Path | str, data: bytes, mode: int) -> str:
    # Not ending in .json: concurrent readers of the directory must ignore it.
    folder, name = os.path.split(path)
    beside = f"{folder}/.{name}{_SUFFIX}"
    # Only a new file: containers may write to the directory, and create a link there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        handle = os.open(beside, flags, mode)
    except FileExistsError:
        remove_file(beside)
        handle = os.open(beside, flags, mode)
    try:
        os.fchmod(handle, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    finally:
        os.close(handle)
    return beside


def remove_file(path: Path | str) -> None:
    """Remove a file, if it exists."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def remove_folder(path: Path) -> None:
    """Remove a directory with its contents, even if containers write to it meanwhile; what remains is logged."""
    try:
        remove_tree(path)
    except OSError as error:
        _log.warning("%s is not removed: %s", path, error)


def recover_files(directory: Path) -> None:
    """Finish writes of crashed writers: content without its final name is the newest."""
    for path in directory.glob(f".*{_SUFFIX}"):
        target = path.with_name(path.name.removeprefix(".").removesuffix(_SUFFIX))
        if target.exists() or not path.stat().st_size:
            remove_file(path)
        else:
            path.rename(target)
