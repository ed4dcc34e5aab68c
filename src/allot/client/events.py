"""Records events (events.k8s.io/v1): never blocks, sends in the background.

Repeated events become a series: the second one is sent as such, later ones are counted here and written when the
series ends, and occasionally before. Too many events about one object are filtered. While the server is unavailable, the queue
fills, and excess events are dropped and counted. The numbers are client-go's.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from allot.client.api import Client, PatchType
from allot.client.backoff import TokenBucket
from allot.client.errors import AlreadyExists, ApiError, NotFound, ServerFault, TooManyRequests, Unreachable
from allot.core.model.kinds import kind_of_type
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.client")

QUEUE_MAX = 1000
# How many events are sent concurrently; events about one object are sent in order.
SENDERS = 16
# How many events must wait before another sender starts: other requests must not wait for events.
HELP_FROM = 250
TRIES_MAX = 12
TRY_PAUSE_S = 10.0
SERIES_FINISH_S = 360.0
SERIES_REFRESH_S = 1800.0
SERIES_MAX = 4096
SPAM_BURST = 25
SPAM_PER_SECOND = 1 / 300
NOTE_BYTES_MAX = 1024
_WORD_LENGTH_MAX = 128
_NAME_LENGTH_MAX = 253
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Reference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object that an event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    # The part of the object: spec.containers{name}.
    field_path: str = ""

    @classmethod
    def to(cls, object_: APIStruct | Mapping[str, Any]) -> Reference:
        """A reference to an object, typed or JSON."""
        if isinstance(object_, APIStruct):
            kind, metadata = kind_of_type(type(object_)), object_.metadata  # type: ignore[attr-defined]
            assert isinstance(metadata, ObjectMeta)
            return cls(
                api_version=kind.hub_api_version,
                kind=kind.name,
                name=metadata.name,
                namespace=metadata.namespace,
                uid=metadata.uid,
                resource_version=metadata.resource_version,
            )
        fields = object_.get("metadata") or {}
        return cls(
            api_version=str(object_.get("apiVersion", "")),
            kind=str(object_.get("kind", "")),
            name=str(fields.get("name", "")),
            namespace=str(fields.get("namespace", "")),
            uid=str(fields.get("uid", "")),
            resource_version=str(fields.get("resourceVersion", "")),
        )

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the object, or of a part of it, regardless of its state."""
        return self.api_version, self.kind, self.namespace, self.name, self.uid, self.field_path


_Key = tuple[Any, ...]


class _Series:
    """A sent event, and how often it has repeated since."""

    __slots__ = ("count", "event", "is_due_again", "is_sending", "last_observed", "last_observed_at")

    def __init__(self, event: dict[str, Any], now: str, at: float) -> None:
        self.event = event
        self.count = 1
        self.last_observed = now
        self.last_observed_at = at
        self.is_sending = False
        self.is_due_again = False

    def to_send(self) -> dict[str, Any]:
        """The event in its current state."""
        if self.count == 1:
            return self.event
        return {**self.event, "series": {"count": self.count, "lastObservedTime": self.last_observed}}


class EventCounts(msgspec.Struct):
    """What happened to the events."""

    sent: int = 0
    # Filtered: too many about one object.
    filtered: int = 0
    # The queue was full, or the server stayed unavailable.
    dropped: int = 0
    # The server refused them.
    refused: int = 0


