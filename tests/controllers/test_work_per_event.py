"""Many pods of one owner change: that costs a look at the owner now and then, not one for each pod.

Time stands still while the pods change, so what is counted does not depend on how fast the machine is."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import PatchType
from allot.client.informer import Change
from allot.controllers import deployment, disruption, endpoints, job, replicaset
from allot.controllers.runner import Services
from allot.core.model.core_v1 import Pod
from allot.process.clock import ManualClock
from controllers.cluster import Cluster, cluster
from waiting import until

pytestmark = pytest.mark.slow

PODS = 400
LABELS = {"app": "x"}
TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "app:1"}]},
}
CONTROLLERS = {
    "deployment-controller": deployment.make,
    "replicaset-controller": replicaset.make,
    "endpointslice-controller": endpoints.make_slices,
    "endpoint-controller": endpoints.make_endpoints,
    "disruption-controller": disruption.make,
    "job-controller": job.make,
}
QUEUES = ("deployment", "replicaset", "endpoint_slice", "endpoint", "disruption", "job")


class Seen:
    """How many changes of pods the controllers' cache has been told of."""

    def __init__(self) -> None:
        self.changes = 0

    def make(self, services: Services) -> Seen:
        """As if it were a controller."""
        services.informers.typed(Pod).add_handler(self._changed)
        return self

    async def run(self) -> None:
        await asyncio.Event().wait()

    def _changed(self, _change: Change[Pod]) -> None:
        self.changes += 1


def looks(made: Cluster) -> dict[str, int]:
    """How often each controller has looked at something."""
    name = "workqueue_work_duration_seconds_count"
    return {queue: int(made.registry.get_sample_value(name, {"name": queue}) or 0) for queue in QUEUES}


async def report_all(made: Cluster, status: dict[str, Any]) -> None:
    """What nodes would tell of every pod."""
    for number, pod in enumerate(await made.items("pods")):
        address = f"10.0.{number // 250}.{number % 250 + 1}"
        told = {"status": {**status, "podIP": address, "podIPs": [{"ip": address}]}}
        await made.of("pods").patch(pod["metadata"]["name"], told, PatchType.MERGE, "default", subresource="status")


async def passes(clock: ManualClock, look: Any) -> int:
    """Let time pass until a look is true; how many seconds that took."""
    seconds = 0

    async def is_so() -> Any:
        nonlocal seconds
        if found := await look():
            return found
        clock.advance(1.0)
        seconds += 1
        await asyncio.sleep(0.02)
        return None

    await until(is_so, "what was waited for")
    return seconds


async def rest(made: Cluster, clock: ManualClock) -> None:
    """Let time pass until the controllers have nothing left to look at."""
    before, still = looks(made), 0

    async def is_so() -> bool:
        nonlocal before, still
        clock.advance(1.0)
        # Who woke up has its turn meanwhile.
        await made.items("pods")
        still = still + 1 if looks(made) == before else 0
        before = looks(made)
        return still == 5

    await until(is_so, "controllers that rest")


async def test_changes_of_many_pods_are_answered_together(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("nodes", {"metadata": {"name": "n"}})
        deployments = made.client.resource("apps", "v1", "deployments", namespaced=True)
        spec = {"replicas": PODS, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}
        await deployments.create({"metadata": {"name": "x"}, "spec": spec}, "default")
        await made.of("services").create(
            {"metadata": {"name": "x"}, "spec": {"selector": LABELS, "ports": [{"port": 80}]}}, "default"
        )
        budgets = made.client.resource("policy", "v1", "poddisruptionbudgets", namespaced=True)
        budget = {"minAvailable": "50%", "selector": {"matchLabels": LABELS}}
        await budgets.create({"metadata": {"name": "x"}, "spec": budget}, "default")
        clock, seen = ManualClock(), Seen()
        async with made.running({**CONTROLLERS, "namespace-controller": seen.make}, clock=clock):

            async def status() -> dict[str, Any]:
                found: dict[str, Any] = (await deployments.get("x", "default")).get("status", {})
                return found

            async def are_made() -> bool:
                return (await status()).get("replicas") == PODS

            async def are_ready() -> bool:
                slices = [
                    each
                    for each in await made.items("endpointslices")
                    if each["metadata"]["labels"]["kubernetes.io/service-name"] == "x"
                ]
                ready = [one for each in slices for one in each.get("endpoints") or () if one["conditions"]["ready"]]
                return (await status()).get("readyReplicas") == PODS == len(ready)

            await passes(clock, are_made)
            # Every pod has an address, so that those who count endpoints know how many there are.
            await report_all(made, {"phase": "Running"})
            await until(lambda: seen.changes >= 2 * PODS)
            await rest(made, clock)
            before, changes = looks(made), seen.changes
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await report_all(made, ready)
            await until(lambda: seen.changes >= changes + PODS)
            while_still = looks(made)
            assert all(while_still[queue] - before[queue] <= 3 for queue in QUEUES), (before, while_still)
            seconds = await passes(clock, are_ready)
            after = looks(made)
            assert all(after[queue] - while_still[queue] <= 3 * seconds + 10 for queue in QUEUES), (seconds, after)
