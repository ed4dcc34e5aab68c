"""Fair shares of a fixed amount: a user gets more as long as it then holds no more than what was free."""

from __future__ import annotations


class Shares:
    """Something of which users take and give back parts."""

    __slots__ = ("_free", "_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free = limit
        self._held: dict[str, int] = {}

    @property
    def limit(self) -> int:
        """How much there is in all."""
        return self._limit

    def held_by(self, user: str) -> int:
        """What a user has now."""
        return self._held.get(user, 0)

    def take(self, user: str, amount: int = 1) -> bool:
        """Whether the user has so much more now."""
        held = self._held.get(user, 0) + amount
        if held > self._free:
            return False
        self._free -= amount
        self._held[user] = held
        return True

    def give_back(self, user: str, amount: int = 1) -> None:
        """What was taken is free again."""
        held = self._held[user] - amount
        assert held >= 0, f"{user} gives back more than it took"
        self._free += amount
        if held:
            self._held[user] = held
        else:
            del self._held[user]
