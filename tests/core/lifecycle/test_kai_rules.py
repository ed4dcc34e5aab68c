"""What KAI's webhook refuses in a PodGroup, and phases of Volcano's."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.attention import unread_fields
from allot.core.lifecycle.kai_rules import group_problem
from allot.core.lifecycle.volcano_groups import reconcile_group
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import VolcanoPodGroup


def part(name: str, parent: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, **({"parent": parent} if parent else {}), **more}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"minMember": 2}, ""),
        ({"minMember": 3, "subGroups": [part("a", minMember=1), part("b", minMember=2)]}, ""),
        ({"minSubGroup": 1, "subGroups": [part("a", minSubGroup=1), part("b", "a", minMember=2)]}, ""),
        ({"minMember": 1, "minSubGroup": 1, "subGroups": [part("a")]}, "exclude each other"),
        ({"minSubGroup": 1}, "spec.minSubGroup needs spec.subGroups"),
        ({"subGroups": [part("a"), part("a")]}, "spec.subGroups[1].name: sub-group a already exists"),
        ({"subGroups": [part("a", "b")]}, "spec.subGroups[0]: parent b of a does not exist"),
        ({"subGroups": [part("a", "b"), part("b", "a")]}, "spec.subGroups[0]: sub-group a is below itself"),
        ({"subGroups": [part("a", minMember=1, minSubGroup=1)]}, "exclude each other"),
        ({"subGroups": [part("a", minMember=1), part("b", "a")]}, "expected minSubGroup"),
        ({"subGroups": [part("a", minSubGroup=1)]}, "expected minMember"),
        ({"subGroups": [part("a", minSubGroup=2), part("b", "a")]}, "minSubGroup is 2, and a has 1 sub-groups"),
    ],
)
def test_parts_of_groups_make_sense(spec: dict[str, Any], text: str) -> None:
    problem = group_problem(spec)
    assert text in problem and bool(text) == bool(problem)


def test_fields_that_nobody_reads_are_named_also_in_lists() -> None:
    job = {"spec": {"plugins": {"ssh": []}, "tasks": [{"name": "a"}, {"name": "b", "maxRetry": 2}]}}
    assert [each.split(" of ")[0] for each in unread_fields("batch.volcano.sh", "Job", job)] == [
        "nothing acts on spec.tasks[].maxRetry",
        "nothing acts on spec.plugins.ssh",
    ]
    assert unread_fields("batch.volcano.sh", "Job", {"spec": "nonsense"}) == []


def pods(*phases: str) -> list[Pod]:
    return [
        decode_served(
            {
                "metadata": {"name": f"p{number}", "namespace": "ns"},
                "spec": {"containers": [], "nodeName": "" if phase == "Waiting" else "n"},
                "status": {"phase": "Pending" if phase == "Waiting" else phase},
            },
            Pod,
        )
        for number, phase in enumerate(phases)
    ]


@pytest.mark.parametrize(
    ("before", "phases", "expected"),
    [
        ("", [], "Pending"),
        ("Pending", ["Waiting"], None),
        ("Pending", ["Waiting", "Waiting"], "Inqueue"),
        ("Inqueue", ["Running", "Waiting"], None),
        ("Inqueue", ["Running", "Pending"], "Running"),
        ("Running", ["Running", "Waiting"], "Unknown"),
        ("Running", ["Running", "Succeeded"], None),
        ("Running", ["Succeeded", "Succeeded"], "Completed"),
        ("Completed", ["Succeeded"], None),
    ],
)
def test_phases_of_volcano(before: str, phases: list[str], expected: str | None) -> None:
    metadata = {"name": "g", "namespace": "ns", "uid": "u"}
    body = {"metadata": metadata, "spec": {"minMember": 2}, "status": {"phase": before}}
    actions = reconcile_group(decode_served(body, VolcanoPodGroup), pods(*phases))
    written = actions[0].patch["status"] if actions else {}  # type: ignore[union-attr]
    assert written.get("phase") == expected
