"""Job, CronJob and TTL controllers on a real API server: refusals, adoption, groups, deletion in every manner, and the clock."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import PatchType
from allot.controllers import cronjob, garbagecollector, job, namespace, podgroupprotection, ttlafterfinished
from allot.core.features import DEFAULT_GATES
from allot.process.clock import ManualClock
from controllers.cluster import Cluster, Make, cluster
from controllers.hasty_clock import HastyClock
from waiting import until

pytestmark = pytest.mark.slow

Object = dict[str, Any]
JOBS: dict[str, Make] = {"job-controller": job.make}
FINALIZER = "batch.kubernetes.io/job-tracking"
TEMPLATE: Object = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}}


def made_job(name: str, where: str = "default", **spec: Any) -> Object:
    metadata = {"name": name, "namespace": where}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": TEMPLATE, **spec}}


async def pods_of(made: Cluster, name: str, where: str = "default") -> list[Object]:
    listed = await made.of("pods").list(where, label_selector=f"job-name={name}")
    return list(listed.items)


async def several(made: Cluster, name: str, count: int, where: str = "default") -> list[Object]:
    """So many pods of a job, as soon as they are there."""

    async def look() -> list[Object]:
        found = await pods_of(made, name, where)
        return found if len(found) == count else []

    found: list[Object] = await until(look)
    return found


async def status(made: Cluster, name: str, **expected: Any) -> Object:
    """The status of a job once it says what it should."""

    async def look() -> Object | None:
        found = await made.get("jobs", name)
        said = (found or {}).get("status", {})
        return said if all(said.get(key) == value for key, value in expected.items()) else None

    found: Object = await until(look)
    return found


async def ended(made: Cluster, name: str) -> Object:
    """The status of a job that is over."""

    async def look() -> Object | None:
        found = (await made.get("jobs", name) or {}).get("status", {})
        types = [one["type"] for one in found.get("conditions", [])]
        return found if "Complete" in types or "Failed" in types else None

    found: Object = await until(look)
    return found


async def test_a_quota_does_not_keep_the_status_from_telling(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        quotas = made.client.resource("", "v1", "resourcequotas", namespaced=True)
        quota = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": {"pods": "1"}}}
        await quotas.create({"apiVersion": "v1", "kind": "ResourceQuota", **quota})
        await quotas.patch("q", {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}, PatchType.MERGE, "default", subresource="status")  # fmt: skip
        async with made.running(JOBS, clock=HastyClock()):
            await made.create("jobs", made_job("j", completions=3, parallelism=3))
            (first,) = await several(made, "j", 1)
            said = await status(made, "j", active=1)
            assert "startTime" in said
            # The one that could be made ends, and is counted although its successors are refused.
            await made.set_phase(first["metadata"]["name"], "Succeeded")
            await status(made, "j", succeeded=1, uncountedTerminatedPods={})

            async def told() -> bool:
                return any("exceeded quota: q" in note for note in await made.events("FailedCreate"))

            assert await until(told)
            await quotas.delete("q", "default")
            await several(made, "j", 3)


async def test_pods_are_adopted_and_let_go_by_their_labels(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        labels = {"app": "mine"}
        template = {**TEMPLATE, "metadata": {"labels": labels}}
        orphan = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "orphan", "namespace": "default", "labels": labels},
        }
        await made.create("pods", {**orphan, "spec": TEMPLATE["spec"]})
        selecting = {"manualSelector": True, "selector": {"matchLabels": labels}, "template": template}
        async with made.running(JOBS, clock=HastyClock()):
            await made.create("jobs", made_job("j", completions=1, **selecting))

            async def adopted() -> Object | None:
                found = await made.get("pods", "orphan")
                return found if found is not None and found["metadata"].get("ownerReferences") else None

            found = await until(adopted)
            assert found["metadata"]["finalizers"] == [FINALIZER]
            await status(made, "j", active=1)
            assert len(await made.items("pods")) == 1
            await made.of("pods").patch(
                "orphan", {"metadata": {"labels": {"app": "other"}}}, PatchType.MERGE, "default"
            )

            async def released() -> bool:
                found = await made.get("pods", "orphan")
                assert found is not None
                return not found["metadata"].get("ownerReferences") and not found["metadata"].get("finalizers")

            assert await until(released)
            assert await until(lambda: _successor(made))


async def _successor(made: Cluster) -> bool:
    return any(pod["metadata"]["name"].startswith("j-") for pod in await made.items("pods"))


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
async def test_a_job_is_deleted_in_every_manner_and_no_finalizer_stays(tmp_path: Path, policy: str) -> None:
    controllers: dict[str, Make] = {**JOBS, "generic-garbage-collector": garbagecollector.make}
    async with cluster(tmp_path) as made, made.running(controllers):
        await made.create("jobs", made_job("j", completions=2, parallelism=2))
        await several(made, "j", 2)
        await made.of("jobs").delete("j", "default", propagation_policy=policy)

        async def settled() -> bool:
            pods = await pods_of(made, "j")
            is_gone = await made.get("jobs", "j") is None
            tracked = [pod for pod in pods if FINALIZER in pod["metadata"].get("finalizers", [])]
            return is_gone and not tracked and len(pods) == (2 if policy == "Orphan" else 0)

        assert await until(settled)


async def test_a_namespace_with_jobs_ends(tmp_path: Path) -> None:
    controllers: dict[str, Make] = {**JOBS, "cronjob-controller": cronjob.make, "namespace-controller": namespace.make}
    async with cluster(tmp_path) as made, made.running(controllers):
        spaces = made.client.resource("", "v1", "namespaces", namespaced=False)
        await spaces.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "goes"}})
        await made.create("jobs", made_job("runs", "goes", completions=5, parallelism=2))
        await made.create("jobs", made_job("done", "goes"))
        metadata = {"name": "c", "namespace": "goes"}
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": TEMPLATE}}}
        await made.create("cronjobs", {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec})
        await several(made, "runs", 2, "goes")
        (pod,) = await several(made, "done", 1, "goes")
        await made.set_phase(pod["metadata"]["name"], "Succeeded", "goes")
        await spaces.delete("goes")

        async def gone() -> bool:
            return await made.get("namespaces", "goes") is None

        assert await until(gone)


async def test_a_job_that_is_over_expires(tmp_path: Path) -> None:
    controllers: dict[str, Make] = {
        **JOBS,
        "ttl-after-finished-controller": ttlafterfinished.make,
        "generic-garbage-collector": garbagecollector.make,
    }
    async with cluster(tmp_path) as made, made.running(controllers, clock=HastyClock()):
        await made.create("jobs", made_job("stays"))
        await made.create("jobs", made_job("goes", ttlSecondsAfterFinished=30))
        for name in ("stays", "goes"):
            (pod,) = await several(made, name, 1)
            await made.set_phase(pod["metadata"]["name"], "Succeeded")

        async def gone() -> bool:
            return await made.get("jobs", "goes") is None and not await pods_of(made, "goes")

        assert await until(gone)
        await ended(made, "stays")


async def test_a_gang_gets_its_group_before_its_pods_and_takes_it_along(tmp_path: Path) -> None:
    gates = DEFAULT_GATES.changed(enable=("GenericWorkload", "WorkloadWithJob"))
    controllers: dict[str, Make] = {
        **JOBS,
        "podgroup-protection-controller": podgroupprotection.make,
        "generic-garbage-collector": garbagecollector.make,
    }
    async with cluster(tmp_path, gates) as made, made.running(controllers):
        gang = {"schedulingPolicy": {"gang": {}}}
        await made.create(
            "jobs", made_job("j", completions=3, parallelism=3, completionMode="Indexed", scheduling=gang)
        )
        pods = await several(made, "j", 3)
        (workload,) = await made.items("workloads")
        (group,) = await made.items("podgroups")
        assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods} == {group["metadata"]["name"]}
        patch = {"spec": {"scheduling": {"schedulingPolicy": {"gang": {"minCount": 2}}}}}
        await made.of("jobs").patch("j", patch, PatchType.MERGE, "default")

        async def resized() -> bool:
            (workload,), (group,) = await made.items("workloads"), await made.items("podgroups")
            policies = (workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"], group["spec"]["schedulingPolicy"])
            return policies == ({"gang": {"minCount": 2}},) * 2

        assert await until(resized)
        for pod in pods:
            await made.set_phase(pod["metadata"]["name"], "Succeeded")
        await ended(made, "j")
        await made.of("jobs").delete("j", "default", propagation_policy="Background")

        async def gone() -> bool:
            return not (await made.items("workloads") or await made.items("podgroups") or await made.items("pods"))

        assert await until(gone)


async def test_without_the_gate_the_field_is_dropped_and_nothing_is_made(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(JOBS):
        created = await made.create("jobs", made_job("j", scheduling={"schedulingPolicy": {"gang": {}}}))
        assert "scheduling" not in created["spec"]
        (pod,) = await several(made, "j", 1)
        assert "schedulingGroup" not in pod["spec"]


async def test_a_cron_job_makes_a_job_every_hour_and_keeps_book(tmp_path: Path) -> None:
    controllers: dict[str, Make] = {
        "cronjob-controller": cronjob.make,
        **JOBS,
        "generic-garbage-collector": garbagecollector.make,
    }
    # A minute before the next hour. While something is waited for, a little of the hour passes.
    clock = ManualClock((time.time() // 3600 + 1) * 3600 - 60)
    async with cluster(tmp_path) as made:
        spec = {
            "schedule": "0 * * * *",
            "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"template": TEMPLATE}},
        }
        metadata = {"name": "tick", "namespace": "default"}
        await made.create("cronjobs", {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec})

        async def said() -> Object:
            clock.advance(0.2)
            found = await made.get("cronjobs", "tick")
            assert found is not None
            book: Object = found["status"]
            return book

        async with made.running(controllers, clock=clock):
            names = []
            for _ in range(3):
                hour = int(clock.seconds()) // 3600 + 1
                clock.advance(hour * 3600 + 1 - clock.seconds())
                names.append(f"tick-{hour * 60}")

                async def begun() -> bool:
                    return [one["name"] for one in (await said()).get("active", [])] == names[-1:]

                async def done() -> bool:
                    for pod in await pods_of(made, names[-1]):
                        if pod["status"]["phase"] == "Pending":
                            await made.set_phase(pod["metadata"]["name"], "Succeeded")
                    book = await said()
                    return not book.get("active") and book.get("lastSuccessfulTime", "") >= book["lastScheduleTime"]

                assert await until(begun)
                assert await until(done)

            async def one_left() -> bool:
                await said()
                return [one["metadata"]["name"] for one in await made.items("jobs")] == names[-1:]

            assert await until(one_left)

            async def told() -> bool:
                await said()
                seen = await made.events("SawCompletedJob")
                return all(f"Saw completed job: {name}, condition: Complete" in seen for name in names)

            assert await until(told)
