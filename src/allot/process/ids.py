"""Unique names and numbers. Everything that needs one gets Ids, so that tests can predict them.

The only module with randomness.
"""

from __future__ import annotations

import random
import uuid
from typing import Protocol

# Kubernetes' alphabet for generated names: no vowels and nothing that reads like one, so that no words come out.
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
SUFFIX_LENGTH = 5
_SUFFIXES = len(ALPHABET) ** SUFFIX_LENGTH
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]


class Ids(Protocol):
    """Makes names and numbers."""

    def new_uid(self) -> str:
        """A new metadata.uid."""

    def suffix(self, length: int = SUFFIX_LENGTH) -> str:
        """The end of a generated name."""

    def jitter(self) -> float:
        """A number from 0 to 1, to spread work."""


class SystemIds:
    """Ids from the machine's randomness."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        # Seeded by the machine. Uids are identifiers, not secrets; asking the kernel for each would cost a system call.
        self._random = random.Random()

    def new_uid(self) -> str:
        """A version 4 UUID."""
        number = self._random.getrandbits(128)
        number = number & ~(0xF000 << 64) & ~(0xC000 << 48) | (4 << 76) | (0x8000 << 48)
        text = f"{number:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def suffix(self, length: int = SUFFIX_LENGTH) -> str:
        """Random letters of Kubernetes' alphabet."""
        if length != SUFFIX_LENGTH:
            return "".join(self._random.choices(ALPHABET, k=length))
        number = int(self._random.random() * _SUFFIXES)
        number, first = divmod(number, len(_PAIRS))
        letter, second = divmod(number, len(_PAIRS))
        return _PAIRS[first] + _PAIRS[second] + ALPHABET[letter]

    def jitter(self) -> float:
        """A random number from 0 to 1."""
        return self._random.random()


class CountingIds:
    """Ids that count, for tests and the simulator: the same every time."""

    def __init__(self) -> None:
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    def new_uid(self) -> str:
        """A UUID made from a counter."""
        return str(uuid.UUID(int=self._next(), version=4))

    def suffix(self, length: int = SUFFIX_LENGTH) -> str:
        """The counter in Kubernetes' alphabet."""
        number, letters = self._next(), ""
        for _ in range(length):
            number, digit = divmod(number, len(ALPHABET))
            letters = ALPHABET[digit] + letters
        return letters

    def jitter(self) -> float:
        """Always in the middle."""
        return 0.5
