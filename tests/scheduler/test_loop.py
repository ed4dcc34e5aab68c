"""The scheduler against the real API server: what happens to pods, and what is said about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from allot.client.api import PatchType
from scheduler.world import World, condition, world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Two nodes with eight devices each, and a scheduler."""
    path: Path = tmp_path_factory.mktemp("scheduler")
    async with world(path) as made:
        await made.device_class()
        for name in ("n1", "n2"):
            await made.node(name)
            await made.devices(name, 8)
        made.current = made.start(made.scheduler())
        yield made


async def test_a_pod_with_a_claim_gets_its_device_and_its_node(cluster: World) -> None:
    await cluster.namespace("bound")
    await cluster.claim("bound", "c")
    pod = await cluster.pod("bound", "p", "c")
    node = await cluster.bound("bound", "p")
    claim = await cluster.claims.get("c", "bound")
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    status = claim["status"]
    assert status["allocation"]["devices"]["results"][0]["pool"] == node
    assert status["allocation"]["allocationTimestamp"]
    assert status["reservedFor"] == [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]
    (event,) = await cluster.events("bound", "Scheduled")
    assert event["note"] == f"Successfully assigned bound/p to {node}"
    assert (event["type"], event["action"]) == ("Normal", "Binding")
    assert event["reportingController"] == "default-scheduler"
    await cluster.pods.delete("p", "bound", grace_period_seconds=0)
    await cluster.claims.delete("c", "bound")


async def test_a_pod_that_does_not_fit_is_told_why_and_waits_for_what_helps(cluster: World) -> None:
    await cluster.namespace("refused")
    await cluster.claim("refused", "big", count=9)
    await cluster.pod("refused", "p", "big")
    scheduled = await cluster.refused("refused", "p")
    upstream = (
        "0/2 nodes are available: 2 cannot allocate all claims. "
        "preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
    )
    assert scheduled["message"].startswith(upstream)
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    # What we say beyond that names the request and the claim.
    assert "gpu" in scheduled["message"].removeprefix(upstream)
    (event,) = await cluster.events("refused", "FailedScheduling")
    assert event["note"] == scheduled["message"]
    assert (event["type"], event["action"]) == ("Warning", "Scheduling")
    attempts = cluster.current.machine.queue.attempts
    assert attempts("refused/p") == 1
    # Nothing of this can help it.
    await cluster.claim("refused", "other")
    await cluster.node("n3", unrelated="1")
    await cluster.until(lambda: _later(attempts("refused/p")), lambda count: count >= 2, "the new node to be tried")
    await cluster.devices("n3", 9)
    assert await cluster.bound("refused", "p") == "n3"
    claim = await cluster.claims.get("big", "refused")
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 9


async def test_a_pod_whose_claim_is_missing_is_told_once_and_goes_on_when_it_comes(cluster: World) -> None:
    await cluster.namespace("gated")
    await cluster.pod("gated", "p", "missing")
    pod = await cluster.pods.get("p", "gated")
    assert condition(pod, "PodScheduled") is None
    (event,) = await cluster.events("gated", "FailedScheduling")
    assert event["note"] == 'not scheduled yet: could not find ResourceClaim "gated/missing"'
    assert cluster.current.machine.queue.attempts("gated/p") == 0
    await cluster.claim("gated", "missing")
    assert await cluster.bound("gated", "p")
    assert len(await cluster.events("gated", "FailedScheduling")) == 1


async def test_scheduling_gates_are_waited_for_in_silence(cluster: World) -> None:
    await cluster.namespace("closed")
    await cluster.pod("closed", "p", spec={"schedulingGates": [{"name": "example.com/wait"}]})
    await cluster.pod("closed", "later")
    assert await cluster.bound("closed", "later")
    assert cluster.current.machine.queue.attempts("closed/p") == 0
    await cluster.pods.patch("p", {"spec": {"schedulingGates": []}}, PatchType.MERGE, "closed")
    assert await cluster.bound("closed", "p")


async def test_pods_that_share_a_claim_are_reserved_side_by_side(cluster: World) -> None:
    await cluster.namespace("shared")
    await cluster.claim("shared", "c")
    for number in range(5):
        await cluster.pod("shared", f"p{number}", "c")
    pods = await cluster.all_bound("shared", 5)
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    claim = await cluster.claims.get("c", "shared")
    assert {consumer["name"] for consumer in claim["status"]["reservedFor"]} == {f"p{number}" for number in range(5)}


async def test_an_extended_resource_becomes_a_claim_of_the_pod(cluster: World) -> None:
    await cluster.namespace("extended")
    await cluster.device_class("extended", extendedResourceName="example.com/gpu")
    created = await cluster.pod("extended", "p", **{"example.com/gpu": "1"})
    node = await cluster.bound("extended", "p")
    pod = await cluster.pods.get("p", "extended")
    status = pod["status"]["extendedResourceClaimStatus"]
    assert status["requestMappings"] == [
        {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-1"}
    ]
    claim = await cluster.claims.get(status["resourceClaimName"], "extended")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == created["metadata"]["uid"]
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert claim["status"]["allocation"]["devices"]["results"][0]["pool"] == node
    assert claim["status"]["reservedFor"][0]["uid"] == created["metadata"]["uid"]


async def test_a_pod_of_another_scheduler_is_left_alone(cluster: World) -> None:
    await cluster.namespace("other")
    await cluster.pod("other", "theirs", spec={"schedulerName": "theirs"})
    await cluster.pod("other", "ours")
    await cluster.bound("other", "ours")
    assert "nodeName" not in (await cluster.pods.get("theirs", "other"))["spec"]


async def test_a_missing_class_is_an_event_and_no_busy_loop(cluster: World) -> None:
    await cluster.namespace("classless")
    await cluster.claim("classless", "c", class_="nope")
    await cluster.pod("classless", "p", "c")
    scheduled = await cluster.refused("classless", "p")
    count = len((await (await cluster.client.of_name("nodes")).list()).items)
    assert scheduled["message"].startswith(
        f"0/{count} nodes are available: request gpu: device class nope does not exist. "
        f"preemption: 0/{count} nodes are available: {count} Preemption is not helpful for scheduling."
    )
    for number in range(5):
        await cluster.pod("classless", f"later-{number}")
        assert await cluster.bound("classless", f"later-{number}")
    assert cluster.current.machine.queue.attempts("classless/p") == 1
    await cluster.device_class("nope")
    assert await cluster.bound("classless", "p")


async def _later(value: int) -> int:
    return value
