"""YAML bodies: values as Kubernetes reads them, and texts that try to be too much."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.apiserver.yaml_bodies import DEPTH_MAX, YamlError, read_yaml, write_yaml
from allot.core.model.decoding import ObjectWithDuplicates


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


def test_shared_parts_are_no_longer_shared() -> None:
    read = read_yaml(b"a: &x {k: v}\nb: *x")
    assert read["a"] is not read["b"]


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
    with pytest.raises(YamlError, match=problem):
        read_yaml(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(YamlError, match="yaml: "):
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
    assert read_yaml(write_yaml(value)) == value


@given(st.text(alphabet="ab:-?[]{}&*!,| \n<>'\"#%", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        msgspec.json.encode(read_yaml(text.encode()))
    except YamlError as error:
        assert str(error).startswith("yaml: ")
