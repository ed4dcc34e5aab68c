"""Jobs under random events: pods succeed, fail and vanish, caches lag, the controller dies at any write or before it hears of
it. Each job completes exactly its count, no pod is counted twice or not at all, at no time are there more pods than allowed,
and nothing is left behind."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import Client, PatchType
from allot.client.errors import Conflict, NotFound, Unreachable
from allot.client.transport import REQUEST_TIMEOUT_S, Response, WatchEvent
from allot.controllers import job as job_controller
from allot.core.workloads import expectations
from controllers.cluster import Cluster, Hooked, Send, cluster
from controllers.hasty_clock import HastyClock

pytestmark = pytest.mark.slow

Object = dict[str, Any]
CONTROLLER = {"job-controller": job_controller.make}
FINALIZER = "batch.kubernetes.io/job-tracking"
JOBS = 25
# `make nightly` plays 200 seeds.
SEEDS = int(os.environ.get("ALLOT_RUNS", "3"))
STEPS_MAX = 5000


class Lagging(Hooked):
    """A transport whose watches tell of changes some time after they happened, each resource in its own time."""

    def __init__(self, client: Client, dice: random.Random) -> None:
        async def around(_method: str, _path: str, send: Send) -> Response:
            return await send()

        super().__init__(client.transport, around)
        self._dice = dice

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._inner.stream(path, query, headers, timeout, duration) as events:

            async def late() -> AsyncIterator[WatchEvent]:
                async for event in events:
                    if self._dice.random() < 0.3:
                        await asyncio.sleep(self._dice.choice((0.0, 0.002, 0.01)))
                    yield event

            yield late()


class Life:
    """One life of the controller, which ends at a write that is or is not carried out."""

    def __init__(self, dice: random.Random) -> None:
        self.died = asyncio.Event()
        self._dice = dice
        self._writes = dice.choice((dice.randint(1, 12), dice.randint(10, 150)))

    def through(self, client: Client) -> Client:
        return Client(Hooked(client.transport, self._around))

    async def _around(self, method: str, path: str, send: Send) -> Response:
        if method == "GET" or "events" in path:
            return await send()
        if self.died.is_set():
            await asyncio.Event().wait()
        self._writes -= 1
        if self._writes <= 0:
            if self._dice.random() < 0.5:
                await send()
            self.died.set()
            await asyncio.Event().wait()
        if method != "POST" and self._dice.random() < 0.05:
            # Done, but the answer is lost. Whoever creates a pod and does not hear of it, creates another one.
            await send()
            raise Unreachable("the answer was lost")
        return await send()


class Run:
    """A job, and what its pods are made to do."""

    def __init__(self, made: Cluster, dice: random.Random, name: str) -> None:
        self._made = made
        self._dice = dice
        self.name = name
        self.succeeded: set[str] = set()
        self.failed: set[str] = set()
        self.completions = dice.randint(1, 7)
        self.parallelism = dice.randint(1, 4)
        self.is_indexed = dice.random() < 0.5
        self.is_ended_before_replaced = dice.random() < 0.4

    def job(self) -> Object:
        spec: Object = {
            "completions": self.completions,
            "parallelism": self.parallelism,
            "backoffLimit": 1000,
            "completionMode": "Indexed" if self.is_indexed else "NonIndexed",
            "podReplacementPolicy": "Failed" if self.is_ended_before_replaced else "TerminatingOrFailed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}},
        }
        if self.is_indexed and self._dice.random() < 0.5:
            spec["backoffLimitPerIndex"] = 1000
        metadata = {"name": self.name, "namespace": "default"}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    async def pods(self) -> list[Object]:
        listed = await self._made.of("pods").list("default", label_selector=f"job-name={self.name}")
        return list(listed.items)

    async def step(self) -> None:
        """Look, and let something happen to a pod."""
        pods = await self.pods()
        self.check(pods)
        alive = [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]
        for pod in alive:
            uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                # The node ends it.
                if await self._end(name, uid, "Failed"):
                    self.failed.add(uid)
            elif self._dice.random() < 0.3:
                happening = self._dice.random()
                if happening < 0.6:
                    if await self._end(name, uid, "Succeeded"):
                        self.succeeded.add(uid)
                elif happening < 0.85:
                    if await self._end(name, uid, "Failed"):
                        self.failed.add(uid)
                elif await self._delete(name, uid) and not self.is_ended_before_replaced:
                    self.failed.add(uid)

    def check(self, pods: list[Object]) -> None:
        active = [
            pod
            for pod in pods
            if pod["status"]["phase"] not in ("Succeeded", "Failed") and "deletionTimestamp" not in pod["metadata"]
        ]
        assert len(active) <= self.parallelism
        assert len(active) + len(self.succeeded) <= self.completions
        if self.is_indexed:
            indexes = [pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] for pod in active]
            assert len(indexes) == len(set(indexes))

    async def _end(self, name: str, uid: str, phase: str) -> bool:
        patch = {"metadata": {"uid": uid}, "status": {"phase": phase}}
        try:
            await self._made.of("pods").patch(name, patch, PatchType.MERGE, "default", subresource="status")
        except (NotFound, Conflict):
            return False
        return True

    async def _delete(self, name: str, uid: str) -> bool:
        try:
            await self._made.of("pods").delete(name, "default", uid=uid)
        except (NotFound, Conflict):
            return False
        return True


def finished(job: Object) -> str:
    conditions = job["status"].get("conditions", [])
    return next((one["type"] for one in conditions if one["type"] in ("Complete", "Failed")), "")


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_jobs_complete_exactly_their_counts(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Time passes so quickly here that a cache can lag for longer than controllers believe in what they have written.
    monkeypatch.setattr(expectations, "EXPIRE_S", math.inf)
    dice = random.Random(seed)
    async with cluster(tmp_path) as made:
        runs = [Run(made, dice, f"run-{number}") for number in range(JOBS)]
        for run in runs:
            await made.create("jobs", run.job())
        left, steps = list(runs), 0
        while left:
            life = Life(dice)
            async with made.running(
                CONTROLLER,
                through=life.through,
                watching=lambda client: Client(Lagging(client, dice)),
                clock=HastyClock(),
            ):
                while left and not life.died.is_set():
                    for run in left:
                        await run.step()
                    left = [run for run in left if not finished(await run_job(made, run))]
                    await asyncio.sleep(0.002)
                    steps += 1
                    assert steps < STEPS_MAX, [await run_job(made, run) for run in left]
        for run in runs:
            await check_end(run, await run_job(made, run))


async def run_job(made: Cluster, run: Run) -> Object:
    job = await made.get("jobs", run.name)
    assert job is not None
    return job


async def check_end(run: Run, job: Object) -> None:
    """What a job says in the end is what has happened."""
    status = job["status"]
    assert finished(job) == "Complete", status
    assert status["succeeded"] == run.completions == len(run.succeeded), (status, run.succeeded)
    assert status.get("failed", 0) == len(run.failed), (status, run.failed)
    assert status.get("uncountedTerminatedPods") == {} and not status.get("active") and not status.get("terminating")
    if run.is_indexed:
        last = run.completions - 1
        expected = {0: "0", 1: "0,1"}.get(last, f"0-{last}")
        assert status["completedIndexes"] == expected
    for pod in await run.pods():
        assert FINALIZER not in pod["metadata"].get("finalizers", []), pod["metadata"]["name"]
        assert pod["status"]["phase"] in ("Succeeded", "Failed")
