"""Expressions are changed in place, in every style that YAML has for them."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from allot.core.advice.lint.finding import Fix, apply_fixes
from allot.core.advice.lint.text_values import span_of, token_edits
from allot.yaml_values.reader import documents
from core.advice.lint.linting import findings, fixed

_CLASS = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: c}
spec:
  selectors:
  - cel:
      expression: """

_LINES = """\
device.driver == "gpu.nvidia.com" &&
  device.capacity["gpu.nvidia.com"].memory >= "16Gi"   &&
device.attributes["gpu.nvidia.com"].cudaComputeCapability >= "8.0"
"""
_RIGHT_LINES = _LINES.replace('memory >= "16Gi"', 'memory.compareTo(quantity("16Gi")) >= 0').replace(
    'Capability >= "8.0"', 'Capability.compareTo(semver("8.0.0")) >= 0'
)


def _indented(text: str) -> str:
    return "".join(f"        {line}\n" for line in text.splitlines())


def test_a_block_keeps_its_lines() -> None:
    for header in ("|", "|-", ">", ">-", "| # why", ">+"):
        assert fixed(f"{_CLASS}{header}\n{_indented(_LINES)}") == f"{_CLASS}{header}\n{_indented(_RIGHT_LINES)}"


def test_a_text_over_several_lines_keeps_them() -> None:
    plain = _indented(_LINES).strip()
    assert fixed(f"{_CLASS}{plain}\n") == f"{_CLASS}{_indented(_RIGHT_LINES).strip()}\n"


def test_quotes_are_kept() -> None:
    double, right = (json.dumps(" ".join(text.split())) for text in (_LINES, _RIGHT_LINES))
    assert fixed(f"{_CLASS}{double}\n") == f"{_CLASS}{right}\n"
    assert fixed(f"{_CLASS}'{' '.join(_LINES.split())}'\n") == f"{_CLASS}'{' '.join(_RIGHT_LINES.split())}'\n"


def test_what_is_fixed_has_no_findings() -> None:
    assert findings(fixed(f"{_CLASS}|\n{_indented(_LINES)}")) == []


def test_a_part_is_found_however_it_is_spaced() -> None:
    assert span_of("a.b >= 1", "x && a . b\n  >=1") == (5, 16)
    assert span_of("a", "a || a") is None
    assert span_of("c", "a || b") is None


_TOKENS = st.sampled_from(["a", "b.c", "device.driver", '"x y"', "'q'", "1", "&&", "||", "(", ")", "==", r'"\\"'])
_EXPRESSIONS = st.lists(_TOKENS, min_size=1, max_size=8).map(" ".join)
_GAPS = st.sampled_from([" ", "  ", "\n", "\n  ", " \n"])


def _written(style: str, expression: str, newline: str) -> str:
    if style in "|>":
        return f"{style}\n  " + expression.replace("\n", "\n  ") + "\n"
    if style == '"':
        return json.dumps(expression).replace("\\n", newline)
    return "'" + expression.replace("'", "''").replace("\n", "\n  ") + "'"


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from("|>\"'"))
def test_edits_make_one_expression_the_other(data: st.DataObject, style: str) -> None:
    """Whatever the style: the edited YAML has the new expression, but for the spaces between tokens."""
    tokens, new = data.draw(_EXPRESSIONS), data.draw(_EXPRESSIONS)
    old = "".join(data.draw(_GAPS) if part == " " else part for part in tokens.replace('"x y"', '"x_y"'))
    raw = _written(style, old, "\\n")
    (before,) = documents(f"v: {raw}", places=True)
    value = before.value["v"]
    place = before.places["v",]
    text = f"v: {raw}"
    edits = token_edits(text[slice(*place.value)], place.value[0], value, new)
    changed, _ = apply_fixes(text, [Fix("", edits)])
    (after,) = documents(changed)
    if value.split() != new.split():
        assert edits
    assert "".join(after.value["v"].split()) == "".join(new.split())
