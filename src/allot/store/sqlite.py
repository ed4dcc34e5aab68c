"""The default store: one SQLite file, a write acknowledged when it is on disk, reads and watches from memory.

The event loop decides every compare-and-swap against the state in memory and gives the write its revision. Writes are handed to
the one writer thread in groups, each after the previous one is done. The thread commits a group at once (one wait for the
disk) and reports back; only then does the state in memory change, and only then do watches and callers learn of it.
So nothing is ever seen that could be lost, and a failed commit leaves no trace but a gap in the revisions.

The event loop forms the groups because every handover contends for the interpreter's lock: one per write costs more
than the write.

A write to a key with a write in progress waits for that one to settle and is then decided; callers can only know
acknowledged revisions, so queueing it would gain nothing.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from allot.core.quoting import html_escaped
from allot.store.entry import DecodedObjects, Entry, LastState, stamp
from allot.store.memory import TimelineReads
from allot.store.port import Event, EventType, KeyExists, Object, StoreUnavailable
from allot.store.sqlite_file import Contents, SqliteFile
from allot.store.timeline import Limits

_log = logging.getLogger("allot.store")

# Limits how long one group takes, not how many writes can wait.
GROUP_MAX = 2_000
# This many waiting writes are written at once; with fewer, it pays to wait for more.
GROUP_WORTH = 8
# Callers wait for their writes, so this many wait only if something is wrong with the disk.
WAITING_MAX = 100_000


class _Write:
    """A write in progress."""

    __slots__ = ("answer", "event", "settled")

    def __init__(self, event: Event, answer: asyncio.Future[Entry]) -> None:
        self.event = event
        self.answer = answer
        # Writers of the same key waiting for this one; created only if there are any.
        self.settled: list[asyncio.Future[None]] = []


class _Prune(msgspec.Struct, frozen=True):
    """History that was dropped from memory."""

    dropped: list[Event]
    compacted: int
    answer: asyncio.Future[None] | None


class _Check(msgspec.Struct, frozen=True):
    """A check whether writes work. doubtful: the last one did not."""

    doubtful: bool


_Job = list[_Write] | _Prune | _Check | None


class SqliteStore(TimelineReads):
    """The store port on a SQLite file."""

    def __init__(
        self,
        path: Path,
        limits: Limits | None = None,
        *,
        decoded_bytes_max: int = 64 * 1024 * 1024,
        accept_loss: bool = False,
    ) -> None:
        """accept_loss: start even if acknowledged writes are missing; they are then gone for good."""
        super().__init__(limits)
        self._path = path
        self._accept_loss = accept_loss
        self._kept = DecodedObjects(decoded_bytes_max)
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._pending: dict[str, _Write] = {}
        # Writes for the next group; the writer has those of the current one.
        self._waiting: list[_Write] = []
        self._writing = False
        # The newest revision assigned; ahead of the timeline's while writes are in progress.
        self._assigned = 1
        # Why the last write was refused; the pending check about it.
        self._refused: StoreUnavailable | None = None
        self._checking: asyncio.Future[StoreUnavailable | None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = True

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Open and read the file; see the port."""
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[Contents] = self._loop.create_future()
        # Not joined at exit if the process ends without close: every acknowledged write is already on disk.
        self._thread = threading.Thread(target=self._run, args=(opened,), name="allot-store", daemon=True)
        self._thread.start()
        try:
            contents = await opened
        except StoreUnavailable:
            self._thread.join()
            self._thread = None
            raise
        except asyncio.CancelledError:
            self._jobs.put(None)
            raise
        self._timeline.restore(
            contents.entries, contents.history, revision=contents.revision, compacted=contents.compacted
        )
        self._assigned = contents.revision
        self._closed = False

    async def close(self) -> None:
        """Finish waiting writes, end the watches, close the file."""
        if self._thread is None:
            return
        self._closed = True
        if self._waiting:
            self._jobs.put(self._waiting)
            self._waiting = []
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._thread = None
        # The writer's last report was queued before its thread ended, so it runs before this continues.
        await asyncio.sleep(0)
        self._timeline.close()

    async def check(self) -> None:
        """Ask the writer; see the port. Concurrent callers share one check: it can cost a write."""
        self._check_open()
        if self._checking is None:
            self._checking = asyncio.get_running_loop().create_future()
            self._jobs.put(_Check(self._refused is not None))
        error = await asyncio.shield(self._checking)
        if error is not None:
            raise StoreUnavailable(str(error), error.fault)

    # -- writes -------------------------------------------------------------------------------------------------------

    async def create(self, key: str, object_: Object) -> Entry:
        """Add a key; see the port."""
        await self._settled(key)
        present = self._timeline.entries.get(key)
        if present is not None:
            raise KeyExists(key, present)
        return await self._outcome(key, self._put(EventType.ADDED, key, object_, None))

    async def update(self, key: str, object_: Object, expected: int) -> Entry:
        """Replace a key; see the port."""
        await self._settled(key)
        return await self._outcome(key, self._put(EventType.MODIFIED, key, object_, self._expect(key, expected)))

    async def delete(self, key: str, expected: int) -> Entry:
        """Remove a key; see the port."""
        await self._settled(key)
        before = self._expect(key, expected)
        revision = self._assigned + 1
        event = Event(EventType.DELETED, LastState(before, revision), before, revision)
        return await self._outcome(key, self._submit(event))

    async def compact(self, revision: int) -> None:
        """Forget history before a revision, in the file too; see the port."""
        self._check_open()
        dropped = self._timeline.compact(revision)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._jobs.put(_Prune(dropped, self._timeline.compacted, answer))
        await answer

    async def _settled(self, key: str) -> None:
        """Wait until no write of a key is in progress."""
        while (write := self._pending.get(key)) is not None:
            # One future per waiter: the answer's future belongs to its caller, which may be cancelled.
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            write.settled.append(waiter)
            await waiter

    async def _outcome(self, key: str, answer: asyncio.Future[Entry]) -> Entry:
        """Wait for a write. It cannot be recalled: cancellation takes effect only when the write has ended, because
        what the caller does next (quota, holders of devices) depends on what is stored then."""
        try:
            return await answer
        except asyncio.CancelledError:
            await self._settled(key)
            raise

    def _put(self, type_: EventType, key: str, object_: Object, before: Entry | None) -> asyncio.Future[Entry]:
        revision = self._assigned + 1
        stamp(object_, revision)
        entry = Entry(key, object_, revision, html_escaped(msgspec.json.encode(object_)), self._kept)
        return self._submit(Event(type_, entry, before, revision))

    def _submit(self, event: Event) -> asyncio.Future[Entry]:
        self._check_open()
        if len(self._pending) >= WAITING_MAX:
            raise StoreUnavailable(f"store file {self._path}: {WAITING_MAX} writes wait for the disk; try again later")
        self._assigned = event.revision
        answer: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        write = _Write(event, answer)
        self._pending[event.entry.key] = write
        self._waiting.append(write)
        if len(self._waiting) == 1 and not self._writing:
            # Not immediately: other writes decided in this turn of the event loop share the group.
            asyncio.get_running_loop().call_soon(self._hand_over)
        return answer

    def _hand_over(self) -> None:
        """Give the writer the next group, unless it is busy."""
        if self._waiting and not self._writing:
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
            self._writing = True
            self._jobs.put(group)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"store file {self._path}: is not open")

    # -- what the writer thread reports -------------------------------------------------------------------------------

    def _finish(self, writes: list[_Write], error: StoreUnavailable | None) -> None:
        """A group is on disk, or never will be."""
        self._writing = False
        self._note_refusal(error)
        if len(self._waiting) >= GROUP_WORTH:
            self._hand_over()
        for write in writes:
            event = write.event
            del self._pending[event.entry.key]
            if error is None:
                self._timeline.apply(event)
            if not write.answer.done():
                if error is None:
                    write.answer.set_result(event.entry)
                else:
                    write.answer.set_exception(StoreUnavailable(str(error), error.fault))
            for waiter in write.settled:
                if not waiter.done():
                    waiter.set_result(None)
        # Callers that just got their answers often write again at once: one group with them is less work than two.
        asyncio.get_running_loop().call_soon(self._hand_over)
        dropped = self._timeline.trim()
        if dropped and not self._closed:
            self._jobs.put(_Prune(dropped, self._timeline.compacted, None))

    def _checked(self, error: StoreUnavailable | None) -> None:
        """The check whether writes work is done."""
        self._note_refusal(error)
        answer, self._checking = self._checking, None
        if answer is not None:
            answer.set_result(error)

    def _note_refusal(self, error: StoreUnavailable | None) -> None:
        if error is not None and self._refused is None:
            _log.warning("writes are refused: %s", error)
        elif error is None and self._refused is not None:
            _log.warning("store file %s: writes work again", self._path)
        self._refused = error

    def _stopped(self, why: str) -> None:
        """The writer thread has ended unexpectedly."""
        self._closed = True
        self._waiting = []
        error = StoreUnavailable(
            f"store file {self._path}: the writer stopped ({why}); the outcome of the write is unknown; restart the server"
        )
        self._finish(list(self._pending.values()), error)
        self._checked(error)

    # -- the writer thread --------------------------------------------------------------------------------------------

    def _run(self, opened: asyncio.Future[Contents]) -> None:
        try:
            file = SqliteFile(self._path, accept_loss=self._accept_loss)
        except StoreUnavailable as error:
            self._report(_fail, opened, error)
            return
        try:
            contents = file.load(self._kept)
        except StoreUnavailable as error:
            file.close()
            self._report(_fail, opened, error)
            return
        self._report(_succeed, opened, contents)
        del contents
        try:
            while self._work(file):
                pass
        except BaseException as error:
            # A bug of ours. Nothing may wait for a dead writer; what was not acknowledged may or may not be on disk.
            self._report(self._stopped, f"{type(error).__name__}: {error}")
            raise
        finally:
            file.close()

    def _work(self, file: SqliteFile) -> bool:
        """Do the next job in the queue. Returns whether to continue: close queues None last, with nothing behind it."""
        job = self._jobs.get()
        if isinstance(job, _Prune):
            self._prune(file, job)
        elif isinstance(job, _Check):
            self._check_room(file, job)
        elif job is not None:
            self._commit(file, job)
        return job is not None

    def _commit(self, file: SqliteFile, writes: list[_Write]) -> None:
        failure: StoreUnavailable | None = None
        try:
            file.append([write.event for write in writes])
        except StoreUnavailable as error:
            failure = error
        self._report(self._finish, writes, failure)

    def _prune(self, file: SqliteFile, prune: _Prune) -> None:
        try:
            file.prune(prune.dropped, prune.compacted)
        except StoreUnavailable as error:
            # The rows stay, as unnecessarily long history, until pruned after a later start.
            if prune.answer is not None:
                self._report(_fail, prune.answer, error)
            return
        if prune.answer is not None:
            self._report(_succeed, prune.answer, None)

    def _check_room(self, file: SqliteFile, check: _Check) -> None:
        refusal: StoreUnavailable | None = None
        try:
            file.check_room(doubtful=check.doubtful)
        except StoreUnavailable as error:
            refusal = error
        self._report(self._checked, refusal)

    def _report(self, callback: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None, "the writer runs only after open"
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:
            # The loop was closed without closing the store: nothing waits for this.
            return


def _succeed(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: StoreUnavailable) -> None:
    if not answer.done():
        answer.set_exception(error)
