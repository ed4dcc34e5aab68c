"""Loads the demonstrations: catalogue.yaml and tutorials.yaml."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from allot.cli.demos.script import STEPS, Demo, Topic
from allot.process.data_files import read_data_file

_FILES = ("catalogue.yaml", "tutorials.yaml")


@cache
def demos() -> dict[str, Demo]:
    """All demonstrations by name, in display order."""
    rows = [row for file in _FILES for row in read_data_file(__package__, file, tuple[dict[str, Any], ...])]
    return {row["name"]: _demo(row) for row in rows}


def _demo(row: dict[str, Any]) -> Demo:
    # The first word determines the step: `say: ...`, `run: ...`.
    steps = tuple(msgspec.convert(step, STEPS[next(iter(step))]) for step in row.pop("steps"))
    return Demo(**msgspec.structs.asdict(msgspec.convert(row, Topic)), steps=steps)
