"""Rows and what changed of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allot.dashboard import tables
from allot.dashboard.tables import Table


def read(data: bytes | None) -> Any:
    assert data is not None
    return json.loads(data) if data else {}


def test_a_row_that_is_the_same_is_no_news() -> None:
    table = Table()
    assert table.put("a", {"n": 1}, 1)
    assert not table.put("a", {"n": 1}, 2)
    assert table.put("a", {"n": 2}, 3)
    assert read(table.since(2)) == {"a": {"n": 2}}
    assert table.since(3) == b""


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from([None, 1, 2, 3])), max_size=40), st.integers(0, 40))
def test_who_applies_what_changed_has_what_is_there(steps: list[tuple[str, int | None]], seen: int) -> None:
    table, copy, seen = Table(), {}, min(seen, len(steps))
    for revision, (key, row) in enumerate(steps, 1):
        if row is None:
            table.remove(key, revision)
        else:
            table.put(key, row, revision)
        if revision == seen:
            copy = read(table.all_rows())
    changed = read(table.since(seen))
    for key, row in changed.items():
        copy.pop(key, None)
        if row is not None:
            copy[key] = row
    assert copy == read(table.all_rows())


def test_who_was_away_for_too_long_gets_everything(monkeypatch: Any) -> None:
    monkeypatch.setattr(tables, "GONE_MAX", 2)
    table = Table()
    for revision, key in enumerate("abc", 1):
        table.put(key, 1, revision)
    for revision, key in enumerate("abc", 4):
        table.remove(key, revision)
    assert table.since(3) is None
    assert read(table.since(4)) == {"b": None, "c": None}
