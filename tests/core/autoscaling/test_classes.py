"""ComputeClasses: which pools a priority has, that priorities come before prices, what is told when none helps, moves to a better one."""

from __future__ import annotations

import os
import random
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace

from allot.core.advice.compute_classes import admitted, reason_line
from allot.core.advice.what_if import WhatIfCluster
from allot.core.autoscaling.classes import Classes, matches, ranks
from allot.core.autoscaling.expanders import Expander
from allot.core.autoscaling.migration import Migration, plan_migration
from allot.core.autoscaling.pools import MILLION, Pool
from allot.core.autoscaling.scale_down import Candidate
from allot.core.autoscaling.scale_up import ScaleUp, Upcoming, plan_scale_up
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import decode_served
from allot.core.model.compute_classes import CLASS_LABEL, ComputeClass, Priority, class_of
from allot.core.model.meta import APIStruct
from core.autoscaling.pool_world import bought, cluster_of, live, pod, pool
from core.autoscaling.test_scale_down import running

RUNS = int(os.environ.get("ALLOT_RUNS", "20"))
LABEL = {CLASS_LABEL: "c"}


def compute_class(*priorities: dict[str, Any], name: str = "c", **spec: Any) -> ComputeClass:
    """A class with these priorities."""
    body = {"metadata": {"name": name}, "spec": {"priorities": list(priorities), **spec}}
    return decode_served(body, ComputeClass)


def of_pools(*names: str, **spec: Any) -> ComputeClass:
    """A class whose priorities each name a pool."""
    return compute_class(*({"nodepools": [name]} for name in names), **spec)


def selecting(name: str, devices: int = 1, **given: Any) -> tuple[APIStruct, ...]:
    """A pod of the class c."""
    return pod(name, devices, node_selector=LABEL, **given)


def offer(name: str, price: int, **given: Any) -> Pool:
    """A pool of the class c."""
    return pool(name, price, labels={**LABEL, **given.pop("labels", {})}, **given)


def plan(what_if: WhatIfCluster, found: ComputeClass | Classes, *pools: Pool, **options: Any) -> ScaleUp:
    """What is bought where there is this class."""
    classes = found if isinstance(found, Classes) else Classes([found])
    ranked = classes.ranked(pools)
    expander = Expander(("price",), {each.name: each for each in ranked})
    return plan_scale_up(what_if.machine, ranked, expander, seconds=1000.0, classes=classes, **options)


def test_a_priority_comes_before_the_price() -> None:
    """Three pods: the first priority has room for one more node, the rest gets the second although that is cheaper."""
    pods = [selecting(name) for name in "abc"]
    pools = offer("dear", 9, count=1, most=1), offer("cheap", 1, count=1)
    found = plan(cluster_of(*pods), of_pools("dear", "cheap"), *pools)
    assert bought(found) == {"dear": 1, "cheap": 2}
    assert [(each.compute_class, each.priority) for each in found.purchases] == [
        ("c", "priority 1 (dear)"),
        ("c", "priority 2 (cheap)"),
    ]
    other = plan(cluster_of(*pods), of_pools("cheap", "dear"), *pools)
    assert bought(other) == {"cheap": 3}


def test_a_third_priority_is_not_bought_while_the_second_can_be_had() -> None:
    """Whichever pod the scheduler puts where: two of the first and one of the second are better than two of the first and one of the third."""
    for devices in (1, 2):
        pods = [selecting(name, devices) for name in "abc"]
        pools = (
            offer("z-third", 1, count=4),
            offer("b-first", 5, count=devices, most=2),
            offer("a-second", 9, count=devices),
        )
        found = plan(cluster_of(*pods), of_pools("b-first", "a-second", "z-third"), *pools)
        assert bought(found) == {"b-first": 2, "a-second": 1}


def test_within_a_priority_the_price_decides() -> None:
    """Pools of one priority are in no order; priorities with one score are one."""
    pods = [selecting(name) for name in "ab"]
    pools = offer("x", 9, count=1), offer("y", 2, count=1), offer("z", 1, count=1)
    assert bought(plan(cluster_of(*pods), compute_class({"nodepools": ["x", "y"]}, {"nodepools": ["z"]}), *pools)) == {
        "y": 2
    }
    scored = compute_class(
        {"nodepools": ["z"], "priorityScore": 1},
        {"nodepools": ["x"], "priorityScore": 7},
        {"nodepools": ["y"], "priorityScore": 7},
    )
    assert bought(plan(cluster_of(*pods), scored, *pools)) == {"y": 2}


