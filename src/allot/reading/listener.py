"""Listens to the progress of reading: what was left out, and how far it is. Never part of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Listener(Protocol):
    """What a caller brings along."""

    def note(self, text: str) -> None:
        """Something that a reader of the answer should know."""

    def warn(self, text: str) -> None:
        """Something that is probably a mistake in the input."""

    def progress(self, what: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        """Something of so many steps begins; the function is called after each of them."""


class Notes:
    """Keeps what is said, for callers that show it later or not at all."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []

    def note(self, text: str) -> None:
        """For Listener."""
        self.notes.append(text)

    def warn(self, text: str) -> None:
        """For Listener."""
        self.warnings.append(text)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[], None]]:  # noqa: ARG002 - no one looks
        """For Listener."""
        yield lambda: None
