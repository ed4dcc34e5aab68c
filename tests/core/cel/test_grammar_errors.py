"""Syntax errors in upstream's words."""

import pytest

from allot.core.cel.syntax.errors import CelCompileError
from allot.core.cel.syntax.parser import parse

OPERAND = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)


def messages(source: str, *, optional_syntax: bool = True) -> list[str]:
    with pytest.raises(CelCompileError) as caught:
        parse(source, optional_syntax=optional_syntax)
    return [f"{issue.line}:{issue.column}: {issue.message}" for issue in caught.value.issues]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", [f"1:0: Syntax error: mismatched input '<EOF>' expecting {OPERAND}"]),
        ("1 +", [f"1:4: Syntax error: mismatched input '<EOF>' expecting {OPERAND}"]),
        ("1 2", ["1:3: Syntax error: extraneous input '2' expecting <EOF>"]),
        ("f(1", ["1:4: Syntax error: missing ')' at '<EOF>'"]),
        ("a.", ["1:3: Syntax error: no viable alternative at input '.'"]),
        ("a.true", ["1:3: Syntax error: mismatched input 'true' expecting IDENTIFIER"]),
        (
            "-)",
            [
                "1:2: Syntax error: no viable alternative at input '-)'",
                f"1:2: Syntax error: mismatched input ')' expecting {OPERAND}",
            ],
        ),
        ("!-x", ["1:3: Syntax error: no viable alternative at input '-x'"]),
        ("a ? b", ["1:6: Syntax error: mismatched input '<EOF>' expecting ':'"]),
        (
            "a & b",
            [
                "1:3: Syntax error: token recognition error at: '& '",
                "1:5: Syntax error: extraneous input 'b' expecting <EOF>",
            ],
        ),
        ("f(1 2)", ["1:5: Syntax error: extraneous input '2' expecting ')'"]),
        ("[1,,2]", ["1:4: Syntax error: mismatched input ',' expecting ']'"]),
        ("{1}", ["1:3: Syntax error: mismatched input '}' expecting ':'"]),
        ("a.B{", ["1:5: Syntax error: mismatched input '<EOF>' expecting {'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"]),
        (
            "'a\tb",
            [
                "1:1: Syntax error: token recognition error at: ''a\\tb'",
                f"1:5: Syntax error: mismatched input '<EOF>' expecting {OPERAND}",
            ],
        ),
    ],
)
def test_syntax_errors_read_as_upstreams(source: str, expected: list[str]) -> None:
    assert messages(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("if == 1", ["1:1: reserved identifier: if"]),
        ("for(1) + while", ["1:1: reserved identifier: for", "1:10: reserved identifier: while"]),
        ("99999999999999999999", ["1:1: invalid int literal"]),
        ("-99999999999999999999u", ["1:2: invalid uint literal"]),
        ("1e999", ["1:1: invalid double literal"]),
        ("'\\ud800'", ["1:1: invalid unicode code point"]),
        ("has(a)", ["1:5: invalid argument to has() macro"]),
        ("[1].all(1, true)", ["1:9: argument must be a simple name"]),
        ("[1].map(a.b, 1)", ["1:10: argument is not an identifier"]),
        ("[1].all(__result__, true)", ["1:9: iteration variable overwrites accumulator variable"]),
        ("[1].all(x, x, true)", ["1:12: duplicate variable name: x"]),
        ("cel.bind(1, 2, 3)", ["1:10: cel.bind() variable names must be simple identifiers"]),
        ("a.optMap(1, 2)", ["1:10: optMap() variable name must be a simple identifier"]),
        (
            '"a".sortBy(x, x)',
            ["1:1: sortBy can only be applied to a list, identifier, comprehension, call or select expression"],
        ),
    ],
)
def test_errors_beyond_syntax_are_found_in_one_go(source: str, expected: list[str]) -> None:
    assert messages(source) == expected


def test_optional_syntax_can_be_off() -> None:
    assert messages("a.?b && a[?b]", optional_syntax=False) == [
        "1:2: unsupported syntax '.?'",
        "1:10: unsupported syntax '[?'",
    ]
    assert messages("[?a]", optional_syntax=False) == ["1:2: unsupported syntax '?'"]
    assert messages("{?'k': v}", optional_syntax=False) == ["1:2: unsupported syntax '?'"]


def test_the_number_of_errors_is_limited() -> None:
    with pytest.raises(CelCompileError) as caught:
        parse("#" * 5000)
    assert len(caught.value.issues) == 100
    assert str(caught.value).endswith("\n1 more errors were truncated")


def test_recovery_does_not_go_on_for_ever() -> None:
    assert messages("? " * 5000)[0] == "-1:0: error recovery token lookahead limit exceeded: 256"
    assert messages("x{" * 3000)[-1].endswith("Syntax error: error recovery attempt limit exceeded: 30")


def test_the_display_shows_line_and_column() -> None:
    with pytest.raises(CelCompileError) as caught:
        parse("true &&\n\t'é' == if")
    assert str(caught.value) == "ERROR: <input>:2:9: reserved identifier: if\n |  'é' == if\n | ..．.....^"
