"""Which nodes are bought: devices exactly, from zero, gangs whole, the most important first."""

from __future__ import annotations

import os
import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allot.core.autoscaling.pools import MILLION, Limits, Pool, PriceError, parse_price, price_text
from allot.core.autoscaling.scale_up import Upcoming
from allot.core.model.meta import APIStruct
from core.autoscaling.pool_world import BIG, bought, cluster_of, gang, live, pod, pool, scale_up, template

# `make nightly` plays many more.
RUNS = int(os.environ.get("ALLOT_RUNS", "20"))


def test_nothing_is_bought_for_what_fits() -> None:
    """The scheduler will place it where there is room."""
    plan = scale_up(cluster_of(live("n", template(2)), pod("a", 1), pod("b", 1)), pool("p", 5, count=8))
    assert not plan.purchases
    assert plan.cost == 0
    assert [each.nodes for each in plan.expectations] == [("n",), ("n",)]


def test_scale_from_zero_knows_the_devices_of_a_pool() -> None:
    """The cheap pool has the wrong model, so it is not bought, and it is said why."""
    plan = scale_up(cluster_of(pod("a", 1, BIG)), pool("cheap", 1, count=8), pool("dear", 9, count=1, model="big"))
    assert bought(plan) == {"dear": 1}
    only = scale_up(cluster_of(pod("a", 1, BIG)), pool("cheap", 1, count=8))
    (expectation,) = only.expectations
    assert not expectation.is_helped
    assert expectation.reasons[0].reasons == ("cannot allocate all claims",)
    assert "a node of cheap" in expectation.reasons[0].detail


def test_the_cheapest_set_is_bought_not_the_cheapest_node() -> None:
    """Three pods with a GPU each: one node with four for 7 costs less than three with one for 3."""
    pods = [pod(name, 1) for name in "abc"]
    plan = scale_up(cluster_of(*pods), pool("one", 3, count=1), pool("four", 7, count=4))
    assert bought(plan) == {"four": 1}
    assert plan.cost == 7 * MILLION
    assert plan.is_exact
    plan = scale_up(cluster_of(*pods[:2]), pool("one", 3, count=1), pool("four", 7, count=4))
    assert bought(plan) == {"one": 2}


def test_a_gang_is_helped_whole_or_not_at_all() -> None:
    """Three members on nodes with one GPU each need three nodes; where only two can be had, none is bought."""
    members = gang("g", 3, 1)
    assert bought(scale_up(cluster_of(members), pool("p", 2, count=1, most=3))) == {"p": 3}
    plan = scale_up(cluster_of(members), pool("p", 2, count=1, most=2))
    assert not plan.purchases
    assert not plan.expectations[0].is_helped


def test_a_large_gang_is_helped_by_the_fewest_nodes_of_a_pool() -> None:
    """Beyond what is tried exhaustively."""
    plan = scale_up(cluster_of(gang("g", 20, 1)), pool("p", 2, count=4, most=10), pool("q", 9, count=8, most=10))
    assert bought(plan) == {"p": 5}
    mixed = scale_up(cluster_of(gang("g", 20, 1)), pool("p", 2, count=4, most=3), pool("q", 9, count=8, most=10))
    assert bought(mixed) in ({"p": 3, "q": 1}, {"q": 3})


def test_the_most_important_pod_gets_the_only_node() -> None:
    """Although another one is older by name."""
    what_if = cluster_of(pod("a", 1), pod("z", 1, priority=100))
    plan = scale_up(what_if, pool("p", 2, count=1, most=1))
    assert plan.of("ns/z").bought == {"p": 1}  # type: ignore[union-attr]
    assert plan.of("ns/a").reasons[0].reasons == ("max node group size reached",)  # type: ignore[union-attr]


def test_nodes_that_are_coming_count() -> None:
    """Nobody buys twice for the same pod."""
    offer = pool("p", 2, count=1, size=1)
    plan = scale_up(cluster_of(pod("a", 1)), offer, upcoming=(Upcoming("p", offer.template.named("coming")),))
    assert not plan.purchases
    assert plan.expectations[0].coming == {"p": 1}


