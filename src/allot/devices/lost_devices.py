"""Simulated device failures: files in the driver's directory name missing or unhealthy devices, one per line, so that users and tests can inject faults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def lost_file(folder: Path) -> Path:
    """The file that names missing simulated devices."""
    return folder / "lost"


def ill_file(folder: Path) -> Path:
    """The file that names unhealthy simulated devices, each followed by its problem."""
    return folder / "unhealthy"


def read_lost(folder: Path | None) -> frozenset[str]:
    """The missing devices; none without a directory or a file."""
    return frozenset(name for words in _lines(lost_file, folder) for name in words)


def read_ill(folder: Path | None) -> dict[str, tuple[str, ...]]:
    """Problems by device name, as single words; empty without a directory or a file."""
    return {words[0]: tuple(words[1:]) or ("Unknown",) for words in _lines(ill_file, folder)}


def _lines(file: Callable[[Path], Path], folder: Path | None) -> list[list[str]]:
    if folder is None:
        return []
    try:
        text = file(folder).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.split() for line in text.splitlines() if line.split()]
