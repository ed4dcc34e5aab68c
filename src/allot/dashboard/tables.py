"""Rows that browsers copy: all of them once, then only changes.

A row is stored as JSON. Its revision says when it last changed, and rows are ordered by revision, so changes since a
revision are found without a full scan. Keys of removed rows are remembered for a while; older clients get everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

GONE_MAX = 20_000


class Table:
    """The rows of one kind, by key."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, bytes]] = {}
        self._gone: dict[str, int] = {}
        # Removals up to this revision are forgotten.
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[str]:
        """The keys of all rows."""
        return iter(self._rows)

    def put(self, key: str, row: object, revision: int) -> bool:
        """Set a row; returns whether it changed."""
        data = msgspec.json.encode(row)
        before = self._rows.get(key)
        if before is not None and before[1] == data:
            return False
        self._rows.pop(key, None)
        self._gone.pop(key, None)
        self._rows[key] = (revision, data)
        return True

    def remove(self, key: str, revision: int) -> bool:
        """Remove a row; returns whether it existed."""
        if self._rows.pop(key, None) is None:
            return False
        self._gone[key] = revision
        if len(self._gone) > GONE_MAX:
            self._forgotten = self._gone.pop(next(iter(self._gone)))
        return True

    def clear(self, revision: int) -> None:
        """Remove all rows; every client gets everything again."""
        self._rows.clear()
        self._gone.clear()
        self._forgotten = revision

    def row(self, key: str) -> bytes | None:
        """One row as JSON."""
        found = self._rows.get(key)
        return found[1] if found is not None else None

    def all_rows(self) -> bytes:
        """All rows as a JSON object."""
        return _object((key, data) for key, (_, data) in self._rows.items())

    def since(self, revision: int) -> bytes | None:
        """Changes after a revision as a JSON object, null for removed rows; None if they are forgotten. Empty if nothing
        did."""
        if revision < self._forgotten:
            return None
        changed = [*_newer(self._rows, revision), *((key, b"null") for key in _gone_after(self._gone, revision))]
        return _object(changed) if changed else b""


def _newer(rows: dict[str, tuple[int, bytes]], revision: int) -> Iterator[tuple[str, bytes]]:
    for key in reversed(rows):
        at, data = rows[key]
        if at <= revision:
            return
        yield key, data


def _gone_after(gone: dict[str, int], revision: int) -> Iterator[str]:
    for key in reversed(gone):
        if gone[key] <= revision:
            return
        yield key


def _object(rows: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(msgspec.json.encode(key) + b":" + data for key, data in rows) + b"}"
