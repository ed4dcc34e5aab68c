"""YAML: values as Kubernetes reads them, and texts that try to be too much. Places are tested where they are used: tests/reading."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.model.decoding import ObjectWithDuplicates
from allot.yaml_values.reader import BODY_BYTES_MAX, DEPTH_MAX, NotYAML, documents, read_yaml
from allot.yaml_values.writer import yaml_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("---\n", None),
        ("a", "a"),
        ("{a: 1, b: [x, ~, 0x10, 1.5, 'yes', yes, 2020-01-01]}",
         {"a": 1, "b": ["x", None, 16, 1.5, "yes", True, "2020-01-01"]}),
        ("1: a\ntrue: b", {"1": "a", "true": "b"}),
        ("a: &x {k: v}\nb: *x\nc: {<<: *x, k: w, l: m}", {"a": {"k": "v"}, "b": {"k": "v"}, "c": {"k": "w", "l": "m"}}),
        ("a: 1\n---\nb: 2", {"a": 1}),
        ("a: !!str 1", {"a": "1"}),
    ],
)  # fmt: skip
def test_values_are_those_that_kubernetes_reads(text: str, value: Any) -> None:
    assert read_yaml(text.encode()) == value


def test_keys_that_occur_twice_are_noted_and_the_last_counts() -> None:
    read = read_yaml(b"a: {k: 1, k: 2}")
    assert read == {"a": {"k": 2}}
    assert isinstance(read["a"], ObjectWithDuplicates)
    assert read["a"].duplicates == ("k",)


@pytest.mark.parametrize("text", ["a: &x {k: {l: 1}}\nb: *x", "a: &x {k: {l: 1, l: 1}}\nb: *x"])
def test_shared_parts_are_no_longer_shared(text: str) -> None:
    read = read_yaml(text.encode())
    assert read["a"] == read["b"]
    assert read["a"]["k"] is not read["b"]["k"]


def test_an_anchor_may_be_given_to_another_value() -> None:
    deep = "[" * 150 + "]" * 150
    assert read_yaml(f"- &x 1\n- *x\n- &x {deep}\n- *x\n- &x [{10**30}]\n- *x".encode())[5] == [10**30]
    with pytest.raises(NotYAML, match="line 3: nested too deeply"):
        read_yaml(f"- &x 1\n- *x\n- [&x {deep}, {'[' * 60}*x{']' * 60}]".encode())


def test_keys_that_occur_twice_are_noted_where_an_alias_repeats_them() -> None:
    assert read_yaml(b"a: &x {k: 1, k: 2}\nb: [*x]")["b"][0].duplicates == ("k",)


def test_an_object_with_notes_is_written_as_an_object() -> None:
    assert yaml_text(read_yaml(b"a: {k: 1, k: 2}")) == "a:\n  k: 2\n"


def test_the_name_of_an_anchored_merge_key_is_text() -> None:
    assert read_yaml(b"a: {&x <<: {k: v}}\nb: *x") == {"a": {"k": "v"}, "b": "<<"}


def chained(levels: int, aliases: int) -> str:
    """Mappings that go deeper by aliases than any of them is written."""
    lines = [f"a0: &a0 {'[' * levels}{']' * levels}"]
    lines += [f"a{n}: &a{n} {'[' * levels}*a{n - 1}{']' * levels}" for n in range(1, aliases)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "line "),
        ("a: b: c", "line 1"),
        ("a: .inf", "is not a JSON value"),
        ("? [a]\n: b", "invalid map key"),
        ("? ~\n: b", "null cannot be a key"),
        ("a: *b", "unknown anchor 'b' referenced"),
        ("a: &a [*a]", "anchor 'a' value contains itself"),
        ("a: {<<: 1}", "map merge requires map"),
        ("a: !!python/object:os.system x", "is not supported"),
        ("a: !!set {}", "is not supported"),
        ("[" * 3_000_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("? " * 100_000, "nested too deeply"),
        (chained(150, 100), "nested too deeply"),
        ("\x00", "yaml: "),
    ],
)  # fmt: skip
def test_what_json_cannot_say_is_refused(text: str, problem: str) -> None:
    with pytest.raises(NotYAML, match=problem):
        read_yaml(text.encode())


@pytest.mark.parametrize("text", [chained(150, 100), "a: &a [*a]", "a: *b", "a: {<<: 1}", "? [a]\n: b"])
def test_streams_have_the_same_limits_as_bodies(text: str) -> None:
    with pytest.raises(NotYAML) as of_body:
        read_yaml(text.encode())
    with pytest.raises(NotYAML) as of_stream:
        list(documents(text))
    assert str(of_stream.value) == str(of_body.value)


@pytest.mark.parametrize(
    "repeated",
    [f"&x {'a' * 1_000_000}", f"&x [{', '.join(['[]'] * 10_000)}]", f"&x {{{', '.join(f'k{n}' for n in range(10_000))}}}"],
)  # fmt: skip
def test_aliases_count_as_what_they_stand_for(repeated: str) -> None:
    text = "\n".join([f"- {repeated}", *["- *x"] * 200])
    for read in (lambda: read_yaml(text.encode()), lambda: list(documents(text))):
        with pytest.raises(NotYAML, match="document contains excessive aliasing"):
            read()


def test_a_body_with_its_aliases_written_out_is_no_larger_than_a_body_may_be() -> None:
    half = "a" * (BODY_BYTES_MAX // 2 - 100)
    assert len(read_yaml(f"- &x {half}\n- *x".encode())) == 2
    with pytest.raises(NotYAML, match="excessive aliasing"):
        read_yaml(f"- &x {half}\n- *x\n- *x".encode())


def test_a_character_that_yaml_does_not_have_is_named_with_its_line() -> None:
    with pytest.raises(NotYAML, match="yaml: line 2: control characters are not allowed"):
        read_yaml(b"a: b\nc: \x01")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(NotYAML, match="yaml: "):
        read_yaml(b"a: \xff\xfe\xfd")


def test_nesting_up_to_the_limit_is_read() -> None:
    read = read_yaml(("[" * DEPTH_MAX + "]" * DEPTH_MAX).encode())
    assert msgspec.json.encode(read) == b"[" * DEPTH_MAX + b"]" * DEPTH_MAX


_SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=20)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)


@given(_VALUES)
def test_what_is_written_as_yaml_is_read_again(value: Any) -> None:
    assert read_yaml(yaml_text(value).encode()) == value


@given(st.text(alphabet="ab:-?[]{}&*!,| \n<>'\"#%", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        msgspec.json.encode(read_yaml(text.encode()))
    except NotYAML as error:
        assert str(error).startswith("yaml: ")


@given(st.text(alphabet="ab:-?[]{}&*!,| \n<>'\"#%", max_size=60))
def test_bodies_and_streams_are_read_alike_but_for_keys_that_occur_twice(text: str) -> None:
    def first() -> Any:
        found = next(documents(text), None)
        return found.value if found is not None else None

    try:
        expected = read_yaml(text.encode())
    except NotYAML:
        with pytest.raises(NotYAML):
            first()
        return
    try:
        assert first() == expected
    except NotYAML as error:
        assert "occurs twice" in error.problem
