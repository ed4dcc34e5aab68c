"""The lock of prepare and unprepare: one operation at a time in this process, and one process at a time on this node.

During a rolling update two instances of a driver share a folder. Each locks a file there during an
operation; a token in the file identifies the last holder, and so whether the checkpoint must be read again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from allot.process.clock import Clock

_PAUSE_S = 0.005
_PAUSE_MAX_S = 0.1
_TOKEN_BYTES_MAX = 128


class OperationLock:
    """Held by one task of one process. on_taken_over: another process held it in between."""

    def __init__(self, path: Path, token: str, clock: Clock, on_taken_over: Callable[[], None]) -> None:
        self._path = path
        self._token = token.encode()
        self._clock = clock
        self._on_taken_over = on_taken_over
        self._lock = asyncio.Lock()
        self._handle = -1

    def open(self) -> None:
        """Create the file. OSError if that fails."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def close(self) -> None:
        """Close the file, which releases the lock."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the lock: no other operation runs on this node."""
        async with self._lock:
            await self._lock_file()
            try:
                if os.pread(self._handle, _TOKEN_BYTES_MAX, 0) != self._token:
                    self._on_taken_over()
                    os.ftruncate(self._handle, 0)
                    os.pwrite(self._handle, self._token, 0)
                yield
            finally:
                fcntl.flock(self._handle, fcntl.LOCK_UN)

    async def _lock_file(self) -> None:
        pause = _PAUSE_S
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                await self._clock.sleep(pause)
                pause = min(pause * 2, _PAUSE_MAX_S)
