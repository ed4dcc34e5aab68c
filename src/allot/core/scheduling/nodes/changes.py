"""A log of changed nodes, so that caches can catch up at the cost of the changes."""

from __future__ import annotations

_KEPT_MIN = 4096


class Changes:
    """A log of node names. A reader remembers a position and asks what came since."""

    __slots__ = ("_base", "_names")

    def __init__(self) -> None:
        self._names: list[str | None] = []
        self._base = 0

    @property
    def position(self) -> int:
        """Where the next change will be."""
        return self._base + len(self._names)

    def add(self, name: str | None) -> None:
        """A node changed; None: any may have changed."""
        self._names.append(name)
        if len(self._names) > 2 * _KEPT_MIN:
            del self._names[:_KEPT_MIN]
            self._base += _KEPT_MIN

    def since(self, position: int) -> set[str] | None:
        """The nodes that changed after a position; None: any may have changed."""
        start = position - self._base
        if start < 0:
            return None
        names = self._names
        if start == len(names):
            return _NOTHING
        found = set(names[start:])
        return None if None in found else found  # type: ignore[return-value]


_NOTHING: set[str] = set()
