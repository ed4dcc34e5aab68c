"""Where each field of an object was written in a text, so that advice can name its line and change it.

Places are those of one document: a path of keys and indices leads to the line and column of the field and to the
offsets of its text. A value from an alias or a merge key has the place of its alias.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Path = tuple[str | int, ...]
Span = tuple[int, int]


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a field is: line and column (from 1) of its key, or of the value for list items, and offsets."""

    line: int
    column: int
    # The value's text, including quotes; for a block in indented style, up to the end of its last value.
    value: Span
    # The key's text, including quotes; none for list items and for the document itself.
    key: Span | None = None


Places = Mapping[Path, Place]

START = Place(1, 1, (0, 0))


def nearest_place(places: Places, path: Path) -> Place:
    """The field's place, or that of the closest enclosing field if it is missing."""
    for length in range(len(path), -1, -1):
        place = places.get(path[:length])
        if place is not None:
            return place
    return START