def test_limits_of_the_cluster_and_closed_pools_are_kept() -> None:
    """And told."""
    pods = [pod(name, 1) for name in "abc"]
    plan = scale_up(cluster_of(*pods), pool("p", 2, count=1), limits=Limits(nodes_total_max=2))
    assert bought(plan) == {"p": 2}
    plan = scale_up(cluster_of(*pods[:1]), pool("p", 2, count=1, closed="no stock until 12:00"), pool("q", 9, count=1))
    assert bought(plan) == {"q": 1}
    plan = scale_up(cluster_of(*pods[:1]), pool("p", 2, count=1, closed="no stock until 12:00"))
    assert plan.expectations[0].reasons[0].detail == "no stock until 12:00"


def test_the_first_alternative_that_a_node_has_is_taken() -> None:
    """firstAvailable is decided by the scheduler on each pool's node."""
    from core.scheduling.device_world import claim, device_class, either

    classes = [device_class("big", selectors=[{"cel": {"expression": BIG}}]), device_class("any")]
    made, _ = pod("a", 1)
    wanted = claim("a-gpu", either("r", ("one", "big", 1), ("two", "any", 2)), owner="a")
    what_if = cluster_of(classes, (made, wanted))
    assert bought(scale_up(what_if, pool("big", 9, count=1, model="big"), pool("small", 4, count=2))) == {"small": 1}
    assert bought(scale_up(what_if, pool("big", 9, count=1, model="big"), pool("small", 4, count=1))) == {"big": 1}


@pytest.mark.parametrize(
    ("expander", "expected"),
    [
        (("price",), "large"),
        (("least-waste",), "small"),
        (("priority",), "medium"),
        (("least-nodes", "price"), "large"),
    ],
)
def test_expanders_choose(expander: tuple[str, ...], expected: str) -> None:
    """least-waste counts devices: the small node has one, which is used."""
    pools = (
        pool("small", 5, count=1, cpu="1"),
        replace(pool("medium", 6, count=2), priority=10),
        pool("large", 4, count=8),
    )
    assert bought(scale_up(cluster_of(pod("a", 1)), *pools, expander=expander)) == {expected: 1}


def test_random_follows_the_dice() -> None:
    """Which are passed in."""
    pools = (pool("p", 5), pool("q", 5))
    what_if = cluster_of(pod("a", 1))
    assert bought(scale_up(what_if, *pools, expander=("random",), dice={"p": 0.9, "q": 0.1})) == {"q": 1}
    assert bought(scale_up(what_if, *pools, expander=("random",), dice={"p": 0.1, "q": 0.9})) == {"p": 1}


def test_many_pods_fill_nodes_and_the_gap_to_a_bound_is_told() -> None:
    """A hundred pods with one GPU each, on nodes with eight: thirteen, and no less."""
    what_if = cluster_of(*(pod(f"p{number}", 1) for number in range(100)))
    plan = scale_up(what_if, pool("one", 3, count=1, most=200), pool("eight", 16, count=8, most=200))
    assert all(each.is_helped for each in plan.expectations)
    assert not plan.is_exact
    assert plan.bound == 200 * MILLION
    assert plan.cost <= 208 * MILLION
    assert not what_if.machine.cluster.pods
    assert not what_if.machine.cluster.nodes


@pytest.mark.parametrize("text", ["", ".", "x", "-1", "1e3", "1.0000001", "١"])
def test_what_is_no_price_is_refused(text: str) -> None:
    """With the value."""
    with pytest.raises(PriceError, match="expected an amount"):
        parse_price(text)


def test_prices_are_exact() -> None:
    """No binary fractions."""
    assert [price_text(parse_price(text)) for text in ("5.07", "12", "0.1", ".000001")] == [
        "5.07",
        "12.00",
        "0.10",
        "0.000001",
    ]


