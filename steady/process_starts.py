"""A plugin for pytest: writes down which files of tests start processes, so that no one has to keep a list.

Whole files, since a server that a module shares is started by the first of its tests only. Several workers write to one folder,
a file each.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = "ALLOT_PROCESS_STARTS"
EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"})


class Recorder:
    """Knows which test runs, and is told of every process that starts."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._notes = folder / str(os.getpid())
        self._running = ""
        self._seen: set[str] = set()
        sys.addaudithook(self._hear)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """The test that is about to run, its fixtures included."""
        self._running = str(item.path)

    def _hear(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in EVENTS and self._running and self._running not in self._seen:
            self._seen.add(self._running)
            with self._notes.open("a") as notes:
                notes.write(self._running + "\n")


def pytest_configure(config: pytest.Config) -> None:
    """Record where someone wants to know."""
    if folder := os.environ.get(FOLDER):
        config.pluginmanager.register(Recorder(Path(folder)))
