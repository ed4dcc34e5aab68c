"""Causes that lie with nodes, and with claims that have their devices."""

from __future__ import annotations

import pytest

from allot.core.advice.explain.report import Reason
from core.advice.explain.clusters import (
    Object,
    asks,
    claim,
    device_class,
    explained,
    gpu,
    gpus,
    holding,
    node,
    pod,
    pool,
    running,
    templated,
    wanting,
)


def test_a_cordoned_node_with_free_devices_is_the_cause() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    found = explained(
        node("cpu"),
        node("gpu", unschedulable=True, taints=[cordon]),
        pool("gpu", gpus(1)),
        device_class(),
        templated("train", asks()),
    )
    assert found.reason is Reason.CORDONED
    assert found.cause.endswith("node gpu, the only one with free devices of class gpu, is cordoned")
    assert found.changes[0].text == "uncordon node gpu"


def test_a_taint_of_a_node_is_tolerated_in_the_pod_first() -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    found = explained(node("gpu", taints=[taint]), pool("gpu", gpus(1)), device_class(), templated("train", asks()))
    assert "has taint nvidia.com/gpu=present:NoSchedule" in found.cause
    assert [change.text for change in found.changes][:2] == [
        "tolerate taint nvidia.com/gpu=present:NoSchedule in the pod",
        "remove taint nvidia.com/gpu=present:NoSchedule from node gpu",
    ]


def test_a_node_that_is_not_ready_has_to_be_repaired() -> None:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    found = explained(node("gpu", taints=[taint]), pool("gpu", gpus(1)), device_class(), templated("train", asks()))
    assert found.changes[0].text.startswith("bring node gpu back")


def test_a_node_selector_that_leads_away_from_the_devices_is_told_with_both_values() -> None:
    found = explained(
        node("cpu", labels={"zone": "a"}),
        node("gpu", labels={"zone": "b"}),
        pool("gpu", gpus(1)),
        device_class(),
        templated("train", asks(), nodeSelector={"zone": "a"}),
    )
    assert found.reason is Reason.AFFINITY
    assert "does not match the pod's nodeSelector zone=a (it has b)" in found.cause
    # Another node has the value, so that it is no mistake.
    assert found.changes[0].text == "drop zone=a from the pod's nodeSelector (recreate the pod)"
    assert found.changes[1].text == "select zone=b instead of zone=a in the pod's nodeSelector (recreate the pod)"
    assert found.changes[0].patches[0].recreate


def test_a_label_that_is_misspelt_is_put_right() -> None:
    found = explained(
        node("gpu", labels={"accelerator": "a100"}),
        pool("gpu", gpus(1)),
        device_class(),
        templated("train", asks(), nodeSelector={"acelerator": "a100"}),
    )
    assert found.changes[0].text == "select accelerator=a100 in the pod's nodeSelector (recreate the pod)"


def test_cpu_that_is_short_where_devices_are_free_is_told_with_numbers() -> None:
    found = explained(
        node("gpu", cpu="8"),
        pool("gpu", gpus(1)),
        device_class(),
        running("other", "gpu", cpu="6"),
        templated("train", asks(), cpu="4"),
    )
    assert found.reason is Reason.RESOURCES
    assert "has 2 cpu free, but the pod needs 4" in found.cause
    assert found.nearest is not None
    assert found.nearest.reasons == ("cpu: 2 free, 4 needed",)
    assert [change.text for change in found.changes] == [
        "ask for at most 2 cpu in the pod (recreate the pod)",
        "delete pod default/other on node gpu, or wait until it ends",
        "add one node like gpu",
    ]


def test_several_obstacles_are_removed_at_once() -> None:
    found = explained(
        node("gpu", unschedulable=True, labels={"zone": "b"}),
        pool("gpu", gpus(1)),
        device_class(),
        templated("train", asks(), nodeSelector={"zone": "a"}),
    )
    assert found.reason is Reason.SEVERAL
    assert "uncordon node gpu, and select zone=b instead of zone=a in the pod's nodeSelector (recreate the pod)" in [
        change.text for change in found.changes
    ]


def test_nodes_are_grouped_by_what_is_wrong_with_them() -> None:
    found = explained(
        *(node(f"cpu-{number}") for number in range(4)),
        node("gpu"),
        pool("gpu", gpus(2)),
        device_class(),
        templated("train", asks(count=3)),
    )
    assert [(group.count, group.reasons) for group in found.nodes] == [
        (4, ("publishes no devices of class gpu",)),
        (1, ("2 devices of class gpu: 2 free, 3 needed",)),
    ]


def test_a_pod_without_devices_is_explained_as_well() -> None:
    found = explained(node("a", cpu="2"), node("b", cpu="4"), pod("train", cpu="8"))
    assert found.reason is Reason.RESOURCES
    assert "but the pod needs 8" in found.cause


def test_no_nodes_at_all() -> None:
    found = explained(device_class(), templated("train", asks()))
    assert found.cause == (
        "default/train is pending because the cluster has no nodes, so there are no devices of class gpu either"
    )


