"""Phases of scheduling.x-k8s.io PodGroups."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.actions import Patch
from allot.core.lifecycle.coscheduling import reconcile_group
from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Pod, PodStatus
from allot.core.model.foreign_groups import CoschedulingPodGroup
from allot.core.model.meta import ObjectMeta, OwnerReference


def group(minimum: int = 2, **status: Any) -> CoschedulingPodGroup:
    metadata = {"name": "g", "namespace": "ns", "uid": "u"}
    return decode_served({"metadata": metadata, "spec": {"minMember": minimum}, "status": status}, CoschedulingPodGroup)


def pods(*phases: str) -> list[Pod]:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="j")
    return [
        Pod(
            metadata=ObjectMeta(name=f"p{number}", namespace="ns", owner_references=(owner,)),
            status=PodStatus(phase=phase),
        )
        for number, phase in enumerate(phases)
    ]


def written(found: CoschedulingPodGroup, *phases: str) -> dict[str, Any]:
    actions = reconcile_group(found, pods(*phases))
    if not actions:
        return {}
    (action,) = actions
    assert isinstance(action, Patch)
    assert action.subresource == "status" and action.patch["metadata"] == {"uid": "u"}
    status: dict[str, Any] = action.patch["status"]
    return status


def test_a_group_waits_for_its_pods() -> None:
    assert written(group()) == {"phase": "Pending"}
    assert written(group(phase="Pending"), "Pending") == {}
    found = written(group(phase="Pending"), "Pending", "Pending")
    assert found == {"phase": "Scheduling", "occupiedBy": "ns/train"}


@pytest.mark.parametrize(
    ("phases", "phase"),
    [
        (("Running", "Pending"), "Scheduling"),
        (("Running", "Running"), "Running"),
        (("Running", "Succeeded"), "Running"),
        (("Succeeded", "Succeeded"), "Finished"),
        (("Running", "Failed"), "Failed"),
        (("Pending",), "Pending"),
    ],
)
def test_the_phase_follows_from_the_pods(phases: tuple[str, ...], phase: str) -> None:
    found = written(group(phase="Scheduling", occupiedBy="ns/train"), *phases)
    assert found.get("phase", "Scheduling") == phase


@pytest.mark.parametrize("phase", ["Finished", "Failed"])
def test_what_has_ended_stays_so(phase: str) -> None:
    assert written(group(phase=phase), "Running", "Running") == {}
