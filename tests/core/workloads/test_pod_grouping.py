"""Which pods become one PodGroup of KAI: the table of its pod grouper."""

from __future__ import annotations

from typing import Any

import pytest

from allot.core.lifecycle.actions import Create, Emit, LookUp, Patch, Resource
from allot.core.model import core_v1
from allot.core.model.codec import decode_served
from allot.core.workloads.pod_grouper import reconcile_pod
from allot.core.workloads.pod_grouping import Ungroupable, group_of

CLASSES = ("train", "build", "inference", "mine")


def pod(labels: dict[str, str] | None = None, owner: dict[str, Any] | None = None, **metadata: Any) -> core_v1.Pod:
    references = [] if owner is None else [reference(owner)]
    body = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "up", "labels": labels or {}, "ownerReferences": references}
        | metadata,
        "spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i"}]},
    }
    return decode_served(body, core_v1.Pod)


def reference(owner: dict[str, Any]) -> dict[str, Any]:
    about = owner["metadata"]
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": about["name"],
        "uid": about["uid"],
        "controller": True,
    }


def owner(
    version: str, kind: str, spec: dict[str, Any] | None = None, by: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    references = {} if by is None else {"ownerReferences": [reference(by)]}
    about = {"name": kind.lower(), "namespace": "ns", "uid": f"u-{kind.lower()}", **references, **metadata}
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec or {}}


def annotated(**words: str) -> dict[str, str]:
    return {f"kai.scheduler/{name.replace('_', '-')}": value for name, value in words.items()}


def replicas(**counts: int) -> dict[str, Any]:
    return {role: {"replicas": count} for role, count in counts.items()}


REPLICA_SET = owner("apps/v1", "ReplicaSet")
CRON_JOB = owner("batch/v1", "CronJob")
KUBEFLOW = "kubeflow.org/v1"
PYTORCH = owner(KUBEFLOW, "PyTorchJob", {"pytorchReplicaSpecs": replicas(Master=1, Worker=3)})
WORKER = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "2"}
MASTER = {"training.kubeflow.org/replica-type": "master"}
JOB_SET = owner(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    {
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {}}},
            {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 4}}},
        ]
    },
)
LWS = "leaderworkerset.x-k8s.io/v1"
LWS_POD = {"leaderworkerset.sigs.k8s.io/group-index": "1", "leaderworkerset.sigs.k8s.io/worker-index": "3"}
RAY = owner(
    "ray.io/v1",
    "RayCluster",
    {
        "headGroupSpec": {},
        "workerGroupSpecs": [
            {"groupName": "gpu", "replicas": 4, "minReplicas": 2, "numOfHosts": 2},
            {"groupName": "cpu", "replicas": 3},
            {"groupName": "off", "replicas": 3, "suspend": True},
        ],
    },
)