def test_an_extended_resource_that_nobody_offers_can_be_served_by_a_class() -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    found = explained(node("gpu"), pool("gpu", gpus(1)), device_class(), pod("train", containers=[container]))
    assert found.reason is Reason.RESOURCE_UNKNOWN
    assert "it asks for nvidia.com/gpu, which no node offers (no device plugin) and no DeviceClass names" in found.cause
    assert found.changes[0].patches[0].patch[0]["path"] == "/spec/extendedResourceName"


def test_a_shared_claim_binds_the_pod_to_its_node() -> None:
    found = explained(
        node("a", cpu="2"),
        node("b"),
        pool("a", gpus(1)),
        pool("b", gpus(1)),
        device_class(),
        claim("shared", asks(), status=holding("a", "gpu-0", users=("first",))),
        running("first", "a", "shared", cpu="2"),
        wanting("train", "shared"),
    )
    assert found.reason in (Reason.PINNED, Reason.RESOURCES)
    assert "claim default/shared is allocated" in found.cause
    assert "has 0 cpu free, but the pod needs 1" in found.cause
    assert found.changes[0].verified


def test_a_claim_on_a_node_that_is_gone_can_be_released() -> None:
    found = explained(
        node("b"),
        pool("b", gpus(1)),
        device_class(),
        claim("mine", asks(), status=holding("gone", "gpu-0")),
        wanting("train", "mine"),
    )
    assert found.reason is Reason.PINNED
    assert "node gone no longer exists" in found.cause
    assert found.changes[0].node == "b"


def test_a_pod_that_runs_is_told_where_and_what_other_nodes_would_say() -> None:
    found = explained(
        node("a"),
        node("b"),
        node("c"),
        pool("a", gpus(1)),
        pool("b", gpus(1)),
        device_class(),
        claim("mine", asks(), status=holding("a", "gpu-0", users=("train",))),
        running("train", "a", "mine"),
    )
    assert found.cause == "default/train runs on node a with device gpu.nvidia.com/a/gpu-0"
    assert {group.nodes: group.reasons for group in found.nodes} == {
        ("b",): ("would fit as well",),
        ("c",): ("publishes no devices of class gpu",),
    }


def test_a_pod_that_fits_is_said_to_fit() -> None:
    found = explained(node("a"), pool("a", gpus(1)), device_class(), templated("train", asks()))
    assert found.reason is Reason.FITS
    assert "would be placed on node a when the scheduler gets to it" in found.cause


def test_that_pods_of_lower_priority_have_the_devices_is_said() -> None:
    found = explained(
        node("n"),
        pool("n", gpus(1)),
        device_class(),
        claim("held", asks(), status=holding("n", "gpu-0", users=("other",))),
        running("other", "n", "held"),
        templated("train", asks(), priority=10),
    )
    assert found.details[-1].startswith("pods of lower priority than its own, 10, have what it needs")


def test_a_scheduler_that_refuses_what_fits_seems_to_lack_a_feature() -> None:
    def part(number: int) -> dict[str, object]:
        return {**gpus(3)[number], "consumesCounters": [{"counterSet": "board", "counters": {"x": {"value": "1"}}}]}

    counters = pool("n", [], slices=2, sharedCounters=[{"name": "board", "counters": {"x": {"value": "1"}}}])
    counters["metadata"]["name"] = "counters"
    said = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/1 nodes are available: 1 cannot allocate all claims.",
    }
    found = explained(
        node("n"),
        pool("n", [part(0)], slices=2),
        counters,
        device_class(),
        templated("train", asks(), status_of_pod={"conditions": [said]}),
    )
    assert found.reason is Reason.FEATURE
    assert "its scheduler seems to run without feature gate DRAPartitionableDevices" in found.cause


@pytest.mark.parametrize(
    ("key", "text", "remedy"),
    [
        (
            "node.cloudprovider.kubernetes.io/uninitialized",
            "has not been initialized by its cloud provider",
            "cloud controller",
        ),
        (
            "node.cilium.io/agent-not-ready",
            "has no ready Cilium agent",
            "check that Cilium's agent runs on node gpu",
        ),
        ("ebs.csi.aws.com/agent-not-ready", "has no ready agent of ebs.csi.aws.com", "ebs.csi.aws.com runs on"),
        ("readiness.k8s.io/network", "is not ready for network", "NodeReadinessRule network"),
        ("ToBeDeletedByClusterAutoscaler", "is about to be removed by the cluster autoscaler", "add one node like gpu"),
    ],
)
def test_a_taint_that_somebody_removes_when_the_node_is_ready_is_not_tolerated(
    key: str, text: str, remedy: str
) -> None:
    taints = [{"key": key, "effect": "NoSchedule"}]
    found = explained(node("gpu", taints=taints), pool("gpu", gpus(1)), device_class(), templated("train", asks()))
    assert f"{text} (taint {key})" in found.cause
    assert remedy in found.changes[0].text
    assert not any("tolerate" in change.text for change in found.changes)


