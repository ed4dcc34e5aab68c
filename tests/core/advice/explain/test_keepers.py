"""Components that have to act on a name and do not run: found by the words of their names, and nobody is accused without reason."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.advice.explain.answer import Explainer
from allot.core.advice.snapshot import Snapshot, read_object, read_other
from allot.core.lifecycle.times import seconds_of
from explain_corpus.objects import JSON, node, pod, thing, uid_of

NOW = seconds_of("2026-09-14T09:00:00Z")


def deployment(name: str, replicas: int, *args: str) -> JSON:
    """Of a platform team."""
    container: JSON = {"name": "main", "image": "example.com/x:1", "args": list(args)}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return thing("apps/v1", "Deployment", name, "platform", spec=spec, status={})


def crashing(name: str, said: str) -> JSON:
    """A pod of a ReplicaSet, whose container ends again and again."""
    made = pod(f"{name}-x", "platform", on="n1")
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": name,
        "uid": uid_of("", "", name),
        "controller": True,
    }
    made["metadata"]["ownerReferences"] = [owner]
    last = {"terminated": {"exitCode": 1, "reason": "Error", "message": said}}
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    made["status"]["containerStatuses"] = [
        {"name": "main", "ready": False, "restartCount": 6, "state": state, "lastState": last}
    ]
    return made


def of_gate(gate: str, *others: JSON) -> str:
    """Why a pod with a gate waits."""
    gated = pod("job", schedulingGates=[{"name": gate}])
    objects: list[Any] = [read_object(each) for each in (node("n1"), gated, *others)]
    return Explainer(Snapshot(tuple(objects), NOW)).pod("default", "job").cause


@pytest.mark.parametrize(
    ("gate", "keeper"),
    [
        ("acme.io/licenses-fetched", deployment("license-fetcher", 0)),
        ("licenses.acme.io/ready", deployment("licenses", 0)),
        ("acme.io/approved", deployment("gatekeeper-of-jobs", 0, "--gate=acme.io/approved")),
        ("acme.io/LicensesFetched", deployment("license-fetcher", 0)),
    ],
)
def test_a_component_that_is_scaled_to_0_is_found_by_its_name_or_its_flags(gate: str, keeper: JSON) -> None:
    name = keeper["metadata"]["name"]
    assert f"Deployment platform/{name}, which seems to be what removes the gate, is scaled to 0" in of_gate(
        gate, keeper
    )


def test_a_component_that_crashes_is_found_by_its_name_or_its_last_words() -> None:
    assert "platform/license-6d-x" in of_gate("acme.io/licenses-fetched", crashing("license-6d", "no such table"))
    assert "platform/api-6d-x" in of_gate("acme.io/licenses-fetched", crashing("api-6d", "license server is gone"))


@pytest.mark.parametrize(
    "other",
    [
        deployment("license-fetcher", 2),
        deployment("acme-operator", 0),
        deployment("controller-manager", 0),
        deployment("billing", 0),
        crashing("billing-6d", "out of ideas"),
    ],
)
def test_nobody_is_accused_that_runs_or_has_only_common_words_in_its_name(other: JSON) -> None:
    assert "which the component that set it has not removed yet" in of_gate("acme.io/licenses-fetched", other)


# --- controllers of kinds of their own ---

NO_NAME = "let the component that set finalizer kopf.example.org/marker remove it: see that it runs, and its log"


def of_kind(api_version: str, kind: str, *others: JSON) -> tuple[str, str]:
    """What keeps a namespace that has an object of a kind with a finalizer whose name says nothing, and what to do first."""
    deleted = {"deletionTimestamp": "2026-09-14T08:30:00Z"}
    group = api_version.rpartition("/")[0]
    said = {
        "NamespaceContentRemaining": f"Some resources are remaining: {kind.lower()}s.{group} has 1 resource instances",
        "NamespaceFinalizersRemaining": "Some content in the namespace has finalizers remaining: "
        "kopf.example.org/marker in 1 resource instances",
    }
    status = {
        "phase": "Terminating",
        "conditions": [{"type": each, "status": "True", "message": text} for each, text in said.items()],
    }
    leaving = thing("v1", "Namespace", "trial", metadata=deleted, spec={"finalizers": ["kubernetes"]}, status=status)
    kept = thing(api_version, kind, "sweep", "trial", metadata={**deleted, "finalizers": ["kopf.example.org/marker"]})
    found = read_other(kept)
    assert found is not None
    objects: list[Any] = [read_object(each) for each in (node("n1"), leaving, *others)]
    answer = Explainer(Snapshot(tuple(objects), NOW, others=(found,))).workload("ns", "trial", "trial")
    return answer.cause, answer.changes[0].text


def pod_of(controller: JSON, *, ready: bool) -> JSON:
    """A pod that its selector matches."""
    made = pod(f"{controller['metadata']['name']}-x", controller["metadata"]["namespace"], on="n1")
    made["metadata"]["labels"] = controller["spec"]["selector"]["matchLabels"]
    made["status"]["conditions"] = [{"type": "Ready", "status": "True" if ready else "False"}]
    return made


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("ray.io/v1", "RayJob", "kuberay-operator"),
        ("cert-manager.io/v1", "Certificate", "cert-manager"),
        ("kueue.x-k8s.io/v1beta9", "Thing", "kueue-controller-manager"),
        ("kubernetes.dask.org/v1", "DaskCluster", "dask-kubernetes-operator"),
        ("jobs.platform.io/v1", "Sweep", "sweeps-controller"),
    ],
)
def test_the_controller_of_a_kind_that_is_scaled_to_0_is_found_by_the_group(
    api_version: str, kind: str, name: str
) -> None:
    cause, advice = of_kind(api_version, kind, deployment(name, 0), deployment("billing", 0))
    assert (
        f"because {kind} sweep in it still has finalizer kopf.example.org/marker: Deployment platform/{name}" in cause
    )
    assert advice == f"scale Deployment platform/{name} up again, so that it removes it"


RUNNING, SCALED = deployment("kuberay-operator", 1), deployment("kuberay-operator", 0)
SECOND = deployment("ray-operator", 1)


@pytest.mark.parametrize(
    "others",
    [
        (),
        (deployment("billing-operator", 0),),
        (deployment("ray-dashboard", 0),),
        (deployment("gray-operator", 0),),
        (RUNNING,),
        (RUNNING, pod_of(RUNNING, ready=True)),
        (SCALED, SECOND, pod_of(SECOND, ready=True)),
    ],
)
def test_no_controller_is_accused_that_runs_or_is_about_something_else(others: tuple[JSON, ...]) -> None:
    cause, advice = of_kind("ray.io/v1", "RayJob", *others)
    assert cause.endswith("because RayJob sweep in it still has finalizer kopf.example.org/marker")
    assert advice == NO_NAME


def test_of_several_controllers_the_plainest_name_counts_and_all_must_be_idle() -> None:
    webhook = deployment("kuberay-operator-webhook", 1)
    assert "platform/kuberay-operator," in of_kind("ray.io/v1", "RayJob", webhook, SCALED)[0]
    assert "platform/kuberay-operator," in of_kind("ray.io/v1", "RayJob", SCALED, deployment("ray-operator", 0))[0]


def test_a_controller_without_a_pod_that_is_ready_is_idle() -> None:
    cause, advice = of_kind("ray.io/v1", "RayJob", RUNNING, pod_of(RUNNING, ready=False))
    assert cause.endswith(
        "Deployment platform/kuberay-operator, which seems to be what removes it, has no pod that is ready"
    )
    assert advice.endswith("allot explain deployment/kuberay-operator -n platform")


@pytest.mark.parametrize("api_version", ["snapshot.storage.k8s.io/v1", "scheduling.sigs.k8s.io/v1", "storage/v1", "v1"])
def test_the_groups_of_kubernetes_itself_name_no_product(api_version: str) -> None:
    idle = (deployment("snapshot-controller", 0), deployment("storage-operator", 0), deployment("kube-manager", 0))
    assert of_kind(api_version, "Whatever", *idle)[1] == NO_NAME


def test_objects_that_are_not_deleted_or_have_no_finalizers_keep_nothing() -> None:
    deleted = {"deletionTimestamp": "2026-09-14T08:30:00Z"}
    for metadata in ({}, deleted, {"finalizers": ["a.io/b"]}, {**deleted, "finalizers": "a.io/b"}):
        assert read_other(thing("ray.io/v1", "RayJob", "sweep", "trial", metadata=metadata)) is None
