"""Sets of completion indexes, stored as intervals: a job may have a hundred thousand, and its status lists them on one line."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)

Interval = tuple[int, int]


class Indexes(msgspec.Struct, frozen=True):
    """Indexes as ascending, non-adjacent intervals (first and last)."""

    intervals: tuple[Interval, ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int]) -> Indexes:
        """A set of individual indexes."""
        return cls(_joined((index, index) for index in sorted(set(indexes))))

    @classmethod
    def parse(cls, text: str, completions: int) -> Indexes:
        """The indexes below completions in a status; invalid ones are skipped, as upstream does."""
        found: list[Interval] = []
        for part in text.split(",") if text else ():
            ends = part.split("-")
            if not _INTEGER.fullmatch(ends[0]):
                continue
            first = int(ends[0])
            if first >= completions:
                break
            if len(ends) == 1:
                found.append((first, first))
            elif _INTEGER.fullmatch(ends[1]):
                found.append((first, min(int(ends[1]), completions - 1)))
        return cls(_joined(found))

    def __str__(self) -> str:
        """As in a status: three or more in a row become a range."""
        parts = []
        for first, last in self.intervals:
            separator = "" if first == last else "," if last == first + 1 else "-"
            parts.append(f"{first}{separator}{last if separator else ''}")
        return ",".join(parts)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __bool__(self) -> bool:
        return bool(self.intervals)

    def __contains__(self, index: int) -> bool:
        place = bisect_left(self.intervals, index, key=lambda interval: interval[1])
        return place < len(self.intervals) and self.intervals[place][0] <= index

    def __or__(self, other: Indexes) -> Indexes:
        return Indexes(_joined(sorted(self.intervals + other.intervals)))

    def common(self, other: Indexes) -> int:
        """How many indexes are in both."""
        count = here = there = 0
        while here < len(self.intervals) and there < len(other.intervals):
            (first, last), (others_first, others_last) = self.intervals[here], other.intervals[there]
            count += max(0, min(last, others_last) - max(first, others_first) + 1)
            here, there = (here + 1, there) if last < others_last else (here, there + 1)
        return count

    def missing(self, end: int) -> Iterator[int]:
        """The indexes from 0 up to, but excluding, an end that are not in the set, in order."""
        candidate = 0
        for first, last in self.intervals:
            yield from range(candidate, min(first, end))
            candidate = max(candidate, last + 1)
        yield from range(candidate, end)


def _joined(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Intervals in order of their starts, with adjacent and overlapping ones merged."""
    joined: list[Interval] = []
    for first, last in intervals:
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return tuple(joined)
