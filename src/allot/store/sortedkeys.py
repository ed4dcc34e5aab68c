"""Sorted keys, with additions, removals and counts that stay fast at a hundred thousand keys.

A list of short sorted lists: an addition moves at most one short list. (One long sorted list moves half of itself.)
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

# Sorts after every key: keys are paths, and this is the last code point.
LAST = "\U0010ffff"


def end_of(prefix: str) -> str:
    """The first key after everything that starts with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1) if prefix else LAST


class SortedKeys:
    """A sorted set of keys."""

    def __init__(self, keys: Iterable[str] = (), *, block_max: int = 1000) -> None:
        self._block_max = block_max
        ordered = sorted(keys)
        half = max(block_max // 2, 1)
        self._blocks: list[list[str]] = [ordered[i : i + half] for i in range(0, len(ordered), half)]
        # The last key of each block: where to look for a key.
        self._lasts: list[str] = [block[-1] for block in self._blocks]
        self._count = len(ordered)

    def __len__(self) -> int:
        return self._count

    def add(self, key: str) -> None:
        """Add a key that does not exist."""
        self._count += 1
        if not self._blocks:
            self._blocks.append([key])
            self._lasts.append(key)
            return
        index = min(bisect_left(self._lasts, key), len(self._blocks) - 1)
        block = self._blocks[index]
        insort(block, key)
        self._lasts[index] = block[-1]
        if len(block) > self._block_max:
            half = len(block) // 2
            self._blocks[index : index + 1] = [block[:half], block[half:]]
            self._lasts[index : index + 1] = [block[half - 1], block[-1]]

    def remove(self, key: str) -> None:
        """Remove an existing key."""
        index = bisect_left(self._lasts, key)
        block = self._blocks[index]
        position = bisect_left(block, key)
        assert block[position] == key, f"key {key!r} does not exist"
        del block[position]
        self._count -= 1
        if block:
            self._lasts[index] = block[-1]
        else:
            del self._blocks[index]
            del self._lasts[index]

    def between(self, start: str, end: str) -> Iterator[str]:
        """Keys from start up to, not including, end. Do not add or remove while iterating."""
        first = bisect_left(self._lasts, start)
        for index in range(first, len(self._blocks)):
            block = self._blocks[index]
            low = bisect_left(block, start) if index == first else 0
            if self._lasts[index] < end:
                yield from block[low:] if low else block
            else:
                yield from block[low : bisect_left(block, end)]
                return

    def any_between(self, start: str, end: str) -> bool:
        """Whether `between` yields any."""
        index = bisect_left(self._lasts, start)
        if index == len(self._blocks):
            return False
        block = self._blocks[index]
        return block[bisect_left(block, start)] < end

    def count(self, start: str, end: str) -> int:
        """How many keys `between` yields."""
        total = 0
        first = bisect_left(self._lasts, start)
        for index in range(first, len(self._blocks)):
            block = self._blocks[index]
            low = bisect_left(block, start) if index == first else 0
            if self._lasts[index] >= end:
                return total + max(bisect_left(block, end) - low, 0)
            total += len(block) - low
        return total
