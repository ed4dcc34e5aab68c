"""Sockets that only their owner can use, from their creation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def owner_only() -> Iterator[None]:
    """A socket that is bound inside the block has the mode 0600. Holds for all threads of the process, so the block has to be short."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
