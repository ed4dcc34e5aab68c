"""Watches: the changes of the selected objects after a revision, as they happen.

A change that makes an object match the selectors is reported as ADDED, one that makes it stop matching as DELETED. A client
that falls too far behind gets 410 Expired and lists again. Bookmarks report progress while nothing that a watch
selects has changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from allot.apiserver.errors import StatusError, expired, too_large_resource_version, unavailable
from allot.apiserver.handlers.lists import chosen, parse_resource_version, selects_by_version
from allot.apiserver.objects.options import ListOptions
from allot.apiserver.objects.selection import Selection
from allot.apiserver.registry import Served
from allot.apiserver.request import WatchEvent
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.store.port import (
    Compacted,
    Entry,
    Event,
    EventType,
    FutureRevision,
    Progress,
    Store,
    StoreUnavailable,
    Watch,
)

BOOKMARK_EVERY_S = 60.0
TIMEOUT_MIN_S = 1800
_BOOKMARK_BEFORE_END_S = 2.0
# The most events sent at once; a large one ends its batch.
_BATCH_EVENTS_MAX = 64
_LARGE_BYTES = 64 * 1024
_INITIAL_EVENTS_END = {"k8s.io/initial-events-end": "true"}


async def open_watch(
    store: Store,
    served: Served,
    namespace: str,
    options: ListOptions,
    selection: Selection,
    *,
    clock: Clock,
    ids: Ids,
) -> ObjectWatch:
    """A watch that has not delivered anything yet; StatusError if it cannot start."""
    prefix = served.prefix(namespace)
    revision = parse_resource_version(options.resource_version) if options.resource_version else 0
    initial: tuple[Entry, ...] = ()
    wanted = options.send_initial_events
    if wanted or (wanted is None and revision == 0):
        page = await store.list(prefix)
        if revision > page.revision:
            raise too_large_resource_version(revision, page.revision)
        initial, revision = page.entries, page.revision
    elif revision == 0:
        revision = await store.revision()
    initial = await chosen(initial, selection, served)
    duration = options.timeout_seconds or int(TIMEOUT_MIN_S * (1 + ids.jitter()))
    watch = ObjectWatch(served, selection, clock, duration, bookmarks=options.allow_watch_bookmarks)
    watch.begin(store, prefix, revision, initial, marks_end=bool(wanted))
    return watch


class ObjectWatch:
    """An open watch."""

    def __init__(self, served: Served, selection: Selection, clock: Clock, duration: float, *, bookmarks: bool) -> None:
        self._served = served
        self._selection = selection
        self._selects_by_version = selects_by_version(selection, served)
        self._clock = clock
        self._ends = clock.monotonic() + duration
        self._bookmarks = bookmarks
        self._next_bookmark = clock.monotonic() + min(BOOKMARK_EVERY_S, max(duration - _BOOKMARK_BEFORE_END_S, 0.0))
        self._initial: list[WatchEvent] = []
        self._seen = 0
        self._watch: Watch | None = None

    def begin(self, store: Store, prefix: str, revision: int, initial: tuple[Entry, ...], *, marks_end: bool) -> None:
        """Start watching, and queue the initial events: the selected objects as of the revision."""
        self._seen = revision
        self._watch = store.watch(prefix, revision)
        # Already in the version of the row.
        self._initial += [WatchEvent("ADDED", None, entry) for entry in initial]
        if marks_end and self._bookmarks:
            self._initial.append(self._bookmark(_INITIAL_EVENTS_END))

    @property
    def served(self) -> Served:
        """The row whose objects are watched."""
        return self._served

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        async with aclosing(self.batches()) as batches:
            async for events in batches:
                for event in events:
                    yield event

    async def batches(self) -> AsyncGenerator[list[WatchEvent], None]:
        """The events in batches of those that are ready; batches are bounded and never empty."""
        initial, self._initial = self._initial, []
        assert self._watch is not None, "a watch is iterated after it has begun"
        told: list[WatchEvent] = []
        for event_ in initial:
            told.append(event_)
            if _is_enough(told):
                yield told
                told = []
        if told:
            yield told
            told = []
        try:
            changes = aiter(self._watch)
            while True:
                if told and (not self._watch.has_ready or _is_enough(told)):
                    yield told
                    told = []
                change = await self._next(changes)
                if change is None:
                    # A timer may fire a moment early; a watch without bookmarks is then at its end, too.
                    if not self._bookmarks or self._clock.monotonic() >= self._ends:
                        break
                    told.append(self._bookmark({}))
                    continue
                beside = self._served.beside
                event = self._event(change) if beside is None else await beside.run(self._event, change)
                if event is not None:
                    told.append(event)
        except StopAsyncIteration:
            pass
        except Compacted as error:
            told.append(_failure(expired(f"too old resource version: {error.revision} ({error.oldest})")))
        except FutureRevision as error:
            told.append(_failure(too_large_resource_version(self._seen, error.current)))
        except StoreUnavailable as error:
            told.append(_failure(unavailable(str(error))))
        except StatusError as error:
            # An object that could not be converted.
            told.append(_failure(error))
        finally:
            await self.close()
        if told:
            yield told

    async def _next(self, changes: AsyncIterator[Event | Progress]) -> Event | Progress | None:
        """The next change, or None when a bookmark is due or the time is up."""
        until = min(self._ends, self._next_bookmark) if self._bookmarks else self._ends
        remaining = until - self._clock.monotonic()
        assert self._watch is not None, "a watch is read after it has begun"
        if remaining > 0 and self._watch.has_ready:
            return await anext(changes)
        try:
            async with asyncio.timeout(max(remaining, 0)):
                return await anext(changes)
        except TimeoutError:
            return None

    def _event(self, change: Event | Progress) -> WatchEvent | None:
        self._seen = change.revision
        if isinstance(change, Progress):
            return None
        entry, before = change.entry, change.before
        if self._selection.everything:
            return self._told(change.type, entry)
        if self._selects_by_version:
            # Together, as a webhook may have to be called.
            entry, *earlier = self._served.present_entries((entry,) if before is None else (entry, before))
            before = earlier[0] if earlier else None
        is_selected = change.type is not EventType.DELETED and self._selection.matches(entry.object)
        was_selected = before is not None and self._selection.matches(before.object)
        if is_selected:
            return self._told("MODIFIED" if was_selected else "ADDED", entry)
        if not was_selected:
            return None
        if change.type is EventType.DELETED:
            return self._told("DELETED", entry)
        assert before is not None, "what was selected was there"
        return self._told("DELETED", Entry(entry.key, _at_revision(before.object, change.revision), change.revision))

    def _told(self, type_: str, entry: Entry) -> WatchEvent:
        shown = self._served.present_entry(entry)
        return WatchEvent(type_, None, shown)

    def _bookmark(self, annotations: dict[str, str]) -> WatchEvent:
        now = self._clock.monotonic()
        self._next_bookmark = now + BOOKMARK_EVERY_S
        if now < self._ends - _BOOKMARK_BEFORE_END_S < self._next_bookmark:
            self._next_bookmark = self._ends - _BOOKMARK_BEFORE_END_S
        metadata: dict[str, Any] = {"resourceVersion": str(self._seen), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        resource = self._served.resource
        object_ = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
        return WatchEvent("BOOKMARK", object_)

    async def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            await self._watch.close()


def _is_enough(told: list[WatchEvent]) -> bool:
    """Whether to send the events before collecting more."""
    last = told[-1].entry
    return len(told) >= _BATCH_EVENTS_MAX or (last is not None and last.size_bytes > _LARGE_BYTES)


def _at_revision(object_: dict[str, Any], revision: int) -> dict[str, Any]:
    return {**object_, "metadata": {**object_["metadata"], "resourceVersion": str(revision)}}


def _failure(error: StatusError) -> WatchEvent:
    return WatchEvent("ERROR", error.status())
