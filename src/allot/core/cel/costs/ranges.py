"""Ranges of sizes and costs, in the unsigned 64-bit arithmetic of upstream's estimator.

A range holds a minimum and a maximum. Sums and products stop at `INFINITE` instead of wrapping around, so
that "unknown" stays unknown whatever is added to it. Comments mark the few places where upstream does wrap around.
"""

from __future__ import annotations

import math

import msgspec

INFINITE = 2**64 - 1
_TWO_TO_64 = 2.0**64


def add(x: int, y: int) -> int:
    """x + y, at most INFINITE."""
    return min(x + y, INFINITE)


def multiply(x: int, y: int) -> int:
    """x * y, at most INFINITE."""
    return min(x * y, INFINITE)


def scale(x: int, factor: float) -> int:
    """x * factor rounded up, at most INFINITE. Computed in floating point, as upstream does, rounding errors included."""
    product = float(x) * factor
    if product >= _TWO_TO_64:
        return INFINITE
    return math.ceil(product)


class Range(msgspec.Struct, frozen=True):
    """From `min` to `max`, both included: a size (characters, bytes, entries) or a cost."""

    min: int
    max: int

    def __add__(self, other: Range) -> Range:
        return Range(add(self.min, other.min), add(self.max, other.max))

    def __mul__(self, other: Range) -> Range:
        return Range(multiply(self.min, other.min), multiply(self.max, other.max))

    def __or__(self, other: Range) -> Range:
        """The smallest range that covers both."""
        return Range(min(self.min, other.min), max(self.max, other.max))

    def scaled(self, factor: float) -> Range:
        """Both ends multiplied and rounded up."""
        return Range(scale(self.min, factor), scale(self.max, factor))


def exactly(value: int) -> Range:
    """The range of one value."""
    return Range(value, value)


# One class serves both: upstream constantly multiplies sizes by costs. The names tell which is meant.
SizeEstimate = Range
CostEstimate = Range

ZERO = exactly(0)
ONE = exactly(1)
UNKNOWN = Range(0, INFINITE)
