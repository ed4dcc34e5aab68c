"""Answers as bytes: objects, lists and watch events in the negotiated format.

Stored objects are encoded once and their JSON is shared by all clients; tables and metadata-only forms are created for each
request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from allot.apiserver.handlers.lists import in_steps, list_items
from allot.apiserver.printing.cells import Moment, seconds_of
from allot.apiserver.printing.rows import Rows, metadata_of
from allot.apiserver.printing.tables import METADATA, printer_for, table_head, unstored_table
from allot.apiserver.registry import Served
from allot.apiserver.request import ApiList, ApiObject, WatchEvent
from allot.apiserver.serving.negotiation import YAML, Format
from allot.apiserver.serving.tables import table_of, table_of_event
from allot.process.clock import Clock
from allot.store.port import Entry
from allot.yaml_values.writer import yaml_text

Object = dict[str, Any]
# A text in several parts: long ones need not be joined.
Pieces = list[bytes]
# How many objects are encoded before others get a turn: about ten milliseconds.
_STEP = 1000
# YAML is encoded at a few megabytes per second; long answers outside the event loop.
_YAML_AT_ONCE_BYTES_MAX = 32 * 1024

_EVENT_START = {
    type_: f'{{"type":"{type_}","object":'.encode() for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


class Encoder:
    """Encodes the answers to one request."""

    def __init__(
        self, format_: Format, clock: Clock, *, rows: Rows | None = None, include_object: str = "", pretty: bool = False
    ) -> None:
        self._rows = rows
        self._format = format_
        self._clock = clock
        self._include_object = include_object
        self._pretty = pretty
        self._columns_told = False

    async def object(self, answer: ApiObject, served: Served | None) -> bytes:
        """One object; Status objects keep their form."""
        is_status = answer.object.get("kind") == "Status" and answer.entry is None
        if self._format.as_ and not is_status and served is not None:
            return await self._finish(msgspec.json.encode(self._transformed(answer, served)))
        if self._format.as_ == "Table" and served is None:
            told = unstored_table(answer.object, self._meta_version, self._include_object, self._clock.now())
            if told is not None:
                return await self._finish(msgspec.json.encode(told))
        encoded = answer.entry.encoded if answer.entry is not None else msgspec.json.encode(answer.object)
        return await self._finish(encoded)

    def _transformed(self, answer: ApiObject, served: Served) -> Object:
        if self._format.as_ == "Table":
            entry = answer.entry or Entry("", answer.object, 0)
            version = answer.object.get("metadata", {}).get("resourceVersion", "")
            return table_of(
                served,
                [entry],
                self._meta_version,
                self._include_object,
                self._clock.now(),
                {"resourceVersion": version},
            )
        return self._metadata_of(answer.object)

    @property
    def _meta_version(self) -> str:
        return f"{self._format.group}/{self._format.version}"

    def _metadata_of(self, object_: Object) -> Object:
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": self._meta_version,
            "metadata": object_.get("metadata", {}),
        }

    async def list(self, answer: ApiList, served: Served) -> Pieces:
        """A list, in pieces; others are served while a long one is encoded."""
        metadata: Object = {"resourceVersion": answer.resource_version}
        if answer.continue_token:
            metadata["continue"] = answer.continue_token
        if answer.remaining:
            metadata["remainingItemCount"] = answer.remaining
        match self._format.as_:
            case "":
                head: Object = {"kind": answer.kind, "apiVersion": answer.api_version, "metadata": metadata}
                pieces = await _joined(head, "items", answer.entries, lambda entries: list_items(entries, served))
            case "Table":
                pieces = await self._table(answer, served, metadata)
            case _:
                pieces = await self._metadata_list(answer, metadata)
        if self._pretty or self._format.media_type == YAML:
            return [await self._finish(b"".join(pieces))]
        return pieces

    async def _table(self, answer: ApiList, served: Served, metadata: Object) -> Pieces:
        kept = self._rows
        # Rows are kept by revision, which only stored objects have.
        if kept is None or self._include_object != METADATA or not served.resource.stored:
            now = self._clock.now()
            table = table_of(served, answer.entries, self._meta_version, self._include_object, now, metadata)
            return [msgspec.json.encode(table)]
        resource, printer = served.resource, served.printer or printer_for(served.resource)
        moment = Moment(seconds_of(self._clock.now()) or 0.0)
        head = table_head(printer, self._meta_version, metadata)
        return await _joined(head, "rows", answer.entries, lambda entries: kept.of(resource, entries, printer, moment))

    async def _metadata_list(self, answer: ApiList, metadata: Object) -> Pieces:
        head = {"kind": "PartialObjectMetadataList", "apiVersion": self._meta_version, "metadata": metadata}
        start = f'{{"kind":"PartialObjectMetadata","apiVersion":"{self._meta_version}","metadata":'.encode()
        return await _joined(
            head,
            "items",
            answer.entries,
            lambda entries: [b"%b%b}" % (start, metadata_of(entry.encoded)) for entry in entries],
        )

    def event(self, event: WatchEvent, served: Served) -> bytes:
        """One event of a watch, as a line."""
        start = _EVENT_START[event.type]
        if not self._format.as_ or event.type == "ERROR":
            body = event.entry.encoded if event.entry is not None else msgspec.json.encode(event.object)
        elif self._format.as_ == "Table":
            told = table_of_event(
                served,
                event,
                self._meta_version,
                self._include_object,
                self._clock.now(),
                with_columns=not self._columns_told,
            )
            self._columns_told = True
            body = msgspec.json.encode(told)
        else:
            body = msgspec.json.encode(self._metadata_of(event.object))
        return start + body + b"}\n"

    async def value(self, value: Any) -> bytes:
        """A value that is not stored."""
        return await self._finish(msgspec.json.encode(value))

    async def _finish(self, encoded: bytes) -> bytes:
        if self._format.media_type == YAML:
            if len(encoded) > _YAML_AT_ONCE_BYTES_MAX:
                return await asyncio.to_thread(_as_yaml, encoded)
            return _as_yaml(encoded)
        if self._pretty:
            return msgspec.json.format(encoded, indent=2) + b"\n"
        return encoded


def _as_yaml(encoded: bytes) -> bytes:
    return yaml_text(msgspec.json.decode(encoded), sort_keys=True).encode()


async def _joined(
    head: Object, member: str, entries: Sequence[Entry], make: Callable[[Sequence[Entry]], list[bytes]]
) -> Pieces:
    """An object whose last member is a list, encoded a few entries at a time so that others get a turn."""
    pieces = [msgspec.json.encode(head)[:-1] + f',"{member}":['.encode()]
    for few in in_steps(entries, _STEP):
        if len(pieces) > 1:
            pieces.append(b",")
            await asyncio.sleep(0)
        pieces.append(b",".join(make(few)))
    pieces.append(b"]}")
    return pieces
