"""The string extension library: positions count code points. Formatting is in `format`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from allot.core.cel.costs.budget import check_size
from allot.core.cel.data.text import go_text
from allot.core.cel.data.values import CelError, Value
from allot.core.quoting import ESCAPES

_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}
# What Go's TrimSpace removes; Python's strip() also takes the separators 0x1c to 0x1f.
_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_QUOTE_ESCAPES: Final = str.maketrans(ESCAPES)


def _check_index(index: int, length: int) -> None:
    if not 0 <= index <= length:
        raise CelError(f"index out of range: {index}")


def char_at(text: str, index: int) -> str:
    """The character at a position; empty just past the last."""
    _check_index(index, len(text))
    return text[index : index + 1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    """First position of a part, or -1."""
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return text.find(part, offset) if offset < len(text) else -1


def last_index_of(text: str, part: str, offset: int | None = None) -> int:
    """Last position of a part at or before the offset, or -1."""
    if offset is None:
        return len(text) if not part else text.rfind(part)
    if offset < 0:
        raise CelError(f"index out of range: {offset}")
    if not part:
        return min(offset, len(text))
    return text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1


def lower_ascii(text: str) -> str:
    """Lower case of A to Z."""
    return text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    """Upper case of a to z."""
    return text.translate(_UPPER)


def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    """Replaces the first `limit` occurrences, all when negative."""
    occurrences = text.count(old)
    if limit >= 0:
        occurrences = min(occurrences, limit)
    check_size(len(text) + occurrences * len(new))
    return text.replace(old, new, max(limit, -1))


def split(text: str, separator: str, limit: int = -1) -> list[str]:
    """The parts between separators, at most `limit` unless negative; an empty separator splits into characters."""
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if 0 < limit < len(text):
        return [*text[: limit - 1], text[limit - 1 :]]
    return list(text)


def substring(text: str, start: int, end: int | None = None) -> str:
    """The characters from start up to end."""
    if end is None:
        end = len(text)
    elif start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    _check_index(start, len(text))
    _check_index(end, len(text))
    return text[start:end]


def trim(text: str) -> str:
    """Without white space at both ends."""
    return text.strip(_SPACE)


def reverse(text: str) -> str:
    """The characters in reverse order."""
    return text[::-1]


def quote(text: str) -> str:
    """The text as a CEL literal."""
    return f'"{text.translate(_QUOTE_ESCAPES)}"'


def join(parts: Value, separator: str = "") -> str:
    """Concatenates a list of strings."""
    length = 0
    for part in parts:
        if part.__class__ is not str:
            raise CelError(f"join: invalid input: {go_text(part)}")
        length += len(part) + len(separator)
    check_size(length)
    return separator.join(parts)


OVERLOADS: Final[dict[str, Callable[..., Value]]] = {
    "string_char_at_int": char_at,
    "string_index_of_string": index_of,
    "string_index_of_string_int": index_of,
    "string_last_index_of_string": last_index_of,
    "string_last_index_of_string_int": last_index_of,
    "string_lower_ascii": lower_ascii,
    "string_upper_ascii": upper_ascii,
    "string_replace_string_string": replace,
    "string_replace_string_string_int": replace,
    "string_split_string": split,
    "string_split_string_int": split,
    "string_substring_int": substring,
    "string_substring_int_int": substring,
    "string_trim": trim,
    "string_reverse": reverse,
    "strings_quote": quote,
    "list_join": join,
    "list_join_string": join,
}
