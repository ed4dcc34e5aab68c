"""Trying something out: what is changed, what follows from it, and that everything is as before afterwards."""

from __future__ import annotations

import pytest

from allot.core.advice.explain.changes import helpful
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, delete_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import Subject, try_out, would_help
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster
from core.advice.explain.clusters import (
    Object,
    asks,
    claim,
    device_class,
    gpus,
    holding,
    node,
    pod,
    pool,
    running,
    snapshot,
    templated,
    wanting,
)

SUBJECT = Subject("default/train", (("default", "train"),))
CLUSTER: list[Object] = [
    node("n"),
    pool("n", gpus(1)),
    device_class(),
    claim("held", asks(), status=holding("n", "gpu-0", users=("other",))),
    running("other", "n", "held"),
    *templated("train", asks()),
]


def patch(kind: str, name: str, *operations: dict[str, object], namespace: str = "") -> Patch:
    return Patch(action="patch", kind=kind, name=name, namespace=namespace, patch=operations)


HELPS = [
    (Patch(action="delete", kind="Pod", namespace="default", name="other"),),
    (Patch(action="create", object=node("m")), Patch(action="create", object=pool("m", gpus(1)))),
    (patch("ResourceSlice", "n-1", {"op": "replace", "path": "/spec/devices", "value": gpus(2)}),),
    (patch("ResourceClaim", "held", {"op": "remove", "path": "/status/allocation"}, namespace="default"),),
]
DOES_NOT_HELP = [
    (),
    (Patch(action="delete", kind="Node", name="n"),),
    (Patch(action="delete", kind="DeviceClass", name="gpu"),),
    (Patch(action="delete", kind="Pod", namespace="default", name="train"),),
    (Patch(action="gate", name="DRADeviceTaints", enabled=False),),
]
IMPOSSIBLE = [
    (Patch(action="delete", kind="Pod", namespace="default", name="nobody"),),
    (Patch(action="delete", kind="Unheard", name="x"),),
    (patch("Node", "n", {"op": "remove", "path": "/spec/taints"}),),
    (patch("Node", "n", {"op": "add", "path": "/spec", "value": 7}),),
]


@pytest.mark.parametrize("patches", HELPS)
def test_a_change_that_makes_room_helps(patches: tuple[Patch, ...]) -> None:
    outcome = would_help(WhatIfCluster(snapshot(CLUSTER)), SUBJECT, patches)
    assert outcome is not None
    assert outcome.schedulable


@pytest.mark.parametrize("patches", DOES_NOT_HELP)
def test_a_change_that_makes_no_room_does_not_help(patches: tuple[Patch, ...]) -> None:
    outcome = would_help(WhatIfCluster(snapshot(CLUSTER)), SUBJECT, patches)
    assert outcome is not None
    assert not outcome.schedulable


@pytest.mark.parametrize("patches", IMPOSSIBLE)
def test_a_change_that_cannot_be_made_is_no_help_and_no_error(patches: tuple[Patch, ...]) -> None:
    assert would_help(WhatIfCluster(snapshot(CLUSTER)), SUBJECT, patches) is None


def test_a_bug_of_the_decision_is_not_taken_for_a_change_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("our bug")

    world = WhatIfCluster(snapshot(CLUSTER))
    monkeypatch.setattr(world.machine, "ask", fail)
    with pytest.raises(KeyError, match="our bug"):
        would_help(world, SUBJECT, HELPS[0])


@pytest.mark.parametrize("patches", [*HELPS, *DOES_NOT_HELP, *IMPOSSIBLE])
def test_everything_is_as_before_afterwards(patches: tuple[Patch, ...]) -> None:
    world = WhatIfCluster(snapshot(CLUSTER))
    before = set(map(repr, world.snapshot().objects))
    answer = try_out(world, SUBJECT)
    would_help(world, SUBJECT, patches)
    assert set(map(repr, world.snapshot().objects)) == before
    after = try_out(world, SUBJECT)
    assert (after.schedulable, after.failure and after.failure.histogram) == (
        answer.schedulable,
        answer.failure and answer.failure.histogram,
    )


def test_a_claim_is_made_anew_from_a_template_that_changes() -> None:
    world = WhatIfCluster(snapshot(node("n"), pool("n", gpus(2)), device_class(), templated("train", asks(count=3))))
    lower = {"op": "replace", "path": "/spec/spec/devices/requests/0/exactly/count", "value": 2}
    outcome = would_help(
        world, SUBJECT, (patch("ResourceClaimTemplate", "train-template", lower, namespace="default"),)
    )
    assert outcome is not None
    assert len(outcome.placements[0].claims[0].allocation.devices.results) == 2  # type: ignore[union-attr]


def test_the_claims_of_a_pod_that_goes_go_with_it_and_shared_ones_give_their_devices_back() -> None:
    made = templated("other", asks(), status=holding("n", "gpu-0", users=("other",)), nodeName="n")
    shared = claim("shared", asks(), status=holding("n", "gpu-1", users=("other",)))
    made[2]["spec"]["resourceClaims"].append({"name": "shared", "resourceClaimName": "shared"})
    cluster = snapshot(node("n"), pool("n", gpus(2)), device_class(), made, shared, templated("train", asks(count=2)))
    gone = (Patch(action="delete", kind="Pod", namespace="default", name="other"),)
    outcome = would_help(WhatIfCluster(cluster), SUBJECT, gone)
    assert outcome is not None
    assert outcome.schedulable


def test_a_pod_that_is_gated_or_has_a_node_is_not_schedulable() -> None:
    gated = pod("train", schedulingGates=[{"name": "x"}])
    assert not try_out(WhatIfCluster(snapshot(node("n"), gated)), SUBJECT).schedulable
    assert not try_out(WhatIfCluster(snapshot(node("n"), pod("train", nodeName="n"))), SUBJECT).schedulable
    assert not try_out(WhatIfCluster(snapshot(node("n"), wanting("train", "missing"))), SUBJECT).schedulable


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        # Deleting c would do as well; two of a kind are told.
        (1, ["delete a", "delete b"]),
        (2, ["delete c, d"]),
    ],
)
def test_a_change_of_which_an_untold_part_is_enough_is_not_told(count: int, expected: list[str]) -> None:
    names = "abcd"
    objects = [node("n"), pool("n", gpus(4)), device_class(), *templated("train", asks(count=count))]
    for number, name in enumerate(names):
        objects += [claim(f"held-{name}", asks(), status=holding("n", f"gpu-{number}", users=(name,)))]
        objects += [running(name, "n", f"held-{name}")]
    sets = [(Rank.OTHERS, name) for name in "abc"] + [(Rank.OTHERS + 1, "cd")]
    candidates = tuple(
        Candidate(
            rank=rank,
            text=f"delete {', '.join(chosen)}",
            patches=tuple(delete_of("Pod", name, "default") for name in chosen),
        )
        for rank, chosen in sets
    )
    diagnosis = Diagnosis(reason=Reason.IN_USE, text="", candidates=candidates)
    found = helpful(WhatIfCluster(snapshot(objects)), SUBJECT, diagnosis)
    assert [each.text for each in found] == expected
