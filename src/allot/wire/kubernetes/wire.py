"""Protobuf's wire format: bytes to numbered fields.

Knows tags, varints and lengths, but no messages. A body is one `bytes`; parts of it are given as start and end, so
nothing is copied however deeply messages nest. The number of fields is bounded: a field of two bytes costs a hundred times
that in memory once it is read.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
BYTES = 2
FIXED32 = 5

# Far more than any storable object has.
FIELDS_MAX = 250_000
_NUMBER_MAX = 2**29 - 1
_VARINT_BYTES_MAX = 10
_UINT64_MAX = 2**64 - 1
_INT64_MAX = 2**63 - 1
_FIXED_SIZES = {FIXED64: 8, FIXED32: 4}

# Field number, wire type, then value and 0 for a varint, or start and end for anything else.
WireField = tuple[int, int, int, int]


class Malformed(ValueError):
    """Bytes that are not a valid message."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self._path: list[str] = []

    def within(self, name: str) -> Malformed:
        """The same error, found inside a field."""
        self._path.append(name)
        return self

    def __str__(self) -> str:
        return ": ".join(filter(None, (".".join(reversed(self._path)), str(self.args[0]))))


class Wire:
    """One body, and how many more fields may be read from it."""

    __slots__ = ("_fields_left", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._fields_left = FIELDS_MAX

    def fields(self, start: int, end: int) -> Iterator[WireField]:
        """The fields between two positions, in order."""
        position = start
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise Malformed(f"too large: expected at most {FIELDS_MAX} fields")
            tag, position = self._varint(position, end)
            number, wire = tag >> 3, tag & 7
            if not 0 < number <= _NUMBER_MAX:
                raise Malformed(f"byte {position}: field number {number} is not between 1 and {_NUMBER_MAX}")
            if wire == VARINT:
                value, position = self._varint(position, end)
                yield number, wire, value, 0
                continue
            if wire == BYTES:
                length, position = self._varint(position, end)
            elif wire in _FIXED_SIZES:
                length = _FIXED_SIZES[wire]
            else:
                raise Malformed(f"byte {position}: field {number} has wire type {wire}, expected 0, 1, 2 or 5")
            if length > end - position:
                left = end - position
                raise Malformed(f"byte {position}: field {number} has {length} bytes, but only {left} are left")
            yield number, wire, position, position + length
            position += length

    def varints(self, start: int, end: int) -> Iterator[int]:
        """Packed numbers."""
        position = start
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise Malformed(f"too large: expected at most {FIELDS_MAX} fields")
            value, position = self._varint(position, end)
            yield value

    def text(self, start: int, end: int) -> str:
        """UTF-8."""
        try:
            return self.data[start:end].decode()
        except UnicodeDecodeError:
            raise Malformed(f"byte {start}: text that is not UTF-8") from None

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        """A number of up to 64 bits, and the position after it."""
        data = self.data
        if position < end and data[position] < 0x80:
            return data[position], position + 1
        result = 0
        for index in range(_VARINT_BYTES_MAX):
            if position + index >= end:
                raise Malformed(f"byte {position}: ends in the middle of a number")
            byte = data[position + index]
            result |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if result > _UINT64_MAX:
                    break
                return result, position + index + 1
        raise Malformed(f"byte {position}: a number of more than 64 bits")


def signed(value: int) -> int:
    """A varint as int32 or int64: negative ones are sent as their 64-bit complement."""
    return value if value <= _INT64_MAX else value - 2**64
