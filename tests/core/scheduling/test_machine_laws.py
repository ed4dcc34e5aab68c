"""Laws of the machine under random histories: watches that lag behind by kind and repeat themselves, writes that fail, come too
late or are done by half, deletions in flight (`histories`).

Each law is tried with histories of many seeds, and with such that Hypothesis makes small.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.explain.report import Reason
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation import ClaimID
from allot.core.model.core_v1 import Pod
from allot.core.scheduling import Decision, Outcome, Settings
from allot.core.scheduling.decide import refusal_of
from core.scheduling.histories import ABROAD, CLAIMS, GATES, PODS, SETTINGS, History, devices_of_placement

SEEDS = range(250)
Law = Callable[[History], None]


# --- what is told of a decision ---


def told(decision: Decision, *, with_texts: bool = True) -> dict[str, object]:
    """Node and devices, or plugins, message and explanation, of each pod. with_texts: off where preemption adds to them."""
    placed: dict[str, object] = {
        placement.pod.metadata.name: (placement.node, devices_of_placement(placement))
        for placement in decision.placements
    }
    return placed | {
        refusal.pod.metadata.name: (refusal.plugins, (refusal.message, refusal.explanation) if with_texts else ())
        for refusal in decision.refusals
    }


def told_by_advice(world: WhatIfCluster, asked: Outcome, *, with_texts: bool = True) -> dict[str, object]:
    """The same of what the what-if cluster answers."""
    assert asked.closed is None, f"held back: {asked.closed}"
    if asked.failure is None:
        return told(asked.decision or Decision(placements=asked.placements), with_texts=with_texts)
    refusal = refusal_of(world.cluster, asked.unit.pods[0], asked.failure, SETTINGS, world.now)
    return told(Decision(refusals=(refusal,)), with_texts=with_texts)


# --- laws ---


def explain_and_the_scheduler_agree(history: History) -> None:
    """When nothing is in flight and a unit is the next one: outcome, nodes, devices and reasons, from the objects alone."""
    history.settle_all()
    history.deliver_all()
    before = history.snapshot()
    for decision in history.calm_down():
        before = replace(before, taken_at=history.now)
        world = WhatIfCluster(before, GATES, SETTINGS)
        pod = (decision.placements or decision.refusals)[0].pod
        asked = world.machine.ask(pod.key, world.now)
        assert asked is not None
        with_texts = not history.preempts
        assert told_by_advice(world, asked, with_texts=with_texts) == told(decision, with_texts=with_texts)
        explained = Explainer(before, GATES).pod(pod.metadata.namespace, pod.metadata.name, briefly=True)
        # The scheduler places a pod whose devices have to become ready, and waits with its binding.
        waits = explained.reason is Reason.BINDING_CONDITIONS and "allocated, but driver" in explained.cause
        assert (explained.reason is Reason.FITS or waits) == bool(decision.placements), explained.cause
        nodes = [placement.node for placement in decision.placements]
        assert not nodes or waits or any(f"on node {node}" in explained.cause for node in nodes), explained.cause
        history.settle_all()
        history.deliver_all()
        before = history.snapshot()


def nothing_that_would_fit_is_forgotten(history: History) -> None:
    """When nothing is left to try, without the net of five minutes: what waits would not fit if it were tried, and what is held
    back is so for the reason that is explained."""
    for _ in history.calm_down():
        pass
    machine = history.machine
    assert machine.in_flight == 0
    world = WhatIfCluster(history.snapshot(), GATES, SETTINGS)
    for name in PODS:
        pod, key = history.get(Pod, name), f"{'other' if name in ABROAD else 'ns'}/{name}"
        if (
            pod is None
            or pod.spec.node_name
            or pod.spec.scheduler_name != "default-scheduler"
            or pod.metadata.deletion_timestamp is not None
        ):
            assert machine.queue.place(key) is None
            continue
        asked = world.machine.ask(key, world.now)
        assert asked is not None
        assert machine.queue.place(key) is not None
        held_back = machine.closed(key)
        assert (asked.closed and asked.closed.status) == (held_back and held_back.status)
        assert not asked.placements, f"{name} waits and would fit"


def no_device_is_held_twice(history: History) -> None:
    """Nor does the machine believe a device to be free that a claim holds."""
    for _ in history.calm_down():
        assert all(len(holders) == 1 for holders in history.holders().values()), history.holders()
    ledger = history.machine.claims.inventory.ledger
    for holders in history.holders().values():
        assert len(holders) == 1
        assert ledger.allocation(ClaimID("ns", holders[0])) is not None
    held = {name for holders in history.holders().values() for name in holders}
    assert all(ledger.allocation(ClaimID("ns", name)) is None for name in CLAIMS if name not in held)


LAWS: list[Law] = [explain_and_the_scheduler_agree, nothing_that_would_fit_is_forgotten, no_device_is_held_twice]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_law_holds_after_many_histories(law: Law) -> None:
    for seed in SEEDS:
        dice = random.Random(f"{law.__name__} {seed}")
        history = History(dice.choice, dice.choice((SETTINGS, Settings())))
        try:
            for _ in range(dice.choice((40, 80, 160))):
                history.step()
                assert all(len(holders) == 1 for holders in history.holders().values())
            law(history)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_law_holds_after_any_history(law: Law, data: st.DataObject) -> None:
    def choose(options: Sequence[Any]) -> Any:
        return data.draw(st.sampled_from(options))

    history = History(choose, choose((SETTINGS, Settings())))
    for _ in range(data.draw(st.integers(0, 60))):
        history.step()
    law(history)


@pytest.mark.slow
def test_the_same_history_gives_the_same_decisions_under_any_hash_seed() -> None:
    script = Path(__file__).with_name("histories.py")
    said = []
    for seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(script.parents[2])}
        done = subprocess.run(
            [sys.executable, str(script), "60", "150"], env=environment, capture_output=True, text=True, check=True
        )
        said.append(done.stdout)
    assert "gpu-" in said[0]
    assert said[0] == said[1] == said[2]
