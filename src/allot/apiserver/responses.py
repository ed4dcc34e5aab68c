"""Answers as bytes: objects, lists and watch events in the negotiated format.

Stored objects are encoded once and their JSON is shared by all who get them; tables and metadata-only forms are made for the
one who asks.
"""

from __future__ import annotations

from typing import Any

import msgspec
import yaml

from allot.apiserver.lists import encode_list
from allot.apiserver.negotiation import YAML, Format
from allot.apiserver.registry import Registry, Served
from allot.apiserver.request import ApiList, ApiObject, WatchEvent
from allot.apiserver.tables import table_of, table_of_event
from allot.process.clock import Clock
from allot.store.port import Entry

Object = dict[str, Any]

_EVENT_START = {
    type_: f'{{"type":"{type_}","object":'.encode() for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


class Encoder:
    """Encodes the answers to one request."""

    def __init__(self, registry: Registry, format_: Format, clock: Clock, *, include_object: str, pretty: bool) -> None:
        self._registry = registry
        self._format = format_
        self._clock = clock
        self._include_object = include_object
        self._pretty = pretty
        self._columns_told = False

    def object(self, answer: ApiObject, served: Served | None) -> bytes:
        """One object; Status objects keep their form."""
        is_status = answer.object.get("kind") == "Status" and answer.entry is None
        if self._format.as_ and not is_status and served is not None:
            return self._finish(msgspec.json.encode(self._transformed(answer, served)))
        encoded = answer.entry.encoded if answer.entry is not None else msgspec.json.encode(answer.object)
        return self._finish(encoded)

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

    def list(self, answer: ApiList, served: Served) -> bytes:
        """A list."""
        if not self._format.as_:
            return self._finish(encode_list(answer, served))
        metadata: Object = {"resourceVersion": answer.resource_version}
        if answer.continue_token:
            metadata["continue"] = answer.continue_token
        if answer.remaining:
            metadata["remainingItemCount"] = answer.remaining
        if self._format.as_ == "Table":
            told = table_of(
                served, answer.entries, self._meta_version, self._include_object, self._clock.now(), metadata
            )
            return self._finish(msgspec.json.encode(told))
        items = [self._metadata_of(entry.object) for entry in answer.entries]
        return self._finish(
            msgspec.json.encode(
                {
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": self._meta_version,
                    "metadata": metadata,
                    "items": items,
                }
            )
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

    def value(self, value: Any) -> bytes:
        """A value that is not stored."""
        return self._finish(msgspec.json.encode(value))

    def _finish(self, encoded: bytes) -> bytes:
        if self._format.media_type == YAML:
            return yaml.dump(
                msgspec.json.decode(encoded), Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True
            ).encode()
        if self._pretty:
            return msgspec.json.format(encoded, indent=2) + b"\n"
        return encoded
