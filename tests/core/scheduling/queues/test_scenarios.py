"""Scenarios of reclaim, preemption, consolidation, stale gangs and placement end as KAI's tables have it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from .scenario import Scenario, Unsupported
from .vector_queues import cases

# Cases that end otherwise, and why ours is better or equal.
DIFFERENT: Mapping[str, str] = {
    "allocate/allocateFractionalGpu:746": "a free GPU is taken at once instead of waiting for part of one that is leaving",
    "allocate/allocateFractionalGpu:960": "room beside a pod that waits is there already, so the pod is bound",
    "allocate/allocateMIG:236": "pods of MIG's old annotations are not told apart from others",
    "rounds/allocate/allocateMIG:159": "pods of MIG's old annotations do not close their node to others",
    "rounds/allocate/allocateMIG:219": "pods of MIG's old annotations do not close their node to others",
    "rounds/allocate/allocate_dra:583": "a claim is charged to the queue of its pod and needs no label of its own",
    "rounds/allocate/allocate_dra:642": "a claim is charged to the queue of its pod, whatever its label says",
}
# What the runner cannot say yet, by the reason that it gives.
MISSING = ("GPUs of several sizes",)


def outcome(case: Mapping[str, Any]) -> list[str]:
    scenario = Scenario(case)
    scenario.run()
    found = scenario.differences()
    for _ in range(case.get("stableRounds", 0)):
        if found:
            break
        scenario.run_on()
        found = [f"does not last: {line}" for line in scenario.differences()]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reclaim", "allocate"])
def test_scenarios_end_as_in_the_tables(name: str) -> None:
    wrong: list[str] = []
    same: list[str] = []
    missing: list[str] = []
    rows = cases(name)
    for case in rows:
        try:
            found = outcome(case)
        except Unsupported as what:
            assert str(what) in MISSING, f"{case['id']}: {what}"
            missing.append(case["id"])
            continue
        if case["id"] in DIFFERENT:
            same += [] if found else [case["id"]]
        elif found:
            wrong.append(f"{case['id']}: {'; '.join(found)}")
    assert not wrong, f"{len(wrong)} of {len(rows)} differ:\n" + "\n".join(wrong)
    assert not same, f"these are no longer different: {same}"
    assert len(missing) <= len(rows) // 50, f"{len(missing)} are not run: {missing}"
