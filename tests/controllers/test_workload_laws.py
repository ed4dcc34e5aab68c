"""Whatever lags, breaks and dies: never more pods than Kubernetes allows, none that belongs to nobody, and in the end exactly
what was asked for."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import PatchType
from allot.client.errors import ApiError, Conflict
from allot.controllers import daemonset, deployment, replicaset, statefulset
from controllers.cluster import cluster
from controllers.workload_runs import (
    NODES,
    Object,
    Run,
    add_nodes,
    controller_uid,
    is_active,
    is_ready,
    template,
    workload,
)

# `make nightly` plays 200 seeds of each law.
RUNS = int(os.environ.get("ALLOT_RUNS", "10"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(30 * RUNS)]

TOGETHER = 10
TURNS = 25
REPLICA_SETS = {"replicaset-controller": replicaset.make}
DEPLOYMENTS = {"deployment-controller": deployment.make, **REPLICA_SETS}
STATEFUL_SETS = {"statefulset-controller": statefulset.make}
DAEMON_SETS = {"daemon-set-controller": daemonset.make}

Play = Callable[[Run], Awaitable[None]]


async def play_all(directory: Path, makes: Any, play: Play) -> None:
    """All seeds, some of them at a time, each in a namespace of its own."""
    deaths = 0
    async with cluster(directory) as made:
        await add_nodes(made)
        for first in range(0, RUNS, TOGETHER):
            runs = []
            for seed in range(first, min(first + TOGETHER, RUNS)):
                name = f"run-{seed}"
                await made.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
                runs.append(Run(made, name, seed, makes))
            async with asyncio.TaskGroup() as tasks:
                for run in runs:
                    tasks.create_task(_play(run, play))
            deaths += sum(run.deaths for run in runs)
    assert deaths > RUNS, "hardly anybody has died"


async def _play(run: Run, play: Play) -> None:
    living = asyncio.create_task(run.live())
    try:
        async with asyncio.timeout(120):
            await play(run)
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


async def settle(run: Run, check: Callable[[Sequence[Object]], None], is_done: Callable[[], Awaitable[bool]]) -> None:
    """From now on nothing breaks and nobody dies: it must become what was asked for."""
    run.survive()
    while not await is_done():
        await run.turn(check, breaks=False)
        await asyncio.sleep(0.01)


def of(run: Run, plural: str) -> Any:
    return run.made.client.resource("apps", "v1", plural, namespaced=True)


async def change(run: Run, plural: str, patch: Object) -> None:
    await of(run, plural).patch("x", patch, PatchType.MERGE, run.namespace)


async def poke(run: Run, pods: Sequence[Object]) -> None:
    """A user deletes a pod, or takes its label away, now and then."""
    if pods and run.dice.random() < 0.1:
        name = run.dice.choice(pods)["metadata"]["name"]
        try:
            if run.dice.random() < 0.7:
                await run.made.of("pods").delete(name, run.namespace)
            else:
                await run.made.of("pods").patch(
                    name, {"metadata": {"labels": {"app": "stray"}}}, PatchType.MERGE, run.namespace
                )
        except ApiError:
            return


async def test_a_replica_set_never_has_too_many_pods(tmp_path: Path) -> None:
    async def play(run: Run) -> None:
        most = wanted = run.dice.randrange(1, 8)
        made = await of(run, "replicasets").create(workload("ReplicaSet", replicas=wanted), run.namespace)
        uid = made["metadata"]["uid"]

        def check(pods: Sequence[Object]) -> None:
            active = [pod for pod in pods if is_active(pod) and controller_uid(pod) == uid]
            assert len(active) <= most, f"seed {run.namespace}: {len(active)} pods, never more than {most} were wanted"

        for _ in range(TURNS):
            pods = await run.turn(check, breaks=True)
            await poke(run, pods)
            if run.dice.random() < 0.15:
                wanted = run.dice.randrange(8)
                most = max(most, wanted)
                await change(run, "replicasets", {"spec": {"replicas": wanted}})

        async def is_done() -> bool:
            status = (await of(run, "replicasets").get("x", run.namespace)).get("status", {})
            pods = [pod for pod in await run.pods() if pod["metadata"]["labels"]["app"] == "x" and is_active(pod)]
            assert all(controller_uid(pod) in (uid, "") for pod in pods)
            is_owned = all(controller_uid(pod) == uid for pod in pods)
            told = (status.get("replicas"), status.get("readyReplicas", 0), status.get("observedGeneration"))
            generation = (await of(run, "replicasets").get("x", run.namespace))["metadata"]["generation"]
            return is_owned and len(pods) == wanted and told == (wanted, wanted, generation)

        await settle(run, check, is_done)

    await play_all(tmp_path, REPLICA_SETS, play)


async def test_a_deployment_stays_between_its_bounds(tmp_path: Path) -> None:
    async def play(run: Run) -> None:
        wanted = run.dice.randrange(2, 7)
        surge, unavailable = run.dice.choice(((1, 0), (1, 1), (2, 0), (0, 1), (2, 2)))
        rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        spec = {"replicas": wanted, "strategy": strategy, "revisionHistoryLimit": 2}
        await of(run, "deployments").create(workload("Deployment", **spec), run.namespace)
        most, image = wanted + surge, 1
        was_complete = False

        def check(pods: Sequence[Object]) -> None:
            if was_complete:
                ready = sum(1 for pod in pods if is_active(pod) and is_ready(pod))
                assert ready >= wanted - unavailable, (
                    f"{run.namespace}: {ready} of {wanted}, {unavailable} may be missing"
                )

        async def is_done() -> bool:
            nonlocal was_complete
            found = await of(run, "deployments").get("x", run.namespace)
            status, generation = found.get("status", {}), found["metadata"]["generation"]
            sets = (await of(run, "replicasets").list(run.namespace)).items
            names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
            if status.get("observedGeneration") != generation or any(status.get(name) != wanted for name in names):
                return False
            sized = [each for each in sets if each["spec"]["replicas"]]
            images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in sized}
            was_complete = images == {f"app:{image}"} and len(sets) <= 3
            return was_complete

        while not await is_done():
            await run.turn(check, breaks=False)
        for _ in range(TURNS):
            await run.turn(check, breaks=False)
            sizes = [each["spec"]["replicas"] for each in (await of(run, "replicasets").list(run.namespace)).items]
            assert sum(sizes) <= most, f"{run.namespace}: sizes {sizes}, of at most {most}"
            if run.dice.random() < 0.2:
                image = run.dice.randrange(1, 6)
                await change(run, "deployments", {"spec": {"template": template(f"app:{image}")}})
        await settle(run, check, is_done)
        sets = (await of(run, "replicasets").list(run.namespace)).items
        revisions = [each["metadata"]["annotations"]["deployment.kubernetes.io/revision"] for each in sets]
        assert len(set(revisions)) == len(revisions)
        uids = {each["metadata"]["uid"] for each in sets}
        assert all(controller_uid(pod) in uids for pod in await run.pods() if is_active(pod))

    await play_all(tmp_path, DEPLOYMENTS, play)


async def test_a_stateful_set_keeps_its_order(tmp_path: Path) -> None:
    async def play(run: Run) -> None:
        wanted, is_ordered = run.dice.randrange(1, 5), run.dice.random() < 0.6
        policy = "OrderedReady" if is_ordered else "Parallel"
        spec = {"replicas": wanted, "serviceName": "x", "podManagementPolicy": policy, "revisionHistoryLimit": 1}
        await of(run, "statefulsets").create(workload("StatefulSet", **spec), run.namespace)
        image = 1
        seen: set[str] = set()

        def check(pods: Sequence[Object]) -> None:
            names = {pod["metadata"]["name"]: pod for pod in pods}
            for name in names.keys() - seen:
                # A pod is made only after those before it have been there.
                before = range(int(name.rpartition("-")[2])) if is_ordered else ()
                assert all(f"x-{ordinal}" in seen | names.keys() for ordinal in before), f"{run.namespace}: {name}"
            seen.update(names)

        async def is_done() -> bool:
            found = await of(run, "statefulsets").get("x", run.namespace)
            status = found.get("status", {})
            names = ("replicas", "readyReplicas", "updatedReplicas", "currentReplicas")
            if status.get("observedGeneration") != found["metadata"]["generation"]:
                return False
            pods = await run.pods()
            images = [pod["spec"]["containers"][0]["image"] for pod in pods]
            right = [pod["metadata"]["name"] for pod in pods] == [f"x-{ordinal}" for ordinal in range(wanted)]
            counts = all(status.get(name, 0) == wanted for name in names)
            revisions = (await of(run, "controllerrevisions").list(run.namespace)).items
            return right and counts and images == [f"app:{image}"] * wanted and len(revisions) <= 2

        for _ in range(TURNS):
            pods = await run.turn(check, breaks=True)
            if pods and run.dice.random() < 0.1:
                try:
                    await run.made.of("pods").delete(run.dice.choice(pods)["metadata"]["name"], run.namespace)
                except ApiError:
                    continue
            if run.dice.random() < 0.1:
                wanted = run.dice.randrange(5)
                await change(run, "statefulsets", {"spec": {"replicas": wanted}})
            if run.dice.random() < 0.1:
                image = run.dice.randrange(1, 4)
                await change(run, "statefulsets", {"spec": {"template": template(f"app:{image}")}})
        await settle(run, check, is_done)

    await play_all(tmp_path, STATEFUL_SETS, play)


async def test_a_daemon_set_has_one_pod_on_each_node(tmp_path: Path) -> None:
    async def play(run: Run) -> None:
        surge = run.dice.random() < 0.4
        rolling = {"maxSurge": 1, "maxUnavailable": 0} if surge else {"maxUnavailable": run.dice.choice((1, 2, "50%"))}
        spec = {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}, "revisionHistoryLimit": 1}
        made = await of(run, "daemonsets").create(workload("DaemonSet", **spec), run.namespace)
        uid, image = made["metadata"]["uid"], 1

        def check(pods: Sequence[Object]) -> None:
            where = Counter(_node_of(pod) for pod in pods if is_active(pod) and controller_uid(pod) == uid)
            assert max(where.values(), default=0) <= (2 if surge else 1), f"{run.namespace}: {where}"

        async def is_done() -> bool:
            found = await of(run, "daemonsets").get("x", run.namespace)
            status = found.get("status", {})
            if status.get("observedGeneration") != found["metadata"]["generation"]:
                return False
            pods = [pod for pod in await run.pods() if controller_uid(pod) == uid]
            images = [pod["spec"]["containers"][0]["image"] for pod in pods]
            counts = (status.get("numberAvailable"), status.get("updatedNumberScheduled"))
            revisions = (await of(run, "controllerrevisions").list(run.namespace)).items
            is_right = images == [f"app:{image}"] * len(NODES) and len(revisions) <= 2
            return is_right and counts == (len(NODES), len(NODES))

        for _ in range(TURNS):
            pods = await run.turn(check, breaks=True)
            await poke(run, pods)
            if run.dice.random() < 0.12:
                image = run.dice.randrange(1, 4)
                try:
                    await change(run, "daemonsets", {"spec": {"template": template(f"app:{image}")}})
                except Conflict:
                    continue
        await settle(run, check, is_done)

    await play_all(tmp_path, DAEMON_SETS, play)


def _node_of(pod: Object) -> str:
    affinity = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(affinity["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
