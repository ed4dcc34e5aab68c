"""The tree counts what queues hold and ask for, at every level, and works out fair shares no more often than it must."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allot.core.scheduling.queues.amounts import ONE, UNLIMITED
from allot.core.scheduling.queues.limits import OVER_LIMIT, OVER_QUOTA, excess
from allot.core.scheduling.queues.model import Queue, QueueShares, Quota
from allot.core.scheduling.queues.order import Candidate, Standings
from allot.core.scheduling.queues.tree import QueueTree


def gpu(deserved: int = 0, limit: int = UNLIMITED, weight: int = 1) -> dict[str, Quota]:
    return {
        "gpu": Quota(
            deserved if deserved < 0 else deserved * ONE, limit if limit < 0 else limit * ONE, Fraction(weight)
        )
    }


def gpus(count: float) -> dict[str, int]:
    return {"gpu": int(count * ONE)}


def company() -> QueueTree:
    tree = QueueTree()
    tree.put(Queue(name="research", quotas=gpu(4), created="1"))
    tree.put(Queue(name="product", quotas=gpu(4), created="2"))
    tree.put(Queue(name="vision", parent="research", quotas=gpu(2), created="3"))
    tree.put(Queue(name="speech", parent="research", quotas=gpu(2), created="4"))
    tree.put(Queue(name="search", parent="product", quotas=gpu(4, limit=6), created="5"))
    tree.set_total(gpus(8))
    return tree


def at(tree: QueueTree, name: str) -> QueueShares:
    found = tree.get(name)
    assert found is not None
    return found


def test_a_charge_counts_at_every_level_above() -> None:
    tree = company()
    tree.request("vision", gpus(3))
    tree.hold("vision", gpus(2), firmly=True)
    for name in ("vision", "research"):
        share = at(tree, name).shares["gpu"]
        assert (share.request, share.allocated, share.allocated_firmly) == (3 * ONE, 2 * ONE, 2 * ONE)
    assert at(tree, "speech").shares["gpu"].request == 0


def test_what_is_charged_survives_a_new_shape() -> None:
    tree = company()
    tree.request("vision", gpus(3))
    tree.put(Queue(name="vision", parent="product", quotas=gpu(2), created="3"))
    assert at(tree, "research").shares["gpu"].request == 0
    assert at(tree, "product").shares["gpu"].request == 3 * ONE
    tree.delete("vision")
    assert at(tree, "product").shares["gpu"].request == 0
    tree.put(Queue(name="vision", parent="product", quotas=gpu(2), created="3"))
    assert at(tree, "product").shares["gpu"].request == 3 * ONE


def test_children_divide_what_their_parent_gets() -> None:
    tree = company()
    for name in ("vision", "speech", "search"):
        tree.request(name, gpus(8))
    shares = {name: queue.shares["gpu"].fair_share // ONE for name, queue in tree.all().items()}
    assert shares == {"research": 4, "product": 4, "vision": 2, "speech": 2, "search": 4}


def test_shares_are_worked_out_once_while_hungry_queues_ask_for_more() -> None:
    tree = company()
    for name in ("vision", "speech", "search"):
        tree.request(name, gpus(20))
    tree.all()
    before = tree.divisions
    for _ in range(100):
        tree.request("vision", gpus(1))
        tree.hold("vision", gpus(1))
        tree.all()
    assert tree.divisions == before
    tree.request("vision", gpus(120), -1)
    tree.all()
    assert tree.divisions == before + 1


@pytest.mark.parametrize(
    ("queue", "said"),
    [
        ("nobody", 'queue "nobody" does not exist'),
        ("research", 'queue "research" has queues below it (vision, speech): jobs go to these'),
        ("orphan", 'queue "orphan": its parent "gone" does not exist'),
        ("egg", 'queue "egg": it is its own ancestor'),
        ("closed", 'queue "closed" takes no new jobs: it is closing'),
        ("vision", ""),
    ],
)
def test_a_queue_that_takes_no_jobs_says_why(queue: str, said: str) -> None:
    tree = company()
    tree.put(Queue(name="orphan", parent="gone"))
    tree.put(Queue(name="egg", parent="hen"))
    tree.put(Queue(name="hen", parent="egg"))
    tree.put(Queue(name="closed", closed="it is closing"))
    assert tree.refusal(queue) == said


def test_a_limit_holds_at_every_level_and_is_told() -> None:
    tree = company()
    tree.request("search", gpus(6))
    tree.hold("search", gpus(6))
    found = excess(at(tree, "search"), gpus(0.5), is_preemptible=True)
    assert found is not None
    assert (found.reason, found.queue, found.resource) == (OVER_LIMIT, "search", "gpu")
    assert found.message == (
        "search quota has reached the allowable limit of GPUs. Limit is 6 GPUs, currently 6 GPUs allocated and "
        "workload requested 0.5 GPUs"
    )


def test_what_cannot_be_preempted_stays_within_the_quota_of_every_level() -> None:
    tree = company()
    tree.put(Queue(name="speech", parent="research", quotas=gpu(8), created="4"))
    tree.hold("vision", gpus(2), firmly=True)
    assert excess(at(tree, "speech"), gpus(3), is_preemptible=True) is None
    found = excess(at(tree, "speech"), gpus(3), is_preemptible=False)
    assert found is not None
    assert (found.reason, found.queue) == (OVER_QUOTA, "research")
    assert found.message == (
        "Non-preemptible workload is over quota. Workload requested 3 GPUs, but research quota is 4 GPUs, while 2 GPUs "
        "are already allocated for non-preemptible pods. Use a preemptible workload to go over quota."
    )


def _next(tree: QueueTree, requests: dict[str, float], *, is_reversed: bool = False) -> str:
    def candidate(queue: QueueShares) -> Candidate | None:
        asked = requests.get(queue.name)
        return Candidate(queue, gpus(asked)) if asked is not None else None

    found = Standings(tree, candidate, is_reversed=is_reversed).first()
    return found.queue.name if found is not None else ""


def test_who_has_least_of_its_share_is_next() -> None:
    tree = company()
    requests: dict[str, float] = {"vision": 1, "speech": 1, "search": 1}
    for name in requests:
        tree.request(name, gpus(8))
    order = []
    for _ in range(8):
        order.append(_next(tree, requests))
        tree.hold(order[-1], gpus(1))
    assert [order.count(name) for name in ("vision", "speech", "search")] == [2, 2, 4]
    assert order[:4] == ["vision", "search", "speech", "search"]


def test_priority_decides_between_queues_beyond_what_they_deserve() -> None:
    tree = company()
    tree.put(Queue(name="speech", parent="research", quotas=gpu(2), priority=200, created="4"))
    tree.hold("vision", gpus(2))
    tree.hold("speech", gpus(2))
    assert _next(tree, {"vision": 1, "speech": 1}) == "speech"
    assert _next(tree, {"vision": 1, "speech": 1}, is_reversed=True) == "vision"


def test_min_runtimes_come_from_the_nearest_queue_above() -> None:
    tree = company()
    research = Queue(
        name="research", quotas=gpu(4), created="1", reclaim_min_runtime_s=60.0, preempt_min_runtime_s=30.0
    )
    tree.put(research)
    tree.put(Queue(name="vision", parent="research", quotas=gpu(2), created="3", reclaim_min_runtime_s=10.0))
    vision, speech, search = (at(tree, name) for name in ("vision", "speech", "search"))
    assert tree.min_runtime_s(vision, None) == 30.0
    assert tree.min_runtime_s(vision, speech) == 10.0, "they part below research"
    assert tree.min_runtime_s(vision, search) == 60.0, "they part at the top"
    assert tree.min_runtime_s(search, vision) == 0.0


NAMES = st.sampled_from(["vision", "speech", "search"])


@given(st.lists(st.tuples(NAMES, st.integers(1, 3)), max_size=30))
def test_no_queue_is_let_above_its_limit(asked: list[tuple[str, int]]) -> None:
    tree = company()
    for name, count in asked:
        tree.request(name, gpus(count))
        if excess(at(tree, name), gpus(count), is_preemptible=True) is None:
            tree.hold(name, gpus(count))
    for queue in tree.all().values():
        share = queue.shares["gpu"]
        assert share.limit == UNLIMITED or share.allocated <= share.limit
