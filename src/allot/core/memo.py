"""Caches answers of pure functions whose arguments `functools.lru_cache` cannot handle: they have no hash, or are distinguished by
identity. A memo changes what work costs and never an answer, so it may live as long as the process."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class Memo(dict[Key, Answer]):
    """Answers by key, at most kept_max: when full, it starts over. A caller that uses the id of an object as a key must keep the object
    in the answer, so that no other object gets the same id."""

    def __init__(self, kept_max: int) -> None:
        super().__init__()
        self._kept_max = kept_max

    def remember(self, key: Key, answer: Answer) -> Answer:
        """Keep an answer; returns it."""
        if len(self) >= self._kept_max:
            self.clear()
        self[key] = answer
        return answer
