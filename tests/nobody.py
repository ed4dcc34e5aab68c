"""Programs of tests that run as nobody, who cannot see where this interpreter is."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from allot.process.mounts import PRIVATE, RECURSIVE, copy_mount, mount, place_mount
from allot.process.namespaces import MOUNTS, unshare

NOBODY = 65534
_HERE = Path(__file__).parents[1]


def _closed_around(path: Path) -> Path | None:
    """The outermost folder on the way to a path that others cannot pass through."""
    return next((each for each in reversed(path.parents) if not each.stat().st_mode & 0o001), None)


def become_nobody() -> None:
    """Before a program starts: nobody can run this interpreter and these tests, wherever they are."""
    unshare(MOUNTS)
    mount("none", "/", RECURSIVE | PRIVATE)
    for needed in {Path(sys.base_prefix), Path(sys.prefix), _HERE}:
        closed = _closed_around(needed)
        if closed is not None:
            copy = copy_mount(os.open(needed, os.O_PATH))
            mount("test", str(closed), 0, "tmpfs", "mode=755")
            needed.mkdir(parents=True, exist_ok=True)
            place_mount(copy, os.open(needed, os.O_PATH))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
