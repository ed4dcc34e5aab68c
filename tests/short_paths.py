"""A folder below which sockets can be: pytest's own has a path that is too long for them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder with a short path, gone after the test."""
    with tempfile.TemporaryDirectory(prefix="a-") as folder:
        yield Path(folder)
