"""Who may take from whom, as KAI's rules have it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.reclaim_rules import (
    Reclaimer,
    exceeds_fair_share,
    fits_deserved,
    guarantees_deserved,
    is_worth_trying,
    may_try,
    objection,
    parted,
)

from .vector_queues import amounts, cases, tree


def _reclaimer(case: dict[str, Any], queues: dict[str, QueueShares]) -> Reclaimer:
    row = case["reclaimer"]
    return Reclaimer(
        queue=queues[row["queue"]], request=amounts(row["request"]), is_preemptible=row.get("preemptible", True)
    )


def answer(case: dict[str, Any]) -> bool:
    question = case["question"]
    if question in ("maintainFairShare", "guaranteeDeserved"):
        pair = tree([case["reclaimer"], case["reclaimee"]])
        mine, theirs = pair[case["reclaimer"]["id"]], pair[case["reclaimee"]["id"]]
        held = {resource: share.allocated for resource, share in theirs.shares.items()} | amounts(
            case.get("remaining", {})
        )
        if question == "maintainFairShare":
            return exceeds_fair_share(theirs, held)
        return guarantees_deserved(mine, amounts(case["request"]), theirs, held)
    queues = tree(case["queues"])
    reclaimer = _reclaimer(case, queues)
    if question == "mayTry":
        return not may_try(reclaimer)
    if question == "victimQueueWorthTrying":
        mine, theirs = parted(reclaimer.queue, queues[case["victimQueue"]])
        is_deserved = fits_deserved(mine, reclaimer.request)
        return is_worth_trying(reclaimer.request, theirs, is_deserved=is_deserved)
    assert question == "reclaimable", question
    losses = {name: [amounts(unit) for unit in units] for name, units in case["victims"].items()}
    return not objection(reclaimer, losses, queues, Fraction(str(case["multiplier"])))


def test_answers_are_those_of_the_tables() -> None:
    wrong = [f"{case['id']}: {not case['expect']}" for case in cases("reclaim-rules") if answer(case) != case["expect"]]
    assert not wrong, "\n".join(wrong)


def test_a_refusal_names_queue_and_resource() -> None:
    rows = [
        {"id": "a", "gpu": {"deserved": 1, "fairShare": 1, "allocated": 1}},
        {"id": "b", "gpu": {"deserved": 1, "fairShare": 1, "allocated": 1}},
    ]
    queues = tree(rows)
    reclaimer = Reclaimer(queue=queues["a"], request=amounts({"gpu": 1}))
    assert may_try(reclaimer) == "queue a would exceed its fair share of gpu"
    found = objection(reclaimer, {"b": [amounts({"gpu": 1})]}, queues, Fraction(1))
    assert found == "queue b holds no more than its share"


@pytest.mark.parametrize("firm", [0, 1])
def test_what_cannot_be_preempted_stays_within_what_is_deserved(firm: int) -> None:
    rows = [
        {"id": "a", "gpu": {"deserved": 1, "fairShare": 4, "allocated": firm, "allocatedNonPreemptible": firm}},
        {"id": "b", "gpu": {"deserved": 1, "fairShare": 1, "allocated": 3}},
    ]
    reclaimer = Reclaimer(queue=tree(rows)["a"], request=amounts({"gpu": 1}), is_preemptible=False)
    assert bool(may_try(reclaimer)) == bool(firm)
