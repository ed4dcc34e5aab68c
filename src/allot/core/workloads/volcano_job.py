"""A Job of Volcano: a PodGroup, the pods of its tasks, its policies, and its status.

Pod names follow from the job, so that none is created twice. A restart increments the job's version; pods of an older version are
deleted and recreated. All state is in the job's status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from allot.core.lifecycle.actions import (
    NORMAL,
    WARNING,
    Action,
    Create,
    Delete,
    Emit,
    Patch,
    RequeueAfter,
    Resource,
    Together,
)
from allot.core.lifecycle.coscheduling import count_phases, status_patch
from allot.core.lifecycle.disruption import PODS, is_terminal
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.lifecycle.volcano_groups import POD_GROUPS
from allot.core.model.core_v1 import Pod
from allot.core.model.volcano_jobs import BATCH_VOLCANO, VolcanoJob, VolcanoPolicy, VolcanoTask
from allot.core.workloads.ownership import reference_to
from allot.core.workloads.pod_templates import pod_from_template

Object = Mapping[str, Any]

JOBS = Resource(group=BATCH_VOLCANO, version="v1alpha1", plural="jobs", kind="Job", namespaced=True)
SERVICES = Resource(group="", version="v1", plural="services", kind="Service", namespaced=True)
PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
COMPLETED, FAILED, ABORTED, TERMINATED = "Completed", "Failed", "Aborted", "Terminated"
OVER = frozenset((COMPLETED, FAILED, ABORTED, TERMINATED))
# Supported plugins; the server warns about others.
SVC, ENV = "svc", "env"

_JOB_NAME, _TASK, _VERSION = "volcano.sh/job-name", "volcano.sh/task-spec", "volcano.sh/job-version"
_GROUP_NAME = "scheduling.k8s.io/group-name"
_ENDS = {"AbortJob": ABORTED, "TerminateJob": TERMINATED, "CompleteJob": COMPLETED}
_ANY = "*"
# How many pods are created at a time.
_CREATED_MAX = 200


def minimum_of_task(task: VolcanoTask) -> int:
    """The minimum number of its pods."""
    return task.replicas if task.min_available is None else task.min_available


def minimum_of_job(job: VolcanoJob) -> int:
    """How many of its pods start together."""
    asked = job.spec.min_available
    return asked if asked else sum(minimum_of_task(task) for task in job.spec.tasks)


def _minimum_of(job: VolcanoJob, tasks: Sequence[VolcanoTask]) -> int:
    """The same while only some of its tasks have started: pods that do not exist yet are not waited for."""
    if len(tasks) == len(job.spec.tasks):
        return minimum_of_job(job)
    if not job.spec.min_available:
        return sum(minimum_of_task(task) for task in tasks)
    return min(job.spec.min_available, sum(task.replicas for task in tasks))


def reconcile_job(
    job: VolcanoJob, pods: Sequence[Pod], group: Object | None, *, has_service: bool, now_s: float
) -> tuple[Action, ...]:
    """What to do for a job. pods: those that it controls; group: its PodGroup, if any."""
    if job.metadata.deletion_timestamp is not None:
        return ()
    current = [pod for pod in pods if _version_of(pod) == job.status.version]
    phase = job.status.state.phase or PENDING
    if phase in OVER:
        return (*_ended(job, pods, now_s), *_status(job, current, job.status.state.phase, "", "", now_s))
    action, why, failed = _triggered(job, current)
    if action in _ENDS:
        return _status(job, current, _ENDS[action], action, why, now_s)
    if action == "RestartJob":
        return _restart(job, current, why, now_s)
    gone = [pod for pod in pods if _version_of(pod) != job.status.version or pod in failed or _is_surplus(job, pod)]
    deletes = tuple(_delete(pod) for pod in gone if pod.metadata.deletion_timestamp is None)
    tasks = _on_turn(job, current)
    end = _end(job, tasks, current) if not failed else ""
    if end:
        why = "; ".join((f"{sum(is_terminal(pod) for pod in current)} pods have ended", *_never(job)))
        return _status(job, current, end, "", why, now_s)
    counts = count_phases(current)
    reached = counts["running"] + counts["succeeded"] >= _minimum_of(job, tasks)
    now = RUNNING if reached else RESTARTING if phase == RESTARTING and len(current) < len(pods) else PENDING
    return (
        *_status(job, current, now, "", "", now_s),
        *_group(job, tasks, group),
        *(() if has_service or SVC not in job.spec.plugins else (_service(job),)),
        *deletes,
        *_missing(job, tasks, pods),
        *_told(job),
    )


# --- tasks ---


def _on_turn(job: VolcanoJob, pods: Sequence[Pod]) -> list[VolcanoTask]:
    """The tasks that have or may have pods: the tasks that they depend on are running."""
    begun = {pod.metadata.labels.get(_TASK) for pod in pods}
    return [task for task in job.spec.tasks if task.name in begun or _may_begin(job, task, pods)]


def _may_begin(job: VolcanoJob, task: VolcanoTask, pods: Sequence[Pod]) -> bool:
    after = task.depends_on
    if after is None or not after.name:
        return True
    runs = [_runs(job, name, pods) for name in after.name]
    return any(runs) if after.iteration == "any" else all(runs)


def _runs(job: VolcanoJob, name: str, pods: Sequence[Pod]) -> bool:
    """Whether enough pods of a task are ready or have succeeded."""
    task = next((each for each in job.spec.tasks if each.name == name), None)
    own = [pod for pod in pods if pod.metadata.labels.get(_TASK) == name]
    return task is not None and sum(_is_ready(pod) for pod in own) >= minimum_of_task(task)


def _is_ready(pod: Pod) -> bool:
    if pod.status.phase == "Running":
        return all(status.ready for status in pod.status.container_statuses)
    return pod.status.phase == "Succeeded"


def _never(job: VolcanoJob) -> list[str]:
    """Why tasks can never start, regardless of the others."""
    names = {task.name for task in job.spec.tasks}
    after = {task.name: task.depends_on.name for task in job.spec.tasks if task.depends_on is not None}
    found = [
        f"task {task} depends on task {name}, which the job does not have: expected one of {', '.join(sorted(names))}"
        for task, others in after.items()
        for name in others
        if name not in names
    ]
    return found + [f"task {name} depends on itself" for name in after if name in _all_after(name, after)]


def _told(job: VolcanoJob) -> tuple[Action, ...]:
    return tuple(
        Emit(regarding=_as_object(job), type=WARNING, reason="InvalidDependency", action="Sync", note=note)
        for note in _never(job)
    )


def _all_after(name: str, after: Mapping[str, Sequence[str]]) -> set[str]:
    """All tasks that a task waits for, directly or not."""
    found: set[str] = set()
    todo = [*after.get(name, ())]
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += after.get(each, ())
    return found


# --- pods ---


def _missing(job: VolcanoJob, tasks: Sequence[VolcanoTask], pods: Sequence[Pod]) -> tuple[Action, ...]:
    known = {pod.metadata.name for pod in pods}
    creates: list[Create] = []
    for task in tasks:
        for index in range(task.replicas):
            name = pod_name(job, task, index)
            if name in known:
                continue
            if len(creates) == _CREATED_MAX:
                return (Together(writes=tuple(creates), slow_start=True), RequeueAfter(seconds=0.1))
            failure = Emit(
                regarding=_as_object(job), type=WARNING, reason="FailedCreate", action="Sync", note=f"pod {name}: "
            )
            creates.append(
                Create(
                    resource=PODS,
                    namespace=job.metadata.namespace,
                    object=_pod(job, task, index),
                    may_exist=True,
                    on_failure=failure,
                )
            )
    return (Together(writes=tuple(creates), slow_start=True),) if creates else ()


def pod_name(job: VolcanoJob, task: VolcanoTask, index: int) -> str:
    """The name of a pod of a task."""
    return f"{job.metadata.name}-{task.name}-{index}"


def _pod(job: VolcanoJob, task: VolcanoTask, index: int) -> Object:
    metadata, spec = job.metadata, job.spec
    # The server reports errors in a template when the pod is created.
    template = {key: value for key, value in task.template.items() if isinstance(value, Mapping)}
    pod = pod_from_template(template, reference_to(JOBS, metadata), metadata.namespace)
    queue = {"volcano.sh/queue-name": spec.queue} if spec.queue else {}
    words = {_JOB_NAME: metadata.name, _TASK: task.name, **queue}
    about = dict(pod["metadata"])
    about["name"] = pod_name(job, task, index)
    about["labels"] = {**(about.get("labels") or {}), **words, "volcano.sh/task-index": str(index)}
    about["annotations"] = {
        **(about.get("annotations") or {}),
        **words,
        _VERSION: str(job.status.version),
        _GROUP_NAME: group_name(job),
    }
    made = dict(pod["spec"])
    made.setdefault("schedulerName", spec.scheduler_name)
    if spec.priority_class_name:
        made.setdefault("priorityClassName", spec.priority_class_name)
    if SVC in spec.plugins:
        made |= {"hostname": about["name"], "subdomain": metadata.name}
    variables = [*_variables(job, index)]
    if variables:
        made["containers"] = [
            {**each, "env": [*(each.get("env") or ()), *variables]} if isinstance(each, Mapping) else each
            for each in made.get("containers") or ()
        ]
    return {**pod, "metadata": about, "spec": made}


def _variables(job: VolcanoJob, index: int) -> Iterator[Object]:
    """The variables that the plugins `env` and `svc` set in containers."""
    if ENV in job.spec.plugins:
        yield {"name": "VK_TASK_INDEX", "value": str(index)}
        yield {"name": "VC_TASK_INDEX", "value": str(index)}
    for task in job.spec.tasks if SVC in job.spec.plugins else ():
        name = task.name.upper().replace("-", "_")
        hosts = ",".join(f"{pod_name(job, task, each)}.{job.metadata.name}" for each in range(task.replicas))
        yield {"name": f"VC_{name}_HOSTS", "value": hosts}
        yield {"name": f"VC_{name}_NUM", "value": str(task.replicas)}


def _service(job: VolcanoJob) -> Create:
    metadata = {
        "name": job.metadata.name,
        "namespace": job.metadata.namespace,
        "ownerReferences": [reference_to(JOBS, job.metadata)],
    }
    spec = {"clusterIP": "None", "selector": {_JOB_NAME: job.metadata.name}, "publishNotReadyAddresses": True}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}
    return Create(resource=SERVICES, namespace=job.metadata.namespace, object=body, may_exist=True)


def _is_surplus(job: VolcanoJob, pod: Pod) -> bool:
    task = next((each for each in job.spec.tasks if each.name == pod.metadata.labels.get(_TASK)), None)
    index = pod.metadata.labels.get("volcano.sh/task-index", "")
    return task is None or not index.isdigit() or int(index) >= task.replicas


def _version_of(pod: Pod) -> int:
    text = pod.metadata.annotations.get(_VERSION, "0")
    return int(text) if text.isdigit() else 0


def _delete(pod: Pod) -> Delete:
    metadata = pod.metadata
    return Delete(resource=PODS, name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)


# --- its group ---


def group_name(job: VolcanoJob) -> str:
    """The name of its PodGroup."""
    return f"{job.metadata.name}-{job.metadata.uid}"


def _group(job: VolcanoJob, tasks: Sequence[VolcanoTask], known: Object | None) -> tuple[Action, ...]:
    spec: dict[str, Any] = {
        "minMember": _minimum_of(job, tasks),
        "minTaskMember": {task.name: minimum_of_task(task) for task in tasks},
    }
    if job.spec.queue:
        spec["queue"] = job.spec.queue
    if job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    namespace = job.metadata.namespace
    if known is None:
        metadata = {
            "name": group_name(job),
            "namespace": namespace,
            "ownerReferences": [reference_to(JOBS, job.metadata)],
        }
        body = {"apiVersion": POD_GROUPS.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec}
        return (Create(resource=POD_GROUPS, namespace=namespace, object=body, may_exist=True),)
    before = known.get("spec") or {}
    changed = {key: value for key, value in spec.items() if before.get(key) != value}
    if not changed:
        return ()
    if "minTaskMember" in changed:
        # Maps are merged, so removed keys must be named.
        changed["minTaskMember"] = {**dict.fromkeys(before.get("minTaskMember") or ()), **spec["minTaskMember"]}
    patch = {"metadata": {"uid": known["metadata"]["uid"]}, "spec": changed}
    return (Patch(resource=POD_GROUPS, name=group_name(job), namespace=namespace, patch=patch),)


# --- what happens ---


def _triggered(job: VolcanoJob, pods: Sequence[Pod]) -> tuple[str, str, list[Pod]]:
    """The action of the first matching policy, the reason, and the affected pods."""
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if _is_surplus(job, pod):
            continue
        for event, code in _events(pod):
            action = _action(job, pod, event, code)
            if action:
                about = [pod] if action == "RestartPod" else _of_task(pod, pods) if action == "RestartTask" else []
                exit_code = f" with code {code}" if code is not None else ""
                return action, f"{event}: pod {pod.metadata.name}{exit_code}", about
    for task in job.spec.tasks:
        own = [pod for pod in pods if pod.metadata.labels.get(_TASK) == task.name]
        if own and len(own) >= task.replicas and all(pod.status.phase == "Succeeded" for pod in own):
            action = _first(task.policies, "TaskCompleted", None) or _first(job.spec.policies, "TaskCompleted", None)
            if action:
                return action, f"TaskCompleted: task {task.name}", []
    return "", "", []


def _events(pod: Pod) -> Iterator[tuple[str, int | None]]:
    if pod.status.phase == "Failed":
        codes = [
            status.state.terminated.exit_code
            for status in pod.status.container_statuses
            if status.state is not None and status.state.terminated is not None and status.state.terminated.exit_code
        ]
        yield "PodFailed", codes[0] if codes else None
    elif pod.metadata.deletion_timestamp is not None and pod.status.phase != "Succeeded":
        yield "PodEvicted", None


def _action(job: VolcanoJob, pod: Pod, event: str, code: int | None) -> str:
    task = next((each for each in job.spec.tasks if each.name == pod.metadata.labels.get(_TASK)), None)
    own = _first(task.policies, event, code) if task is not None else ""
    return own or _first(job.spec.policies, event, code)


def _first(policies: Sequence[VolcanoPolicy], event: str, code: int | None) -> str:
    for policy in policies:
        named = (policy.event, *policy.events)
        if event in named or _ANY in named or (code is not None and policy.exit_code == code):
            return policy.action
    return ""


def _of_task(pod: Pod, pods: Sequence[Pod]) -> list[Pod]:
    name = pod.metadata.labels.get(_TASK)
    return [each for each in pods if each.metadata.labels.get(_TASK) == name]


def _end(job: VolcanoJob, tasks: Sequence[VolcanoTask], pods: Sequence[Pod]) -> str:
    """The final phase of a job whose pods have all ended; empty if it continues. Tasks that have not started by then never will."""
    wanted = sum(task.replicas for task in tasks)
    own = [pod for pod in pods if not _is_surplus(job, pod)]
    if len(own) < wanted or not all(is_terminal(pod) for pod in own):
        return ""
    succeeded = sum(pod.status.phase == "Succeeded" for pod in own)
    needed = job.spec.min_success if job.spec.min_success is not None else minimum_of_job(job)
    return COMPLETED if succeeded >= needed else FAILED


def _restart(job: VolcanoJob, pods: Sequence[Pod], why: str, now_s: float) -> tuple[Action, ...]:
    status = job.status
    if status.retry_count >= job.spec.max_retry:
        text = f"{why}; it was restarted {status.retry_count} times, which is all that spec.maxRetry allows"
        return _status(job, pods, FAILED, "RestartJob", text, now_s)
    more = {"version": status.version + 1, "retryCount": status.retry_count + 1}
    return _status(job, pods, RESTARTING, "RestartJob", why, now_s, more)


def _ended(job: VolcanoJob, pods: Sequence[Pod], now_s: float) -> tuple[Action, ...]:
    """Stop whatever still runs of a finished job; delete the job after its TTL."""
    running = [_delete(pod) for pod in pods if not is_terminal(pod) and pod.metadata.deletion_timestamp is None]
    ttl, since = job.spec.ttl_seconds_after_finished, job.status.state.last_transition_time
    if ttl is None or since is None:
        return tuple(running)
    left = seconds_of(since) + ttl - now_s
    if left > 0:
        return (*running, RequeueAfter(seconds=left))
    metadata = job.metadata
    return (*running, Delete(resource=JOBS, name=metadata.name, namespace=metadata.namespace, uid=metadata.uid))


# --- its status ---


def _status(
    job: VolcanoJob,
    pods: Sequence[Pod],
    phase: str,
    reason: str,
    message: str,
    now_s: float,
    more: Mapping[str, int] | None = None,
) -> tuple[Action, ...]:
    known = job.status
    leaving = [pod for pod in pods if pod.metadata.deletion_timestamp is not None and not is_terminal(pod)]
    staying = [pod for pod in pods if pod not in leaving]
    counts = count_phases(staying)
    tasks: dict[str, Any] = {task.name: {"phase": _phases(task, staying)} for task in job.spec.tasks}
    # Maps of a status are merged, so removed keys must be named.
    tasks |= {name: None for name in known.task_status_count if name not in tasks}
    status: dict[str, Any] = {
        "minAvailable": minimum_of_job(job),
        "pending": len(staying) - sum(counts.values()),
        **counts,
        "terminating": len(leaving),
        "version": known.version,
        "retryCount": known.retry_count,
        "taskStatusCount": tasks,
        **(more or {}),
    }
    was: dict[str, Any] = {
        "minAvailable": known.min_available,
        "pending": known.pending,
        "running": known.running,
        "succeeded": known.succeeded,
        "failed": known.failed,
        "terminating": known.terminating,
        "version": known.version,
        "retryCount": known.retry_count,
        "taskStatusCount": dict(known.task_status_count),
        "state": None,
    }
    told: tuple[Action, ...] = ()
    if known.state.phase != phase:
        status["state"] = {"phase": phase, "reason": reason, "message": message, "lastTransitionTime": time_of(now_s)}
        type_ = WARNING if phase in (FAILED, ABORTED) else NORMAL
        note = f"Job is {phase}: {message}" if message else f"Job is {phase}"
        told = (Emit(regarding=_as_object(job), type=type_, reason=phase, action="Sync", note=note),)
    patches = status_patch(JOBS, job.metadata, was, status)
    return (*patches, *told)


def _phases(task: VolcanoTask, pods: Sequence[Pod]) -> dict[str, int]:
    own = [pod.status.phase or "Pending" for pod in pods if pod.metadata.labels.get(_TASK) == task.name]
    return {phase: own.count(phase) for phase in ("Pending", "Running", "Succeeded", "Failed")}


def _as_object(job: VolcanoJob) -> Object:
    metadata = {"name": job.metadata.name, "namespace": job.metadata.namespace, "uid": job.metadata.uid}
    return {"apiVersion": JOBS.api_version, "kind": "Job", "metadata": metadata}
