"""Values: equality, order, map keys and the texts that Go prints."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.cel.data.comparison import compare, contains, equal, equals
from allot.core.cel.data.text import fixed_double, go_text, shortest_double
from allot.core.cel.data.times import parse_duration, parse_timestamp, timestamp_text
from allot.core.cel.data.values import (
    MISSING,
    CelError,
    ComputedQuantity,
    ConcatList,
    DefaultMap,
    Duration,
    EvaluationAborted,
    KeyedMap,
    Optional,
    find,
    has_key,
    map_key,
)
from allot.core.cel.syntax.ast import UInt
from allot.core.quantity import Quantity
from allot.core.quoting import quoted
from allot.core.semver import Semver

INT64 = st.integers(-(2**63), 2**63 - 1)


def literal_map(**entries: object) -> KeyedMap:
    return KeyedMap((map_key(key), value) for key, value in entries.items())


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, UInt(1), True),
        (1, True, False),
        (True, 1, False),
        ("a", 1, False),
        (None, None, True),
        (None, 0, False),
        (Semver.parse("1.0.0"), None, False),
        (math.nan, math.nan, False),
        (2**53 + 1, float(2**53), True),
        (2**63 - 1, 2.0**63, True),
        (-1, UInt(1), False),
        ([1, 2], [1.0, UInt(2)], True),
        ([1], [1, 2], False),
        (b"a", b"a", True),
        (Duration(5), Duration(5), True),
        (Optional(1), Optional(1.0), True),
        (Semver.parse("1.0.0+a"), Semver.parse("1.0.0+b"), True),
        (Quantity.parse("1"), Quantity.parse("1000m"), True),
    ],
)
def test_equality_crosses_number_types_and_no_others(left: object, right: object, same: bool) -> None:
    assert equal(left, right) is same


def test_a_version_on_the_left_of_a_text_is_an_error_and_on_the_right_it_is_false() -> None:
    version = Semver.parse("1.2.3")
    assert equal("1.2.3", version) is False
    with pytest.raises(CelError, match=r"^no such overload$"):
        equals(version, "1.2.3")


def test_a_computed_quantity_cannot_stand_on_the_right_of_a_comparison() -> None:
    parsed, computed = Quantity.parse("2"), ComputedQuantity(2 * 10**9)
    assert equal(computed, parsed) is True
    assert equal(parsed, computed) is None


def test_lists_whose_elements_cannot_be_compared_are_equal_unless_concatenated() -> None:
    versions = [Semver.parse("1.0.0"), Semver.parse("2.0.0")]
    assert equal(versions, ["a", "b"]) is True
    assert equal(ConcatList(versions), ["a", "b"]) is None


def test_comparing_lists_that_share_their_elements_ends() -> None:
    left: list[object] = [1]
    right: list[object] = [1]
    for _ in range(60):
        left, right = [left, left], [right, right]
    with pytest.raises(EvaluationAborted, match="cost limit exceeded"):
        equal(left, right)


@given(INT64, INT64)
def test_integers_order_as_numbers(left: int, right: int) -> None:
    assert compare(left, right) == (left > right) - (left < right)
    assert compare(UInt(abs(left) % 2**64), left) == (abs(left) > left) - (abs(left) < left)


@given(INT64, st.floats(allow_nan=False))
def test_order_of_integers_and_doubles_is_antisymmetric(left: int, right: float) -> None:
    assert compare(left, right) == -compare(right, left)


@pytest.mark.parametrize(("left", "right"), [("a", 1), (1, "a"), (True, 1), (b"", "")])
def test_values_of_different_types_have_no_order(left: object, right: object) -> None:
    with pytest.raises(CelError, match=r"^no such overload$"):
        compare(left, right)


def test_nan_has_no_order() -> None:
    for left, right in ((math.nan, 1.0), (1, math.nan)):
        with pytest.raises(CelError, match="NaN values cannot be ordered"):
            compare(left, right)


def test_map_keys_are_told_apart_by_type_but_numbers_find_each_other() -> None:
    mapping = KeyedMap({map_key(True): "bool", map_key(1): "int", map_key(UInt(2)): "uint"})
    assert find(mapping, True) == "bool"
    assert find(mapping, 1) == find(mapping, 1.0) == find(mapping, UInt(1)) == "int"
    assert find(mapping, 2) == find(mapping, 2.0) == "uint"
    assert find(mapping, False) is MISSING
    assert find(mapping, 1.5) is MISSING


def test_a_version_cannot_be_looked_up_in_a_map_made_by_the_expression() -> None:
    version = Semver.parse("1.0.0")
    with pytest.raises(EvaluationAborted, match=r"hash of unhashable type cel\.Semver"):
        find(literal_map(a=1), version)
    assert find({"a": 1}, version) is MISSING


def test_unknown_domains_are_empty_maps_but_not_members() -> None:
    domains = DefaultMap({"a": {"x": 1}})
    assert domains["b"] == find(domains, "b") == {}
    assert has_key(domains, "a")
    assert not has_key(domains, "b")


def test_membership_never_fails() -> None:
    assert not contains(["a"], Semver.parse("1.0.0"))
    assert contains([1.0], 1)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e6, "1e+06"),
        (123456.0, "123456"),
        (1.5e-5, "1.5e-05"),
        (0.0001, "0.0001"),
        (-2.5, "-2.5"),
        (math.inf, "+Inf"),
        (math.nan, "NaN"),
        (0.0, "0"),
        (123456789.25, "1.2345678925e+08"),
    ],
)
def test_doubles_print_as_in_go(value: float, text: str) -> None:
    assert shortest_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_printed_doubles_read_back(value: float) -> None:
    assert float(shortest_double(value)) == value
    assert float(fixed_double(value)) == value
    assert "e" not in fixed_double(value)


def test_values_print_as_go_prints_them() -> None:
    value = [1, UInt(2), True, None, "a", b"\x01\x02", Semver.parse("1.2.3"), Optional(Duration(3 * 10**9))]
    assert go_text(value) == "[1, 2, true, 0, a, [1 2], 1.2.3, optional(3s)]"
    assert go_text(literal_map(k=[1])) == "{k: [1]}"
    assert quoted('a"\n\u00e9\x00') == '"a\\"\\n\u00e9\\x00"'


def test_texts_of_lists_that_share_their_elements_are_cut() -> None:
    nested: object = "x"
    for _ in range(60):
        nested = [nested, nested]
    assert len(go_text(nested)) < 1_000_000


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1h30m", 5400 * 10**9),
        ("-1.5s", -15 * 10**8),
        ("0", 0),
        ("1us", 1000),
        (".5s", 5 * 10**8),
        ("1", None),
        ("", None),
        ("1x", None),
        ("9999999h", None),
        ("s", None),
    ],
)
def test_durations_are_read_as_in_go(text: str, nanoseconds: int | None) -> None:
    duration = parse_duration(text)
    assert (duration and duration.nanoseconds if duration is not None else None) == nanoseconds


@pytest.mark.parametrize(
    "text", ["2009-02-13T23:31:30Z", "2009-02-13T23:31:30.000000001Z", "2009-02-13T23:31:30+01:30"]
)
def test_timestamps_print_as_they_were_written(text: str) -> None:
    moment = parse_timestamp(text)
    assert moment is not None
    assert timestamp_text(moment) == text


@pytest.mark.parametrize(
    "text", ["2009-02-30T00:00:00Z", "2009-02-13", "2009-02-13T24:00:00Z", "x", "2009-13-01T00:00:00Z"]
)
def test_texts_that_are_no_timestamps_are_refused(text: str) -> None:
    assert parse_timestamp(text) is None
