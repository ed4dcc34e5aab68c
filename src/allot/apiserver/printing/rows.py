"""Rows of tables as bytes, cached by the revision of their object: most of what `kubectl get` shows does not change between
two requests.

Only ages change. A cached row has gaps for them, which are filled in when it is sent.
The object's metadata is not cached but cut out of its JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import msgspec

from allot.apiserver.kinds.versions import to_storage
from allot.apiserver.printing.cells import UNKNOWN, Moment, Object, Printer, duration, members, seconds_of
from allot.apiserver.resources import Resource
from allot.store.port import Entry

_ROWS_MAX = 65_536
# A private-use character on both sides of a gap's number.
_GAP = "\ue000"
_GAP_BYTES = _GAP.encode()
_OBJECT = b',"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'


class _Gaps:
    """Replaces the time while a row is built: records the times asked for, and returns gaps."""

    def __init__(self, moment: Moment) -> None:
        self._moment = moment
        self.times: list[float] = []
        # Whether the row depends on the time in another way, and cannot be cached.
        self.exact = False

    @property
    def seconds(self) -> float:
        self.exact = True
        return self._moment.seconds

    def since(self, timestamp: Any) -> str:
        then = seconds_of(timestamp) if isinstance(timestamp, str) and timestamp else None
        if then is None:
            return UNKNOWN
        self.times.append(then)
        return f"{_GAP}{len(self.times) - 1}{_GAP}"

    def until(self, timestamp: Any) -> str:
        self.exact = True
        return self._moment.until(timestamp)

    def age(self, object_: Object) -> str:
        return self.since(members(object_, "metadata").get("creationTimestamp"))


class _Metadata(msgspec.Struct):
    metadata: msgspec.Raw


_metadata = msgspec.json.Decoder(_Metadata)


class _Row:
    """A row with gaps: the text between them, the times for them, and where the metadata is in the object's JSON."""

    __slots__ = ("end", "printer", "revision", "start", "texts", "times")

    def __init__(self, revision: int, printer: Printer, texts: list[bytes], times: list[float], start: int, end: int):
        self.revision = revision
        self.printer = printer
        self.texts = texts
        self.times = times
        self.start = start
        self.end = end


class Rows:
    """The rows of one server."""

    def __init__(self, rows_max: int = _ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._rows: dict[tuple[str, str], _Row] = {}
        self._without_room = 0

    def of(self, resource: Resource, entries: Iterable[Entry], printer: Printer, moment: Moment) -> list[bytes]:
        """The rows of objects in the resource's version, each with the object's metadata."""
        known: dict[float, bytes] = {}

        def since(then: float) -> bytes:
            told = known.get(then)
            if told is None:
                told = known[then] = duration(moment.seconds - then).encode()
            return told

        rows, version, made = self._rows, resource.api_version, []
        for entry in entries:
            key = (version, entry.key)
            row = rows.get(key)
            if row is None or row.revision != entry.revision or row.printer is not printer:
                row = _row(resource, entry, printer, moment)
                if row is None:
                    made.append(_exact(resource, entry, printer, moment))
                    continue
                self._keep(key, row)
            made.append(_filled(row, entry.encoded, since))
        return made

    def _keep(self, key: tuple[str, str], row: _Row) -> None:
        """Cache a row if there is room. Cached rows stay: if a long list evicted them, all would be missing when
        the same list is requested again. After as many misses as there is room for, the cache is cleared."""
        rows = self._rows
        if len(rows) >= self._rows_max and key not in rows:
            self._without_room += 1
            if self._without_room <= self._rows_max:
                return
            rows.clear()
            self._without_room = 0
        rows[key] = row


def _filled(row: _Row, encoded: bytes, since: Callable[[float], bytes]) -> bytes:
    texts, metadata = row.texts, encoded[row.start : row.end]
    if len(texts) == 2:
        return b"%b%b%b%b%b}}" % (texts[0], since(row.times[0]), texts[1], _OBJECT, metadata)
    told = [texts[0]]
    for position, then in enumerate(row.times, start=1):
        told += (since(then), texts[position])
    return b"%b%b%b}}" % (b"".join(told), _OBJECT, metadata)


def _start(resource: Resource, entry: Entry, printer: Printer, moment: Moment) -> bytes:
    """A row without its end and its object."""
    if resource.api_version != resource.storage_api_version:
        object_ = entry.object
        shown = to_storage(object_, resource)
    else:
        # Decoded just for this unless it already is: a long list would evict what others need.
        object_ = shown = entry.decoded or printer.read(entry.encoded)
    cells, conditions = msgspec.json.encode(printer.cells(shown, moment)), printer.conditions(object_)
    told = b',"conditions":' + msgspec.json.encode(conditions) if conditions else b""
    return b'{"cells":' + cells + told


def _row(resource: Resource, entry: Entry, printer: Printer, moment: Moment) -> _Row | None:
    """A row to cache, or None if it cannot be cached."""
    encoded = entry.encoded
    if _GAP_BYTES in encoded:
        return None
    gaps = _Gaps(moment)
    parts = _start(resource, entry, printer, cast(Moment, gaps)).split(_GAP_BYTES)
    if gaps.exact:
        return None
    span = _span(encoded)
    return _Row(entry.revision, printer, parts[::2], [gaps.times[int(number)] for number in parts[1::2]], *span)


def _exact(resource: Resource, entry: Entry, printer: Printer, moment: Moment) -> bytes:
    start, end = _span(entry.encoded)
    return b"%b%b%b}}" % (_start(resource, entry, printer, moment), _OBJECT, entry.encoded[start:end])


def metadata_of(encoded: bytes) -> bytes:
    """The JSON of an object's metadata, out of that of the object."""
    return bytes(_metadata.decode(encoded).metadata)


def _span(encoded: bytes) -> tuple[int, int]:
    """Where the metadata is."""
    metadata = metadata_of(encoded)
    start = encoded.index(metadata)
    return start, start + len(metadata)
