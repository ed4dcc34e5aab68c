"""Which pods go first, rule by rule."""

from __future__ import annotations

import random

import pytest

from allot.core.model.core_v1 import Pod
from allot.core.workloads.pod_ranking import deletion_cost, first_to_delete
from core.workloads.workload_builders import NOW_S, names, pod, ready

# For each rule a pair: the first goes before the second, although every later rule says the opposite.
RULES = {
    "no node": (
        ready("first", node="", phase="Running", cost="9"),
        pod("second", phase="Pending", cost="-9", restarts=9, created_s=NOW_S),
    ),
    "pending before unknown": (ready("first", phase="Pending", cost="9"), pod("second", phase="Unknown", cost="-9")),
    "unknown before running": (ready("first", phase="Unknown", cost="9"), pod("second", phase="Running", cost="-9")),
    "not ready": (pod("first", cost="9"), ready("second", cost="-9", restarts=9)),
    "deletion cost": (ready("first", cost="-1"), pod("second", ready_s=1, restarts=9, created_s=NOW_S)),
    "ready for a shorter time": (pod("first", ready_s=10), ready("second", restarts=9, created_s=NOW_S - 501)),
    "more restarts": (ready("first", restarts=3), ready("second", restarts=2, created_s=NOW_S - 500)),
    "newer": (pod("first", created_s=NOW_S - 10), pod("second", created_s=NOW_S - 1000)),
}


@pytest.mark.parametrize("pair", RULES.values(), ids=RULES.keys())
def test_the_first_difference_decides(pair: tuple[Pod, Pod]) -> None:
    for order in (pair, pair[::-1]):
        assert names(first_to_delete(order, (), 1, NOW_S)) == ["first"]


def test_pods_on_nodes_with_many_of_their_kind_go_first() -> None:
    pods = [ready("a", node="full"), ready("b", node="empty")]
    related = [*pods, ready("c", node="full"), pod("d", node="empty", phase="Failed")]
    assert names(first_to_delete(pods, related, 1, NOW_S)) == ["a"]


def test_about_the_same_age_is_decided_by_uid() -> None:
    one, other = ready("a", uid="2"), pod("b", ready_s=505, uid="1")
    assert names(first_to_delete((one, other), (), 1, NOW_S)) == ["b"]
    # 100 and 500 seconds are of another magnitude.
    one, other = pod("a", ready_s=100, uid="2"), ready("b", uid="1")
    assert names(first_to_delete((one, other), (), 1, NOW_S)) == ["a"]


@pytest.mark.parametrize(
    ("text", "cost"),
    [("", 0), ("7", 7), ("-7", -7), ("+7", 0), ("07", 0), ("-0", 0), ("1.5", 0), ("2147483648", 0), ("x", 0), ("٣", 0)],
)
def test_a_cost_that_is_no_number_is_none(text: str, cost: int) -> None:
    assert deletion_cost(pod("a", cost=text)) == cost


def test_the_order_of_the_pods_does_not_matter_and_all_may_go() -> None:
    pods = [pod(f"p{place}", ready_s=None if place % 3 else 10.0 * place, restarts=place % 4) for place in range(30)]
    expected = names(first_to_delete(pods, pods, 12, NOW_S))
    for seed in range(5):
        shuffled = random.Random(seed).sample(pods, len(pods))
        assert names(first_to_delete(shuffled, shuffled, 12, NOW_S)) == expected
    assert len(first_to_delete(pods, (), 99, NOW_S)) == 30
