"""Files that keep what must survive the agent: replaced atomically and flushed, so that a power failure or kill -9 leaves either the old or
the new content."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

_SUFFIX = ".new"


class CheckpointCorrupt(Exception):
    """A file cannot be read. lost: what is unknown now; hint: how to fix it, beginning with what to do first on the drained node."""

    def __init__(self, path: Path, why: str, *, lost: str, first: str) -> None:
        super().__init__(f"{path}: checkpoint is corrupted: {why}; {lost}")
        self.hint = f"drain the node, {first}, remove {path} and start the agent again"


class StateFile:
    """A file that follows a state. Concurrent changes share one write: a caller during a write waits for the next one, which includes all changes
    until then."""

    def __init__(self, path: Path, encode: Callable[[], bytes]) -> None:
        self.path = path
        self._encode = encode
        self._writing: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    def read(self) -> bytes | None:
        """The content, None if there is no file. Removes what a killed writer left."""
        self.path.with_name(self.path.name + _SUFFIX).unlink(missing_ok=True)
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None

    async def write(self) -> None:
        """Return when the current state is on disk; OSError if that fails. It is written even if the caller gives up."""
        if self._next is None:
            # Not in a task group: it has no owner, and all waiters get its result.
            self._next = asyncio.get_running_loop().create_task(self._write_after(self._writing))
            self._next.add_done_callback(_look_at)
        await asyncio.shield(self._next)

    async def _write_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        self._writing, self._next = self._next, None
        content = self._encode()
        await asyncio.to_thread(replace_file, self.path, content)

    async def settle(self) -> None:
        """Wait for pending writes."""
        under_way = [task for task in (self._writing, self._next) if task is not None and not task.done()]
        if under_way:
            await asyncio.wait(under_way)


def _look_at(task: asyncio.Task[None]) -> None:
    """Waiters have received the failure; without waiters, it is not reported again."""
    if not task.cancelled():
        task.exception()


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content atomically and durably."""
    beside = path.with_name(path.name + _SUFFIX)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    finally:
        os.close(handle)
    beside.replace(path)
