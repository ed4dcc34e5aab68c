"""The kinds of workloads that can be explained, by kubectl's names, and a list of all that are not as wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.workloads.autoscalers import explain_autoscaler, with_autoscaler
from allot.core.advice.explain.workloads.budgets import explain_budget
from allot.core.advice.explain.workloads.deployments import explain_deployment, explain_replica_set
from allot.core.advice.explain.workloads.job_sets import explain_job_set
from allot.core.advice.explain.workloads.jobs import explain_cron_job, explain_job
from allot.core.advice.explain.workloads.machines import explain_node, explain_slice
from allot.core.advice.explain.workloads.namespaces import explain_namespace
from allot.core.advice.explain.workloads.scene import Scene
from allot.core.advice.explain.workloads.services import explain_service
from allot.core.advice.explain.workloads.sets import explain_daemon_set, explain_stateful_set
from allot.core.advice.explain.workloads.storage import explain_volume_claim
from allot.core.advice.explain.workloads.volcano_jobs import explain_volcano_job
from allot.core.advice.snapshot import snapshot_kind
from allot.core.model import core_v1, policy_v1, resource_v1
from allot.core.model.apps_v1 import DaemonSet, Deployment, ReplicaSet, StatefulSet
from allot.core.model.batch_v1 import CronJob, Job
from allot.core.model.job_sets import JobSet
from allot.core.model.meta import APIStruct, ObjectMeta
from allot.core.model.observed_v1 import HorizontalPodAutoscaler
from allot.core.model.volcano_jobs import VolcanoJob
from allot.core.workloads.ownership import controller_reference


class Workload(msgspec.Struct, frozen=True):
    """A kind that can be explained. words: singular, plural and short name."""

    type: type[APIStruct]
    explain: Callable[..., Explanation]
    words: tuple[str, ...]


WORKLOADS: tuple[Workload, ...] = (
    Workload(Deployment, explain_deployment, ("deployment", "deployments", "deploy")),
    Workload(StatefulSet, explain_stateful_set, ("statefulset", "statefulsets", "sts")),
    Workload(DaemonSet, explain_daemon_set, ("daemonset", "daemonsets", "ds")),
    Workload(ReplicaSet, explain_replica_set, ("replicaset", "replicasets", "rs")),
    Workload(CronJob, explain_cron_job, ("cronjob", "cronjobs", "cj")),
    Workload(Job, explain_job, ("job", "jobs")),
    Workload(JobSet, explain_job_set, ("jobset", "jobsets")),
    Workload(VolcanoJob, explain_volcano_job, ("vcjob", "vcjobs", "vj")),
    Workload(
        HorizontalPodAutoscaler, explain_autoscaler, ("horizontalpodautoscaler", "horizontalpodautoscalers", "hpa")
    ),
    Workload(
        core_v1.PersistentVolumeClaim,
        explain_volume_claim,
        ("persistentvolumeclaim", "persistentvolumeclaims", "pvc"),
    ),
    Workload(core_v1.Service, explain_service, ("service", "services", "svc")),
)
# Explained only on request; the overview leaves them out.
ASKED: tuple[Workload, ...] = (
    Workload(core_v1.Node, explain_node, ("node", "nodes", "no")),
    Workload(core_v1.Namespace, explain_namespace, ("namespace", "namespaces", "ns")),
    Workload(policy_v1.PodDisruptionBudget, explain_budget, ("poddisruptionbudget", "poddisruptionbudgets", "pdb")),
    Workload(resource_v1.ResourceSlice, explain_slice, ("resourceslice", "resourceslices")),
)
BY_WORD: Mapping[str, Workload] = {word: each for each in (*WORKLOADS, *ASKED) for word in each.words}
# What owners of other kinds create besides pods.
OWNED: Mapping[type[APIStruct], Workload] = {
    each.type: each
    for each in WORKLOADS
    if each.type not in (HorizontalPodAutoscaler, core_v1.PersistentVolumeClaim, core_v1.Service)
}
# Not running, but intentionally so.
_CHOSEN = (Reason.SUSPENDED, Reason.PAUSED, Reason.AT_MAXIMUM, Reason.WAITS_FOR_CONSUMER)


def explain_workload(scene: Scene, kind: Workload, object_: APIStruct, *, briefly: bool) -> Explanation:
    """Why an object is not as wanted, or a note that it is. Of one that is, its autoscaler may still want more; the overview names
    that one by itself."""
    found = kind.explain(scene, object_, briefly=briefly)
    scaled = kind.type in (Deployment, StatefulSet, ReplicaSet) and found.state is not State.NOT_AS_WANTED
    return with_autoscaler(scene, object_, found) if scaled and not briefly else found


def namesakes(kind: str) -> list[Workload]:
    """The kinds of one name, as Job of batch and of Volcano."""
    return [each for each in WORKLOADS if snapshot_kind(each.type).name == kind]


def top_owner(scene: Scene, object_: APIStruct) -> APIStruct:
    """The topmost owner of an object; the object itself if unknown."""
    known: set[str] = set()
    while True:
        reference = controller_reference(_metadata(object_))
        if reference is None or reference.uid in known:
            return object_
        known.add(reference.uid)
        owners = [
            scene.what_if.get(kind.type, reference.name, _metadata(object_).namespace)
            for kind in namesakes(reference.kind)
        ]
        owner = next((each for each in owners if each is not None and _metadata(each).uid == reference.uid), None)
        if owner is None:
            return object_
        object_ = owner


def wrong_workloads(scene: Scene, namespace: str | None) -> Iterator[Explanation]:
    """The cause of every workload that is not as wanted, once each, under its topmost owner."""
    for kind in WORKLOADS:
        objects: list[Any] = scene.what_if.all(kind.type)
        for each in sorted(objects, key=lambda one: (one.metadata.namespace, one.metadata.name)):
            if namespace not in (None, each.metadata.namespace) or top_owner(scene, each) is not each:
                continue
            found = explain_workload(scene, kind, each, briefly=True)
            if found.state is State.NOT_AS_WANTED and found.reason not in _CHOSEN:
                yield found


def _metadata(object_: APIStruct) -> ObjectMeta:
    found: ObjectMeta = object_.metadata  # type: ignore[attr-defined]
    return found
