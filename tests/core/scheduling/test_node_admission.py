"""Which pods a node takes on that were bound past the scheduler, in the kubelet's words."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.model.codec import decode_served
from allot.core.model.core_v1 import Node
from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.core.scheduling import NodeAdmission, Rejection

Object = dict[str, Any]


def node(taints: list[Object] | None = None, **allocatable: str) -> Node:
    amounts = {"cpu": "4", "memory": "4Gi", "ephemeral-storage": "10Gi", "pods": "3", **allocatable}
    return decode_served(
        {
            "metadata": {"name": "n1", "labels": {"kubernetes.io/os": "linux", "zone": "a"}},
            "spec": {"taints": taints or []},
            "status": {"allocatable": amounts},
        },
        Node,
    )


def pod(name: str, requests: Object | None = None, ports: list[Object] | None = None, **more: Any) -> RunnablePod:
    container = {"name": "main", "resources": {"requests": requests or {}}, "ports": ports or []}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": more.pop("labels", {})}
    status = more.pop("status", {})
    return decode_runnable({"metadata": metadata, "spec": {"containers": [container], **more}, "status": status})


@pytest.mark.parametrize(
    ("asking", "reason", "message"),
    [
        (
            pod("p", {"cpu": "3500m"}),
            "OutOfcpu",
            "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000",
        ),
        (
            pod("p", {"memory": "5Gi"}),
            "OutOfmemory",
            "Node didn't have enough resource: memory, requested: 5368709120, used: 0, capacity: 4294967296",
        ),
        (
            pod("p", {"ephemeral-storage": "11Gi"}),
            "OutOfephemeral-storage",
            "Node didn't have enough resource: ephemeral-storage, requested: 11811160064, used: 0, capacity: 10737418240",
        ),
        (
            pod("p", {"example.com/card": "3"}),
            "OutOfexample.com/card",
            "Node didn't have enough resource: example.com/card, requested: 3, used: 0, capacity: 2",
        ),
        (
            pod("p", ports=[{"containerPort": 1, "hostPort": 8080}]),
            "NodePorts",
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
        ),
        (
            pod("p", nodeSelector={"zone": "b"}),
            "NodeAffinity",
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
        ),
        (
            pod("p", os={"name": "windows"}),
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            pod("p", labels={"kubernetes.io/os": "windows"}),
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ),
        (
            pod("p", securityContext={"supplementalGroupsPolicy": "Strict"}),
            "SupplementalGroupsPolicyNotSupported",
            "SupplementalGroupsPolicy=Strict is not supported in this node",
        ),
    ],
)
def test_a_pod_that_does_not_fit_is_rejected_for_the_first_reason(
    asking: RunnablePod, reason: str, message: str
) -> None:
    admission = NodeAdmission(node(**{"example.com/card": "2"}))
    ports = [{"containerPort": 1, "hostPort": 8080, "hostIP": "127.0.0.1"}]
    assert admission.admit(pod("first", {"cpu": "1"}, ports)) is None
    found = admission.admit(asking)
    assert found == Rejection(reason=reason, message=message, is_of_node=reason == "NodeAffinity")
    assert len(admission) == 1


def test_so_many_pods_and_no_more_until_one_has_left() -> None:
    admission = NodeAdmission(node())
    assert [admission.admit(pod(f"p{number}")) for number in range(3)] == [None] * 3
    found = admission.admit(pod("p3"))
    assert found is not None
    assert found.reason == "OutOfpods"
    assert found.message == "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"
    assert admission.forget("p1")
    assert not admission.forget("p1")
    assert admission.admit(pod("p3")) is None


def test_only_taints_that_drive_pods_away_count_and_only_without_a_toleration() -> None:
    away = {"key": "gone", "value": "yes", "effect": "NoExecute"}
    admission = NodeAdmission(node([{"key": "new", "effect": "NoSchedule"}]))
    assert admission.admit(pod("p0")) is None
    admission.update(node([away]))
    found = admission.admit(pod("p1"))
    assert found == Rejection(
        reason="TaintToleration",
        message="Predicate TaintToleration failed: node(s) had untolerated taint(s)",
        is_of_node=True,
    )
    assert admission.admit(pod("p2", tolerations=[{"key": "gone", "operator": "Exists"}])) is None


def test_extended_resources_that_the_node_lacks_or_that_claims_stand_for_do_not_count() -> None:
    admission = NodeAdmission(node(**{"example.com/card": "1"}))
    assert admission.admit(pod("of-the-cluster", {"example.com/licence": "9"})) is None
    mapped = {"containerName": "main", "resourceName": "example.com/card", "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapped]}}
    assert admission.admit(pod("of-claims", {"example.com/card": "9"}, status=status)) is None


def test_devices_that_containers_hold_are_there_whatever_the_node_says() -> None:
    card = "example.com/card"
    admission = NodeAdmission(node(**{card: "1"}))
    assert admission.admit(pod("first", {card: "2"}), {card: 2}) is None
    rejection = admission.admit(pod("second", {card: "1"}), {card: 2})
    assert rejection is not None and rejection.message.endswith("requested: 1, used: 2, capacity: 2")
    # As long as the Node is not up to date, too.
    assert NodeAdmission(node()).admit(pod("third", {card: "1"}), {card: 1}) is None
    assert NodeAdmission(node()).admit(pod("third", {card: "2"}), {card: 1}) is not None


def test_a_pod_that_grows_counts_once_and_keeps_what_it_has_if_it_cannot() -> None:
    admission = NodeAdmission(node())
    assert admission.admit(pod("other", {"cpu": "1"})) is None
    assert admission.admit(pod("p", {"cpu": "1"})) is None
    assert admission.admit(pod("p", {"cpu": "3"})) is None
    found = admission.admit(pod("p", {"cpu": "3500m"}))
    assert found is not None
    assert found.message == "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000"
    assert admission.admit(pod("third", {"cpu": "1"})) is not None
    assert admission.admit(pod("p", {"cpu": "2"})) is None
    assert admission.admit(pod("third", {"cpu": "1"})) is None


def test_a_pod_that_has_begun_counts_whatever_the_rules_say() -> None:
    admission = NodeAdmission(node())
    admission.count(pod("begun", {"cpu": "9"}))
    found = admission.admit(pod("p", {"cpu": "1"}))
    assert found is not None
    assert found.message == "Node didn't have enough resource: cpu, requested: 1000, used: 9000, capacity: 4000"