def test_many_pods_keep_to_the_priorities_too() -> None:
    """Beyond what is tried exhaustively: none of the cheap nodes before the last of the dear ones."""
    pods = [selecting(f"p{number:02d}") for number in range(30)]
    pools = offer("dear", 90, count=8, most=2), offer("cheap", 1, count=1, most=50), pool("free", 0, count=8)
    found = plan(cluster_of(*pods), of_pools("dear", "cheap"), *pools)
    assert bought(found) == {"dear": 2, "cheap": 14}
    assert not found.is_exact
    assert found.bound <= found.cost


def test_pods_that_can_have_better_are_not_put_onto_a_worse_node() -> None:
    """Twenty large pods need the second priority, whose nodes have room for the small ones; these still get the first."""
    large = [selecting(f"a{number:02d}", 4) for number in range(20)]
    small = [selecting(f"z{number:02d}", 1) for number in range(4)]
    pools = offer("first", 50, count=1), offer("second", 1, count=8, most=20)
    found = plan(cluster_of(*large, *small), of_pools("first", "second"), *pools)
    assert bought(found) == {"first": 4, "second": 10}


@pytest.mark.parametrize("count", [1, 8])
def test_when_no_priority_can_be_met(count: int) -> None:
    """DoNotScaleUp: the pods wait. ScaleUpAnyway: any other pool of the class, and only after all priorities."""
    pods = [selecting(f"p{number}") for number in range(count)]
    pools = offer("named", 9, count=1, most=1), offer("other", 1, count=8)
    waits = plan(cluster_of(*pods), of_pools("named", whenUnsatisfiable="DoNotScaleUp"), *pools)
    assert bought(waits) == {"named": 1}
    anyway = plan(cluster_of(*pods), of_pools("named", whenUnsatisfiable="ScaleUpAnyway"), *pools)
    assert bought(anyway) == ({"named": 1} if count == 1 else {"named": 1, "other": 1})


def test_what_is_said_when_nothing_helps() -> None:
    """Each priority in turn."""
    pods = [selecting("a")]
    pools = offer("big", 9, count=1, most=0), offer("small", 1, count=1, closed="no small in stock"), offer("x", 1)
    found = compute_class({"nodepools": ["big"]}, {"nodepools": ["small"]}, {"nodepools": ["smal"]})
    (expectation,) = plan(cluster_of(*pods), found, *pools).expectations
    assert expectation.compute_class == "c"
    assert [reason_line(each) for each in expectation.reasons] == [
        "priority 1 (big): max node group size reached",
        "priority 2 (small): in backoff after failed scale-up: no small in stock",
        "priority 3 (smal): no pool: Nodepool smal specified by name has autoscaling disabled or doesn't exist in the "
        'cluster. did you mean "small"?',
        "no priority: x: not wanted by its ComputeClass: no priority of ComputeClass c fits it, and whenUnsatisfiable "
        "is DoNotScaleUp",
    ]


def test_a_class_that_does_not_exist_buys_nothing() -> None:
    """And the nearest that does is named."""
    found = plan(cluster_of(selecting("a")), of_pools("p", name="cc"), offer("p", 1, count=1))
    assert not found.purchases
    lines = [reason_line(each) for each in found.expectations[0].reasons]
    assert lines == [
        "no priority: p: not wanted by its ComputeClass: ComputeClass c does not exist",
        'ComputeClass c does not exist. did you mean "cc"?',
    ]


def test_the_class_called_default_ranks_pools_that_are_of_none() -> None:
    """For pods that select none."""
    found = of_pools("dear", "cheap", name="default")
    pools = pool("dear", 9, count=1), pool("cheap", 1, count=1), offer("other", 0, count=1)
    assert bought(plan(cluster_of(pod("a", 1)), found, *pools)) == {"dear": 1}


MACHINE = {
    "node.kubernetes.io/instance-type": "g2-standard-8",
    "cloud.google.com/gke-accelerator": "nvidia-l4",
    "cloud.google.com/gke-accelerator-count": "1",
}


