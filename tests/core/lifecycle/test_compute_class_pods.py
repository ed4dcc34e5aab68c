"""New pods and ComputeClasses: the class of a namespace, the toleration of its nodes, contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.compute_class_pods import conflict, with_class
from allot.core.model.compute_classes import CLASS_LABEL, DEFAULT_LABEL, DEFAULT_LABEL_NO_DAEMONS

TOLERATION = {"key": CLASS_LABEL, "operator": "Equal", "value": "c", "effect": "NoSchedule"}
GPU = {"key": "nvidia.com/gpu", "operator": "Exists"}


def pod(owner: str = "", **spec: Any) -> dict[str, Any]:
    """A pod."""
    owners = [{"kind": owner}] if owner else []
    return {"metadata": {"name": "p", "ownerReferences": owners}, "spec": spec}


def affine(*values: str) -> dict[str, Any]:
    """An affinity to classes."""
    term = {"matchExpressions": [{"key": CLASS_LABEL, "operator": "In", "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def test_a_pod_that_selects_a_class_tolerates_its_nodes() -> None:
    """Only these: the taint of GPUs is its own business."""
    made = with_class(pod(nodeSelector={CLASS_LABEL: "c"}, tolerations=[GPU]), {})
    assert made["spec"]["tolerations"] == [GPU, TOLERATION]
    assert with_class(made, {}) is made
    assert with_class(pod(affinity=affine("c")), {})["spec"]["tolerations"] == [TOLERATION]
    either = pod(affinity=affine("c", "d"))
    assert with_class(either, {}) is either


@pytest.mark.parametrize(
    "given",
    [
        {"key": CLASS_LABEL, "operator": "Exists"},
        {"operator": "Exists"},
        {"key": CLASS_LABEL, "value": "c", "effect": "NoSchedule"},
    ],
)
def test_what_is_tolerated_already_is_not_tolerated_twice(given: dict[str, Any]) -> None:
    """Whatever the spelling."""
    already = pod(nodeSelector={CLASS_LABEL: "c"}, tolerations=[given])
    assert with_class(already, {}) is already


def test_the_class_of_a_namespace_is_that_of_pods_that_select_none() -> None:
    """One of them is not for pods of DaemonSets."""
    made = with_class(pod(nodeSelector={"zone": "a"}), {DEFAULT_LABEL: "c"})
    assert made["spec"] == {"nodeSelector": {"zone": "a", CLASS_LABEL: "c"}, "tolerations": [TOLERATION]}
    own = with_class(pod(nodeSelector={CLASS_LABEL: "own"}), {DEFAULT_LABEL: "c"})
    assert own["spec"]["nodeSelector"] == {CLASS_LABEL: "own"}
    daemon = pod("DaemonSet")
    assert with_class(daemon, {DEFAULT_LABEL_NO_DAEMONS: "c"}) is daemon
    assert with_class(daemon, {DEFAULT_LABEL: "c"})["spec"]["nodeSelector"] == {CLASS_LABEL: "c"}
    assert with_class(pod("ReplicaSet"), {DEFAULT_LABEL_NO_DAEMONS: "c"})["spec"]["nodeSelector"] == {CLASS_LABEL: "c"}
    spot = pod(nodeSelector={"cloud.google.com/gke-spot": "true"})
    assert with_class(spot, {DEFAULT_LABEL: "c"}) is spot


@pytest.mark.parametrize(
    "spec",
    [
        "x",
        None,
        {"nodeSelector": "x"},
        {"nodeSelector": [CLASS_LABEL]},
        {"tolerations": {"key": "x"}, "nodeSelector": {CLASS_LABEL: "c"}},
        {"affinity": [1]},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [1]}}}},
        {"affinity": affine() | {"x": 1}},
    ],
)
def test_what_makes_no_sense_is_left_to_validation(spec: Any) -> None:
    """Unchanged."""
    given = {"metadata": {"ownerReferences": "x"}, "spec": spec}
    assert with_class(given, {}) is given
    assert not conflict(given)


def test_a_pod_cannot_select_a_class_and_what_the_class_decides() -> None:
    """The field of the class is named."""
    both = pod(nodeSelector={CLASS_LABEL: "c", "cloud.google.com/gke-spot": "true"})
    assert conflict(both) == (
        "spec.nodeSelector selects ComputeClass c and cloud.google.com/gke-spot=true: the class decides that, "
        "by priorities.spot"
    )
    assert not conflict(pod(nodeSelector={"cloud.google.com/gke-spot": "true"}))
    assert not conflict(pod(nodeSelector={CLASS_LABEL: "c", "topology.kubernetes.io/zone": "a"}))
