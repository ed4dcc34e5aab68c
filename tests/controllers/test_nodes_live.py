"""Node lifecycle, taint eviction and pod garbage collection on a real API server, in a time that the test steers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from allot.client.api import PatchType
from allot.controllers import nodelifecycle, podgc, tainteviction
from allot.process.clock import ManualClock
from controllers.tidy_cluster import Cluster, cluster

pytestmark = pytest.mark.slow

Object = dict[str, Any]


async def until(tidy: Cluster, clock: ManualClock, check: Callable[[], Awaitable[Any]], *, alive: str = "") -> Any:
    """Let time pass in steps of five seconds until something is so; a node that is alive renews its lease."""

    async def passed() -> Any:
        found = await check()
        if not found:
            if alive:
                await renew(tidy, clock, alive)
            clock.advance(5)
        return found

    return await tidy.eventually(passed)


async def renew(tidy: Cluster, clock: ManualClock, name: str) -> None:
    leases = tidy.client.resource("coordination.k8s.io", "v1", "leases", namespaced=True)
    patch = {"spec": {"renewTime": clock.now_micro()}}
    await leases.patch(name, patch, PatchType.MERGE, "kube-node-lease")


async def add_node(tidy: Cluster, clock: ManualClock, name: str) -> None:
    await tidy.create("v1", "Node", name)
    status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": clock.now()}]}
    nodes = tidy.client.resource("", "v1", "nodes", namespaced=False)
    await nodes.patch(name, {"status": status}, PatchType.STRATEGIC, subresource="status")
    spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": clock.now_micro()}
    await tidy.create("coordination.k8s.io/v1", "Lease", name, "kube-node-lease", spec=spec)


async def add_pod(tidy: Cluster, name: str, node: str, *tolerations: Object) -> None:
    spec = {"nodeName": node, "containers": [{"name": "c", "image": "i"}], "tolerations": list(tolerations)}
    await tidy.create("v1", "Pod", name, "default", spec=spec)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    pods = tidy.client.resource("", "v1", "pods", namespaced=True)
    await pods.patch(name, {"status": status}, PatchType.STRATEGIC, "default", subresource="status")


def condition(object_: Object | None, type_: str) -> Object:
    assert object_ is not None
    return next((one for one in object_["status"].get("conditions", ()) if one["type"] == type_), {})


def taints(node: Object | None) -> set[tuple[str, str]]:
    assert node is not None
    return {(one["key"].removeprefix("node.kubernetes.io/"), one["effect"]) for one in node["spec"].get("taints", ())}


async def notes(tidy: Cluster, namespace: str, reason: str) -> list[str]:
    events = tidy.client.resource("events.k8s.io", "v1", "events", namespaced=True)
    return [one["note"] for one in (await events.list(namespace)).items if one["reason"] == reason]


async def test_a_node_falls_silent_loses_its_pods_and_comes_back(tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    makes = (nodelifecycle.make, tainteviction.make, podgc.make)
    async with cluster(tmp_path, *makes, clock=clock) as tidy:
        for name in ("lost", "well"):
            await add_node(tidy, clock, name)
        await add_pod(tidy, "usual", "lost")
        await add_pod(tidy, "loyal", "lost", {"operator": "Exists"})
        await add_pod(tidy, "elsewhere", "well")

        async def lost_node() -> bool:
            return ("unreachable", "NoExecute") in taints(await tidy.get("v1", "Node", "lost"))

        started = clock.seconds()
        await until(tidy, clock, lost_node, alive="well")
        assert clock.seconds() - started > 50
        node = await tidy.get("v1", "Node", "lost")
        assert taints(node) == {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
        ready = condition(node, "Ready")
        assert (ready["status"], ready["reason"]) == ("Unknown", "NodeStatusUnknown")
        assert condition(node, "MemoryPressure")["reason"] == "NodeStatusNeverUpdated"
        assert taints(await tidy.get("v1", "Node", "well")) == set()

        async def not_ready() -> bool:
            loyal = await tidy.get("v1", "Pod", "loyal", "default")
            return bool(condition(loyal, "Ready")["status"] == "False")

        await until(tidy, clock, not_ready, alive="well")

        async def told() -> bool:
            return bool(await notes(tidy, "default", "NodeNotReady"))

        await tidy.eventually(told)
        assert "Node lost status is now: NodeNotReady" in await notes(tidy, "default", "NodeNotReady")

        # The API server lets pods tolerate that for 300 seconds unless they say otherwise.
        async def evicted() -> Object | None:
            found = await tidy.get("v1", "Pod", "usual", "default")
            return found if found is not None and "deletionTimestamp" in found["metadata"] else None

        started = clock.seconds()
        pod = await until(tidy, clock, evicted, alive="well")
        assert clock.seconds() - started > 250
        assert condition(pod, "DisruptionTarget")["reason"] == "DeletionByTaintManager"
        for name, node_name in (("loyal", "lost"), ("elsewhere", "well")):
            left = await tidy.get("v1", "Pod", name, "default")
            assert left is not None and "deletionTimestamp" not in left["metadata"], node_name
        await tidy.eventually(lambda: notes(tidy, "default", "TaintManagerEviction"))
        assert await notes(tidy, "default", "TaintManagerEviction") == ["Marking for deletion Pod default/usual"]

        # It speaks again.
        nodes = tidy.client.resource("", "v1", "nodes", namespaced=False)
        status = {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": clock.now()}]}
        await nodes.patch("lost", {"status": status}, PatchType.STRATEGIC, subresource="status")

        async def recovered() -> bool:
            return not taints(await tidy.get("v1", "Node", "lost"))

        await tidy.eventually(recovered)

        # And then it is gone for good: its pods, also the one that was deleted already, are removed after a while.
        await tidy.delete("v1", "Node", "lost")

        async def collected() -> bool:
            pods = tidy.client.resource("", "v1", "pods", namespaced=True)
            return [one["metadata"]["name"] for one in (await pods.list("default")).items] == ["elsewhere"]

        started = clock.seconds()
        await until(tidy, clock, collected, alive="well")
        assert clock.seconds() - started > 40

        def measured(name: str, **labels: str) -> float | None:
            return tidy.registry.get_sample_value(name, labels)

        assert measured("taint_eviction_controller_pod_deletions_total") == 1
        assert measured("node_collector_evictions_total", zone="") == 1
        assert measured("node_collector_zone_size", zone="") is not None
        orphans = {"namespace": "default", "reason": "orphaned"}
        assert (measured("pod_gc_collector_force_delete_pods_total", **orphans) or 0) >= 2