# Owners from the nearest to the top; labels of the pod; name of the group, minimum, parts with theirs, the pod's part, class.
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, str], str, int | None, dict[str, Any], str, str]] = {
    "bare pod": ([], {}, "pg-p-up", 1, {}, "", "train"),
    "replica set": ([REPLICA_SET], {}, "pg-replicaset-u-replicaset", 1, {}, "", "train"),
    "stateful set": ([owner("apps/v1", "StatefulSet")], {}, "pg-statefulset-u-statefulset", 1, {}, "", "train"),
    "deployment: each pod": (
        [REPLICA_SET, owner("apps/v1", "Deployment")],
        {},
        "pg-p-up",
        1,
        {},
        "",
        "inference",
    ),
    "job": ([owner("batch/v1", "Job")], {}, "pg-job-u-job", 1, {}, "", "train"),
    "job with a minimum": (
        [owner("batch/v1", "Job", annotations=annotated(batch_min_member="4"))],
        {},
        "pg-job-u-job",
        4,
        {},
        "",
        "train",
    ),
    "cron job": (
        [owner("batch/v1", "Job", annotations=annotated(batch_min_member="4")), CRON_JOB],
        {},
        "pg-job-u-job",
        1,
        {},
        "",
        "train",
    ),
    "unknown kind": ([owner("example.com/v1", "Thing")], {}, "pg-thing-u-thing", 1, {}, "", "train"),
    "pytorch": (
        [PYTORCH],
        WORKER,
        "pg-pytorchjob-u-pytorchjob",
        4,
        {"master": 1, "worker": 3},
        "worker",
        "train",
    ),
    "pytorch master": (
        [PYTORCH],
        MASTER,
        "pg-pytorchjob-u-pytorchjob",
        4,
        {"master": 1, "worker": 3},
        "master",
        "train",
    ),
    "elastic pytorch": (
        [owner(KUBEFLOW, "PyTorchJob", {**PYTORCH["spec"], "elasticPolicy": {"minReplicas": 2}})],
        WORKER,
        "pg-pytorchjob-u-pytorchjob",
        2,
        {"master": 1, "worker": 1},
        "worker",
        "train",
    ),
    "pytorch in segments": (
        [{**PYTORCH, "metadata": {**PYTORCH["metadata"], "annotations": annotated(segment_size="2")}}],
        WORKER,
        "pg-pytorchjob-u-pytorchjob",
        None,
        {"master": 1, "worker": {"minSubGroup": 2}, "worker-0": 2, "worker-1": 1},
        "worker-1",
        "train",
    ),
    "tensorflow": (
        [owner(KUBEFLOW, "TFJob", {"tfReplicaSpecs": replicas(PS=2, Worker=3)})],
        {},
        "pg-tfjob-u-tfjob",
        5,
        {},
        "",
        "train",
    ),
    "mpi": (
        [owner(KUBEFLOW, "MPIJob", {"mpiReplicaSpecs": replicas(Launcher=1, Worker=2)})],
        {},
        "pg-mpijob-u-mpijob",
        3,
        {},
        "",
        "train",
    ),
    "mpi whose launcher comes last": (
        [
            owner(
                "kubeflow.org/v2beta1",
                "MPIJob",
                {
                    "launcherCreationPolicy": "WaitForWorkersReady",
                    "mpiReplicaSpecs": replicas(Launcher=1, Worker=2),
                },
            )
        ],
        {},
        "pg-mpijob-u-mpijob",
        2,
        {},
        "",
        "train",
    ),
    "job set": (
        [owner("batch/v1", "Job"), JOB_SET],
        {"jobset.sigs.k8s.io/replicatedjob-name": "workers", "jobset.sigs.k8s.io/job-index": "1"},
        "pg-jobset-u-jobset",
        None,
        {
            "driver": {"minSubGroup": 1},
            "driver-replica-0": 1,
            "workers": {"minSubGroup": 2},
            "workers-replica-0": 4,
            "workers-replica-1": 4,
        },
        "workers-replica-1",
        "train",
    ),
    "leader worker set": (
        [owner(LWS, "LeaderWorkerSet", {"leaderWorkerTemplate": {"size": 4}})],
        LWS_POD,
        "pg-leaderworkerset-u-leaderworkerset-group-1",
        4,
        {"leader": 1, "workers": 3},
        "workers",
        "train",
    ),
    "ray": (
        [RAY, owner("ray.io/v1", "RayJob")],
        {"ray.io/group": "gpu"},
        "pg-rayjob-u-rayjob",
        8,
        {"headgroup": 1, "gpu": 4, "cpu": 3},
        "gpu",
        "train",
    ),
    "notebook": ([owner("kubeflow.org/v1", "Notebook")], {}, "pg-notebook-u-notebook", 1, {}, "", "build"),
    "spark": (
        [],
        {"spark-app-name": "a", "spark-app-selector": "spark-1"},
        "spark-1",
        1,
        {},
        "",
        "train",
    ),
    "train job": (
        [PYTORCH, owner("trainer.kubeflow.org/v1alpha1", "TrainJob")],
        WORKER,
        "pg-pytorchjob-u-pytorchjob",
        4,
        {"master": 1, "worker": 3},
        "worker",
        "train",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_pod_belongs_to_says_how_many_start_together(case: str) -> None:
    owners, labels, name, minimum, parts, part, class_ = CASES[case]
    found = group_of(pod(labels), owners, CLASSES)
    assert (found.name, found.part) == (name, part)
    assert found.spec.get("minMember") == minimum
    assert found.spec["priorityClassName"] == class_
    read = {
        each["name"]: each["minMember"] if "minMember" in each else {"minSubGroup": each["minSubGroup"]}
        for each in found.spec.get("subGroups", ())
    }
    assert read == parts


def test_labels_of_owners_come_before_those_of_the_pod() -> None:
    top = owner(
        "batch/v1",
        "Job",
        labels={
            "kai.scheduler/queue": "team",
            "priorityClassName": "mine",
            "kai.scheduler/preemptibility": "preemptible",
        },
        annotations=annotated(topology="dc", topology_required_placement="rack", preemption_delay="5m"),
    )
    spec = group_of(pod({"kai.scheduler/queue": "other"}), [top], CLASSES).spec
    assert spec == {
        "minMember": 1,
        "queue": "team",
        "priorityClassName": "mine",
        "preemptibility": "preemptible",
        "preemptionDelay": "5m",
        "topologyConstraint": {"topology": "dc", "requiredTopologyLevel": "rack"},
    }
    # A class that does not exist is none.
    assert group_of(pod({"priorityClassName": "gone"}), [], CLASSES).spec["priorityClassName"] == "train"
    assert group_of(pod({"project": "p"}), [], CLASSES).spec["queue"] == "p"
    assert group_of(pod(), [], CLASSES).spec["queue"] == "default-queue"


@pytest.mark.parametrize(
    ("top", "text"),
    [
        (owner(KUBEFLOW, "TFJob", {"tfReplicaSpecs": replicas(PS=0)}), "spec.tfReplicaSpecs.PS.replicas is 0"),
        (owner(KUBEFLOW, "MPIJob", {"mpiReplicaSpecs": replicas(Worker=2)}), "has no spec.mpiReplicaSpecs.Launcher"),
        (
            owner("batch/v1", "Job", annotations=annotated(batch_min_member="many")),
            "is 'many', expected a whole number",
        ),
        (
            owner("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "a", "replicas": 10**9}]}),
            "at most 10000 are allowed",
        ),
    ],
)
def test_an_owner_that_makes_no_sense_is_named(top: dict[str, Any], text: str) -> None:
    with pytest.raises(Ungroupable, match=text.replace("'", ".")):
        group_of(pod(), [top], CLASSES)
    actions = reconcile_pod(pod(owner=top), lambda *_: top, lambda _key: None, CLASSES)
    assert isinstance(actions[0], Emit) and actions[0].reason == "PodGrouperWarning"


def test_owners_are_asked_for_one_after_the_other() -> None:
    top = owner("ray.io/v1", "RayJob")
    cluster = {**RAY, "metadata": {**RAY["metadata"], "ownerReferences": [reference(top)]}}
    known: dict[str, Any] = {}

    def find(resource: Resource, namespace: str, name: str) -> Any:
        return known.get(resource.kind, LookUp(resource=resource, namespace=namespace, name=name))

    member = pod({"ray.io/group": "gpu"}, cluster)
    for kind, found in (("RayCluster", cluster), ("RayJob", top)):
        (question,) = reconcile_pod(member, find, lambda _key: None, CLASSES)
        assert isinstance(question, LookUp) and question.resource.kind == kind
        known[kind] = found
    made, patch = reconcile_pod(member, find, lambda _key: None, CLASSES)
    assert isinstance(made, Create) and isinstance(patch, Patch)
    assert made.object["metadata"]["name"] == "pg-rayjob-u-rayjob"  # type: ignore[index]
    assert patch.patch["metadata"]["annotations"] == {"pod-group-name": "pg-rayjob-u-rayjob"}
    assert patch.patch["metadata"]["labels"] == {"kai.scheduler/subgroup-name": "gpu"}


def test_a_group_is_kept_up_to_date_but_for_its_queue() -> None:
    known = {"metadata": {"uid": "u"}, "spec": {"minMember": 2, "queue": "moved", "subGroups": []}}
    actions = reconcile_pod(
        pod(annotations={"pod-group-name": "pg-p-up"}), lambda *_: None, lambda _key: known, CLASSES
    )
    (patch,) = actions
    assert isinstance(patch, Patch)
    assert patch.patch["spec"] == {"minMember": 1, "priorityClassName": "train", "subGroups": None}


@pytest.mark.parametrize(
    "alone",
    [
        pod(annotations={"pod-group-name": "my-own"}),
        pod(annotations={"kai.scheduler/skip-podgrouper": "true"}),
        pod(deletionTimestamp="2026-01-01T00:00:00Z"),
    ],
)
def test_who_has_a_group_or_wants_none_is_left_alone(alone: core_v1.Pod) -> None:
    assert reconcile_pod(alone, lambda *_: None, lambda _key: None, CLASSES) == ()
