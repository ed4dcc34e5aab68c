"""Writing expressions back as text."""

import json

import pytest

from allot.core.cel.syntax.ast import Call
from allot.core.cel.syntax.parser import parse
from allot.core.cel.syntax.unparse import unparse
from vectors import vectors_dir

VECTORS = vectors_dir()


@pytest.mark.parametrize(
    "source",
    [
        "device.driver == 'gpu.example.com' && device.attributes[\"a\"].b > 0x10",
        "(a + b) * -c - (d - e)",
        "a ? b : c ? d : e",
        "(a ? b : c) ? d : e",
        "!(a && b) || c",
        "a.?b[?c].d(1u, 2.50, b'x')",
        "[1, ?a].exists(x, x > 1)",
        "{'a': 1, ?b: c}",
        "T{f: 1, ?`g-h`: 2}",
        "has(a.b) && x.all(k, v, v in [null, true])",
        "cel.bind(x, 1, x + x)",
    ],
)
def test_text_comes_back_as_written(source: str) -> None:
    parsed = parse(source)
    assert unparse(parsed.root, parsed) == source


def test_parts_can_be_shown_alone() -> None:
    parsed = parse("a.b == 1   &&  ( c.exists( x , x.y ) )")
    root = parsed.root
    assert isinstance(root, Call)
    assert [unparse(arg, parsed) for arg in root.args] == ["a.b == 1", "c.exists(x, x.y)"]


def test_deep_text_is_cut_short() -> None:
    parsed = parse("!(" * 100 + "a" + ")" * 100)
    assert "…" in unparse(parsed.root, parsed)


@pytest.mark.slow
@pytest.mark.skipif(VECTORS is None, reason="no vectors: set ALLOT_VECTORS to their folder")
def test_text_that_was_written_back_means_the_same() -> None:
    assert VECTORS is not None
    for case in json.loads((VECTORS / "cel" / "fuzz.json").read_text())["cases"]:
        parsed = parse(case["expression"])
        text = unparse(parsed.root, parsed)
        again = parse(text)
        assert unparse(again.root, again) == text
        assert again.root == parsed.root or len(again.offsets) == len(parsed.offsets)
