"""The scheduler against the real API server with features that are off by default: groups, devices that become ready later."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from allot.client.api import PatchType
from scheduler.world import World, condition, world

pytestmark = [
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
]

ATTACHED = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"], "bindsToNode": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Two nodes of four cores with two devices each that have to be attached first, and a scheduler."""
    path: Path = tmp_path_factory.mktemp("features")
    async with world(path, all_gates=True) as made:
        await made.device_class()
        for name in ("n1", "n2"):
            await made.node(name)
            await made.devices(name, 2, **ATTACHED)
        made.current = made.start(made.scheduler())
        yield made


# --- devices that become ready later ---


async def _report(cluster: World, namespace: str, claim: str, type_: str) -> None:
    """What a driver writes: how the device of a claim is."""
    found = await cluster.until(
        lambda: cluster.claims.get(claim, namespace), lambda seen: seen.get("status", {}).get("allocation"), claim
    )
    result = found["status"]["allocation"]["devices"]["results"][0]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    reported = {
        "type": type_,
        "status": "True",
        "reason": "Driver",
        "message": "said so",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = {"status": {"devices": [{**device, "conditions": [reported]}]}}
    await cluster.claims.patch(claim, patch, PatchType.MERGE, namespace, subresource="status")


async def test_a_pod_is_bound_when_its_device_is_ready(cluster: World) -> None:
    await cluster.namespace("ready")
    await cluster.claim("ready", "c")
    await cluster.pod("ready", "p", "c")
    (event,) = await cluster.events("ready", "BindingConditionsPending")
    assert event["note"].startswith("waiting for binding conditions for device on node n")
    assert "nodeName" not in (await cluster.pods.get("p", "ready"))["spec"]
    await _report(cluster, "ready", "c", "Attached")
    await cluster.bound("ready", "p")


async def test_a_device_that_fails_is_given_up_and_another_is_tried(cluster: World) -> None:
    await cluster.namespace("broken")
    await cluster.claim("broken", "c")
    await cluster.pod("broken", "p", "c")
    await _report(cluster, "broken", "c", "Broken")
    scheduled = await cluster.refused("broken", "p")
    assert 'device binding failed: claim=c, reason=Driver, message="said so"' in scheduled["message"]
    assert scheduled["reason"] == "SchedulerError"
    # Back-off, then a refusal that deallocates the claim, then another device.
    await cluster.until(
        lambda: cluster.claims.get("c", "broken"),
        lambda claim: claim["status"].get("allocation") and not claim["status"].get("devices"),
        "another allocation",
    )
    await _report(cluster, "broken", "c", "Attached")
    await cluster.bound("broken", "p")


async def test_a_scheduler_that_starts_anew_waits_for_devices_as_the_one_before(cluster: World) -> None:
    await cluster.namespace("again")
    await cluster.claim("again", "c")
    await cluster.pod("again", "p", "c")
    await cluster.events("again", "BindingConditionsPending")
    await cluster.plane.stop("scheduler")
    cluster.current = cluster.start(cluster.scheduler())
    await cluster.until(
        lambda: _attempts(cluster, "again/p"), lambda count: count == 1, "the second scheduler to try it"
    )
    assert "nodeName" not in (await cluster.pods.get("p", "again"))["spec"]
    await _report(cluster, "again", "c", "Attached")
    await cluster.bound("again", "p")


async def _attempts(cluster: World, pod: str) -> int:
    return cluster.current.machine.queue.attempts(pod)


# --- groups ---


async def _group(cluster: World, namespace: str, minimum: int) -> None:
    await cluster.client.resource("scheduling.k8s.io", "v1beta1", "podgroups", namespaced=True).create(
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": namespace},
            "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}},
        }
    )


async def _member(cluster: World, namespace: str, name: str, cpu: str) -> None:
    await cluster.pod(namespace, name, cpu=cpu, spec={"schedulingGroup": {"podGroupName": "g"}})


async def _group_condition(cluster: World, namespace: str, status: str) -> dict[str, Any]:
    groups = cluster.client.resource("scheduling.k8s.io", "v1beta1", "podgroups", namespaced=True)
    group = await cluster.until(
        lambda: groups.get("g", namespace),
        lambda seen: (condition(seen, "PodGroupInitiallyScheduled") or {}).get("status") == status,
        f"the group's condition to be {status}",
    )
    found = condition(group, "PodGroupInitiallyScheduled")
    assert found is not None
    return found


