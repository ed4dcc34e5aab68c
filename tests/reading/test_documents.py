"""Text becomes plain values, or an error that names the place."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from allot.core.advice.places import nearest_place
from allot.reading.documents import parse_documents
from allot.reading.errors import Unreadable
from allot.yaml_values.reader import DEPTH_MAX, STREAM_ALIASED_MAX, Document


def values(text: str | bytes, source: str = "f.yaml") -> list[Any]:
    data = text if isinstance(text, bytes) else text.encode()
    return [document.value for document in parse_documents(data, source)]


def failure(text: str | bytes, source: str = "f.yaml") -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        values(text, source)
    return caught.value


def test_a_stream_holds_several_documents_with_number_and_line() -> None:
    documents = parse_documents(b"a: 1\n---\n# only a comment\n---\nb: 2\n", "f.yaml")
    assert [(document.value, document.number, document.line) for document in documents] == [
        ({"a": 1}, 1, 1),
        (None, 2, 4),
        ({"b": 2}, 3, 5),
    ]


def test_members_of_an_items_list_have_lines() -> None:
    (document,) = parse_documents(b"kind: List\nitems:\n- a: 1\n\n- b: 2\n", "f.yaml")
    assert document.item_lines == (3, 5)


def test_json_values_may_follow_each_other() -> None:
    documents = parse_documents(b'{"a": 1}\n{"b": [true, null, 1.5]}\n', "f.jsonl")
    assert [(document.value, document.line) for document in documents] == [({"a": 1}, 1), ({"b": [True, None, 1.5]}, 2)]


def test_flow_yaml_that_looks_like_json_is_read() -> None:
    assert values("{a: 1, b: [x, y]}") == [{"a": 1, "b": ["x", True]}]


def test_quoted_scalars_and_blocks_stay_text() -> None:
    assert values("a: '1'\nb: \"yes\"\nc: |\n  1\n") == [{"a": "1", "b": "yes", "c": "1\n"}]


def test_keys_are_strings() -> None:
    assert values("1: a\ntrue: b\n") == [{"1": "a", "true": "b"}]


def test_a_byte_order_mark_is_no_part_of_the_text() -> None:
    assert values(b"\xef\xbb\xbfa: 1") == [{"a": 1}]
    assert values(b'\xef\xbb\xbf{"a": 1}') == [{"a": 1}]


def test_nothing_is_no_document() -> None:
    assert values("") == []
    assert values("# nothing\n") == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("b: &b {x: 1, z: 2}\nc: {<<: *b, z: 3}", {"x": 1, "z": 3}),
        ("b: &b {x: 1}\nd: &d {x: 2, z: 3}\nc: {<<: [*b, *d]}", {"x": 1, "z": 3}),
        ("c: {'<<': 1}", {"<<": 1}),
    ],
)
def test_merge_keys_fill_in_what_the_mapping_does_not_say(text: str, value: dict[str, Any]) -> None:
    assert values(text)[0]["c"] == value


def test_a_key_given_twice_is_refused_with_its_line() -> None:
    assert (
        failure("a: 1\nb:\n  c: 1\n  c: 2\n").message == "f.yaml: line 4, column 3: key 'c' occurs twice in one mapping"
    )
    assert (
        failure('{"b": {"c": 1,\n "c": 2}}').message == "f.yaml: line 2, column 2: key 'c' occurs twice in one mapping"
    )


def test_a_syntax_error_names_line_and_column() -> None:
    assert failure("a: b: c").message == "f.yaml: line 1, column 5: mapping values are not allowed in this context"


def test_a_json_error_names_line_and_column() -> None:
    assert failure('{"a":\n 1 2}', "f.json").message.startswith("f.json: line 2, column")
    assert failure('{"a": 1}\n{"b": nope}').message == "f.yaml: line 2, column 7: not JSON: expecting value"
    assert failure('{"a": NaN}').message == "f.yaml: line 1: NaN is not a JSON value: expected a finite number"


def test_a_separator_with_the_wrong_dash_gets_a_hint() -> None:
    error = failure("kind: A\n\u2013--\nkind: B\n")
    assert error.hint is not None
    assert "line 2" in error.hint
    assert "did you mean '---'?" in error.hint


def test_a_tab_as_indentation_gets_a_hint() -> None:
    assert failure("a:\n\tb: 1\n").hint == "line 2 is indented with a tab: YAML allows only spaces"


def test_text_that_is_not_utf_8_is_refused() -> None:
    assert failure(b"a: 1\nb: \xff\n").message == "f.yaml: line 2: byte 0xff is not UTF-8: expected UTF-8 text"


def test_a_nul_byte_is_refused() -> None:
    assert failure(b"a: 1\nb: \0\n").message == "f.yaml: line 2: contains a NUL byte: expected text"


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "- " * 100_000, "{a: " * 50_000, "? " * 50_000, "[" * 5000 + "]" * 5000]
)
def test_deep_nesting_is_refused(text: str) -> None:
    assert f"nested too deeply: expected at most {DEPTH_MAX} levels" in failure(text).message


def test_nesting_up_to_the_limit_is_read() -> None:
    assert len(values("[" * DEPTH_MAX + "]" * DEPTH_MAX)) == 1
    assert len(values("- " * DEPTH_MAX)) == 1


def test_aliases_count_as_what_they_expand_to() -> None:
    bomb = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    bomb += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert f"excessive aliasing: expected at most {STREAM_ALIASED_MAX} characters" in failure("\n".join(bomb)).message


def test_an_alias_to_its_own_mapping_is_refused() -> None:
    assert "contains itself" in failure("a: &a\n  b: *a\n").message


def test_objects_of_other_languages_are_refused() -> None:
    assert "not supported" in failure("a: !!python/object/apply:os.system [ls]").message


@pytest.mark.parametrize("text", ["? [a]\n: b\n", "~: x", "a: .inf", "a: !!int x", "b: {<<: 5}"])
def test_what_json_cannot_say_is_refused(text: str) -> None:
    assert failure(text).message.startswith("f.yaml: line 1")


def test_half_a_surrogate_pair_is_replaced() -> None:
    assert values('{"a": "\\ud800x"}') == [{"a": "\ufffdx"}]
    assert values('{"a": "\\ud83d\\ude00"}') == [{"a": "\U0001f600"}]


def test_numbers_of_absurd_size_stay_text() -> None:
    digits = "9" * 100_000
    assert values(f'{{"a": {digits}, "b": 1e999999}}') == [{"a": digits, "b": "1e999999"}]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_json_reads_back(value: dict[str, Any]) -> None:
    import json

    if not any(0xD800 <= ord(character) <= 0xDFFF for character in str(value)) and "\0" not in json.dumps(value):
        assert values(json.dumps(value)) == [value]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        parse_documents(data, "f.yaml")
    except Unreadable as error:
        assert error.message.startswith("f.yaml: ")


@given(st.text(alphabet="abk:-[]{},?&*!|>'\"#%@` \n\t01<.~", max_size=80))
def test_any_yaml_like_text_is_read_or_refused(text: str) -> None:
    try:
        parse_documents(text.encode(), "f.yaml")
    except Unreadable as error:
        assert error.message.startswith("f.yaml: ")


# --- places ---


_PLACED = """\
é: 1
spec:
  requests:   # what is wanted
  - name: "gpu"
    text: |
      one
      two
  - {name: nic, count: 2 }
