"""Tables, JSON and YAML."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.cli.errors import printable, shortened
from allot.cli.output import OutputFormat, write_table, write_value
from allot.reading.documents import parse_documents


def test_columns_are_aligned_and_lines_have_no_trailing_space(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(("A", "LONG HEADER"), [("a long cell", "x"), ("b", "")])
    assert capsys.readouterr().out == "A             LONG HEADER\na long cell   x\nb\n"


def test_a_cell_is_one_line_of_bounded_length(capsys: pytest.CaptureFixture[str]) -> None:
    write_table(("A",), [("x\ny",), ("z" * 10_000,)])
    _, first, second = capsys.readouterr().out.splitlines()
    assert first == "x y"
    assert len(second) < 500


def test_json_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_value({"a": "x\ny"}, OutputFormat.JSON)
    assert capsys.readouterr().out == '{"a":"x\\ny"}\n'


@pytest.mark.parametrize(
    "text", ["1e3", "y", "0o17", "1_000", "null", "", "~", ".inf", "2026-01-02", "12:30", "a: b", "x\ny"]
)
def test_yaml_text_is_text_again_for_kubernetes(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_value({"a": text}, OutputFormat.YAML)
    (document,) = parse_documents(capsys.readouterr().out.encode(), "f.yaml")
    assert document.value == {"a": text}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc"])),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text("abcy1-", min_size=1), children, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.text("abcy1-", min_size=1), values, max_size=4))
def test_yaml_reads_back_with_kubernetes_rules(value: dict[str, Any]) -> None:
    from click.testing import CliRunner

    with CliRunner().isolation() as (stdout, _, _):
        write_value(value, OutputFormat.YAML)
        data = stdout.getvalue()
    (document,) = parse_documents(data, "f.yaml")
    assert document.value == value


def test_control_characters_are_made_visible() -> None:
    assert printable("a\x1b[31m\x07b\n") == "a\\x1b[31m\\x07b\n"
    assert printable("ünïcode") == "ünïcode"


def test_long_texts_are_cut_in_the_middle() -> None:
    assert shortened("a" * 10 + "b" * 10, 8) == "aaaa... (12 characters left out) ...bbbb"
    assert shortened("short") == "short"