async def test_a_gang_waits_for_its_quorum_and_is_bound_together(cluster: World) -> None:
    await cluster.namespace("gang")
    await _member(cluster, "gang", "a", "100m")
    await _group(cluster, "gang", 3)
    await _member(cluster, "gang", "b", "100m")
    (event, *_) = await cluster.events("gang", "FailedScheduling")
    assert "minCount pods from a gang" in event["note"] or "pod group" in event["note"]
    assert not any(pod["spec"].get("nodeName") for pod in (await cluster.pods.list("gang")).items)
    await _member(cluster, "gang", "c", "100m")
    await cluster.all_bound("gang", 3)
    assert (await _group_condition(cluster, "gang", "True"))["reason"] == "Scheduled"


async def test_a_group_of_groups_is_bound_together_and_each_group_says_so(cluster: World) -> None:
    await cluster.namespace("tree")
    composites = cluster.client.resource("scheduling.k8s.io", "v1alpha3", "compositepodgroups", namespaced=True)
    groups = cluster.client.resource("scheduling.k8s.io", "v1beta1", "podgroups", namespaced=True)
    reference = {"workloadName": "job", "templateName": "t"}
    await composites.create(
        {
            "apiVersion": "scheduling.k8s.io/v1alpha3",
            "kind": "CompositePodGroup",
            "metadata": {"name": "job", "namespace": "tree"},
            "spec": {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "workloadRef": reference},
        }
    )
    for name in "xy":
        spec = {"schedulingPolicy": {"gang": {"minCount": 1}}, "parentCompositePodGroupName": "job"}
        await groups.create(
            {
                "apiVersion": "scheduling.k8s.io/v1beta1",
                "kind": "PodGroup",
                "metadata": {"name": name, "namespace": "tree"},
                "spec": {**spec, "workloadRef": reference},
            }
        )
    await cluster.pod("tree", "x-0", cpu="100m", spec={"schedulingGroup": {"podGroupName": "x"}})
    (event, *_) = await cluster.events("tree", "FailedScheduling")
    assert 'waiting for composite pod group "job" tree to meet quorum' in event["note"]
    await cluster.pod("tree", "y-0", cpu="100m", spec={"schedulingGroup": {"podGroupName": "y"}})
    await cluster.all_bound("tree", 2)
    for resource, name in ((composites, "job"), (groups, "x"), (groups, "y")):
        await cluster.until(
            lambda resource=resource, name=name: resource.get(name, "tree"),  # type: ignore[misc]
            lambda seen: (condition(seen, "PodGroupInitiallyScheduled") or {}).get("status") == "True",
            f"{name} to say that it is scheduled",
        )


async def test_a_gang_that_does_not_fit_gets_nothing_until_it_does(cluster: World) -> None:
    await cluster.namespace("large")
    await _group(cluster, "large", 3)
    for name in "abc":
        await _member(cluster, "large", name, "3")
    scheduled = await _group_condition(cluster, "large", "False")
    assert scheduled["reason"] == "Unschedulable"
    assert "minCount (3) cannot be satisfied: 2 scheduled, 0 remaining" in scheduled["message"]
    messages = {(await cluster.refused("large", name))["message"][:40] for name in "abc"}
    assert any(message.startswith("minCount (3)") for message in messages)
    assert any(message.startswith("0/2 nodes are available: 2 Insufficient") for message in messages)
    assert not any(pod["spec"].get("nodeName") for pod in (await cluster.pods.list("large")).items)
    await cluster.node("n3")
    await cluster.all_bound("large", 3)
    assert (await _group_condition(cluster, "large", "True"))["reason"] == "Scheduled"


# --- preemption ---


async def test_a_pod_of_higher_priority_takes_the_place_of_another(cluster: World) -> None:
    await cluster.namespace("priority")
    await cluster.client.resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False).create(
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    )
    await cluster.node("small", cpu="1", labels={"only": "here"})
    here = {"nodeSelector": {"only": "here"}}
    victim = await cluster.pod("priority", "low", cpu="800m", spec=here)
    assert await cluster.bound("priority", "low") == "small"
    preemptor = await cluster.pod("priority", "high", cpu="800m", spec={**here, "priorityClassName": "high"})
    (event,) = await cluster.events("priority", "Preempted")
    assert event["note"].startswith(f"Preempted by pod {preemptor['metadata']['uid']} on node small")
    assert event["regarding"]["uid"] == victim["metadata"]["uid"]
    # The pod goes gracefully: its node would end it. Until then the other one is promised the node.
    low = await cluster.pods.get("low", "priority")
    assert low["metadata"]["deletionTimestamp"]
    target = condition(low, "DisruptionTarget")
    assert target is not None
    assert target["reason"] == "PreemptionByScheduler"
    assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod"
    high = await cluster.until(
        lambda: cluster.pods.get("high", "priority"),
        lambda pod: pod["status"].get("nominatedNodeName"),
        "the nomination",
    )
    assert high["status"]["nominatedNodeName"] == "small"
    await cluster.pods.delete("low", "priority", grace_period_seconds=0)
    assert await cluster.bound("priority", "high") == "small"
