"""Watches small files for changes: one thread checks all of them, so a thousand simulated nodes need one thread."""

from __future__ import annotations

import os
import threading
from pathlib import Path

_POLL_S = 0.5

Stamp = tuple[int, int] | None


def stamp_of(path: Path | str) -> Stamp:
    """A stamp that changes whenever the file is replaced; None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - asked very often
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino


class FileWatcher:
    """Sets an event when the file of that event changes."""

    def __init__(self, poll_s: float = _POLL_S) -> None:
        self._poll_s = poll_s
        self._lock = threading.Lock()
        self._files: dict[threading.Event, tuple[str, Stamp]] = {}
        self._stop: threading.Event | None = None

    def watch(self, path: Path, stamp: Stamp, changed: threading.Event) -> None:
        """Set the event as soon as the file's stamp differs from the known one."""
        with self._lock:
            self._files[changed] = (str(path), stamp)
            if self._stop is None:
                self._stop = threading.Event()
                threading.Thread(target=self._look, args=(self._stop,), name="file-watcher", daemon=True).start()

    def forget(self, changed: threading.Event) -> None:
        """Stop watching a file; the thread ends with the last one."""
        with self._lock:
            self._files.pop(changed, None)
            if not self._files and self._stop is not None:
                self._stop.set()
                self._stop = None

    def _look(self, stop: threading.Event) -> None:
        while not stop.wait(self._poll_s):
            with self._lock:
                files = list(self._files.items())
            for changed, (path, stamp) in files:
                if not changed.is_set() and stamp_of(path) != stamp:
                    changed.set()