empty:
"""


def placed(text: str, source: str = "f.yaml") -> Document:
    (document,) = parse_documents(text.encode(), source, places=True)
    return document


def test_every_field_has_the_line_and_column_of_its_key_and_members_of_lists_that_of_their_value() -> None:
    places = placed(_PLACED).places
    assert [
        (path, place.line, place.column)
        for path, place in places.items()
        if path in ((), ("spec",), ("spec", "requests", 0), ("spec", "requests", 1, "count"), ("empty",))
    ] == [
        (("spec", "requests", 0), 4, 5),
        (("spec", "requests", 1, "count"), 8, 17),
        (("spec",), 2, 1),
        (("empty",), 9, 1),
        ((), 1, 1),
    ]


def test_offsets_cut_out_the_text_of_keys_and_values() -> None:
    places = placed(_PLACED).places
    name = places[("spec", "requests", 0, "name")]
    assert _PLACED[slice(*name.value)] == '"gpu"'
    assert name.key is not None
    assert _PLACED[slice(*name.key)] == "name"
    assert _PLACED[slice(*places[("spec", "requests", 1)].value)] == "{name: nic, count: 2 }"
    assert _PLACED[slice(*places[("spec", "requests", 0, "text")].value)].split() == ["|", "one", "two"]
    assert _PLACED[slice(*places[("é",)].value)] == "1"


def test_what_an_alias_brings_in_is_where_the_alias_is() -> None:
    places = placed("a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n").places
    assert nearest_place(places, ("c", "b")).line == 2
    assert nearest_place(places, ("d", "b")).line == 3
    assert ("c", "b") not in places


def test_documents_of_a_stream_have_places_in_the_whole_text() -> None:
    text = "a: 1\n---\nb: {c: 2}\n"
    second = parse_documents(text.encode(), "f.yaml", places=True)[1]
    assert second.places[("b", "c")].line == 3
    assert text[slice(*second.places[("b", "c")].value)] == "2"


def test_json_has_places_too_also_several_values_in_a_row() -> None:
    text = '{"a": 1}\n{\n  "b": ["x"]\n}\n'
    second = parse_documents(text.encode(), "f.jsonl", places=True)[1]
    assert second.places[("b", 0)].line == 3
    assert text[slice(*second.places[("b", 0)].value)] == '"x"'


def test_without_being_asked_nothing_is_noted() -> None:
    assert parse_documents(b"a: 1", "f.yaml")[0].places == {}


_KEYS = st.text(alphabet="abé–: #'", min_size=1, max_size=4)
_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet="ab é–:#'\"{}[]\n|>&*!%@`", max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(_KEYS, _TREES, min_size=1, max_size=3), st.sampled_from([True, False, None]))
def test_the_text_at_a_place_is_the_value_of_the_field(tree: dict[str, Any], flow: bool | None) -> None:
    text = yaml.safe_dump(tree, allow_unicode=True, default_flow_style=flow, sort_keys=False)
    document = placed(text)
    for path, place in document.places.items():
        value = document.value
        for step in path:
            value = value[step]
        raw = text[slice(*place.value)]
        # A block of lines has its meaning only with its indentation.
        if isinstance(value, str) and raw[:1] not in "|>" and "\n" not in raw:
            assert values(raw or '""') == [value]
        if place.key is not None and "\n" not in text[slice(*place.key)]:
            assert list(values(f"{text[slice(*place.key)]}: 1")[0]) == [path[-1]]
