"""Text with another value in it keeps what it can of its layout and comments."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.cli.converting.rewriting import rewritten
from allot.reading.documents import parse_documents
from allot.yaml_values.writer import yaml_text


def changed(text: str, change: Any) -> str:
    text = dedent(text)
    (document,) = parse_documents(text.encode(), "f.yaml", places=True)
    new = change(document.value) if callable(change) else change
    return rewritten(text, document.places, document.value, new)


def test_what_did_not_change_keeps_its_lines() -> None:
    text = """\
    # before
    a: 1   # one
    # about b
    b:
        - 'x'   # first
        # second
        - {y: 2}
    c: old
    """
    assert changed(text, lambda value: {**value, "c": "new"}) == dedent(text).split("\n", 1)[1].replace("old\n", "new")


def test_an_entry_that_moved_takes_its_comments_along() -> None:
    text = """\
    requests:
    # the request
    - name: gpu
      # the class
      class: big   # really
      script: |
        one
          two
    """
    expected = """\
    requests:
    # the request
    - name: gpu
      exactly:
        # the class
        class: big   # really
        script: |
          one
            two"""

    def nest(value: Any) -> Any:
        (request,) = value["requests"]
        return {"requests": [{"name": "gpu", "exactly": {key: request[key] for key in ("class", "script")}}]}

    assert changed(text, nest) == dedent(expected)


def test_a_list_keeps_its_indentation_and_new_members_follow_it() -> None:
    text = """\
    items:
        - a   # first
        - b: 1
    """
    expected = """\
    items:
        - a   # first
        - b: 2
        - c"""
    assert changed(text, {"items": ["a", {"b": 2}, "c"]}) == dedent(expected)


def test_texts_that_look_like_something_else_are_quoted() -> None:
    assert changed("a: b", {"a": "yes", "b": "1", "c": "null"}) == 'a: "yes"\nb: "1"\nc: "null"'


def test_flow_style_and_anchors_are_written_anew() -> None:
    assert changed("{a: 1, b: 2}", {"a": 1}) == '{\n  "a": 1\n}'
    assert changed("a: &x {z: 1}\nb: *x\n", {"b": {"z": 1}}) == "b:\n  z: 1"
    assert changed("a: [1, 2]   # two\n", {"a": [1]}) == "a:\n- 1"


keys = st.sampled_from(["a", "b", "c", "d-e", "y", "1"])
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "x", "no", "two\nlines\n", "a: b", "# c", "-"])
)
values = st.recursive(
    scalars, lambda below: st.lists(below, max_size=3) | st.dictionaries(keys, below, max_size=4), max_leaves=12
)
documents = st.dictionaries(keys, values, min_size=1, max_size=4)


@pytest.mark.slow
@given(documents, documents)
def test_the_text_says_the_new_value(old: dict[str, Any], new: dict[str, Any]) -> None:
    text = yaml_text(old)
    (document,) = parse_documents(text.encode(), "f.yaml", places=True)
    made = rewritten(text, document.places, document.value, new)
    (read,) = parse_documents(f"{made}\n".encode(), "f.yaml")
    assert read.value == new
