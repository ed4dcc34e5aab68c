"""Simulated devices that are gone: a file in the driver's folder names them, one in each line, so that people and tests can take some away."""

from __future__ import annotations

from pathlib import Path


def lost_file(folder: Path) -> Path:
    """The file that names simulated devices which are gone."""
    return folder / "lost"


def read_lost(folder: Path | None) -> frozenset[str]:
    """The names in it; none without a folder or a file."""
    if folder is None:
        return frozenset()
    try:
        return frozenset(lost_file(folder).read_text(encoding="utf-8", errors="replace").split())
    except OSError:
        return frozenset()
