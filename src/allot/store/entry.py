"""A stored object in two forms, JSON text and JSON value, each created on first use.

The decoded form needs several times the memory of the text, so it is kept only for recently used entries
(`DecodedObjects`). Does not know where entries come from.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from allot.core.quoting import html_escaped

# A Kubernetes object as a JSON value. Shared: to change one, make a new one.
Object = dict[str, Any]


class Entry:
    """A stored object: `object` is its JSON value, `encoded` its JSON text. Give at least one of the two."""

    __slots__ = ("_encoded", "_kept", "_object", "key", "revision")

    def __init__(
        self,
        key: str,
        object_: Object | None,
        revision: int,
        encoded: bytes | None = None,
        kept: DecodedObjects | None = None,
    ) -> None:
        self.key = key
        self.revision = revision
        self._object = object_
        self._encoded = encoded
        self._kept = kept
        if kept is not None and object_ is not None:
            kept.admit(self)

    @property
    def object(self) -> Object:
        """The object. Shared by all readers: never change it."""
        found = self._object
        if found is None:
            found = self._object = self._decode()
            if self._kept is not None:
                self._kept.admit(self)
        return found

    @property
    def decoded(self) -> Object | None:
        """The object if it is already decoded."""
        return self._object

    @property
    def encoded(self) -> bytes:
        """The object as JSON, resourceVersion included."""
        found = self._encoded
        if found is None:
            found = self._encoded = html_escaped(msgspec.json.encode(self.object))
        return found

    @property
    def size_bytes(self) -> int:
        """The length of the JSON text; 0 if it is not encoded yet."""
        return 0 if self._encoded is None else len(self._encoded)

    def forget_object(self) -> None:
        """Keep only the text; the object is decoded again on demand."""
        if self._encoded is not None:
            self._object = None

    def _decode(self) -> Object:
        assert self._encoded is not None, f"entry {self.key!r} has neither object nor text"
        decoded: Object = msgspec.json.decode(self._encoded)
        return decoded

    def __repr__(self) -> str:
        return f"Entry({self.key!r}, revision={self.revision})"


class LastState(Entry):
    """What a key held when it was deleted, stamped with the revision of the deletion. Created from the entry on demand."""

    __slots__ = ("_before",)

    def __init__(self, before: Entry, revision: int) -> None:
        super().__init__(before.key, None, revision, None, before._kept)
        self._before = before

    @property
    def size_bytes(self) -> int:
        """The length of the previous state's text."""
        return self._before.size_bytes

    def forget_object(self) -> None:
        """It can always be recreated."""
        self._object = None

    def _decode(self) -> Object:
        return stamped(self._before.object, self.revision)


class DecodedObjects:
    """Bounds the memory that decoded objects take: the first decoded is the first forgotten.

    The bound is in bytes of JSON text; the decoded form takes about five times as much.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: deque[tuple[Entry, int]] = deque()

    def admit(self, entry: Entry) -> None:
        """Record that an entry now has a decoded object, and drop older ones."""
        size = entry.size_bytes
        self._bytes += size
        self._entries.append((entry, size))
        while self._bytes > self._bytes_max and len(self._entries) > 1:
            oldest, size = self._entries.popleft()
            self._bytes -= size
            oldest.forget_object()


def stamped(object_: Object, revision: int) -> Object:
    """A copy of an object with this resourceVersion; the rest is shared."""
    return {**object_, "metadata": {**object_.get("metadata", {}), "resourceVersion": str(revision)}}


def stamp(object_: Object, revision: int) -> None:
    """Set the resourceVersion of an object that is not shared."""
    object_.setdefault("metadata", {})["resourceVersion"] = str(revision)
