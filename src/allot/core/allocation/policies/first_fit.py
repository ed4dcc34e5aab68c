"""first-fit: the first answer in upstream's order. The same devices, in the same order, as kube-scheduler picks."""

from __future__ import annotations

from collections.abc import Callable

from allot.core.allocation.search import Search


class FirstFit:
    """Takes the first answer."""

    name = "first-fit"

    def search(self, search: Search, fresh: Callable[[], Search]) -> Search | None:  # noqa: ARG002
        """The first answer."""
        return search if search.run() else None