def test_what_daemons_take_of_a_new_node_is_not_for_others() -> None:
    """Where they would run: not where a taint keeps them away."""
    from allot.core.autoscaling.daemons import with_daemons
    from allot.core.model.apps_v1 import DaemonSet
    from allot.core.model.codec import decode_served

    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "3"}}}
    spec = {"containers": [container], "nodeSelector": {"kind": "gpu"}}
    body = {"metadata": {"labels": {"app": "d"}}, "spec": spec}
    daemon = decode_served({"metadata": {"name": "d", "namespace": "ns"}, "spec": {"template": body}}, DaemonSet)
    offer = pool("p", 2, count=4, cpu="4", labels={"kind": "gpu"})
    full = replace(offer, template=with_daemons(offer.template, [daemon]))
    other = replace(
        pool("q", 9, count=4, cpu="4"), template=with_daemons(pool("q", 9, count=4, cpu="4").template, [daemon])
    )
    assert [len(each.template.pods) for each in (full, other)] == [1, 0]
    pods = [pod("a", 1, cpu="2")]
    assert bought(scale_up(cluster_of(*pods), offer, other)) == {"p": 1}
    assert bought(scale_up(cluster_of(*pods), full, other)) == {"q": 1}


@pytest.mark.parametrize(("admin", "per_node"), [(False, 3), (True, 4)])
@pytest.mark.parametrize("count", [4, 12])
def test_devices_that_daemons_claim_are_not_for_others(admin: bool, per_node: int, count: int) -> None:
    """One GPU of each new node is the daemon's, unless it only looks on."""
    from allot.core.autoscaling.daemons import claim_templates, with_daemons
    from allot.core.model.apps_v1 import DaemonSet
    from allot.core.model.codec import decode_served
    from allot.core.model.resource_v1 import ResourceClaimTemplate

    container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "no", "resourceClaimTemplateName": "none"}]
    body = {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": [container], "resourceClaims": entries}}
    daemon = decode_served({"metadata": {"name": "d", "namespace": "ns"}, "spec": {"template": body}}, DaemonSet)
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, "adminAccess": admin}
    spec = {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}
    claim = decode_served({"metadata": {"name": "t", "namespace": "ns"}, "spec": {"spec": spec}}, ResourceClaimTemplate)
    offer = pool("p", 2, count=4)
    offer = replace(offer, template=with_daemons(offer.template, [daemon], claim_templates([claim])))
    what_if = cluster_of(*(pod(f"p{number:02d}", 1) for number in range(count)))
    plan = scale_up(what_if, offer)
    assert bought(plan) == {"p": -(-count // per_node)}
    assert plan.bound == plan.cost
    assert not what_if.machine.cluster.nodes
    assert scale_up(what_if, offer) == plan


# --- the law ---


def _world(seed: int) -> tuple[list[tuple[APIStruct, ...]], list[tuple[APIStruct, ...]], list[Pool]]:
    dice = random.Random(seed)
    pools = [
        pool(
            f"pool-{number}",
            dice.randint(1, 9),
            most=dice.randint(1, 4),
            count=dice.choice((0, 1, 2, 4)),
            model=dice.choice(("small", "big")),
            cpu=dice.choice(("2", "4", "8")),
        )
        for number in range(dice.randint(1, 3))
    ]
    pods: list[tuple[APIStruct, ...]] = []
    left = 6
    while left and dice.random() < 0.9:
        name = f"p{left}"
        devices, selectors = dice.randint(0, 2), dice.choice(((), (BIG,)))
        if left >= 2 and dice.random() < 0.2:
            size = dice.randint(2, min(left, 3))
            pods.append(gang(name, size, devices, *selectors))
            left -= size
        else:
            cpu = dice.choice(("500m", "1500m", "3"))
            pods.append(pod(name, devices, *selectors, cpu=cpu, priority=dice.choice((0, 0, 5))))
            left -= 1
    nodes = [
        live(f"n{number}", template(dice.randint(0, 2), dice.choice(("small", "big")), "2")) for number in range(2)
    ]
    return nodes, pods, pools


def _exhaustive(nodes: list[tuple[APIStruct, ...]], pods: list[tuple[APIStruct, ...]], pools: list[Pool]) -> object:
    """The best of all sets, each on a cluster made for it alone, by the scheduler's own choice; without any of our search."""
    count = sum(1 for some in pods for each in some if type(each).__name__ == "Pod")
    best: tuple[tuple[bool, ...], int] | None = None
    for counts in product(*(range(min(each.room, count) + 1) for each in pools)):
        if sum(counts) > count:
            continue
        what_if = cluster_of(*nodes, *pods)
        machine = what_if.machine
        units = machine.waiting()
        there = []
        for unit in units:
            outcome = machine.consider(unit, 0.0)
            enough = machine.has_enough(outcome)
            for placement in outcome.placements if enough else ():
                machine.cluster.assume(placement)
            there.append(enough)
        new = [
            each.template.named(f"new-{each.name}-{number}")
            for each, how in zip(pools, counts, strict=True)
            for number in range(how)
        ]
        for made in new:
            machine.cluster.put_node(made.node)
            for slice_ in made.slices:
                machine.claims.put_slice(slice_)
        missing, used = [], set()
        for unit, is_there in zip(units, there, strict=True):
            if is_there:
                continue
            outcome = machine.consider(unit, 0.0)
            enough = machine.has_enough(outcome)
            for placement in outcome.placements if enough else ():
                machine.cluster.assume(placement)
                used.add(placement.node)
            missing.append(not enough)
        if any(made.node.metadata.name not in used for made in new):
            continue
        cost = sum(each.price * how for each, how in zip(pools, counts, strict=True))
        if best is None or (tuple(missing), cost) < best:
            best = (tuple(missing), cost)
    return best


def _law(seed: int) -> None:
    nodes, pods, pools = _world(seed)
    what_if = cluster_of(*nodes, *pods)
    units = what_if.machine.waiting()
    plan = scale_up(what_if, *pools)
    assert plan.is_exact
    missing = tuple(not each.is_helped for each in plan.expectations if each.bought or not each.nodes)
    assert len(plan.expectations) == len(units)
    assert (missing, plan.cost) == _exhaustive(nodes, pods, pools)
    assert all(each.count <= next(one for one in pools if one.name == each.pool).room for each in plan.purchases)
    # What was tried has left no trace.
    assert scale_up(what_if, *pools) == plan


@pytest.mark.parametrize("seed", range(RUNS))
def test_the_scale_up_costs_what_exhaustive_search_finds(seed: int) -> None:
    """Up to six pods and three pools."""
    _law(seed)


@settings(max_examples=6, deadline=None)
@given(st.integers(1000, 10**6))
def test_the_scale_up_costs_what_exhaustive_search_finds_anywhere(seed: int) -> None:
    """The same with seeds of Hypothesis."""
    _law(seed)


@pytest.mark.parametrize("seed", range(RUNS // 5))
def test_filling_helps_whom_it_can_and_is_never_below_its_bound(seed: int) -> None:
    """More pods and pools than are tried exhaustively."""
    dice = random.Random(seed)
    pools = [
        pool(f"pool-{number}", dice.randint(1, 30), most=40, count=dice.choice((0, 1, 2, 4, 8)), cpu="16")
        for number in range(6)
    ]
    pools.append(pool("last", 40, most=200, count=8, cpu="64"))
    pods = [
        pod(
            f"p{number}",
            dice.choice((0, 1, 1, 2, 4)),
            cpu=dice.choice(("500m", "2", "6")),
            priority=dice.choice((0, 7)),
        )
        for number in range(40)
    ]
    what_if = cluster_of(*pods, gang("g", 9, 2))
    plan = scale_up(what_if, *pools)
    assert all(each.is_helped for each in plan.expectations)
    assert 0 < plan.bound <= plan.cost
    assert plan.cost <= 3 * plan.bound
    assert not what_if.machine.cluster.pods
