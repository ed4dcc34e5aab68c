"""Which queues are restricted, and what objects name."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model.foreign_groups import KAI, VOLCANO
from allot.core.workloads.queue_use import RESTRICTED, named_in, restrictions


def queue(name: str, mark: str | None = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {} if mark is None else {RESTRICTED: mark}}, "spec": spec}


def test_a_restriction_holds_for_all_queues_below() -> None:
    queues = [queue("top", "true"), queue("middle", parentQueue="top"), queue("leaf", parentQueue="middle"), queue("x")]
    found = restrictions({KAI: queues, VOLCANO: []})
    assert {name: each.by for name, each in found.items()} == {"top": "top", "middle": "top", "leaf": "top"}


@pytest.mark.parametrize(("mark", "is_restricted"), [("true", True), ("yes", True), ("", True), ("false", False)])
def test_a_slip_of_the_pen_does_not_open_a_queue(mark: str, is_restricted: bool) -> None:
    assert bool(restrictions({KAI: [queue("a", mark)]})) is is_restricted


def test_queues_below_cannot_take_a_restriction_back() -> None:
    assert "b" in restrictions({KAI: [queue("a", "true"), queue("b", "false", parentQueue="a")]})


def test_parents_in_a_circle_come_to_an_end() -> None:
    queues = [queue("a", parentQueue="b"), queue("b", parentQueue="a"), queue("other", "true")]
    assert [*restrictions({KAI: queues})] == ["other"]
    queues = [queue("a", parentQueue="b"), queue("b", "true", parentQueue="a")]
    assert sorted(restrictions({KAI: queues})) == ["a", "b"]


def test_the_root_of_volcano_is_above_all_its_queues() -> None:
    found = restrictions({VOLCANO: [queue("root", "true"), queue("a"), queue("b", parent="a")], KAI: [queue("k")]})
    assert sorted(found) == ["a", "b", "root"]


def test_a_name_in_both_dialects_is_one_queue() -> None:
    found = restrictions({KAI: [queue("a", "true")], VOLCANO: [queue("a")]})
    assert found["a"].api_groups == (KAI, VOLCANO)


def test_any_template_counts_in_kinds_that_nobody_knows() -> None:
    template = {"metadata": {"labels": {"kai.scheduler/queue": "a"}}}
    ray = {"spec": {"workerGroupSpecs": [{"template": {}}, {"template": template}]}}
    assert named_in(ray, "ray.io", "RayCluster").queues == {"a"}
    torch = {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "b"}}}}
    assert named_in(torch, "kubeflow.org", "PyTorchJob").queues == {"b"}
    # A queue of something else.
    assert not named_in({"spec": {"queue": "b"}}, "rabbitmq.com", "Binding").queues


@pytest.mark.parametrize(
    "object_",
    [
        {"metadata": 3, "spec": []},
        {"metadata": {"labels": ["kai.scheduler/queue"], "annotations": 5, "ownerReferences": {"controller": True}}},
        {"metadata": {"labels": {"kai.scheduler/queue": {"a": "b"}}, "ownerReferences": [3, {"controller": True}]}},
        {"metadata": None, "spec": {"schedulerName": ["volcano"], "scaleTargetRef": {"kind": []}}},
    ],
)
def test_what_makes_no_sense_names_nothing(object_: dict[str, Any]) -> None:
    named = named_in(object_, "", "Pod")
    assert (named.queues, named.groups, named.owners) == (frozenset(), frozenset(), ())