@pytest.mark.parametrize(
    ("priority", "labels", "expected"),
    [
        ({"nodepools": ["p"]}, {}, True),
        ({"nodepools": ["gke"]}, {"cloud.google.com/gke-nodepool": "gke"}, True),
        ({"nodepools": ["q"]}, {}, False),
        ({"machineFamily": "g2"}, MACHINE, True),
        ({"machineFamily": "n2"}, MACHINE, False),
        ({"machineType": "g2-standard-8"}, MACHINE, True),
        ({"machineType": "g2-standard-4"}, MACHINE, False),
        ({"machineType": "n1-standard-8"}, {"node.kubernetes.io/instance-type": "n1-standard-8-t4x2"}, True),
        ({"gpu": {"type": "nvidia-l4", "count": 1}}, MACHINE, True),
        ({"gpu": {"type": "nvidia-l4", "count": 2}}, MACHINE, False),
        ({"gpu": {"type": "nvidia-tesla-t4"}}, MACHINE, False),
        ({"gpu": {"type": "nvidia-l4"}, "spot": True}, MACHINE, False),
        ({"gpu": {"type": "nvidia-l4"}, "spot": True}, {**MACHINE, "cloud.google.com/gke-spot": "true"}, True),
        ({"gpu": {"type": "nvidia-l4"}}, {**MACHINE, "cloud.google.com/gke-spot": "true"}, False),
        ({"machineFamily": "g2", "minCores": 8, "minMemoryGb": 64}, MACHINE, True),
        ({"machineFamily": "g2", "minCores": 9}, MACHINE, False),
        ({"machineFamily": "g2", "minMemoryGb": 65}, MACHINE, False),
        ({"minCores": 2}, MACHINE, False),
        ({"minCores": 2}, {"node.kubernetes.io/instance-type": "e2-standard-8"}, True),
        ({"machineFamily": "g2", "location": {"zones": ["b"]}}, {**MACHINE, "topology.kubernetes.io/zone": "a"}, False),
        ({"machineFamily": "g2", "location": {"zones": ["b"]}}, MACHINE, True),
        (
            {"machineFamily": "g2", "reservations": {"affinity": "Specific", "specific": [{"name": "r"}]}},
            MACHINE,
            False,
        ),
        (
            {"machineFamily": "g2", "reservations": {"affinity": "Specific", "specific": [{"name": "r"}]}},
            {**MACHINE, "cloud.google.com/reservation-name": "r"},
            True,
        ),
        ({"machineFamily": "g2", "reservations": {"affinity": "AnyBestEffort"}}, MACHINE, True),
        ({"machineFamily": "g2", "nodeLabels": {"team": "a"}}, MACHINE, False),
        (
            {"tpu": {"type": "tpu-v6e-slice", "count": 4, "topology": "2x2"}},
            {
                "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
                "cloud.google.com/gke-accelerator-count": "4",
                "cloud.google.com/gke-tpu-topology": "2x2",
            },
            True,
        ),
        ({"tpu": {"type": "tpu-v6e-slice"}}, MACHINE, False),
    ],
)
def test_what_a_priority_describes(priority: dict[str, Any], labels: dict[str, str], expected: bool) -> None:
    """A node with 8 processors and 64 GiB."""
    node = pool("p", 1, labels=labels).template.node
    assert matches(decode_served(priority, Priority), "p", node) is expected


def test_scores_come_before_the_order_in_the_list() -> None:
    """Those that have none come last, in their order."""
    priorities = [{}, {"priorityScore": 5}, {"priorityScore": 50}, {"priorityScore": 50}, {}]
    assert ranks([decode_served(each, Priority) for each in priorities]) == (2, 1, 0, 0, 3)


def test_what_is_wrong_with_a_class() -> None:
    """In GKE's words, with what could have been named."""
    labelled, bare = offer("a100-80", 1, labels=MACHINE), pool("l4", 1, labels=MACHINE)
    found = compute_class(
        {"nodepools": ["a100-8"]},
        {"machineType": "g2-standard-9"},
        {"machineFamily": "g2"},
    )
    classes = Classes([found])
    pools = classes.ranked([labelled, bare])
    assert [(each.index, each.reason, each.value) for each in classes.problems("c", pools)] == [
        (0, "NodePoolNotExist", "a100-8"),
        (1, "NoRuleMatching", "g2-standard-9"),
    ]
    bare_only = Classes([found])
    reasons = [(each.index, each.reason) for each in bare_only.problems("c", bare_only.ranked([bare]))]
    assert reasons == [
        (0, "NodePoolNotExist"),
        (1, "NoRuleMatching"),
        (2, "CrdLabelNotMatching"),
        (None, "NapDisabledAndNoMatchingNodegroups"),
    ]


