"""Short names for directories: a socket path may have at most 107 bytes, and a user's directory may be deeply nested.

A deep directory is reached through a temporary link while needed. Its contents stay in place.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# sun_path of Linux: 108 bytes with the NUL at the end.
SOCKET_BYTES_MAX = 107
_SHORT = Path("/tmp")
_PREFIX, _LINK = "allot-", "n"


@contextmanager
def short_name(folder: Path, below: int) -> Iterator[Path]:
    """A name for a folder that leaves sockets room for paths this many bytes longer; the folder's own name if short enough."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(bytes(folder)) + below <= SOCKET_BYTES_MAX:
        yield folder
        return
    target = folder.absolute()
    _remove_links(target)
    # No one else can replace the link: the folder around it is ours alone.
    own = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_SHORT))
    try:
        link = own / _LINK
        link.symlink_to(target, target_is_directory=True)
        yield link
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _remove_links(target: Path) -> None:
    """Remove what a killed process left; only one process at a time works in a folder."""
    for link in _SHORT.glob(f"{_PREFIX}*/{_LINK}"):
        try:
            if link.readlink() == target and link.parent.lstat().st_uid == os.geteuid():
                shutil.rmtree(link.parent, ignore_errors=True)
        except OSError:
            continue  # someone else's
