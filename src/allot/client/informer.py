"""Informers: keep the objects of a resource in memory, and report every change once and in order.

An informer lists, then watches from there; when the watch ends it continues after the last change that it saw. Only if the server
no longer has that version (410) does it list again and report the difference. Missed deletions are reported with the last known
state. Handlers are plain functions, called one by one as changes arrive: they add a key to a work queue and return. Nothing is
buffered, so a slow handler slows the reading of the watch and memory does not grow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from allot.client.backoff import Backoff
from allot.client.cache import Cache, IndexFunction
from allot.client.errors import (
    ApiError,
    BadRequest,
    Gone,
    Invalid,
    ResourceVersionTooLarge,
    UnexpectedAnswer,
    Unreachable,
    error_from_answer,
)
from allot.client.transport import BatchedEvents, WatchEvent
from allot.process.clock import Clock
from allot.process.ids import Ids

Object = dict[str, Any]
T = TypeVar("T")

_log = logging.getLogger("allot.client")

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
# As in client-go: between this and twice as much, so that watches do not all end together.
WATCH_SECONDS_MIN = 300
# A server that never ends the initial events does not support them.
_INITIAL_EVENTS_TIMEOUT_S = 60.0
# A watch that ends sooner without events indicates a failing server.
_SHORT_WATCH_S = 1.0
_CHANGES_PER_TICK = 500


class Change(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What happened to an object. Added: old is None. Deleted: new is None."""

    key: str
    old: T | None
    new: T | None
    # Deleted unseen: old is the last known state, perhaps not the final one.
    is_final_state_unknown: bool = False
    # Added by the initial list, or reported to a handler that was added later.
    is_initial: bool = False

    @property
    def object(self) -> T:
        """The newest state."""
        found = self.new if self.new is not None else self.old
        assert found is not None, f"change of {self.key!r} without an object"
        return found


Handler = Callable[[Change[T]], None]


class _Held(msgspec.Struct, Generic[T], frozen=True):
    """A cached object with its version and uid."""

    object: T
    version: str
    uid: str
    # The object as sent by the server, if requested for writing it back.
    source: Object | None = None


