"""Prometheus' text format: what programs write is read, whatever else they write."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.metrics.exposition import Sample, line, parse, text_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("up 1", Sample("up", {}, 1.0)),
        ("a:b_c 1.5e3 1700000000000", Sample("a:b_c", {}, 1500.0, 1700000000000)),
        ('x{a="b",c="d"} -2', Sample("x", {"a": "b", "c": "d"}, -2.0)),
        ('x{a="b",} 2', Sample("x", {"a": "b"}, 2.0)),
        ('x{ a = "b" , c="d" } 2', Sample("x", {"a": "b", "c": "d"}, 2.0)),
        ("x{} 2", Sample("x", {}, 2.0)),
        (r'x{a="q\"s\\ \n}"} 2', Sample("x", {"a": 'q"s\\ \n}'}, 2.0)),
        ("x +Inf", Sample("x", {}, math.inf)),
        ("\tx\t2\r", Sample("x", {}, 2.0)),
        ('x{a="b"} 2 # {trace_id="c"} 0.5', Sample("x", {"a": "b"}, 2.0)),
        ('x{a="}"} 2 17', Sample("x", {"a": "}"}, 2.0, 17)),
        ('x{a="one\u2028line"} 2', Sample("x", {"a": "one\u2028line"}, 2.0)),
        ("x .5", Sample("x", {}, 0.5)),
    ],
)
def test_samples(text: str, expected: Sample) -> None:
    assert parse(text, samples_max=10).samples == (expected,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "# a comment",
        "1up 2",
        "x",
        "x y",
        "x 1 2 3",
        'x{a="b" 1',
        "x{a=b} 1",
        'x{a="b"} 1 z',
        "x" * 300 + " 1",
        "x 1_0",
        "x \u0661",
        "x 1 1_0",
        "x 0x10",
        "x " + "1" * 9000,
        "x 1 " + "1" * 19,
        'x{a="b"c="d"} 1',
        "x{,} 1",
        'x{a="\\"} 1',
        "x{" + ",".join(f'l{number}="v"' for number in range(65)) + "} 1",
    ],
)
def test_what_is_no_sample_is_left_out(text: str) -> None:
    found = parse(f"before 1\n{text}\nafter 2", samples_max=10)
    assert [sample.name for sample in found.samples] == ["before", "after"]
    assert found.left_out == (0 if not text.strip() or text.startswith("#") else 1)


def test_types_and_limits() -> None:
    text = "# TYPE a counter\n# HELP a some\na 1\nb 2\nc 3\n"
    found = parse(text, samples_max=2)
    assert found.types == {"a": "counter"} and len(found.samples) == 2 and found.left_out == 1
    assert text_of(found.samples, found.types) == "# TYPE a counter\na 1\nb 2\n"


_NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,10}", fullmatch=True)


@given(
    _NAMES,
    st.dictionaries(_NAMES, st.text(st.characters(exclude_categories=["Cs"])), max_size=5),
    st.floats(allow_nan=False),
    st.none() | st.integers(0, 10**15),
)
def test_writing_and_reading_are_inverse(name: str, labels: dict[str, str], value: float, at: int | None) -> None:
    assert parse(line(name, labels, value, at), samples_max=1).samples == (Sample(name, labels, value, at),)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    parse(text, samples_max=5)
