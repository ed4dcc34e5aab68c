"""A watch on etcd that survives connections: it remembers its position and resumes there, at any member.

etcd sends all changes of one revision in one answer, so resuming from the revision of the last change received
neither loses nor repeats any.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import grpc

from allot.store.entry import Entry, LastState
from allot.store.etcd_client import EtcdClient, reader_cancelled
from allot.store.port import Compacted, Event, EventType, Progress, StoreUnavailable
from allot.wire import etcd_pb2 as pb


class Entries(Protocol):
    """Converts etcd's keys and values to ours."""

    def stored_key(self, key: str) -> bytes:
        """The key in etcd."""

    def stored_end(self, prefix: str) -> bytes:
        """The first key in etcd after everything that starts with a prefix."""

    def entry(self, kv: pb.KeyValue) -> Entry:
        """The entry of a key as of its last change."""


class EtcdWatch:
    """A watch on etcd. One reader at a time."""

    def __init__(
        self,
        client: EtcdClient,
        entries: Entries,
        prefix: str,
        after: int,
        check_kept: Callable[[int], Awaitable[None]],
    ) -> None:
        self._client = client
        self._entries = entries
        self._prefix = prefix
        # Every change up to here was received.
        self._position = after
        self._check_kept = check_kept
        # No more than one answer of etcd; gRPC's flow control holds back the rest.
        self._buffer: deque[Event | Progress] = deque()
        self._stream: Any = None
        self._closed = False
        # Since when no member has been reachable, on the loop's clock.
        self._unreachable_since: float | None = None

    def __aiter__(self) -> EtcdWatch:
        return self

    async def __anext__(self) -> Event | Progress:
        while not self._buffer:
            if self._closed or self._client.closed:
                raise StopAsyncIteration
            try:
                if self._stream is None:
                    # etcd 3.5 can skip a deletion at the exact revision of a compaction, so its own check is not relied on.
                    await self._check_kept(self._position)
                    self._stream = self._client.watch(self._requests())
                answer = await self._stream.read()
                if answer is grpc.aio.EOF:
                    await self._lost(f"stream ended: {await self._stream.details()}")
                else:
                    self._receive(answer)
            except grpc.aio.AioRpcError as error:
                await self._lost(f"{error.code().name.lower().replace('_', ' ')}: {error.details()}")
            except asyncio.CancelledError:
                # gRPC drops the stream with the read; the next read opens a new one where this one stopped.
                self._drop()
                if reader_cancelled():
                    raise
        return self._buffer.popleft()

    @property
    def has_ready(self) -> bool:
        """Whether the next change is already here."""
        return bool(self._buffer)

    async def close(self) -> None:
        """Stop; unread changes are dropped."""
        self._closed = True
        self._buffer.clear()
        self._drop()

    def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()

    async def _requests(self) -> AsyncIterator[pb.WatchRequest]:
        yield pb.WatchRequest(
            create_request=pb.WatchCreateRequest(
                key=self._entries.stored_key(self._prefix),
                range_end=self._entries.stored_end(self._prefix),
                start_revision=self._position + 1,
                progress_notify=True,
                prev_kv=True,
            )
        )
        while not self._closed:
            await asyncio.sleep(self._client.options.progress_s)
            yield pb.WatchRequest(progress_request=pb.WatchProgressRequest())

    def _receive(self, answer: pb.WatchResponse) -> None:
        self._unreachable_since = None
        if answer.canceled:
            self._drop()
            if answer.compact_revision:
                raise Compacted(self._position, answer.compact_revision)
            raise StoreUnavailable(f"{self._client}: ended the watch on {self._prefix}: {answer.cancel_reason}")
        if answer.events:
            received = [self._event(event) for event in answer.events]
            self._buffer += received
            self._position = max(self._position, received[-1].revision)
        elif not answer.created and answer.header.revision > self._position:
            self._position = answer.header.revision
            self._buffer.append(Progress(self._position))

    def _event(self, event: pb.Event) -> Event:
        revision = event.kv.mod_revision
        before = self._entries.entry(event.prev_kv) if event.HasField("prev_kv") else None
        created = event.type == pb.Event.PUT and event.kv.create_revision == revision
        if before is None and not created:
            # The previous state was compacted away after the watch began.
            self._drop()
            raise Compacted(self._position, revision)
        if event.type == pb.Event.DELETE:
            assert before is not None, "checked above"
            return Event(EventType.DELETED, LastState(before, revision), before, revision)
        entry = self._entries.entry(event.kv)
        return Event(EventType.ADDED if created else EventType.MODIFIED, entry, None if created else before, revision)

    async def _lost(self, why: str) -> None:
        """The stream broke: go to the next member after a moment, or give up if none has answered for too long."""
        self._drop()
        if self._closed or self._client.closed:
            return
        now = asyncio.get_running_loop().time()
        if self._unreachable_since is None:
            self._unreachable_since = now
        elif now - self._unreachable_since > self._client.options.call_timeout_s:
            raise StoreUnavailable(f"{self._client}: the watch on {self._prefix} cannot continue ({why})")
        self._client.fail_over()
        await asyncio.sleep(self._client.options.retry_s)
