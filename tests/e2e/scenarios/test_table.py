"""The table of scenarios has all of them, and names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

_TESTS = Path(__file__).parents[2]
_TABLE = (_TESTS.parent / "docs" / "internals" / "scenarios.md").read_text()
_SCENARIOS = 118


def test_every_scenario_has_a_row_with_a_test_or_a_reason() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \| ([^|]*) \|$", _TABLE, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, _SCENARIOS + 1))
    assert [number for number, tests, reason in rows if tests == "–" and "not tested: " not in reason] == []


def test_the_tests_of_the_table_exist() -> None:
    named = re.findall(r"`([\w/.]+\.py)::(\w+)`", _TABLE)
    assert len(named) > _SCENARIOS
    for file, name in named:
        path = _TESTS.parent / file if file.startswith("tests/") else Path(__file__).with_name(file)
        assert f"def {name}(" in path.read_text(), f"{file} has no {name}"


def test_every_test_of_a_scenario_is_in_the_table() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        for name in re.findall(r"^async def (test_\d\w+)\(", path.read_text(), re.MULTILINE):
            assert f"`{path.name}::{name}`" in _TABLE, f"{path.name}::{name} is not in the table"