def test_a_label_that_no_labeller_has_set_is_not_set_by_hand() -> None:
    found = explained(
        node("gpu"),
        pool("gpu", gpus(1)),
        device_class(),
        templated("train", asks(), nodeSelector={"nvidia.com/gpu.product": "NVIDIA-A100"}),
    )
    assert "no node has label nvidia.com/gpu.product, which GPU Feature Discovery sets" in found.cause
    assert [change.text for change in found.changes] == [
        "drop nvidia.com/gpu.product=NVIDIA-A100 from the pod's nodeSelector (recreate the pod)",
        "check that the pods of GPU Feature Discovery run on the nodes",
    ]


def test_pods_that_may_not_be_preempted_are_told_with_their_node() -> None:
    never = {"priority": 100, "priorityClassName": "gentle", "preemptionPolicy": "Never"}
    small = [running(f"small-{number}", on, cpu="12") for number, on in enumerate(("a", "b"))]
    found = explained(node("a", cpu="16"), node("b", cpu="16"), *small, pod("train", cpu="8", **never))
    assert found.cause.endswith(
        "each of the 2 nodes has 4 cpu free, but the pod needs 8; pod default/small-0 on node a has a lower priority, "
        "but PriorityClass gentle has preemptionPolicy: Never"
    )


@pytest.mark.parametrize(("value", "named"), [(None, "a PriorityClass of value 100"), (50, "PriorityClass firm")])
def test_a_pod_that_may_not_preempt_is_allowed_to_before_others_are_deleted(value: int | None, named: str) -> None:
    never = {"priority": 100, "priorityClassName": "gentle", "preemptionPolicy": "Never"}
    firm = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "firm"}, "value": value}
    found = explained(
        node("a", cpu="16"),
        running("small", "a", cpu="15500m"),
        pod("train", cpu="8", **never),
        *([firm] if value is not None else []),
    )
    assert found.changes[0].text == (
        f"use {named} with preemptionPolicy: PreemptLowerPriority instead of gentle in the pod, so that it preempts pod "
        "default/small on node a (recreate the pod)"
    )
    assert found.changes[1].text.startswith("delete pod default/small")


def test_the_only_node_with_free_devices_of_a_kind_is_not_said_to_be_the_only_one_with_any() -> None:
    small = [gpu(attributes={"productName": {"string": "NVIDIA T4"}})]
    selector = 'device.attributes["gpu.nvidia.com"].productName == "NVIDIA A100"'
    found = explained(
        node("a", unschedulable=True),
        node("b"),
        pool("a", gpus(1)),
        pool("b", small),
        device_class(),
        templated("train", asks(selector)),
    )
    assert "node a, the only one with free devices of class gpu that match its selectors, is cordoned" in found.cause


def test_pods_of_the_same_priority_are_not_preempted_whatever_the_policy() -> None:
    never = {"priorityClassName": "gentle", "preemptionPolicy": "Never"}
    found = explained(node("a", cpu="16"), running("small", "a", cpu="12"), pod("train", cpu="8", **never))
    assert all("PreemptLowerPriority" not in change.text for change in found.changes)


def test_gpus_of_a_device_plugin_that_a_pod_may_not_preempt_for() -> None:
    there = node("a")
    there["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    holder, waiting = running("small", "a"), pod("train", priority=9, preemptionPolicy="Never")
    for each in (holder, waiting):
        each["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
    found = explained(there, holder, waiting)
    assert found.cause.endswith(
        "(a device plugin offers 1, in use by pod default/small, which has a lower priority), and the pod has preemptionPolicy: Never"
    )


def _volume(made: str, key: str = "topology.kubernetes.io/zone", value: str = "north") -> list[Object]:
    """A volume of zone north, its claim, and a StorageClass that does not wait for pods."""
    terms = [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]
    metadata = {"name": "data", "namespace": "default", "uid": "c", "creationTimestamp": made}
    metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "disk"},
            "provisioner": "x.csi",
            "volumeBindingMode": "Immediate",
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": {"storageClassName": "disk", "volumeName": "v", "accessModes": ["ReadWriteOnce"]},
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "v"},
            "spec": {
                "storageClassName": "disk",
                "csi": {"driver": "x.csi", "volumeHandle": "h"},
                "claimRef": {"name": "data", "namespace": "default", "uid": "c"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
            "status": {"phase": "Bound"},
        },
    ]


@pytest.mark.parametrize(
    ("made", "first"),
    [
        (
            "2027-01-10T08:00:00Z",
            "copy PersistentVolumeClaim data to where the devices are, in zone south (a new one from",
        ),
        (
            "2027-01-15T07:59:00Z",
            "recreate PersistentVolumeClaim data with a StorageClass with volumeBindingMode: Wait",
        ),
    ],
)
def test_a_volume_in_another_zone_that_may_have_data_is_copied_before_it_is_recreated(made: str, first: str) -> None:
    zone = "topology.kubernetes.io/zone"
    waiting = templated("train", asks(), volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
    waiting[-1]["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"
    found = explained(
        node("a", labels={zone: "north"}),
        node("b", labels={zone: "south"}),
        pool("b", gpus(1)),
        device_class(),
        _volume(made),
        waiting,
    )
    assert found.changes[0].text.startswith(first)