class _Step(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A pending change: held replaces the cached object, None removes it."""

    key: str
    held: _Held[T] | None
    # The final state of a deleted object, if it was seen.
    final: T | None = None
    is_initial: bool = False


class Page(Protocol):
    """The part of a list that informers need."""

    @property
    def items(self) -> tuple[Object, ...]:
        """The objects."""

    @property
    def resource_version(self) -> str:
        """The version of the list."""


class Watched(Protocol):
    """What an informer needs from a resource; `ResourceClient` implements it."""

    @property
    def plural(self) -> str:
        """Its name, for messages."""

    async def list(self, namespace: str = "", *, label_selector: str = "", field_selector: str = "") -> Page:
        """All objects."""

    def watch(
        self,
        namespace: str = "",
        *,
        resource_version: str = "",
        label_selector: str = "",
        field_selector: str = "",
        bookmarks: bool = True,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Watch for changes."""


class Informer(Generic[T]):
    """Keeps the objects of a resource. decode turns a JSON value into what the cache holds and handlers receive."""

    def __init__(
        self,
        resource: Watched,
        decode: Callable[[Object], T],
        clock: Clock,
        ids: Ids,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        indexers: Mapping[str, IndexFunction[T]] | None = None,
        use_watch_list: bool = True,
    ) -> None:
        self._resource = resource
        self._decode = decode
        self._clock = clock
        self._ids = ids
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._use_watch_list = use_watch_list
        self.cache: Cache[T] = Cache(indexers)
        self._held: dict[str, _Held[T]] = {}
        self._handlers: tuple[Handler[T], ...] = ()
        # Pending steps, so that a failing handler loses none. At most as many as one list has.
        self._pending: deque[_Step[T]] = deque()
        self._resource_version = ""
        self._keeps_sources = False
        self._synced = asyncio.Event()
        self._backoff = Backoff(clock, ids)
        # Why the last request to the server failed; empty if it did not.
        self.problem = ""

    # --- for users ---

    @property
    def has_synced(self) -> bool:
        """Whether the first list is in the cache and was reported to the handlers."""
        return self._synced.is_set()

    @property
    def resource_version(self) -> str:
        """The last version that the informer has seen."""
        return self._resource_version

    def has_seen(self, version: str) -> bool:
        """Whether everything up to a resourceVersion is in the cache."""
        if self._pending or not (version.isdigit() and self._resource_version.isdigit()):
            return False
        return int(self._resource_version) >= int(version)

    async def wait_synced(self) -> None:
        """Wait until the cache is filled. Another task runs the informer."""
        await self._synced.wait()

    def add_handler(self, handler: Handler[T]) -> Callable[[], None]:
        """Report every change from now on to a handler, starting with all current objects as additions. Returns how to
        stop that."""
        self._handlers = (*self._handlers, handler)
        for key, held in tuple(self._held.items()):
            handler(Change(key=key, old=None, new=held.object, is_initial=True))

        def remove() -> None:
            self._handlers = tuple(kept for kept in self._handlers if kept is not handler)

        return remove

    def keep_sources(self) -> None:
        """From now on also keep objects as the server sent them (`source`)."""
        self._keeps_sources = True

    def source(self, key: str, version: str) -> Object | None:
        """An object of that resourceVersion as the server sent it, if kept. It is shared: never change it."""
        held = self._held.get(key)
        return held.source if held is not None and held.version == version else None

    async def run(self) -> None:
        """Maintain the cache until cancelled. After an exception in a handler, run it again to continue after it."""
        await self._settle()
        while True:
            try:
                if not self._resource_version:
                    await self._fill()
                await self._follow()
            except Gone:
                _log.info("informer of %s: history is gone, listing again", self._resource.plural)
                self._resource_version = ""
                await self._pause_after_gone()
            except ApiError as error:
                if isinstance(error, UnexpectedAnswer | ResourceVersionTooLarge):
                    # Resuming there would repeat the error.
                    self._resource_version = ""
                self.problem = str(error)
                pause = max(self._backoff.next_s(), error.retry_after_s or 0.0)
                _log.warning("informer of %s: %s; next try in %.1f s", self._resource.plural, error, pause)
                await self._clock.sleep(pause)

    async def _pause_after_gone(self) -> None:
        """List again at once, but not in a tight loop, in case the server forgets immediately."""
        await self._clock.sleep(self._backoff.next_s() * 0.1)

    # --- filling ---

    async def _fill(self) -> None:
        """All current objects, by a streaming list if the server supports it, else by a list."""
        if self._use_watch_list:
            try:
                await self._fill_by_watch()
                return
            except (Invalid, BadRequest, _NoInitialEvents) as error:
                _log.info("informer of %s: listing instead of streaming: %s", self._resource.plural, error)
                self._use_watch_list = False
        page = await self._resource.list(
            self._namespace, label_selector=self._label_selector, field_selector=self._field_selector
        )
        await self._replace({_key_of(item): item for item in page.items}, page.resource_version)

    async def _fill_by_watch(self) -> None:
        """The streaming list: initial events up to a bookmark, then changes on the same watch."""
        found: dict[str, Object] = {}
        async with self._watch(send_initial_events=True) as events:
            try:
                async with asyncio.timeout(_INITIAL_EVENTS_TIMEOUT_S) as waiting:
                    async for event in events:
                        if event.type == "ERROR":
                            raise error_from_answer(0, event.object, f"watch of {self._resource.plural}")
                        if event.type == "BOOKMARK":
                            if _marks_end(event.object):
                                break
                        elif event.type == "DELETED":
                            found.pop(_key_of(event.object), None)
                        else:
                            found[_key_of(event.object)] = event.object
                        loop = asyncio.get_running_loop()
                        waiting.reschedule(loop.time() + _INITIAL_EVENTS_TIMEOUT_S)
                    else:
                        raise Unreachable("the watch ended before the end of its initial events")
            except TimeoutError:
                raise _NoInitialEvents("the end of the initial events was not told") from None
            await self._replace(found, _version_of(event.object))
            await self._consume(events)

    async def _replace(self, found: Mapping[str, Object], resource_version: str) -> None:
        """Update the cache to what was found and report the difference."""
        if not resource_version:
            raise UnexpectedAnswer(f"a list of {self._resource.plural} without a resourceVersion")
        steps: list[_Step[T]] = [_Step(key=key, held=None) for key in self._held if key not in found]
        for count, (key, item) in enumerate(found.items(), 1):
            if count % _CHANGES_PER_TICK == 0:
                await asyncio.sleep(0)
            before = self._held.get(key)
            _, version, uid = _identity_of(item)
            if before is None or (before.version, before.uid) != (version, uid):
                held = self._hold(key, version, uid, item)
                steps.extend(_steps(key, before, held, is_initial=not self.has_synced))
        self._pending.extend(steps)
        # From here on the difference will be reported even if a handler fails, so it counts as seen.
        self._resource_version = resource_version
        self.problem = ""
        await self._settle()

    async def _settle(self) -> None:
        """Do all pending steps, yielding occasionally."""
        while self._pending:
            for _ in range(min(len(self._pending), _CHANGES_PER_TICK)):
                self._make(self._pending.popleft())
            if self._pending:
                await asyncio.sleep(0)
        if self._resource_version:
            self._synced.set()

    # --- following ---

    async def _follow(self) -> None:
        """Changes after the last one seen, watch after watch."""
        while True:
            started = self._clock.monotonic()
            async with self._watch() as events:
                self.problem = ""
                told = await self._consume(events)
            if told:
                self._backoff.reset()
            elif self._clock.monotonic() - started < _SHORT_WATCH_S:
                await self._clock.sleep(self._backoff.next_s())

    async def _consume(self, events: AsyncIterator[WatchEvent]) -> int:
        """Report the changes of one watch until it ends; returns the number of events."""
        count = gave_way = 0
        if isinstance(events, BatchedEvents):
            # In the same process: events arrive in batches, without an event loop step for each.
            async for batch in events.batches():
                for event in batch:
                    self._take(event)
                count += len(batch)
                if count - gave_way >= _CHANGES_PER_TICK:
                    gave_way = count
                    await asyncio.sleep(0)
            return count
        async for event in events:
            count += 1
            if count % _CHANGES_PER_TICK == 0:
                # Events of one batch are read without waiting, so yield to other tasks.
                await asyncio.sleep(0)
            self._take(event)
        return count

    def _take(self, event: WatchEvent) -> None:
        """Report one event of a watch."""
        type_, item = event.type, event.object
        if type_ == "ERROR":
            raise error_from_answer(0, item, f"watch of {self._resource.plural}")
        if type_ == "ADDED" or type_ == "MODIFIED":
            self._apply(item)
        elif type_ == "DELETED":
            self._apply_deletion(item)
        elif type_ == "BOOKMARK":
            version = _version_of(item)
            self._check_order(version)
            self._resource_version = version or self._resource_version
        else:
            _log.warning("informer of %s: unknown watch event %.50r", self._resource.plural, type_)

    def _check_order(self, version: str) -> None:
        if _goes_back(self._resource_version, version):
            raise Gone(f"the server's history went back from {self._resource_version} to {version}", code=410)

    def _apply(self, item: Object) -> None:
        key, version, uid = _identity_of(item)
        self._check_order(version)
        before, held = self._held.get(key), self._hold(key, version, uid, item)
        self._resource_version = version or self._resource_version
        if held is not None and not self._pending and (before is None or before.uid == held.uid):
            # The usual case: one step, and none pending.
            self._put(key, before, held)
            return
        self._pending.extend(_steps(key, before, held))
        self._make_pending()

    def _apply_deletion(self, item: Object) -> None:
        key, version, uid = _identity_of(item)
        last = self._hold(key, version, uid, item) if key in self._held else None
        self._pending.append(_Step(key=key, held=None, final=last.object if last is not None else None))
        self._resource_version = version or self._resource_version
        self._make_pending()

    def _make_pending(self) -> None:
        while self._pending:
            self._make(self._pending.popleft())

    def _make(self, step: _Step[T]) -> None:
        """Update the cache, then call every handler."""
        key, held, before = step.key, step.held, self._held.get(step.key)
        if held is not None:
            self._put(key, before, held, is_initial=step.is_initial)
        elif before is not None:
            del self._held[key]
            self.cache.remove(key)
            old = before.object if step.final is None else step.final
            self._tell(Change(key=key, old=old, new=None, is_final_state_unknown=step.final is None))

    def _put(self, key: str, before: _Held[T] | None, held: _Held[T], *, is_initial: bool = False) -> None:
        if before is None:
            change = Change(key=key, old=None, new=held.object, is_initial=is_initial)
        elif before.version == held.version and before.uid == held.uid:
            return
        else:
            change = Change(key=key, old=before.object, new=held.object)
        self._held[key] = held
        self.cache.put(key, held.object)
        self._tell(change)

    def _tell(self, change: Change[T]) -> None:
        _call_all(self._handlers, change)

    # --- small parts ---

    def _watch(self, *, send_initial_events: bool = False) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._resource.watch(
            self._namespace,
            resource_version="" if send_initial_events else self._resource_version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            bookmarks=True,
            send_initial_events=send_initial_events,
            timeout_seconds=int(WATCH_SECONDS_MIN * (1 + self._ids.jitter())),
        )

    def _hold(self, key: str, version: str, uid: str, item: Object) -> _Held[T] | None:
        """What to cache of an object. One that cannot be decoded is skipped and reported, without affecting the others."""
        try:
            object_ = self._decode(item)
        except (ApiError, ValueError) as error:
            _log.warning("informer of %s: leaving out %s: %s", self._resource.plural, key, error)
            return None
        return _Held(object_, version, uid, item if self._keeps_sources else None)


def _steps(key: str, before: _Held[T] | None, held: _Held[T] | None, *, is_initial: bool = False) -> list[_Step[T]]:
    """The steps from the cached object to a new state. An object that was recreated unseen is reported as a deletion and an
    addition, not as an update.
    """
    steps = [_Step(key=key, held=held, is_initial=is_initial)]
    if before is not None and held is not None and before.uid != held.uid:
        steps.insert(0, _Step(key=key, held=None))
    return steps


def _call_all(handlers: tuple[Handler[T], ...], change: Change[T], first: int = 0) -> None:
    """Call every handler, even if one fails, and then raise."""
    place = first
    try:
        for handler in handlers[first:] if first else handlers:
            place += 1
            handler(change)
    finally:
        if place < len(handlers):
            _call_all(handlers, change, place)


class _NoInitialEvents(Exception):
    """The server does not support streaming lists."""


def _metadata(item: Object) -> Mapping[str, Any]:
    metadata = item.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _identity_of(item: Object) -> tuple[str, str, str]:
    """Key, version and uid of an object."""
    metadata = _metadata(item)
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if not isinstance(name, str) or not name:
        raise UnexpectedAnswer("an object without a name in a list or watch")
    version, uid = str(metadata.get("resourceVersion", "")), str(metadata.get("uid", ""))
    return f"{namespace}/{name}" if namespace else name, version, uid


def _key_of(item: Object) -> str:
    return _identity_of(item)[0]


def _version_of(item: Object) -> str:
    return str(_metadata(item).get("resourceVersion", ""))


def _marks_end(item: Object) -> bool:
    annotations = _metadata(item).get("annotations")
    return isinstance(annotations, dict) and annotations.get(INITIAL_EVENTS_END) == "true"


def _goes_back(before: str, now: str) -> bool:
    """Whether a later event has an earlier version: the server lost its history. Versions are numbers, by contract since
    Kubernetes 1.35 and in practice before; anything else is not compared.
    """
    if (len(now), now) >= (len(before), before):
        return False
    return before.isdigit() and now.isdigit()
