"""ReplicaSets, and the older ReplicationControllers: the desired number of pods, and a status that counts them.

A ReplicationController differs in what its selector may contain and in a count that its status lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from allot.core.lifecycle.actions import Action, Answers, RequeueAfter, Together
from allot.core.lifecycle.disruption import PODS
from allot.core.lifecycle.times import time_of
from allot.core.model.apps_v1 import ReplicaSet, ReplicaSetStatus, WorkloadCondition
from allot.core.model.core_v1 import Pod
from allot.core.workloads.ownership import Claimed, claim, reference_to, selector_of, take_over
from allot.core.workloads.pod_ranking import first_to_delete
from allot.core.workloads.pod_states import is_active, is_available, is_ready, is_terminating, next_available_s
from allot.core.workloads.pod_templates import (
    create_pod,
    delete_pod,
    generated_name,
    pod_from_template,
    pod_matches_template_labels,
    template_value,
)
from allot.core.workloads.resources import REPLICA_SETS, REPLICATION_CONTROLLERS
from allot.core.workloads.whole import Object, Whole, whole

# How many pods are created or deleted per pass.
BURST = 500
REPLICA_FAILURE = "ReplicaFailure"


class Failure(msgspec.Struct, frozen=True):
    """Why the last attempt to create or delete pods failed. reason: FailedCreate or FailedDelete."""

    reason: str
    message: str


def read_replica_set(source: Object) -> Whole[ReplicaSet]:
    """A ReplicaSet as the server sent it. DecodeError if it is invalid."""
    return whole(REPLICA_SETS, ReplicaSet, source)


def read_replication_controller(source: Object) -> Whole[ReplicaSet]:
    """A ReplicationController, read as a ReplicaSet; it is written back as what it is."""
    spec = dict(source.get("spec") or {})
    selector = {"matchLabels": spec.get("selector") or {}}
    seen = whole(REPLICATION_CONTROLLERS, ReplicaSet, {**source, "spec": {**spec, "selector": selector}})
    return msgspec.structs.replace(seen, source={**seen.source, "spec": source.get("spec") or {}})


def replicas_of(replica_set: ReplicaSet) -> int:
    """The desired number of pods."""
    replicas = replica_set.spec.replicas
    return 1 if replicas is None else replicas


def reconcile(
    replica_set: Whole[ReplicaSet],
    pods: Iterable[Pod],
    related: Callable[[], Iterable[Pod]],
    answers: Answers,
    now_s: float,
    *,
    is_settled: bool = True,
    failure: Failure | None = None,
) -> Sequence[Action]:
    """What to do for a ReplicaSet.

    pods: all that it controls, and the orphans in its namespace. related: the pods of all ReplicaSets of its owner, for choosing
    those to delete. is_settled: whether pods include all earlier writes; if not, only the status is updated. failure: that of the
    last attempt.
    """
    owner = replica_set.metadata
    selector = selector_of(replica_set.value.spec.selector)
    if selector is None:
        return ()
    pods = tuple(pods)
    claimed = claim(owner, lambda pod: selector.matches(pod.metadata.labels), (pod for pod in pods if is_active(pod)))
    taking, is_all = take_over(replica_set.resource, owner, PODS, claimed, answers)
    if is_all:
        return taking
    going = (pod for pod in pods if is_terminating(pod) and selector.matches(pod.metadata.labels))
    terminating = sum(owner.uid in _controllers(pod) for pod in going)
    actions: list[Action] = list(taking)
    changes: Sequence[Action] = ()
    if is_settled and owner.deletion_timestamp is None:
        changes = _changes(replica_set, claimed, related, now_s)
    is_counted = replica_set.resource is REPLICA_SETS
    status = _status(replica_set.value, claimed.members, terminating if is_counted else None, failure, now_s)
    if not is_settled:
        # Counted pods may already be about to be deleted for the current size.
        observed = replica_set.value.status.observed_generation
        status = msgspec.structs.replace(status, observed_generation=observed)
    if status != replica_set.value.status:
        actions.append(replica_set.update_status(status))
    actions += changes
    if status.ready_replicas != status.available_replicas:
        seconds = replica_set.value.spec.min_ready_seconds
        wait = next_available_s(claimed.members, seconds, now_s)
        actions.append(RequeueAfter(seconds=float(seconds) if wait is None else wait))
    return actions


def _controllers(pod: Pod) -> tuple[str, ...]:
    return tuple(owner.uid for owner in pod.metadata.owner_references if owner.controller)


def _changes(
    replica_set: Whole[ReplicaSet], claimed: Claimed[Pod], related: Callable[[], Iterable[Pod]], now_s: float
) -> Sequence[Action]:
    """Pods to create or delete."""
    members, wanted = claimed.members, replicas_of(replica_set.value)
    missing = wanted - len(members)
    told = replica_set.reference
    if missing > 0:
        template = replica_set.value.spec.template
        assert template is not None, f"{replica_set.resource.kind} {replica_set.metadata.name} without a template"
        reference = reference_to(replica_set.resource, replica_set.metadata)
        pod = pod_from_template(template_value(template), reference, replica_set.metadata.namespace)
        pod["metadata"]["generateName"] = generated_name(replica_set.metadata.name)
        return (Together(writes=(create_pod(pod, told),) * min(missing, BURST), slow_start=True),)
    if missing < 0:
        going = first_to_delete(members, related(), min(-missing, BURST), now_s)
        return (Together(writes=tuple(delete_pod(pod, told) for pod in going)),)
    return ()


def _status(
    replica_set: ReplicaSet, pods: Sequence[Pod], terminating: int | None, failure: Failure | None, now_s: float
) -> ReplicaSetStatus:
    spec = replica_set.spec
    template = template_value(spec.template) if spec.template is not None else {}
    labels = (template.get("metadata") or {}).get("labels") or {}
    labelled = ready = available = 0
    for pod in pods:
        labelled += pod_matches_template_labels(labels, pod.metadata)
        if is_ready(pod):
            ready += 1
            available += is_available(pod, spec.min_ready_seconds, now_s)
    return msgspec.structs.replace(
        replica_set.status,
        replicas=len(pods),
        fully_labeled_replicas=labelled,
        ready_replicas=ready,
        available_replicas=available,
        terminating_replicas=terminating,
        observed_generation=replica_set.metadata.generation,
        conditions=_conditions(replica_set.status.conditions, failure, now_s),
    )


def _conditions(
    conditions: tuple[WorkloadCondition, ...], failure: Failure | None, now_s: float
) -> tuple[WorkloadCondition, ...]:
    """The first failure is reported until an attempt succeeds."""
    has_failed = any(one.type == REPLICA_FAILURE for one in conditions)
    if failure is None and has_failed:
        return tuple(one for one in conditions if one.type != REPLICA_FAILURE)
    if failure is not None and not has_failed:
        told = WorkloadCondition(
            type=REPLICA_FAILURE,
            status="True",
            last_transition_time=time_of(now_s),
            reason=failure.reason,
            message=failure.message,
        )
        return (*conditions, told)
    return conditions