def test_of_very_many_problems_the_first_are_named() -> None:
    """A class that names ten thousand pools which are not there costs no more than one that names twenty."""
    found = compute_class(*({"nodepools": [f"p{index}-{number}" for number in range(100)]} for index in range(100)))
    classes = Classes([found])
    problems = classes.problems("c", classes.ranked([offer(f"x{number}", 1) for number in range(200)]))
    assert len(problems) == 20
    assert problems[-1].reason == "NapDisabledAndNoMatchingNodegroups"


def test_when_nodes_of_a_class_go() -> None:
    """Its delay and its thresholds hold for its pools alone; 0 and 100 mean every node that is not wholly used, as GKE has it."""
    policy = {"consolidationDelayMinutes": 3, "consolidationThreshold": 70, "gpuConsolidationThreshold": 0}
    classes = Classes([of_pools("gpu", autoscalingPolicy=policy)])
    gpu, cpu, other = offer("gpu", 1, count=1), offer("cpu", 1, count=0), pool("other", 1)
    assert [classes.delay_s(each) for each in (gpu, other)] == [180.0, None]
    assert [classes.threshold(each) for each in (gpu, cpu, other)] == [Fraction(1), Fraction(7, 10), None]


def test_the_class_of_a_pod() -> None:
    """By its selector, or by an affinity that names just one."""

    def affine(*terms: list[str]) -> core_v1.Pod:
        expressions = [{"matchExpressions": [{"key": CLASS_LABEL, "operator": "In", "values": each}]} for each in terms]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": expressions}}
        return decode_served({"spec": {"affinity": {"nodeAffinity": required}}}, core_v1.Pod)

    assert class_of(decode_served({"spec": {"nodeSelector": LABEL}}, core_v1.Pod)) == "c"
    assert [class_of(affine(["c"])), class_of(affine(["c"], ["d"])), class_of(affine(["c", "d"]))] == ["c", "", ""]
    wanted = admitted(affine(["c"])).spec.tolerations
    assert [(each.key, each.value, each.effect) for each in wanted] == [(CLASS_LABEL, "c", "NoSchedule")]
    assert admitted(admitted(affine(["c"]))).spec.tolerations == wanted


# --- to a better priority ---

MIGRATES = {"activeMigration": {"optimizeRulePriority": True}}


def migration(
    what_if: WhatIfCluster, found: ComputeClass, pools: list[Pool], nodes: dict[str, str], **options: Any
) -> Migration | None:
    """The next step. nodes: the pools of nodes that are there."""
    classes = Classes([found])
    candidates = [Candidate(node, name) for node, name in nodes.items()]
    slices = what_if.all(api.ResourceSlice)
    return plan_migration(
        what_if.machine,
        candidates,
        classes.ranked(pools),
        slices,
        classes,
        seconds=1000.0,
        nodes_max=options.pop("nodes_max", 10),
        **options,
    )


def test_pods_move_to_a_better_priority_when_it_can_be_had() -> None:
    """First the node is bought, then it is waited for, then the old one goes, with proof."""
    better, worse = offer("better", 9, count=2), offer("worse", 1, count=2, size=1)
    there = [*live("w", worse.template)], running("x", "w", "gpu-0", node_selector=LABEL)
    found, pools = of_pools("better", "worse", **MIGRATES), [better, worse]
    assert migration(cluster_of(*there), found, pools, {"w": "worse"}) == Migration(node="w", pool="better", count=1)
    coming = Upcoming("better", better.template.named("b"))
    assert migration(cluster_of(*there), found, pools, {"w": "worse"}, upcoming=[coming]) == Migration(node="w")
    what_if = cluster_of(*there, live("b", better.template))
    step = migration(what_if, found, pools, {"w": "worse", "b": "better"})
    assert step is not None
    assert step.removal is not None
    assert [(move.pod, move.to) for move in step.removal.moves] == [("ns/x", "b")]
    assert migration(what_if, found, pools, {"w": "worse", "b": "better"}) == step


