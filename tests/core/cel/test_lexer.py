"""Tokens and the values of literals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.cel.syntax import lexer
from allot.core.cel.syntax.ast import UInt
from allot.core.cel.syntax.lexer import BadLiteral, Token, Unrecognized, next_token, scan


def kinds(source: str) -> list[str]:
    scanned = scan(source)
    assert scanned is not None
    return scanned[0]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.b", ["IDENTIFIER", ".", "IDENTIFIER", "<EOF>"]),
        (
            "1u 1.5 .5 1e3 0x1F 0x1fu",
            ["NUM_UINT", "NUM_FLOAT", "NUM_FLOAT", "NUM_FLOAT", "NUM_INT", "NUM_UINT", "<EOF>"],
        ),
        ("1.foo", ["NUM_INT", ".", "IDENTIFIER", "<EOF>"]),
        ("a.5", ["IDENTIFIER", "NUM_FLOAT", "<EOF>"]),
        ("0X1", ["NUM_INT", "IDENTIFIER", "<EOF>"]),
        ("b'x' br'x' rb", ["BYTES", "BYTES", "IDENTIFIER", "<EOF>"]),
        ("in inn true truest null", ["in", "IDENTIFIER", "true", "IDENTIFIER", "null", "<EOF>"]),
        ("a // the rest\n<= b", ["IDENTIFIER", "<=", "IDENTIFIER", "<EOF>"]),
        ("`a-b/c d`", ["ESC_IDENTIFIER", "<EOF>"]),
        ('"""a "quoted" word"""', ["STRING", "<EOF>"]),
        ("", ["<EOF>"]),
    ],
)
def test_text_is_cut_into_the_longest_tokens(source: str, expected: list[str]) -> None:
    assert kinds(source) == expected


@pytest.mark.parametrize("source", ["#", "a & b", "a = b", '"open', "'bad \\q escape'", "`open", '"line\nbreak"'])
def test_scan_gives_up_on_what_is_no_token(source: str) -> None:
    assert scan(source) is None


@pytest.mark.parametrize(
    ("source", "text", "next_offset"),
    [
        ("#a", "#", 1),
        ("& b", "& ", 2),
        ("=", "=", 1),
        ('"abc', '"abc', 4),
        ('"ab\\q"', '"ab\\q', 5),
        ('"ab\\x4"', '"ab\\x4"', 7),
        ("'a\nb'", "'a\n", 3),
        ("`a$", "`a$", 3),
    ],
)
def test_an_unrecognized_text_reaches_to_the_character_that_spoils_it(source: str, text: str, next_offset: int) -> None:
    assert next_token(source, 0) == (Unrecognized(text, 0), next_offset)


def test_tokens_know_where_they_start_in_code_points() -> None:
    assert next_token("'é' + x", 3) == (Token("+", "+", 4), 5)


@given(st.text())
def test_every_text_can_be_walked_to_its_end(source: str) -> None:
    position = 0
    for _ in range(len(source) + 1):
        token, position = next_token(source, position)
        if isinstance(token, Token) and token.kind == lexer.END:
            return
    pytest.fail("did not reach the end")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a'", "a"),
        ('"a\\n\\t\\"\\\\"', 'a\n\t"\\'),
        ("'\\x41\\u00e9\\U0001F600\\101'", "Aé😀A"),
        ("r'\\n'", "\\n"),
        ("'''a\r\nb\rc'''", "a\nb\nc"),
        ('""', ""),
    ],
)
def test_string_literals_are_decoded(text: str, value: str) -> None:
    assert lexer.string_value(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("b'\\xff\\377é'", b"\xff\xff\xc3\xa9"), ("b'a'", b"a"), ("br'\\n'", b"\\n"), ("B'\\n'", b"\n")],
)
def test_bytes_literals_are_decoded(text: str, value: bytes) -> None:
    assert lexer.bytes_value(text) == value


def test_escapes_that_name_no_character_are_refused() -> None:
    with pytest.raises(BadLiteral, match="invalid unicode code point"):
        lexer.string_value("'\\uD800'")
    with pytest.raises(BadLiteral, match="unable to unescape string"):
        lexer.bytes_value("b'\\u0041'")


def test_numbers_keep_their_sign_and_class() -> None:
    assert lexer.int_value("9223372036854775808", True) == -(2**63)
    assert type(lexer.uint_value("18446744073709551615u")) is UInt
    assert lexer.int_value("0xff", False) == 255
    assert lexer.double_value("1.5", True) == -1.5


@pytest.mark.parametrize("digits", ["9223372036854775808", "9" * 5000, "0x" + "f" * 5000])
def test_integers_out_of_range_are_refused(digits: str) -> None:
    with pytest.raises(BadLiteral, match="invalid int literal"):
        lexer.int_value(digits, False)


def test_other_numbers_out_of_range_are_refused() -> None:
    with pytest.raises(BadLiteral, match="invalid uint literal"):
        lexer.uint_value("18446744073709551616u")
    with pytest.raises(BadLiteral, match="invalid double literal"):
        lexer.double_value("1e999", False)
