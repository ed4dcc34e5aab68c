"""The interface of policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from allot.core.allocation.search import Search


class Policy(Protocol):
    """Chooses among the valid answers. It must find one whenever first-fit does."""

    @property
    def name(self) -> str:
        """What users call it."""

    def search(self, search: Search, fresh: Callable[[], Search]) -> Search | None:
        """A search that has found an answer, or None if there is none. `fresh` creates another search for the same requests."""
