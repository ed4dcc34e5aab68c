"""The status of Deployments: counts, conditions, and whether an update makes progress."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.apps_v1 import Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus
from allot.core.workloads.replicaset import REPLICA_FAILURE
from allot.core.workloads.rollout import Draft, max_unavailable, wanted_replicas

AVAILABLE = "Available"
PROGRESSING = "Progressing"
NEW_REPLICA_SET_AVAILABLE = "NewReplicaSetAvailable"
DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
PAUSED = "DeploymentPaused"
RESUMED = "DeploymentResumed"
_INT32_MAX = 2**31 - 1


def has_deadline(spec: DeploymentSpec) -> bool:
    """Whether progress has a deadline."""
    return spec.progress_deadline_seconds is not None and spec.progress_deadline_seconds != _INT32_MAX


def condition_of(status: DeploymentStatus, type_: str) -> DeploymentCondition | None:
    """The condition of a type."""
    return next((one for one in status.conditions if one.type == type_), None)


def without_condition(status: DeploymentStatus, type_: str) -> DeploymentStatus:
    """The status without a condition."""
    kept = tuple(one for one in status.conditions if one.type != type_)
    return status if len(kept) == len(status.conditions) else msgspec.structs.replace(status, conditions=kept)


def with_condition(status: DeploymentStatus, condition: DeploymentCondition) -> DeploymentStatus:
    """The status with a condition. One with the same status and reason is kept unchanged, including its message."""
    old = condition_of(status, condition.type)
    if old is not None and old.status == condition.status:
        if old.reason == condition.reason:
            return status
        condition = msgspec.structs.replace(condition, last_transition_time=old.last_transition_time)
    others = without_condition(status, condition.type).conditions
    return msgspec.structs.replace(status, conditions=(*others, condition))


def condition(type_: str, status: str, reason: str, message: str, now_s: float) -> DeploymentCondition:
    """A new condition."""
    now = time_of(now_s)
    return DeploymentCondition(
        type=type_, status=status, last_update_time=now, last_transition_time=now, reason=reason, message=message
    )


def counted(
    deployment: Deployment, status: DeploymentStatus, sets: Sequence[Draft], new: Draft | None, now_s: float
) -> DeploymentStatus:
    """The status with current counts, and whether they suffice."""
    spec = deployment.spec
    available = sum(each.status.available_replicas for each in sets)
    status = msgspec.structs.replace(
        status,
        observed_generation=deployment.metadata.generation,
        replicas=sum(each.status.replicas for each in sets),
        updated_replicas=0 if new is None else new.status.replicas,
        ready_replicas=sum(each.status.ready_replicas for each in sets),
        available_replicas=available,
        unavailable_replicas=max(0, sum(each.replicas for each in sets) - available),
        terminating_replicas=_terminating(sets),
    )
    if available >= wanted_replicas(spec) - max_unavailable(spec):
        told = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        told = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    return with_condition(status, condition(AVAILABLE, *told, now_s))


def _terminating(sets: Sequence[Draft]) -> int | None:
    """None if a ReplicaSet does not report it."""
    total = 0
    for each in sets:
        if each.status.terminating_replicas is not None:
            total += each.status.terminating_replicas
        elif each.status.observed_generation != 0:
            return None
    return total


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Whether all desired pods, and only those, are new and available."""
    wanted = wanted_replicas(deployment.spec)
    return (
        status.updated_replicas == status.replicas == status.available_replicas == wanted
        and status.observed_generation >= deployment.metadata.generation
    )


def rolled_out(
    deployment: Deployment, before: DeploymentStatus, sets: Sequence[Draft], new: Draft | None, now_s: float
) -> DeploymentStatus:
    """The status during an update. before: the previous status."""
    status = counted(deployment, before, sets, new, now_s)
    spec, current = deployment.spec, condition_of(before, PROGRESSING)
    if not has_deadline(spec):
        status = without_condition(status, PROGRESSING)
    else:
        is_resync = status.replicas == status.updated_replicas and current is not None
        if not (is_resync and current is not None and current.reason == NEW_REPLICA_SET_AVAILABLE):
            status = _with_progress(deployment, before, status, new, now_s)
    return _with_failures(status, sets, new)


def _with_progress(
    deployment: Deployment, before: DeploymentStatus, status: DeploymentStatus, new: Draft | None, now_s: float
) -> DeploymentStatus:
    subject = f'Deployment "{deployment.metadata.name}"' if new is None else f'ReplicaSet "{new.name}"'
    if is_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        return with_condition(status, condition(PROGRESSING, "True", NEW_REPLICA_SET_AVAILABLE, message, now_s))
    if _is_progress(before, status):
        # Updated each time, so that the deadline counts from the last progress.
        told = condition(PROGRESSING, "True", "ReplicaSetUpdated", f"{subject} is progressing.", now_s)
        current = condition_of(before, PROGRESSING)
        if current is not None and current.status == "True":
            told = msgspec.structs.replace(told, last_transition_time=current.last_transition_time)
        return with_condition(without_condition(status, PROGRESSING), told)
    if _is_timed_out(deployment.spec, status, now_s):
        message = f"{subject} has timed out progressing."
        return with_condition(status, condition(PROGRESSING, "False", DEADLINE_EXCEEDED, message, now_s))
    return status


def _is_progress(before: DeploymentStatus, status: DeploymentStatus) -> bool:
    return (
        status.updated_replicas > before.updated_replicas
        or status.replicas - status.updated_replicas < before.replicas - before.updated_replicas
        or status.ready_replicas > before.ready_replicas
        or status.available_replicas > before.available_replicas
    )


def _is_timed_out(spec: DeploymentSpec, status: DeploymentStatus, now_s: float) -> bool:
    told = condition_of(status, PROGRESSING)
    if told is None or told.reason == NEW_REPLICA_SET_AVAILABLE:
        return False
    return told.reason == DEADLINE_EXCEEDED or deadline_s(spec, told) < now_s


def deadline_s(spec: DeploymentSpec, told: DeploymentCondition) -> float:
    """When progress is overdue."""
    assert spec.progress_deadline_seconds is not None
    since = seconds_of(told.last_update_time) if told.last_update_time is not None else 0.0
    return since + spec.progress_deadline_seconds


def _with_failures(status: DeploymentStatus, sets: Sequence[Draft], new: Draft | None) -> DeploymentStatus:
    """What keeps a ReplicaSet from creating pods, the new one first."""
    for each in (*([new] if new is not None else []), *sets):
        for one in each.status.conditions:
            if one.type == REPLICA_FAILURE:
                since = one.last_transition_time
                told = DeploymentCondition(
                    type=one.type,
                    status=one.status,
                    last_update_time=since,
                    last_transition_time=since,
                    reason=one.reason,
                    message=one.message,
                )
                return with_condition(status, told)
    return without_condition(status, REPLICA_FAILURE)


def with_pause(deployment: Deployment, now_s: float) -> DeploymentStatus:
    """The status with a condition about being paused or resumed, so that the pause does not count as lack of progress."""
    status, spec = deployment.status, deployment.spec
    told = condition_of(status, PROGRESSING)
    if not has_deadline(spec) or (told is not None and told.reason == DEADLINE_EXCEEDED):
        return status
    says_paused = told is not None and told.reason == PAUSED
    if spec.paused and not says_paused:
        return with_condition(status, condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now_s))
    if not spec.paused and says_paused:
        return with_condition(status, condition(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now_s))
    return status
