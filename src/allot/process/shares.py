"""Fair shares of a fixed amount: a user gets more as long as it then holds no more than what was free."""

from __future__ import annotations


class Shares:
    """Something that users take parts of and give back."""

    __slots__ = ("_free", "_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._held: dict[str, int] = {}

    @property
    def limit(self) -> int:
        """The total amount."""
        return self._limit

    def held_by(self, user: str) -> int:
        """What a user holds now."""
        return self._held.get(user, 0)

    def take(self, user: str, amount: int = 1) -> bool:
        """Take more for a user; returns whether it got it."""
        held = self._held.get(user, 0) + amount
        if held > self._free:
            return False
        self._free -= amount
        self._held[user] = held
        return True

    def give_back(self, user: str, amount: int = 1) -> None:
        """Return what was taken."""
        held = self._held[user] - amount
        assert held >= 0, f"{user} gives back more than it took"
        self._free += amount
        if held:
            self._held[user] = held
        else:
            del self._held[user]
