"""Evictions by many at once, with pods that break and come back, and a controller that dies: never fewer healthy pods than the
budget says, as far as evictions are concerned."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import PatchType
from allot.client.errors import ApiError, NotFound, TooManyRequests
from allot.controllers import disruption
from controllers.cluster import Cluster, cluster, pod
from waiting import until

pytestmark = pytest.mark.slow

PODS, LEAST, ROUNDS = 8, 5, 12
CONTROLLER = {"disruption-controller": disruption.make}


async def add(made: Cluster, name: str) -> None:
    """A pod that is ready."""
    object_ = pod(name, node="n")
    object_["metadata"]["labels"] = {"app": "x"}
    object_["spec"]["terminationGracePeriodSeconds"] = 0
    await made.create("pods", object_)
    await report(made, name, is_ready=True)


async def report(made: Cluster, name: str, *, is_ready: bool) -> None:
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    status = {"status": {"phase": "Running", "conditions": conditions}}
    await made.of("pods").patch(name, status, PatchType.MERGE, "default", subresource="status")


async def evict(made: Cluster, name: str) -> bool:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    try:
        await made.of("pods").create(eviction, "default", name=name, subresource="eviction")
    except TooManyRequests as error:
        assert error.causes[0]["reason"] == "DisruptionBudget"
        return False
    except NotFound:
        return False
    return True


async def healthy(made: Cluster) -> list[str]:
    def is_healthy(one: dict[str, Any]) -> bool:
        conditions = one["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    return [one["metadata"]["name"] for one in await made.items("pods") if is_healthy(one)]


@pytest.mark.parametrize("seed", range(3))
async def test_a_budget_holds_however_many_evict_at_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    async with cluster(tmp_path) as made:
        budgets = made.client.resource("policy", "v1", "poddisruptionbudgets", namespaced=True)
        spec = {"minAvailable": LEAST, "selector": {"matchLabels": {"app": "x"}}}
        await budgets.create({"metadata": {"name": "x"}, "spec": spec}, "default")
        number = PODS
        for index in range(PODS):
            await add(made, f"pod-{index}")
        evicted = 0
        for _ in range(ROUNDS):
            async with made.running(CONTROLLER):
                working = await healthy(made)

                async def is_known(count: int = len(working)) -> bool:
                    status = (await budgets.get("x", "default")).get("status", {})
                    return bool(status.get("currentHealthy") == count and not status.get("disruptedPods"))

                await until(is_known, "the budget knows its pods")
                # Somebody breaks a pod behind the budget's back while everybody evicts.
                names = dice.sample(working, len(working))
                answers = await asyncio.gather(*(evict(made, name) for name in names))
                evicted += sum(answers)
                assert sum(answers) == max(0, len(working) - LEAST), (working, answers)
                assert len(await healthy(made)) >= min(LEAST, len(working))
            # The controller is gone: what is left of the allowance may be used, and no more.
            await asyncio.gather(*(evict(made, name) for name in await healthy(made)))
            assert len(await healthy(made)) >= min(LEAST, len(working))
            for _ in range(dice.randrange(5)):
                await add(made, f"pod-{number}")
                number += 1
            for name in await healthy(made):
                if dice.random() < 0.1:
                    try:
                        await report(made, name, is_ready=False)
                    except ApiError:
                        continue
        assert evicted >= PODS - LEAST
