"""Sets of fields in the form of fieldsV1."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.patching import fieldset
from allot.core.patching.fieldset import (
    FieldsError,
    Path,
    Tree,
    decode,
    difference,
    fields,
    from_paths,
    has,
    intersection,
    path_text,
    paths,
    recursive_difference,
    union,
)

elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', "v:1", "i:0"])
all_paths = st.lists(elements, min_size=1, max_size=4).map(tuple)
path_sets = st.sets(all_paths, max_size=8)


def tree(found: set[Path]) -> Tree:
    return from_paths(*sorted(found))


def test_the_form_is_that_of_fields_v1() -> None:
    assert from_paths(("f:metadata", "f:labels"), ("f:metadata", "f:labels", "f:a"), ("f:spec", "f:x")) == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:x": {}},
    }


def test_fields_can_be_named_with_dots() -> None:
    assert fields("status", "metadata.name") == {"f:status": {}, "f:metadata": {"f:name": {}}}


few = settings(max_examples=40)


@few
@given(path_sets)
def test_paths_go_in_and_come_out(found: set[Path]) -> None:
    assert set(paths(tree(found))) == found
    assert all(has(tree(found), path) for path in found)


@few
@given(path_sets)
def test_json_round_trip(found: set[Path]) -> None:
    assert decode(msgspec.json.decode(msgspec.json.encode(tree(found)))) == tree(found)


@few
@given(path_sets, path_sets)
def test_operations_are_those_of_sets_of_paths(one: set[Path], other: set[Path]) -> None:
    assert set(paths(union(tree(one), tree(other)))) == one | other
    assert set(paths(intersection(tree(one), tree(other)))) == one & other
    assert set(paths(difference(tree(one), tree(other)))) == one - other


@few
@given(path_sets, path_sets)
def test_equal_sets_are_equal_trees(one: set[Path], other: set[Path]) -> None:
    assert union(tree(one), tree(other)) == tree(one | other)
    assert difference(tree(one), tree(other)) == tree(one - other)
    assert intersection(tree(one), tree(other)) == tree(one & other)


@few
@given(path_sets, path_sets)
def test_recursive_difference_takes_what_is_below_too(one: set[Path], other: set[Path]) -> None:
    left = {path for path in one if not any(path[: len(each)] == each for each in other)}
    assert set(paths(recursive_difference(tree(one), tree(other)))) == left


@few
@given(path_sets, path_sets)
def test_operations_leave_their_arguments_alone(one: set[Path], other: set[Path]) -> None:
    first, second = tree(one), tree(other)
    for operation in (union, intersection, difference, recursive_difference):
        operation(first, second)
        assert (first, second) == (tree(one), tree(other))


def test_nothing_changed_is_the_same_tree() -> None:
    one, other = fields("a.b", "c"), fields("x.y")
    assert difference(one, other) is one
    assert union(one, fields("c")) is one


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (("f:spec", "f:replicas"), ".spec.replicas"),
        (("f:spec", "f:containers", 'k:{"name":"c"}', "f:image"), '.spec.containers[name="c"].image'),
        (("f:ports", 'k:{"containerPort":80,"protocol":"TCP"}'), '.ports[containerPort=80,protocol="TCP"]'),
        (("f:finalizers", 'v:"x"'), '.finalizers[="x"]'),
        (("f:list", "i:3"), ".list[3]"),
        (("f:metadata", "f:labels", "f:a.b/c"), ".metadata.labels.a.b/c"),
    ],
)
def test_paths_are_told_as_in_messages(path: Path, text: str) -> None:
    assert path_text(path) == text


def test_elements_are_written_as_go_writes_them() -> None:
    assert fieldset.key_element({"b": 1.0, "a": "<&>"}) == 'k:{"a":"\\u003c\\u0026\\u003e","b":1}'
    assert fieldset.value_element("ä") == 'v:"ä"'


def test_foreign_elements_are_brought_into_our_form() -> None:
    assert decode({'k:{ "b": 2, "a": 1 }': {".": {}}, "z:future": {}, "f:x": {"f:y": {}}}) == {
        'k:{"a":1,"b":2}': {},
        "f:x": {"f:y": {}},
    }
    assert decode(None) == {}


@pytest.mark.parametrize(
    "value", [[], "x", 1, {"f": {}}, {"fx": {}}, {"f:a": 1}, {"k:[": {}}, {"k:[]": {}}, {"i:x": {}}]
)
def test_what_is_no_set_of_fields_is_refused(value: Any) -> None:
    with pytest.raises(FieldsError):
        decode(value)


def test_depth_is_bounded() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"f:a": deep}
    with pytest.raises(FieldsError, match="nested too deeply"):
        decode(deep)