def test_nothing_moves_without_need_or_place() -> None:
    """No wish for it; nothing better can be had; a pod that must not be evicted; the minimum of the pool."""
    better, worse = offer("better", 9, count=2), offer("worse", 1, count=2, size=1)
    nodes, busy = {"w": "worse"}, running("x", "w", "gpu-0", node_selector=LABEL)
    what_if = cluster_of(live("w", worse.template), busy)
    wish = of_pools("better", "worse", **MIGRATES)
    assert migration(what_if, of_pools("better", "worse"), [better, worse], nodes) is None
    assert migration(what_if, of_pools("worse", "better", **MIGRATES), [better, worse], nodes) is None
    assert migration(what_if, wish, [replace(better, closed="no stock"), worse], nodes) is None
    assert migration(what_if, wish, [better, replace(worse, min_size=1)], nodes) is None
    assert migration(what_if, wish, [better, worse], nodes, nodes_max=0) is None
    assert migration(what_if, wish, [offer("better", 9, count=0), worse], nodes) is None
    lone = replace(busy[0], metadata=replace(busy[0].metadata, owner_references=()))  # type: ignore[attr-defined, type-var]
    assert migration(cluster_of(live("w", worse.template), (lone, busy[1])), wish, [better, worse], nodes) is None


# --- the law ---


def _world(seed: int) -> tuple[list[tuple[APIStruct, ...]], list[Pool], ComputeClass]:
    dice = random.Random(seed)
    pools = [
        offer(f"p{number}", dice.randint(1, 9), most=dice.randint(1, 3), count=dice.choice((1, 2, 4)))
        for number in range(dice.randint(2, 3))
    ]
    names = [each.name for each in pools]
    dice.shuffle(names)
    cut = dice.randint(1, len(names))
    priorities = [{"nodepools": names[:cut]}, *({"nodepools": [name]} for name in names[cut:])]
    pods = [
        selecting(f"u{number}", dice.randint(1, 2), priority=dice.choice((0, 0, 5)))
        for number in range(dice.randint(1, 4))
    ]
    return pods, pools, compute_class(*priorities)


def _best(pods: list[tuple[APIStruct, ...]], pools: list[Pool], found: ComputeClass) -> object:
    """The best of all sets by brute force: who runs, then on which priorities, whoever has which, then what it costs."""
    rank = {name: index for index, each in enumerate(found.spec.priorities) for name in each.nodepools}
    best: Any = None
    for counts in product(*(range(min(each.room, len(pods)) + 1) for each in pools)):
        machine = cluster_of(*pods).machine
        units = machine.waiting()
        new = [
            (each.template.named(f"new-{each.name}-{number}"), rank[each.name])
            for each, how in zip(pools, counts, strict=True)
            for number in range(how)
        ]
        for made, _ in new:
            machine.cluster.put_node(made.node)
            for slice_ in made.slices:
                machine.claims.put_slice(slice_)
        rank_of = {made.node.metadata.name: its for made, its in new}
        got = []
        for unit in units:
            outcome = machine.consider(unit, 0.0)
            for placement in outcome.placements:
                machine.cluster.assume(placement)
            got.append(outcome.placements[0].node if outcome.placements else "")
        if set(rank_of) - set(got):
            continue
        cost = sum(each.price * how for each, how in zip(pools, counts, strict=True))
        key = (tuple(not node for node in got), tuple(sorted(rank_of.get(node, 0) for node in got)), cost)
        best = key if best is None or key < best else best
    return best


@pytest.mark.parametrize("seed", range(RUNS))
def test_what_runs_comes_before_priorities_and_these_before_prices(seed: int) -> None:
    """Against exhaustive search."""
    pods, pools, found = _world(seed)
    made = plan(cluster_of(*pods), found, *pools)
    rank = {name: index for index, each in enumerate(found.spec.priorities) for name in each.nodepools}
    got = tuple(
        (not each.is_helped, max((rank[name] for name in each.bought), default=0)) for each in made.expectations
    )
    key = (tuple(missing for missing, _ in got), tuple(sorted(its for _, its in got)), made.cost)
    assert key == _best(pods, pools, found)
    assert made.cost % MILLION == 0
