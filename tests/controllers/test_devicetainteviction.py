"""The device taint eviction controller beside a real API server, with the rights that Kubernetes gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allot.controllers import devicetainteviction
from controllers.cluster import Cluster, Object, allocate, by_name, claim, cluster, pod
from waiting import until

CONTROLLER = {"device-taint-eviction-controller": devicetainteviction.make}


def rule(name: str, effect: str, **selector: str) -> Object:
    """A rule for devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "health", "value": "bad", "effect": effect}},
    }


def published(*taints: Object) -> Object:
    """A slice with one device."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "slice"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "taints": list(taints)}],
        },
    }


async def running_pod(made: Cluster, name: str, **result: Any) -> None:
    """A pod with a node and a device of its own."""
    await made.create("resourceclaims", claim(name))
    created = await made.create("pods", pod(name, claims=[by_name("gpu", name)], node="node-1"))
    await allocate(made, name, created, device=f"dev-{name}" if name != "gpu-0" else name, **result)


async def condition(made: Cluster, name: str) -> tuple[str, str, str] | None:
    """What a rule's status says."""
    found = await made.get("devicetaintrules", name)
    for one in (found or {}).get("status", {}).get("conditions", []):
        assert one["type"] == "EvictionInProgress" and one["observedGeneration"] == found["metadata"]["generation"]  # type: ignore[index]
        return one["status"], one["reason"], one["message"]
    return None


async def test_a_rule_evicts_the_pods_of_its_devices_and_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(CONTROLLER):
        patient = {"key": "health", "operator": "Exists", "effect": "NoExecute"}
        await running_pod(made, "a")
        await running_pod(made, "b")
        await running_pod(made, "stays", tolerations=[patient])
        await running_pod(made, "waits", tolerations=[{**patient, "tolerationSeconds": 3600}])
        await made.create("devicetaintrules", rule("dry", "None", driver="gpu.example.com"))
        dry = await until(lambda: condition(made, "dry"))
        assert dry[:2] == ("False", "NoEffect")
        assert dry[2] == (
            "0 published devices selected. 4 allocated devices selected. 3 pods would be evicted in 1 namespace if the"
            " effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger"
            " an update."
        )
        await made.create("devicetaintrules", rule("soft", "NoSchedule", pool="node-1"))
        assert await until(lambda: condition(made, "soft")) == (
            "False",
            "OtherEffect",
            "Eviction only happens for the NoExecute effect.",
        )
        await made.create("devicetaintrules", rule("hard", "NoExecute", pool="node-1"))
        assert await until(lambda: condition(made, "hard")) == (
            "True",
            "PodsPendingEviction",
            "3 pods need to be evicted in 1 namespace.",
        )

        async def evicted() -> list[str] | None:
            pods = await made.items("pods")
            going = [item["metadata"]["name"] for item in pods if "deletionTimestamp" in item["metadata"]]
            left = [item["metadata"]["name"] for item in pods]
            return left if (not going and len(left) == 2) or going == ["a", "b"] else None

        left = await until(evicted)
        assert "stays" in left and "waits" in left
        going = await made.get("pods", "a")
        assert going is not None
        marks = [one for one in going["status"]["conditions"] if one["type"] == "DisruptionTarget"]
        assert [(one["status"], one["reason"], one["message"]) for one in marks] == [
            ("True", "DeletionByDeviceTaintManager", "Device Taint manager: deleting due to NoExecute taint")
        ]

        async def told() -> bool:
            return await made.events("DeviceTaintManagerEviction") == ["Marking for deletion"] * 2

        await until(told)
        assert "device_taint_eviction_controller_pod_deletions_total 2.0" in made.metrics()
        await made.of("devicetaintrules").delete("hard")

        async def cancelled() -> bool:
            return "Cancelling deletion" in await made.events("DeviceTaintManagerEviction")

        await until(cancelled)


async def test_a_taint_in_a_slice_evicts_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(CONTROLLER):
        slice_ = await made.create("resourceslices", published())
        await running_pod(made, "gpu-0")
        taint = {"key": "health", "effect": "NoExecute"}
        devices = [{"name": "gpu-0", "taints": [taint]}]
        await made.of("resourceslices").update({**slice_, "spec": {**slice_["spec"], "devices": devices}})

        async def is_evicted() -> bool:
            found = await made.get("pods", "gpu-0")
            return found is None or "deletionTimestamp" in found["metadata"]

        await until(is_evicted)
