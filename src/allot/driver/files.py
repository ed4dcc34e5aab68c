"""Files that are either as they were or as they should be, whenever the process dies.

A new content is written beside the file and renamed over it. That holds against kill -9; it is not forced to the disk, since
what is written here is worthless after a reboot (devices have to be prepared anew then).
"""

from __future__ import annotations

import os
from pathlib import Path

_SUFFIX = ".new"


def replace_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Give a file a content at once. OSError if that fails; then the file is as it was."""
    # Not ending in .json: whoever reads the folder at this moment must not take it for a file.
    beside = path.with_name(f".{path.name}{_SUFFIX}")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        os.fchmod(handle, mode)
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
    finally:
        os.close(handle)
    beside.replace(path)


def remove_file(path: Path) -> None:
    """Remove a file that may be gone already."""
    path.unlink(missing_ok=True)


def remove_leftovers(directory: Path) -> None:
    """Remove what writers that died have left."""
    for path in directory.glob(f".*{_SUFFIX}"):
        remove_file(path)
