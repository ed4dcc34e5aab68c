"""Unquoted scalars mean what sigs.k8s.io/yaml makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.yaml_values.scalars import NotJSON, key_text, resolve_plain, resolve_tagged


@pytest.mark.parametrize("text", ["y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"])
def test_words_that_yaml_1_1_calls_true_are_true(text: str) -> None:
    assert resolve_plain(text) is True


@pytest.mark.parametrize("text", ["n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"])
def test_words_that_yaml_1_1_calls_false_are_false(text: str) -> None:
    assert resolve_plain(text) is False


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_has_five_spellings(text: str) -> None:
    assert resolve_plain(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-17", -17),
        ("+17", 17),
        ("1_000", 1000),
        ("0x1F", 31),
        ("-0b101", -5),
        ("0o17", 15),
        ("017", 15),
        ("18446744073709551616", 2**64),
    ],
)
def test_integers_have_go_radix_prefixes_and_no_size_limit(text: str, value: int) -> None:
    assert resolve_plain(text) == value


@pytest.mark.parametrize(("text", "value"), [("1.5", 1.5), (".5", 0.5), ("-2.5e-1", -0.25), ("1e-3", 0.001)])
def test_floats_stay_floats(text: str, value: float) -> None:
    assert resolve_plain(text) == value


@pytest.mark.parametrize(("text", "value"), [("1e3", 1000), ("1.0", 1), ("08", 8)])
def test_a_whole_float_becomes_an_integer_as_it_does_in_json(text: str, value: int) -> None:
    resolved = resolve_plain(text)
    assert resolved == value
    assert isinstance(resolved, int)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02",
        "2026-01-02T03:04:05Z",
        "12:30:00",
        "190:20:30",
        "1e999999",
        "0x",
        "1.2.3",
        "80Gi",
        "yEs",
        "- a",
        "._5",
    ],
)
def test_dates_sexagesimals_and_numbers_out_of_range_stay_text(text: str) -> None:
    assert resolve_plain(text) == text


def test_a_number_of_absurd_length_stays_text() -> None:
    assert resolve_plain("9" * 100_000) == "9" * 100_000


@pytest.mark.parametrize("text", [".nan", ".inf", "-.Inf", "+.INF"])
def test_what_json_cannot_say_is_refused(text: str) -> None:
    with pytest.raises(NotJSON, match="is not a JSON value"):
        resolve_plain(text)


def test_a_tag_overrides_the_look_of_a_scalar() -> None:
    assert resolve_tagged("tag:yaml.org,2002:str", "5") == "5"
    assert resolve_tagged("tag:yaml.org,2002:int", "5") == 5
    assert resolve_tagged("tag:yaml.org,2002:bool", "yes") is True
    assert resolve_tagged("tag:yaml.org,2002:null", "") is None
    assert resolve_tagged("tag:yaml.org,2002:float", "5") == 5.0


def test_a_tag_that_the_text_does_not_suit_is_refused() -> None:
    with pytest.raises(ValueError, match="'x' is not a value of type !!int"):
        resolve_tagged("tag:yaml.org,2002:int", "x")


def test_tags_of_other_languages_are_refused() -> None:
    with pytest.raises(ValueError, match="not supported"):
        resolve_tagged("tag:yaml.org,2002:python/name:os.system", "x")


def test_keys_become_strings() -> None:
    assert [key_text(value) for value in ("a", True, False, 7, 1.5)] == ["a", "true", "false", "7", "1.5"]
    with pytest.raises(ValueError, match="null cannot be a key"):
        key_text(None)


@given(st.text(max_size=30))
def test_any_text_resolves_to_itself_or_to_a_json_scalar(text: str) -> None:
    try:
        value = resolve_plain(text)
    except NotJSON:
        return
    assert value is None or isinstance(value, bool | int | float) or value == text
