"""The store on etcd 3.5 or newer: kube-apiserver's keys, and JSON values, which kube-apiserver can always read.

Has no state except a cache of decoded objects, so several API servers can share one etcd. The resourceVersion is not in
the stored text: it is etcd's revision, known only afterwards, and is put into objects as they are read.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection

import msgspec

from allot.core.quoting import html_escaped
from allot.store.entry import DecodedObjects, Entry, LastState, Object, stamp
from allot.store.etcd_client import COMPACTED_TEXT, FUTURE_TEXT, EtcdClient, EtcdOptions, Refused, TxnResult
from allot.store.etcd_watch import EtcdWatch
from allot.store.port import (
    ChangeCount,
    Compacted,
    Fault,
    FutureRevision,
    KeyExists,
    KeyNotFound,
    Page,
    RevisionConflict,
    StoreError,
    StoreUnavailable,
    Watch,
)
from allot.store.sortedkeys import end_of
from allot.wire import etcd_pb2 as pb

ROOT = "/registry"
VERSION_MIN = (3, 5)
# Entries per request: about 10 MiB of typical objects.
RANGE_MAX = 5_000
CACHED_MAX = 20_000

# A stored value -> its object, without resourceVersion and not shared; ValueError if it is not understood.
Read = Callable[[bytes], Object]


def read_json(raw: bytes) -> Object:
    """An object stored as JSON, in its stored version."""
    try:
        decoded: Object = msgspec.json.decode(raw, type=dict)
    except msgspec.DecodeError as error:
        raise ValueError(f"it is not a JSON object: {error}") from error
    return decoded


class StoredEntry(Entry):
    """An entry as stored in etcd: without its resourceVersion, which is added on first use of the object."""

    __slots__ = ("_raw", "_read")

    def __init__(self, key: str, raw: bytes, revision: int, kept: DecodedObjects, read: Read) -> None:
        super().__init__(key, None, revision, None, kept)
        self._raw = raw
        self._read = read

    @property
    def size_bytes(self) -> int:
        """The length of the stored text."""
        return len(self._raw)

    def forget_object(self) -> None:
        """It can always be recreated."""
        self._object = None

    def _decode(self) -> Object:
        try:
            decoded = self._read(self._raw)
            stamp(decoded, self.revision)
        except (ValueError, TypeError, AttributeError) as error:
            raise StoreUnavailable(f"etcd key {self.key!r}: does not hold a Kubernetes object: {error}") from error
        return decoded


class Entries:
    """Creates entries from what etcd sends, the same entry for the same revision of a key, so that it is decoded only once."""

    def __init__(self, prefix: str, decoded_bytes_max: int, read: Read) -> None:
        self._prefix = prefix
        self._read = read
        self._kept = DecodedObjects(decoded_bytes_max)
        self._cached: dict[tuple[str, int], Entry] = {}

    def stored_key(self, key: str) -> bytes:
        """The key in etcd."""
        if not key.startswith(ROOT):
            raise StoreUnavailable(f"key {key!r}: does not begin with {ROOT}")
        return (self._prefix + key[len(ROOT) :]).encode()

    def stored_end(self, prefix: str) -> bytes:
        """The first key in etcd after everything that starts with a prefix."""
        return end_of(self.stored_key(prefix).decode()).encode()

    def key(self, stored: bytes) -> str:
        """Our key for a key in etcd."""
        return ROOT + stored.decode(errors="replace")[len(self._prefix) :]

    def entry(self, kv: pb.KeyValue) -> Entry:
        """The entry of a key as of its last change."""
        key = self.key(kv.key)
        found = self._cached.get((key, kv.mod_revision))
        if found is None:
            found = StoredEntry(key, kv.value, kv.mod_revision, self._kept, self._read)
            self._remember(found)
        return found

    def written(self, key: str, object_: Object, raw: bytes, revision: int) -> Entry:
        """The entry of an object that was just written."""
        found = self._cached.get((key, revision))
        if found is None:
            stamp(object_, revision)
            found = StoredEntry(key, raw, revision, self._kept, self._read)
            found._object = object_
            self._kept.admit(found)
            self._remember(found)
        return found

    def _remember(self, entry: Entry) -> None:
        self._cached[entry.key, entry.revision] = entry
        if len(self._cached) > CACHED_MAX:
            del self._cached[next(iter(self._cached))]


class EtcdStore:
    """The store port on etcd."""

    def __init__(
        self, options: EtcdOptions, read: Read = read_json, *, decoded_bytes_max: int = 64 * 1024 * 1024
    ) -> None:
        """read: decodes what others have stored; this store writes JSON."""
        self._client = EtcdClient(options)
        self._entries = Entries(options.prefix.rstrip("/"), decoded_bytes_max, read)

    # -- lifecycle ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and check the version; see the port."""
        self._client.open()
        try:
            version = (await self._client.status()).version
        except StoreError:
            await self._client.close()
            raise
        numbers = re.match(r"(\d+)\.(\d+)", version)
        if numbers is None or (int(numbers[1]), int(numbers[2])) < VERSION_MIN:
            await self._client.close()
            raise StoreUnavailable(f"{self._client}: is version {version or 'unknown'}; 3.5 or newer is needed")

    async def close(self) -> None:
        """Disconnect; watches end."""
        await self._client.close()

    # -- reads --------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Ask etcd for its alarms: while one is raised, it refuses writes but still answers reads."""
        problems = (await self._client.status()).errors
        if problems:
            full = any("NOSPACE" in problem for problem in problems)
            advice = "compact and defragment etcd, or raise its quota, then disarm the alarm" if full else "see its log"
            raise StoreUnavailable(
                f"{self._client}: {', '.join(problems)}; {advice}", Fault.DISK_FULL if full else Fault.DAMAGED
            )

    async def revision(self) -> int:
        """The newest revision."""
        request = pb.RangeRequest(key=self._entries.stored_key(ROOT), count_only=True)
        return (await self._client.range(request)).header.revision

    async def get(self, key: str) -> Entry | None:
        """The current state of a key."""
        answer = await self._client.range(pb.RangeRequest(key=self._entries.stored_key(key)))
        return self._entries.entry(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str, *, limit: int = 0, continue_key: str = "", revision: int | None = None) -> Page:
        """A page of a list; see the port. Read in parts of bounded size, all as of the revision of the first."""
        entries: list[Entry] = []
        start = self._entries.stored_key(max(prefix, continue_key))
        end = self._entries.stored_end(prefix)
        as_of = revision or 0
        while True:
            part = min(limit - len(entries), RANGE_MAX) if limit else RANGE_MAX
            answer = await self._range(pb.RangeRequest(key=start, range_end=end, limit=part, revision=as_of))
            as_of = as_of or answer.header.revision
            entries += map(self._entries.entry, answer.kvs)
            remaining = answer.count - len(answer.kvs)
            if not answer.kvs or not remaining or len(entries) == limit:
                break
            start = answer.kvs[-1].key + b"\0"
        continue_key = entries[-1].key + "\0" if entries and remaining else ""
        return Page(tuple(entries), as_of, continue_key, remaining)

    async def _range(self, request: pb.RangeRequest) -> pb.RangeResponse:
        try:
            return await self._client.range(request)
        except Refused as refused:
            if COMPACTED_TEXT in refused.text:
                raise Compacted(request.revision, request.revision + 1) from refused
            if FUTURE_TEXT in refused.text:
                raise FutureRevision(request.revision, await self.revision()) from refused
            raise StoreUnavailable(f"{self._client}: {refused.text}") from refused

    def last_change(self, folder: str) -> int | None:  # noqa: ARG002
        """Not known: others write to the same etcd."""
        return None

    def count_changes(self, folders: Collection[str]) -> ChangeCount | None:  # noqa: ARG002
        """Not known either."""
        return None

    def watch(self, prefix: str, after: int) -> Watch:
        """Changes below a prefix; see the port."""
        return EtcdWatch(self._client, self._entries, prefix, after, self._check_kept)

    async def _check_kept(self, revision: int) -> None:
        """Raise unless the state as of a revision, and so every change after it, is still kept."""
        if revision > 0:
            await self._range(pb.RangeRequest(key=self._entries.stored_key(ROOT), count_only=True, revision=revision))

    # -- writes -------------------------------------------------------------------------------------------------------

    async def create(self, key: str, object_: Object) -> Entry:
        """Add a key; see the port."""
        stored = self._entries.stored_key(key)
        raw = _encode(object_)
        absent = pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=stored, mod_revision=0)
        outcome = await self._swap(absent, _put(stored, raw))
        if outcome.answer.succeeded:
            return self._entries.written(key, object_, raw, outcome.answer.header.revision)
        present = _present(outcome)
        if present is None:
            raise StoreUnavailable(f"{self._client}: key {key!r} is neither there nor not there")
        if outcome.repeated and present.value == raw:
            return self._entries.entry(present)
        raise KeyExists(key, self._entries.entry(present))

    async def update(self, key: str, object_: Object, expected: int) -> Entry:
        """Replace a key; see the port."""
        stored = self._entries.stored_key(key)
        raw = _encode(object_)
        outcome = await self._swap(_at(stored, expected), _put(stored, raw))
        if outcome.answer.succeeded:
            return self._entries.written(key, object_, raw, outcome.answer.header.revision)
        present = _present(outcome)
        if present is None:
            raise KeyNotFound(key)
        # An attempt whose answer was lost succeeded. Another writer of the same text at the same time would have caused a conflict.
        if outcome.repeated and present.value == raw and present.mod_revision > expected:
            return self._entries.entry(present)
        raise RevisionConflict(key, expected, self._entries.entry(present))

    async def delete(self, key: str, expected: int) -> Entry:
        """Remove a key; see the port."""
        stored = self._entries.stored_key(key)
        removal = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=stored, prev_kv=True))
        outcome = await self._swap(_at(stored, expected), removal)
        if outcome.answer.succeeded:
            removed = outcome.answer.responses[0].response_delete_range.prev_kvs[0]
            return LastState(self._entries.entry(removed), outcome.answer.header.revision)
        present = _present(outcome)
        if present is None and outcome.repeated:
            raise StoreUnavailable(f"{self._client}: key {key!r} is gone, the outcome of this delete is unknown")
        if present is None:
            raise KeyNotFound(key)
        raise RevisionConflict(key, expected, self._entries.entry(present))

    async def compact(self, revision: int) -> None:
        """Forget history before a revision; see the port."""
        try:
            await self._client.compact(pb.CompactionRequest(revision=revision))
        except Refused as refused:
            if FUTURE_TEXT in refused.text:
                raise FutureRevision(revision, await self.revision()) from refused
            if COMPACTED_TEXT not in refused.text:
                raise StoreUnavailable(f"{self._client}: {refused.text}") from refused

    async def _swap(self, compare: pb.Compare, operation: pb.RequestOp) -> TxnResult:
        present = pb.RequestOp(request_range=pb.RangeRequest(key=compare.key))
        request = pb.TxnRequest(compare=[compare], success=[operation], failure=[present])
        writing = asyncio.ensure_future(self._client.txn(request))
        try:
            return await asyncio.shield(writing)
        except Refused as refused:
            raise StoreUnavailable(f"{self._client}: {refused.text}") from refused
        except asyncio.CancelledError:
            # The write cannot be recalled, and what callers do next depends on what is stored at its end. The client's own
            # time limit ends it.
            await asyncio.gather(writing, return_exceptions=True)
            raise


def _encode(object_: Object) -> bytes:
    """As kube-apiserver stores it: without resourceVersion."""
    metadata = dict(object_.get("metadata", {}))
    metadata.pop("resourceVersion", None)
    return html_escaped(msgspec.json.encode({**object_, "metadata": metadata}))


def _put(stored: bytes, raw: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=stored, value=raw))


def _at(stored: bytes, expected: int) -> pb.Compare:
    # -1 for 0, which in etcd is the revision of a key that does not exist.
    return pb.Compare(
        result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=stored, mod_revision=expected if expected > 0 else -1
    )


def _present(outcome: TxnResult) -> pb.KeyValue | None:
    """What the key held when a compare failed."""
    kvs = outcome.answer.responses[0].response_range.kvs
    return kvs[0] if kvs else None
