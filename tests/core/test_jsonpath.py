"""JSONPath as printer columns use it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.jsonpath import LENGTH_MAX, JSONPathError, find, parse

OBJECT: dict[str, Any] = {
    "spec": {"replicas": 3, "flag": False, "names": ["a", "b", "c"]},
    "metadata": {"labels": {"app.kubernetes.io/name": "web"}, "name": "x"},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "True", "age": 5},
            {"type": "Synced", "status": "False", "age": 7},
        ]
    },
}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (".spec.replicas", [3]),
        ("spec.replicas", [3]),
        ("{.spec.replicas}", [3]),
        ("$.spec.replicas", [3]),
        (".spec.flag", [False]),
        (".spec.names[0]", ["a"]),
        (".spec.names[-1]", ["c"]),
        (".spec.names[-4]", []),
        (".spec.names[9]", []),
        (".spec.names[0:2]", ["a", "b"]),
        (".spec.names[::2]", ["a", "c"]),
        (".spec.names[*]", ["a", "b", "c"]),
        (".spec.names[0,2]", ["a", "c"]),
        (".metadata.labels['app.kubernetes.io/name']", ["web"]),
        (r".metadata.labels.app\.kubernetes\.io/name", ["web"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        (".status.conditions[?(@.type == 'Ready')].status", ["True"]),
        (".status.conditions[?(@.age>5)].type", ["Synced"]),
        (".status.conditions[?(@.age<=5)].type", ["Ready"]),
        (".status.conditions[?(@.type!='Ready')].type", ["Synced"]),
        (".status.conditions[?(@.missing)].type", []),
        (".status.conditions[?(@.age)].type", ["Ready", "Synced"]),
        ("..type", ["Ready", "Synced"]),
        (".status.missing.deeper", []),
        (".spec.replicas.deeper", []),
        (".", [OBJECT]),
        ("", [OBJECT]),
    ],
)
def test_a_path_leads_to_values(expression: str, expected: list[Any]) -> None:
    assert find(parse(expression), OBJECT) == expected


@pytest.mark.parametrize(
    "expression",
    [".a[", ".a[?(@.b==)]", ".a[?(@.b", ".a]", ".a b", "..", ".a" * 100, "." * (LENGTH_MAX + 1), "{.a", ".a[?("],
)
def test_an_unreadable_expression_is_refused(expression: str) -> None:
    with pytest.raises(JSONPathError):
        parse(expression)


@given(st.text(alphabet=".[]{}()?@$*:,'\"ab1- =<>!\\", max_size=30))
def test_any_text_is_read_or_refused_and_finding_never_fails(expression: str) -> None:
    try:
        path = parse(expression)
    except JSONPathError:
        return
    find(path, OBJECT)


def test_results_are_bounded() -> None:
    wide: Any = [1] * 300
    for _ in range(3):
        wide = [wide] * 300
    assert len(find(parse("[*][*][*]"), wide)) == 10_000
