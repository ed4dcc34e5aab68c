"""Short names of folders: a socket's path may have 107 bytes, and a user's folder may be deep in others.

A folder that is too deep is reached through a link in the machine's folder for temporary files as long as somebody needs it. What
is in it stays where it is.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# sun_path of Linux: 108 bytes with the NUL at the end.
SOCKET_BYTES_MAX = 107


@contextmanager
def short_name(folder: Path, below: int) -> Iterator[Path]:
    """A name of a folder, under which sockets can have paths that are so many bytes longer; the folder's own if it can be."""
    folder.mkdir(parents=True, exist_ok=True)
    if len(bytes(folder)) + below <= SOCKET_BYTES_MAX:
        yield folder
        return
    # Nobody else can put something in the place of the link: the folder is ours alone.
    own = Path(tempfile.mkdtemp(prefix="allot-", dir=None if len(tempfile.gettempdir()) < 8 else "/tmp"))
    try:
        link = own / "n"
        link.symlink_to(folder.absolute(), target_is_directory=True)
        yield link
    finally:
        shutil.rmtree(own, ignore_errors=True)
