"""Which nodes a pod could almost use: those that offer what a device plugin has to offer, and NUMA nodes with enough of it."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from core.advice.explain.clusters import (
    DRIVER,
    Object,
    asks,
    claim,
    device_class,
    explained,
    gpu,
    holding,
    node,
    pod,
    pool,
    running,
    snapshot,
    template,
    wanting,
)

GPU = "nvidia.com/gpu"


def offering(name: str, number: int, **more: Any) -> Object:
    """A node with a device plugin."""
    made = node(name, **more)
    made["status"]["allocatable"][GPU] = str(number)
    return made


def asking(name: str, number: int = 1, **more: Any) -> Object:
    """A pod that asks for devices of a device plugin."""
    made = pod(name, **more)
    made["spec"]["containers"][0]["resources"]["requests"][GPU] = str(number)
    made["spec"]["containers"][0]["resources"]["limits"] = {GPU: str(number)}
    return made


# --- extended resources ---


def test_nodes_without_the_resource_do_not_hide_what_keeps_the_pod_from_the_one_with_it() -> None:
    found = explained(node("a"), node("b"), offering("c", 2, unschedulable=True), asking("train"))
    assert found.cause.endswith(f"because node c, the only one that offers {GPU}, is cordoned")
    assert found.changes[0].text == "uncordon node c"


@pytest.mark.parametrize(
    ("state", "note"),
    [("upgrade-failed", " (label nvidia.com/gpu-driver-upgrade-state is upgrade-failed)"), ("upgrade-done", "")],
)
def test_who_has_cordoned_a_node_is_said_if_it_is_known(state: str, note: str) -> None:
    labels = {"nvidia.com/gpu-driver-upgrade-state": state}
    found = explained(offering("c", 2, labels=labels, unschedulable=True), asking("train"))
    assert found.cause.endswith(f"is cordoned{note}")
    assert found.changes[0].text.endswith(f"is done{note}" if note else "uncordon node c")


def test_several_nodes_with_the_resource_are_named_for_their_own_reasons() -> None:
    taints = [{"key": "team", "value": "x", "effect": "NoSchedule"}]
    found = explained(node("a"), offering("b", 1, taints=taints), offering("c", 1, unschedulable=True), asking("train"))
    assert f"the nodes that offer {GPU} cannot take it: " in found.cause
    assert "node a" not in found.cause


def test_where_no_node_offers_the_resource_that_is_the_cause() -> None:
    assert f"it asks for {GPU}, which no node offers" in explained(node("a"), asking("train")).cause


def test_a_required_neighbour_is_named_with_its_node() -> None:
    other = running("db", "a")
    other["metadata"]["labels"] = {"app": "db"}
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    found = explained(node("a"), offering("b", 1), other, asking("train", affinity=affinity))
    assert f"node b, the only one that offers {GPU}, has none of the pods" in found.cause
    assert "(app=db: pod default/db on node a)" in found.cause


# --- NUMA nodes ---


def topology(*free: int, total: int = 4) -> Object:
    """How many devices are free on each NUMA node of node n."""
    zones = [
        {
            "name": f"node-{index}",
            "type": "Node",
            "resources": [{"name": GPU, "allocatable": str(total), "available": str(number)}],
        }
        for index, number in enumerate(free)
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "n"},
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
        "zones": zones,
    }


def rejected(number: int) -> Object:
    """A pod that the kubelet of node n did not admit."""
    said = "Pod was rejected: Resources cannot be allocated with Topology locality"
    return asking(
        "train",
        number,
        nodeName="n",
        status={"phase": "Failed", "reason": "TopologyAffinityError", "message": said},
    )


def test_what_is_free_on_each_numa_node_and_who_has_the_rest_is_said() -> None:
    small = [asking(name, nodeName="n", status={"phase": "Running"}) for name in ("x", "y")]
    found = explained(offering("n", 8), topology(3, 3), rejected(4), small)
    assert f"the pod needs 4 {GPU} on one NUMA node (policy single-numa-node), but the node has" in found.cause
    assert "3 on node-0 and 3 on node-1 free (pods default/x and default/y use the rest)" in found.cause
    assert found.changes[0].text.startswith("wait until one of pods default/x and default/y ends")


def test_more_than_a_numa_node_has_can_only_be_asked_for_in_vain() -> None:
    found = explained(offering("n", 8), topology(4, 4), rejected(6))
    assert found.changes[0].text.startswith(f"ask for at most 4 {GPU}, which one NUMA node has")


def test_without_a_topology_the_advice_is_general() -> None:
    found = explained(offering("n", 8), rejected(6))
    assert found.changes[0].text.startswith("ask for no more cpu and devices than one NUMA node has")


def test_a_job_whose_pods_are_rejected_says_why_and_offers_no_log() -> None:
    failed = rejected(4)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "bench", "uid": "uid-bench", "controller": True}
    failed["metadata"]["ownerReferences"] = [owner]
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "bench", "namespace": "default", "uid": "uid-bench"},
        "spec": {"parallelism": 1, "completions": 1, "template": {"spec": failed["spec"]}},
        "status": {"failed": 1, "startTime": "2027-01-15T07:00:00Z"},
    }
    small = asking("x", nodeName="n", status={"phase": "Running"})
    found = Explainer(snapshot(offering("n", 8), topology(3, 3), failed, job, small)).workload(
        "job", "default", "bench"
    )
    assert "(TopologyAffinityError)" in found.cause
    assert "3 on node-0 and 3 on node-1 free" in found.cause
    assert found.changes[0].text.startswith("wait until pod default/x ends")
    assert not any("kubectl logs" in each.text or "recreate" in each.text for each in found.changes)


# --- devices near each other ---


def near(constraint: str, numa: str = "resource.kubernetes.io/numaNode") -> list[Object]:
    """Two requests, for devices that share a NUMA node and no PCIe root."""
    two = [
        {"name": name, "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": 1}}
        for name in ("a", "b")
    ]
    spec = {"devices": {"requests": two, "constraints": [{"requests": ["a", "b"], "matchAttribute": constraint}]}}
    devices = [
        gpu(
            number,
            attributes={
                "kind": {"string": kind},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci000{number}:00"},
                numa: {"int": 0},
            },
        )
        for number, kind in enumerate(("a", "b"))
    ]
    classes = [device_class(name, f'device.attributes["{DRIVER}"].kind == "{name}"') for name in ("a", "b")]
    return [*classes, node("n"), pool("n", devices), claim("c", spec), wanting("train", "c")]


def test_a_numa_node_is_offered_before_a_constraint_on_the_pcie_root_is_dropped() -> None:
    texts = [each.text for each in explained(near("resource.kubernetes.io/pcieRoot")).changes]
    assert texts[0].startswith("match resource.kubernetes.io/numaNode instead of resource.kubernetes.io/pcieRoot")
    assert any(text.startswith("drop constraint matchAttribute") for text in texts[1:])


@pytest.mark.parametrize("attribute", ["resource.kubernetes.io/rack", "acme.io/numbers"])
def test_attributes_that_do_not_say_where_a_device_is_are_not_offered(attribute: str) -> None:
    texts = [each.text for each in explained(near("resource.kubernetes.io/pcieRoot", attribute)).changes]
    assert texts
    assert not any(text.startswith("match ") for text in texts)


# --- parts of devices ---


def part(name: str, *slots: int) -> Object:
    """A part of a device, by its slots."""
    counters = {f"slot-{slot}": {"value": "1"} for slot in slots}
    consumes = [{"counterSet": f"set-{name[0]}", "counters": counters}]
    return {"name": name, "attributes": {"size": {"int": len(slots)}}, "consumesCounters": consumes}


def test_who_would_lose_more_than_the_pod_gets_comes_last() -> None:
    sets = [{"name": f"set-{key}", "counters": {f"slot-{slot}": {"value": "1"} for slot in range(4)}} for key in "ab"]
    devices = [
        each for key in "ab" for each in (part(f"{key}-4", 0, 1, 2, 3), part(f"{key}-2", 0, 1), part(f"{key}-1", 1))
    ]
    slices = [pool("n", devices, slices=2), pool("n", [], slices=2, sharedCounters=sets)]
    slices[1]["metadata"]["name"] = "n-counters"
    del slices[1]["spec"]["devices"]
    other = pool("m", [{"name": "whole", "attributes": {"size": {"int": 4}}}])
    want = {size: asks(f'device.attributes["{DRIVER}"].size == {size}') for size in (1, 2, 4)}
    users = [("large", "a-4", 4), ("small", "b-1", 1)]
    held = [claim(f"{who}-c", want[size], status=holding("n", device, users=(who,))) for who, device, size in users]
    pods = [running(who, "n", f"{who}-c") for who, _, _ in users]
    found = explained(
        device_class(),
        node("n"),
        node("m"),
        slices,
        other,
        held,
        pods,
        template("t", want[2]),
        claim("c", want[2]),
        wanting("train", "c"),
    )
    assert found.changes[0].text.startswith("delete pod default/small")


def test_who_fits_again_beside_the_pod_is_said_so() -> None:
    sets = [{"name": "set-a", "counters": {f"slot-{slot}": {"value": "1"} for slot in range(4)}}]
    devices = [part("a-20", 0, 1), part("a-21", 2, 3), *(part(f"a-1{slot}", slot) for slot in range(4))]
    slices = [pool("n", devices, slices=2), pool("n", [], slices=2, sharedCounters=sets)]
    slices[1]["metadata"]["name"] = "n-counters"
    del slices[1]["spec"]["devices"]
    want = {size: asks(f'device.attributes["{DRIVER}"].size == {size}') for size in (1, 2)}
    users = [("x", "a-11"), ("y", "a-12")]
    held = [claim(f"{who}-c", want[1], status=holding("n", device, users=(who,))) for who, device in users]
    pods = [running(who, "n", f"{who}-c") for who, _ in users]
    found = explained(device_class(), node("n"), slices, held, pods, claim("c", want[2]), wanting("train", "c"))
    assert found.changes[0].text.startswith(
        "delete pod default/x on node n (it then fits on node n again, beside train)"
    )
