"""Which nodes can go: only with a place for every pod, claims included."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from msgspec.structs import replace

from allot.core.advice.what_if import WhatIfCluster
from allot.core.autoscaling.evictable import SAFE_TO_EVICT, SAFE_VOLUMES, SCALE_DOWN_DISABLED
from allot.core.autoscaling.pools import Pool
from allot.core.autoscaling.scale_down import Candidate, ScaleDown, plan_scale_down
from allot.core.model import core_v1, policy_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode
from allot.core.model.meta import APIStruct, LabelSelector, ObjectMeta
from core.autoscaling.pool_world import cluster_of, gang, live, node_of, pod, pool, template
from core.scheduling.device_world import DRIVER, allocation


def running(name: str, node: str, *devices: str, **given: Any) -> tuple[APIStruct, ...]:
    """A pod on a node with these devices."""
    made, *claims = pod(name, len(devices), node=node, **given)
    if not claims:
        return (made,)
    status = {
        "allocation": allocation(*devices, node=node),
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
    }
    held = decode(status, api.ResourceClaimStatus).object
    return made, replace(claims[0], status=held)


def scale_down(what_if: WhatIfCluster, offer: Pool, *nodes: str, **options: Any) -> ScaleDown:
    """Which of these nodes of a pool can go."""
    slices = what_if.all(api.ResourceSlice)
    candidates = [Candidate(name, offer.name) for name in nodes]
    return plan_scale_down(what_if.machine, candidates, [offer], slices, seconds=1000.0, **options)


def gone(plan: ScaleDown) -> list[str]:
    """The nodes that go."""
    return [each.node for each in plan.removals]


OFFER = pool("p", 3, count=4, size=3)
NODE = template(4)


def test_a_node_goes_if_its_pods_find_another_place() -> None:
    """With their devices; the other node then has to stay."""
    what_if = cluster_of(live("a", NODE), live("b", NODE), running("x", "a", "gpu-0"), running("y", "b", "gpu-0"))
    plan = scale_down(what_if, OFFER, "a", "b")
    assert [(each.node, [(move.pod, move.to) for move in each.moves]) for each in plan.removals] == [
        ("a", [("ns/x", "b")])
    ]
    assert plan.kept[0].reason == "pods of other nodes are to move here"
    assert scale_down(what_if, OFFER, "a", "b") == plan


def test_a_node_stays_if_the_devices_of_a_pod_are_nowhere_else() -> None:
    """Although CPUs and memory are."""
    full = running("y", "b", "gpu-0", "gpu-1", "gpu-2", "gpu-3")
    what_if = cluster_of(live("a", NODE), live("b", NODE), running("x", "a", "gpu-0"), full)
    plan = scale_down(what_if, OFFER, "a")
    assert not plan.removals
    assert plan.kept[0].reason == "pod ns/x has no place elsewhere"


def test_two_nodes_never_count_on_the_same_device() -> None:
    """One GPU is free elsewhere, and two pods want it."""
    others = live("c", template(1))
    what_if = cluster_of(
        live("a", NODE), live("b", NODE), others, running("x", "a", "gpu-0"), running("y", "b", "gpu-0")
    )
    plan = scale_down(what_if, OFFER, "a", "b")
    assert len(plan.removals) == 1


def test_empty_nodes_go_down_to_the_minimum() -> None:
    """Daemons do not hold a node."""
    what_if = cluster_of(live("a", NODE), live("b", NODE), live("c", NODE))
    assert gone(scale_down(what_if, replace(OFFER, min_size=1), "a", "b", "c")) == ["a", "b"]
    assert gone(scale_down(what_if, OFFER, "a", "b", "c", removals_max=1)) == ["a"]


def test_room_for_pods_that_wait_is_kept() -> None:
    """They are about to be placed there."""
    what_if = cluster_of(live("a", NODE), live("b", NODE), pod("w", 4))
    plan = scale_down(what_if, OFFER, "a", "b")
    assert len(plan.removals) == 1
    assert "about to run here" in plan.kept[0].reason


def test_nodes_that_are_well_used_are_no_candidates() -> None:
    """Of their devices, whatever their processors do."""
    what_if = cluster_of(live("a", NODE), live("b", NODE), running("x", "a", "gpu-0", "gpu-1"))
    assert "50% of it are used" in scale_down(what_if, OFFER, "a").kept[0].reason
    assert gone(scale_down(what_if, OFFER, "a", threshold=Fraction(3, 4))) == ["a"]


def _with(objects: tuple[APIStruct, ...], **metadata: Any) -> tuple[APIStruct, ...]:
    first = objects[0]
    return replace(first, metadata=replace(first.metadata, **metadata)), *objects[1:]  # type: ignore[attr-defined,call-overload]


def _volumes(objects: tuple[APIStruct, ...], *volumes: core_v1.Volume) -> tuple[APIStruct, ...]:
    first = objects[0]
    assert isinstance(first, core_v1.Pod)
    return replace(first, spec=replace(first.spec, volumes=volumes)), *objects[1:]


SCRATCH = core_v1.Volume(name="scratch", empty_dir=core_v1.NodeLocalSource())
POD = running("x", "a", "gpu-0")


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        (_with(POD, annotations={SAFE_TO_EVICT: "false"}), "safe-to-evict: false"),
        (_with(POD, owner_references=()), "has no controller"),
        (_with(POD, namespace="kube-system"), "kube-system and has no disruption budget"),
        (_volumes(POD, SCRATCH), "has local storage: scratch"),
        (_with(_volumes(POD, SCRATCH), annotations={SAFE_VOLUMES: "scratch"}), ""),
        (_with(_volumes(POD, SCRATCH), annotations={SAFE_TO_EVICT: "true"}), ""),
        (_volumes(POD, core_v1.Volume(name="m", empty_dir=core_v1.NodeLocalSource(medium="Memory"))), ""),
    ],
)
def test_pods_that_keep_their_node(objects: tuple[APIStruct, ...], reason: str) -> None:
    """As Cluster Autoscaler has it."""
    if reason.startswith("kube-system"):
        objects = tuple(
            replace(each, metadata=replace(each.metadata, namespace="kube-system"))  # type: ignore[attr-defined,call-overload]
            for each in objects
        )
    plan = scale_down(cluster_of(live("a", NODE), live("b", NODE), objects), OFFER, "a")
    if reason:
        assert reason in plan.kept[0].reason
    else:
        assert gone(plan) == ["a"]


def test_a_node_that_must_not_go_stays() -> None:
    """By its annotation."""
    node, *slices = live("a", NODE)
    assert isinstance(node, core_v1.Node)
    kept = replace(node, metadata=replace(node.metadata, annotations={SCALE_DOWN_DISABLED: "true"}))
    plan = scale_down(cluster_of((kept, *slices), live("b", NODE)), OFFER, "a")
    assert SCALE_DOWN_DISABLED in plan.kept[0].reason


def test_budgets_are_kept_over_all_nodes() -> None:
    """One pod may go, and there are two on two nodes."""
    budget = policy_v1.PodDisruptionBudget(
        metadata=ObjectMeta(name="b", namespace="ns"),
        spec=policy_v1.PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "x"})),
        status=policy_v1.PodDisruptionBudgetStatus(disruptions_allowed=1),
    )
    pods = [_with(running(name, name, "gpu-0"), labels={"app": "x"}) for name in ("a", "b")]
    what_if = cluster_of(live("a", NODE), live("b", NODE), live("c", NODE), *pods, (budget,))
    plan = scale_down(what_if, OFFER, "a", "b")
    assert gone(plan) == ["a"]
    assert plan.kept[0].reason == "pod ns/b: not enough pod disruption budget: ns/b"


def test_a_pod_of_a_gang_moves_alone_unless_the_gang_is_disrupted_as_a_whole() -> None:
    """Its others run on."""
    from allot.core.model.scheduling_v1 import DisruptionMode, DisruptionModeMember, PodGroup

    group, *objects = gang("g", 2, 0)
    assert isinstance(group, PodGroup)
    placed = []
    for each, node in zip(objects, ("a", "b"), strict=True):
        assert isinstance(each, core_v1.Pod)
        placed.append(replace(each, spec=replace(each.spec, node_name=node), status=core_v1.PodStatus(phase="Running")))
    nodes = ((node_of("a"),), (node_of("b"),))
    assert gone(scale_down(cluster_of(*nodes, (group, *placed)), OFFER, "a")) == ["a"]
    whole = replace(group, spec=replace(group.spec, disruption_mode=DisruptionMode(all=DisruptionModeMember())))
    plan = scale_down(cluster_of(*nodes, (whole, *placed)), OFFER, "a")
    assert "of which others run elsewhere" in plan.kept[0].reason


def test_shared_claims_keep_the_node_of_their_devices() -> None:
    """A claim by name that a pod elsewhere uses too cannot be allocated again."""
    assert DRIVER
    made, held = running("x", "a", "gpu-0")
    assert isinstance(held, api.ResourceClaim)
    other = api.ResourceClaimConsumerReference(resource="pods", name="y", uid="uid-y")
    shared = replace(held, status=replace(held.status, reserved_for=(*held.status.reserved_for, other)))
    plan = scale_down(cluster_of(live("a", NODE), live("b", NODE), (made, shared)), OFFER, "a")
    assert plan.kept[0].reason == "pod ns/x has no place elsewhere"
