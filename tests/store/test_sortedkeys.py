"""Keys in order, against a sorted list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allot.store.sortedkeys import SortedKeys, end_of

KEYS = st.text("ab/é", max_size=5)


@given(st.sets(KEYS), st.lists(KEYS), KEYS, KEYS)
def test_keys_added_and_removed_in_any_order_come_out_sorted(
    first: set[str], toggled: list[str], start: str, end: str
) -> None:
    keys = SortedKeys(first, block_max=3)
    model = set(first)
    for key in toggled:
        if key in model:
            keys.remove(key)
        else:
            keys.add(key)
        model ^= {key}
        expected = sorted(key for key in model if start <= key < end)
        assert list(keys.between(start, end)) == expected
        assert keys.count(start, end) == len(expected)
        assert keys.any_between(start, end) == bool(expected)
        assert len(keys) == len(model)


@given(KEYS, KEYS)
def test_the_end_of_a_prefix_separates_what_starts_with_it(prefix: str, key: str) -> None:
    assert (prefix <= key < end_of(prefix)) == key.startswith(prefix)
