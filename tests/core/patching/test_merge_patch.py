"""JSON merge patch: RFC 7386."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.patching import PatchError, merge_diff, merge_patch


@pytest.mark.parametrize(
    ("object_", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "foo"}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({}, {"a": [{"b": None, "c": 1}, None]}, {"a": [{"c": 1}, None]}),
    ],
)
def test_merge(object_: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert merge_patch(object_, patch) == expected


@pytest.mark.parametrize("patch", [None, [], "x", 1])
def test_what_is_no_object_is_malformed(patch: Any) -> None:
    with pytest.raises(PatchError, match="Invalid JSON Patch"):
        merge_patch({}, patch)


def test_depth_is_bounded() -> None:
    patch: dict[str, Any] = {}
    for _ in range(5000):
        patch = {"a": patch}
    with pytest.raises(PatchError, match="nested too deeply"):
        merge_patch({}, patch)


scalars = st.one_of(st.booleans(), st.integers(), st.text(max_size=3))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)),
    max_leaves=8,
)
objects = st.dictionaries(st.sampled_from("abcd"), values, max_size=4)


few = settings(max_examples=40)


@few
@given(objects, objects)
def test_the_patch_between_two_objects_leads_from_one_to_the_other(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert merge_patch(one, merge_diff(one, other)) == other


@few
@given(objects, objects)
def test_a_patch_applied_twice_is_a_patch_applied_once(object_: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(object_, patch)
    assert merge_patch(once, patch) == once
