"""Where in a text each field of an object was written, so that advice can name a line and change it.

Places are those of one document: a path of keys and indices leads to the line and column of the field and to the
offsets of its text. What came in through an alias or a merge key has no place of its own; it is where its alias is.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Path = tuple[str | int, ...]
Span = tuple[int, int]


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a field is: line and column from 1 of its key (of the value, for members of a list), and offsets."""

    line: int
    column: int
    # The value's text, quotes included; of a block in indented style, up to the end of its last value.
    value: Span
    # The key's text, quotes included; none for members of a list and for the document itself.
    key: Span | None = None


Places = Mapping[Path, Place]

START = Place(1, 1, (0, 0))


def nearest_place(places: Places, path: Path) -> Place:
    """The field's place, or that of the closest field around it: a missing field is where it should have been."""
    for length in range(len(path), -1, -1):
        place = places.get(path[:length])
        if place is not None:
            return place
    return START