class EventRecorder:
    """Records events of one component. Run it, or nothing is sent.

    tells_notes_apart: a different note starts a new event, as in the kubelet; otherwise it belongs to the series, as in the scheduler.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        *,
        controller: str,
        instance: str,
        queue_max: int = QUEUE_MAX,
        tells_notes_apart: bool = False,
    ) -> None:
        self._events = client.resource("events.k8s.io", "v1", "events", namespaced=True)
        self._clock = clock
        self._ids = ids
        self._controller = controller
        self._tells_notes_apart = tells_notes_apart
        self._instance = instance[:_WORD_LENGTH_MAX]
        self._queue: asyncio.Queue[_Series] = asyncio.Queue(queue_max)
        self._series: OrderedDict[_Key, _Series] = OrderedDict()
        self._buckets: OrderedDict[_Key, TokenBucket] = OrderedDict()
        self._last_nanoseconds = 0
        # Every sender except the first sleeps until enough events wait, or a caller waits for all of them.
        self._needed = [asyncio.Event() for _ in range(SENDERS)]
        self._is_flushing = False
        self.counts = EventCounts()

    def record(
        self,
        regarding: APIStruct | Mapping[str, Any] | Reference,
        type_: str,
        reason: str,
        action: str,
        note: str,
        related: APIStruct | Mapping[str, Any] | Reference | None = None,
    ) -> None:
        """Record an event about an object. type is Normal or Warning. Returns immediately."""
        if type_ not in ("Normal", "Warning"):
            raise ValueError(f"event {reason!r}: type must be Normal or Warning, got {type_!r}")
        about = regarding if isinstance(regarding, Reference) else Reference.to(regarding)
        other = related if related is None or isinstance(related, Reference) else Reference.to(related)
        text = note if self._tells_notes_apart else ""
        key = (type_, action, reason, about.key, other.key if other is not None else (), text)
        now, at = self._clock.now_micro(), self._clock.monotonic()
        series = self._series.get(key)
        if series is not None:
            self._series.move_to_end(key)
            series.count += 1
            series.last_observed, series.last_observed_at = now, at
            # The second one is sent; from the third on, counting is enough until the series ends.
            if series.count > 2:
                return
        if self._is_spam((type_, about.key)):
            self.counts.filtered += 1
            return
        if series is None:
            event = self._make(about, other, type_, reason, action, note, now)
            series = self._series[key] = _Series(event, now, at)
            if len(self._series) > SERIES_MAX:
                self._series.popitem(last=False)
        self._enqueue(series)

    @property
    def waiting(self) -> int:
        """How many events are still queued."""
        return self._queue.qsize()

    async def run(self) -> None:
        """Send what is recorded until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for rank in range(SENDERS):
                tasks.create_task(self._send_all(rank))
            tasks.create_task(self._keep_series())

    async def flush(self, timeout_s: float) -> None:
        """Wait until everything recorded so far is sent or dropped, for a limited time."""
        self._is_flushing = True
        for needed in self._needed:
            needed.set()
        try:
            async with asyncio.timeout(timeout_s):
                await self._queue.join()
        except TimeoutError:
            _log.warning("events of %s: %d not sent within %g s", self._controller, self._queue.qsize(), timeout_s)
        finally:
            self._is_flushing = False

    # --- recording ---

    def _make(
        self, about: Reference, other: Reference | None, type_: str, reason: str, action: str, note: str, now: str
    ) -> dict[str, Any]:
        event: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": self._name(about.name), "namespace": about.namespace or "default"},
            "eventTime": now,
            "reportingController": self._controller,
            "reportingInstance": self._instance,
            "action": action[:_WORD_LENGTH_MAX],
            "reason": reason[:_WORD_LENGTH_MAX],
            "regarding": msgspec.to_builtins(about),
            "note": shorten(note),
            "type": type_,
        }
        if other is not None:
            event["related"] = msgspec.to_builtins(other)
        return event

    def _name(self, about: str) -> str:
        """The object's name and the time, as usual for events; unique."""
        nanoseconds = max(int(self._clock.seconds() * 1e9), self._last_nanoseconds + 1)
        self._last_nanoseconds = nanoseconds
        name = f"{about}.{nanoseconds:x}"
        valid = len(name) <= _NAME_LENGTH_MAX and _NAME.fullmatch(name)
        return name if valid else self._ids.new_uid()

    def _is_spam(self, key: _Key) -> bool:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._clock, SPAM_PER_SECOND, SPAM_BURST)
            if len(self._buckets) > SERIES_MAX:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(key)
        return not bucket.try_take()

    def _enqueue(self, series: _Series) -> None:
        try:
            self._queue.put_nowait(series)
        except asyncio.QueueFull:
            self.counts.dropped += 1
            return
        rank = min(self._queue.qsize() // HELP_FROM, SENDERS - 1)
        if rank:
            self._needed[rank].set()

    # --- sending ---

    async def _send_all(self, rank: int) -> None:
        while True:
            if rank and not self._is_needed(rank):
                self._needed[rank].clear()
                await self._needed[rank].wait()
                continue
            series = await self._queue.get()
            try:
                await self._send_in_order(series)
            finally:
                self._queue.task_done()

    def _is_needed(self, rank: int) -> bool:
        waiting = self._queue.qsize()
        return waiting >= rank * HELP_FROM or (self._is_flushing and waiting > 0)

    async def _send_in_order(self, series: _Series) -> None:
        if series.is_sending:
            # Its current sender sends it once more.
            series.is_due_again = True
            return
        series.is_sending = True
        try:
            while True:
                series.is_due_again = False
                await self._send(series)
                if not series.is_due_again:
                    return
        finally:
            series.is_sending = False

    async def _send(self, series: _Series) -> None:
        for tries_left in range(TRIES_MAX - 1, -1, -1):
            try:
                await self._write(series.to_send())
                self.counts.sent += 1
                return
            except (Unreachable, ServerFault, TooManyRequests) as error:
                if not tries_left:
                    _log.warning("event of %s given up: %s", self._controller, error)
                    self.counts.dropped += 1
                    return
                await self._clock.sleep(TRY_PAUSE_S * (1 + 0.25 * self._ids.jitter()))
            except AlreadyExists:
                if series.count == 1:
                    # Our own earlier write, whose answer was lost.
                    self.counts.sent += 1
                    return
            except ApiError as error:
                _log.info("event of %s refused: %s", self._controller, error)
                self.counts.refused += 1
                return
        self.counts.dropped += 1

    async def _write(self, event: dict[str, Any]) -> None:
        name, namespace = event["metadata"]["name"], event["metadata"]["namespace"]
        if "series" in event:
            try:
                await self._events.patch(name, {"series": event["series"]}, PatchType.MERGE, namespace)
                return
            except NotFound:
                # It never arrived, or has expired: send it again.
                pass
        await self._events.create(event, namespace)

    # --- series ---

    async def _keep_series(self) -> None:
        refreshed_at = self._clock.monotonic()
        while True:
            await self._clock.sleep(SERIES_FINISH_S)
            refreshes = self._clock.monotonic() - refreshed_at >= SERIES_REFRESH_S
            if refreshes:
                refreshed_at = self._clock.monotonic()
            self._tell_series(refreshes)

    def _tell_series(self, refreshes: bool) -> None:
        """Write the counts of finished series, and of all series when it is time to show that they continue."""
        ended_before = self._clock.monotonic() - SERIES_FINISH_S
        for key, series in tuple(self._series.items()):
            has_ended = series.last_observed_at <= ended_before
            if has_ended:
                del self._series[key]
            if series.count > 1 and (has_ended or refreshes):
                self._enqueue(series)


def shorten(note: str) -> str:
    """A note that fits, with a mark where something was cut."""
    data = note.encode(errors="replace")
    if len(data) <= NOTE_BYTES_MAX:
        return note
    return data[: NOTE_BYTES_MAX - 3].decode(errors="ignore") + "..."
