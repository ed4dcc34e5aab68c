"""Lists and maps in handwritten validation: size first, then items, then uniqueness.

A list that is too long gets a single error and its items are not checked, so oversized objects cost little.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from allot.core.validation.fields import Findings, duplicate, index, key, too_many

T = TypeVar("T")

_SHORTENED_KEY_LENGTH_MIN = 16
_ELLIPSIS = "..."


def check_list(
    items: Sequence[T], path: str, check_item: Callable[[T, str], Findings], *, maximum: int | None = None,
    size_covered: bool = False,
) -> Findings:  # fmt: skip
    """A list of at most `maximum` valid items."""
    if maximum is not None and len(items) > maximum:
        return [too_many(path, len(items), maximum, covered=size_covered)]
    return [found for position, item in enumerate(items) for found in check_item(item, index(path, position))]


def check_set(
    items: Sequence[T], path: str, check_item: Callable[[T, str], Findings], identity: Callable[[T], Hashable], *,
    maximum: int | None = None, covered: bool = False,
) -> Findings:  # fmt: skip
    """A list of at most `maximum` unique, valid items; `covered`: size and uniqueness are declarative too."""
    if maximum is not None and len(items) > maximum:
        return [too_many(path, len(items), maximum, covered=covered)]
    found = check_list(items, path, check_item)
    seen = set()
    for position, item in enumerate(items):
        identified = identity(item)
        if identified in seen:
            found.append(duplicate(index(path, position), identified, covered=covered))
        seen.add(identified)
    return found


def check_map(
    entries: Mapping[str, T], path: str, check_key: Callable[[str, str], Findings],
    check_entry: Callable[[T, str], Findings], *, key_length_max: int, maximum: int | None = None,
) -> Findings:  # fmt: skip
    """A map of at most `maximum` entries; key errors are reported on the map."""
    if maximum is not None and len(entries) > maximum:
        return [too_many(path, len(entries), maximum)]
    found: Findings = []
    for name, entry in entries.items():
        found += check_key(name, path)
        found += check_entry(entry, key(path, shortened(name, key_length_max)))
    return found


def shortened(name: str, length_max: int) -> str:
    """A key short enough for an error path, with the middle left out."""
    length_max = max(length_max, _SHORTENED_KEY_LENGTH_MIN)
    if len(name) <= length_max:
        return name
    remaining = length_max - len(_ELLIPSIS)
    return name[: (remaining + 1) // 2] + _ELLIPSIS + name[len(name) - remaining // 2 :]
