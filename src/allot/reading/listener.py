"""Listens to the progress of reading: what was left out, and how far it has come. Never part of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Listener(Protocol):
    """The caller's listener."""

    def note(self, text: str) -> None:
        """Note something that a reader of the answer should know."""

    def warn(self, text: str) -> None:
        """Warn about a probable mistake in the input."""

    def progress(self, what: str, total: int) -> AbstractContextManager[Callable[[], None]]:
        """A task with this number of steps begins; call the returned function after each step."""


class Notes:
    """Keeps messages, for callers that show them later or not at all."""

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
