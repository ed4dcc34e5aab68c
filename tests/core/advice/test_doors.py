"""Advice knows scheduling by its door."""

from __future__ import annotations

import re
from pathlib import Path

import allot.core.advice

IMPORT = re.compile(r"^from (allot\.core\.scheduling[.\w]*) import", re.MULTILINE)
# The package, and single filters for those who say what is wrong with a node.
DOORS = {"allot.core.scheduling", "allot.core.scheduling.plugins"}


def test_advice_imports_scheduling_through_its_package() -> None:
    assert allot.core.advice.__file__ is not None
    folder = Path(allot.core.advice.__file__).parent
    used = {module for path in folder.rglob("*.py") for module in IMPORT.findall(path.read_text())}
    assert used == DOORS
