"""Selections of stored objects: the same whether an object is decoded already or only there as JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.apiserver.assembly import builtin_registry
from allot.apiserver.objects.selection import selection
from allot.core.features import DEFAULT_GATES
from allot.process.clock import ManualClock
from allot.store.port import Entry

REGISTRY = builtin_registry(DEFAULT_GATES, ManualClock())


def pod(labels: dict[str, str], node: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"name": "b", "image": "a"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "default", "labels": labels},
        "spec": {**spec, "nodeName": node} if node else spec,
    }


def selects(label_selector: str, field_selector: str, object_: dict[str, Any]) -> bool:
    """What both ways say, which must be the same."""
    served = REGISTRY.find("", "v1", "pods")
    assert served is not None
    chosen = selection(served.resource, label_selector, field_selector)
    stored = Entry("/registry/pods/default/a", None, 1, msgspec.json.encode(object_))
    found = chosen.matches_entry(stored)
    assert stored.decoded is None
    assert found is chosen.matches(object_)
    return found


@pytest.mark.parametrize(
    ("labels", "fields", "selected"),
    [
        ("", "", True),
        ("x=a", "", True),
        ("x=b", "", False),
        ("x!=b", "", True),
        ("x in (a,c)", "", True),
        ("x", "", True),
        ("!x", "", False),
        ("y=", "", True),
        ("", "spec.nodeName=n1", True),
        ("", "spec.nodeName=n2", False),
        ("", "spec.nodeName!=n2", True),
        ("", "spec.nodeName=", False),
        ("", "metadata.name=a", True),
        ("", "spec.hostNetwork=false", True),
        ("x=a", "spec.nodeName=n1,metadata.namespace=other", False),
    ],
)
def test_objects_are_selected_by_labels_and_fields(labels: str, fields: str, selected: bool) -> None:
    assert selects(labels, fields, pod({"x": "a", "y": ""}, "n1")) is selected


_WORDS = st.sampled_from(["a", "b", "x", "n1", "a.b", "", "-"])
_TERMS = st.builds(
    lambda key, operator, value: f"{key}{operator}{value}",
    st.sampled_from(["x", "y", "z"]),
    st.sampled_from(["=", "!="]),
    st.sampled_from(["a", "b", "x", "n1", "a.b", ""]),
)


@given(
    st.lists(_TERMS, max_size=3),
    st.lists(st.sampled_from(["spec.nodeName=n1", "spec.nodeName=a", "metadata.name!=a", "status.phase="]), max_size=2),
    st.dictionaries(st.sampled_from(["x", "y", "z"]), _WORDS, max_size=3),
    st.sampled_from(["", "n1", "a"]),
)
def test_json_and_object_tell_the_same(
    labels: list[str], fields: list[str], given_labels: dict[str, str], node: str
) -> None:
    selects(",".join(labels), ",".join(fields), pod(given_labels, node))
