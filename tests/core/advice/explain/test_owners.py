"""Owners of kinds that have no type here are explained by what they have created, and by what their controllers say."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer, NotFound, UnknownKind
from allot.core.advice.explain.report import Explanation, State
from allot.core.advice.explain.workloads.owners import is_called
from allot.core.advice.snapshot import Snapshot, read_object, read_other
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, node, pod, thing, uid_of

NOW = seconds_of("2026-09-14T09:00:00Z")
KUBERAY, KUBEFLOW = "ray.io/v1", "kubeflow.org/v1"


def owned(object_: JSON, api_version: str, kind: str, name: str) -> JSON:
    """An object with an owner."""
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid_of(kind, "default", name)}
    object_["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return object_


def too_large(name: str) -> JSON:
    """A pod that no node has room for."""
    return pod(name, requests={"cpu": "6400"})


def explained(word: str, name: str, *objects: JSON, others: tuple[JSON, ...] = ()) -> Explanation:
    read: list[Any] = [read_object(each) for each in (node("n1"), *objects)]
    kept = tuple(found for each in others if (found := read_other(each)) is not None)
    assert len(kept) == len(others)
    return Explainer(Snapshot(tuple(read), NOW, others=kept)).owner(word, "default", name)


def test_an_owner_waits_for_the_pods_that_name_it() -> None:
    found = explained("pytorchjob", "train", owned(too_large("train-worker-0"), KUBEFLOW, "PyTorchJob", "train"))
    assert (found.kind, found.state) == ("PyTorchJob", State.NOT_AS_WANTED)
    assert found.cause.startswith(
        "PyTorchJob default/train has 0 of 1 pod ready: pod train-worker-0 is pending because "
    )
    assert "cpu" in found.cause


def test_an_owner_waits_for_its_workloads() -> None:
    template = {"metadata": {"labels": {"app": "llm"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "llm"}}, "serviceName": "llm", "template": template}
    set_ = thing("apps/v1", "StatefulSet", "llm", "default", spec=spec, status={"replicas": 1, "observedGeneration": 1})
    set_["metadata"].update(generation=1)
    waiting = owned(pod("llm-0", requests={"cpu": "6400"}, labels={"app": "llm"}), "apps/v1", "StatefulSet", "llm")
    group = owned(set_, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "llm")
    found = explained("lws", "llm", group, waiting)
    assert found.cause.startswith(
        "LeaderWorkerSet default/llm waits: StatefulSet default/llm has 0 of 1 pod ready: pod llm-0 "
    )


def test_a_kind_in_between_counts_by_what_it_has_created() -> None:
    job = thing(KUBERAY, "RayJob", "tune", "default", status={"conditions": []})
    job["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Team", "name": "a", "uid": "a"}]
    cluster = owned(thing(KUBERAY, "RayCluster", "tune-x7", "default"), KUBERAY, "RayJob", "tune")
    worker = owned(too_large("tune-x7-worker"), KUBERAY, "RayCluster", "tune-x7")
    found = explained("rayjobs", "tune", worker, others=(job, cluster))
    assert found.cause.startswith("RayJob default/tune has 0 of 1 pod ready: pod tune-x7-worker is pending")


def test_owners_in_a_circle_end() -> None:
    one = owned(thing(KUBERAY, "RayJob", "a", "default"), KUBERAY, "RayCluster", "b")
    other = owned(thing(KUBERAY, "RayCluster", "b", "default"), KUBERAY, "RayJob", "a")
    assert "has created no pods" in explained("rayjob", "a", others=(one, other)).cause


def test_its_conditions_are_told_where_nothing_below_it_waits() -> None:
    told = {"type": "Ready", "status": "False", "reason": "NoModel", "message": "storage  uri is not\nreadable"}
    status = {"conditions": [{"type": "Odd"}, "odd", told]}
    service = thing("serving.kserve.io/v1beta1", "InferenceService", "llm", "default", status=status)
    found = explained("inferenceservices", "llm", others=(service,))
    assert found.state is State.NOT_AS_WANTED
    assert (
        found.cause
        == "InferenceService default/llm is not as wanted: Ready is False (NoModel): storage uri is not readable"
    )


def test_an_owner_whose_pods_run_is_as_wanted() -> None:
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    running = owned(pod("nb-0", on="n1"), "kubeflow.org/v1", "Notebook", "nb")
    running["status"] = {**running.get("status", {}), **ready}
    found = explained("notebook", "nb", running)
    assert (found.state, found.cause) == (State.AS_WANTED, "Notebook default/nb has 1 of 1 pod ready")


def test_what_is_not_there_is_told() -> None:
    worker = owned(too_large("w"), KUBEFLOW, "PyTorchJob", "train")
    with pytest.raises(NotFound, match="PyTorchJob default/tain: not found"):
        explained("pytorchjob", "tain", worker)
    with pytest.raises(UnknownKind):
        explained("tfjob", "train", worker)


@pytest.mark.parametrize(
    ("kind", "word", "expected"),
    [
        ("RayJob", "rayjob", True),
        ("RayJob", "rayjobs", True),
        ("RayJob", "rj", False),
        ("InferenceService", "inferenceservices", True),
        ("LeaderWorkerSet", "lws", True),
        ("TrainingPolicy", "trainingpolicies", True),
        ("RayJob", "raycluster", False),
    ],
)
def test_a_kind_is_called_as_kubectl_calls_it(kind: str, word: str, expected: bool) -> None:
    assert is_called(kind, word) is expected
