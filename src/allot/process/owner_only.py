"""Sockets that only their owner can use, from their creation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def owner_only() -> Iterator[None]:
    """Sockets that are bound inside the block get mode 0600. This affects all threads of the process, so keep the block short."""
    before = os.umask(0o177)
    try:
        yield
    finally:
        os.umask(before)
