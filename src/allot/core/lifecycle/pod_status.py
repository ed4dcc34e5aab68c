"""The status of a pod from its node agent: phase, conditions and the states of its containers.

A function of the pod, the runtime's state, and the time. Reasons and texts are the kubelet's, because people and programs look
for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.pods import EXITED, RUNNING, Record, Seen, Waiting, restart_policy, restarts_after
from allot.core.lifecycle.resizing import CONDITIONS, spelled, spelled_amounts, whole
from allot.core.lifecycle.times import time_of
from allot.core.model.core_v1 import Container, Pod, PodCondition, ResourceRequirements
from allot.core.model.pods_v1 import RunnablePod

JSON = dict[str, Any]
# Shared by all containers of a pod.
_MESSAGES_LENGTH_MAX = 12 * 1024
PENDING, RUNNING_PHASE, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a status depends on besides pod and runtime."""

    now: float
    host_ips: tuple[str, ...] = ()
    pod_ips: tuple[str, ...] = ()
    # The prefix of container ids: the name of the runtime.
    runtime: str = "process"
    waiting: Mapping[str, Waiting] = {}
    # Containers that pass their readiness probes, or have none.
    ready: frozenset[str] = frozenset()
    # Whether everything has ended and nothing remains on the node.
    is_final: bool = False
    # Why the agent itself terminated the pod.
    reason: str = ""
    message: str = ""
    # Per container: the health of its devices, in the API's format.
    device_health: Mapping[str, Sequence[JSON]] = {}
    # Beyond those of every pod: the progress of a resize.
    conditions: tuple[PodCondition, ...] = ()
    # What the pod as a whole runs with; None: what is allocated.
    resources: ResourceRequirements | None = None
    # Limit of a termination message.
    message_length_max: int = _MESSAGES_LENGTH_MAX


def pod_status(pod: RunnablePod, seen: Seen, facts: Facts) -> JSON:
    """The status to write."""
    share = _MESSAGES_LENGTH_MAX // max(len(pod.containers()), 1)
    facts = msgspec.structs.replace(facts, message_length_max=share)
    phase = _phase(pod, seen, facts)
    held_back = phase in (SUCCEEDED, FAILED) and not facts.is_final
    # The end is reported when nothing remains: until then others must not use the devices.
    told = (pod.status.phase or PENDING) if held_back else phase
    status: JSON = {
        "phase": told if told != PENDING or not held_back else RUNNING_PHASE,
        "observedGeneration": pod.metadata.generation,
        "startTime": pod.status.start_time or time_of(facts.now),
        "qosClass": pod.status.qos_class or "BestEffort",
    }
    if not held_back and facts.reason:
        status["reason"], status["message"] = facts.reason, facts.message
    if facts.host_ips:
        status["hostIP"] = facts.host_ips[0]
        status["hostIPs"] = [{"ip": each} for each in facts.host_ips]
    if facts.pod_ips:
        status["podIP"] = facts.pod_ips[0]
        status["podIPs"] = [{"ip": each} for each in facts.pod_ips]
    for field, containers in (
        ("initContainerStatuses", pod.spec.init_containers),
        ("containerStatuses", pod.spec.containers),
        ("ephemeralContainerStatuses", pod.spec.ephemeral_containers),
    ):
        if containers:
            status[field] = [_container_status(pod, each, seen, facts) for each in containers]
    allocated = whole(pod)
    status["resources"] = spelled(facts.resources or allocated)
    if allocated.requests:
        status["allocatedResources"] = spelled_amounts(allocated.requests)
    status["conditions"] = _conditions(pod, seen, facts, status)
    return status


def rejected_status(pod: RunnablePod, reason: str, message: str, now: float) -> JSON:
    """The status of a pod that its node rejects: nothing of it has run."""
    return {
        "phase": FAILED,
        "reason": reason,
        "message": f"Pod was rejected: {message}",
        "observedGeneration": pod.metadata.generation,
        "startTime": pod.status.start_time or time_of(now),
        "qosClass": pod.status.qos_class or "BestEffort",
    }


def addresses_replaced(status: Mapping[str, Any], written: Collection[str]) -> JSON:
    """A status as a strategic merge patch. written: names of fields that the pod already has.

    Lists of addresses are merged by address: one that the pod or its node no longer has would stay, and the API server would
    refuse the status from then on. Where there is no list yet, the directive would become an address.
    """
    return {
        name: [*value, {"$patch": "replace"}] if name in ("podIPs", "hostIPs") and name in written else value
        for name, value in status.items()
    }


# --- phase ---


def _phase(pod: Pod, seen: Seen, facts: Facts) -> str:
    if facts.reason:
        return FAILED
    running = stopped = succeeded = waiting = 0
    for container in pod.spec.containers:
        record = seen.newest(container.name)
        if record is None or record.state not in (RUNNING, EXITED):
            waiting += 1
        elif record.state == RUNNING:
            running += 1
        else:
            stopped += 1
            succeeded += record.exit_code == 0
    initialized, failed = _initialization(pod, seen)
    has_begun = running + stopped > 0
    if failed and not has_begun:
        return FAILED
    if facts.is_final and not running:
        return SUCCEEDED if stopped == succeeded and not waiting and stopped else FAILED
    if (not initialized and not has_begun) or waiting:
        return PENDING
    if running:
        return RUNNING_PHASE
    if not stopped:
        return PENDING
    if any(_goes_on(pod, each, seen) for each in pod.spec.containers):
        return RUNNING_PHASE
    return SUCCEEDED if stopped == succeeded else FAILED


def _goes_on(pod: Pod, container: Container, seen: Seen) -> bool:
    record = seen.newest(container.name)
    if record is None:
        return restart_policy(pod, container) == "Always"
    return restarts_after(pod, container, record.exit_code)


def _initialization(pod: Pod, seen: Seen) -> tuple[bool, bool]:
    """Whether all init containers are done, and whether one has failed permanently."""
    done = True
    for container in pod.spec.init_containers:
        record = seen.newest(container.name)
        if container.is_sidecar:
            done = done and record is not None and record.state == RUNNING and container.name in seen.started
        elif record is None or record.state != EXITED:
            done = False
        elif record.exit_code != 0:
            done = False
            if not restarts_after(pod, container, record.exit_code):
                return False, True
    return done, False


# --- containers ---


def _container_status(pod: Pod, container: Container, seen: Seen, facts: Facts) -> JSON:
    records = seen.records.get(container.name, ())
    record = records[0] if records else None
    is_init = any(each is container for each in pod.spec.init_containers) and not container.is_sidecar
    is_running = record is not None and record.state == RUNNING
    has_succeeded = record is not None and record.state == EXITED and record.exit_code == 0
    started = is_running and container.name in seen.started
    status: JSON = {
        "name": container.name,
        "image": container.image,
        "imageID": record.image_id if record is not None else "",
        "ready": has_succeeded if is_init else started and container.name in facts.ready,
        "restartCount": record.attempt if record is not None else 0,
        "started": started,
        "state": {},
        "lastState": {},
    }
    if record is not None:
        status["containerID"] = f"{facts.runtime}://{record.id}"
    waiting = facts.waiting.get(container.name)
    if is_running and record is not None:
        status["state"] = {"running": {"startedAt": time_of(record.started_at)}}
        if len(records) > 1:
            status["lastState"] = {"terminated": _terminated(records[1], facts)}
    elif waiting is not None:
        status["state"] = {"waiting": _told(waiting)}
        if record is not None and record.state == EXITED:
            status["lastState"] = {"terminated": _terminated(record, facts)}
    elif record is not None and record.state == EXITED:
        status["state"] = {"terminated": _terminated(record, facts)}
        if len(records) > 1:
            status["lastState"] = {"terminated": _terminated(records[1], facts)}
    else:
        status["state"] = {
            "waiting": {"reason": "PodInitializing" if pod.spec.init_containers else "ContainerCreating"}
        }
    if container.resources.requests:
        status["allocatedResources"] = spelled_amounts(container.resources.requests)
    running = seen.actuated.get(record.id) if record is not None and is_running else None
    status["resources"] = spelled(container.resources if running is None else _own(container, running))
    if facts.device_health.get(container.name):
        status["allocatedResourcesStatus"] = list(facts.device_health[container.name])
    return status


def _own(container: Container, running: ResourceRequirements) -> ResourceRequirements:
    """Without the limits that are those of its pod."""
    limits = {name: each for name, each in running.limits.items() if name in container.resources.limits}
    return msgspec.structs.replace(running, limits=limits)


def _told(waiting: Waiting) -> JSON:
    told = {"reason": waiting.reason}
    return {**told, "message": waiting.message} if waiting.message else told


def _terminated(record: Record, facts: Facts) -> JSON:
    told: JSON = {
        "exitCode": record.exit_code,
        "reason": record.reason or ("Completed" if record.exit_code == 0 else "Error"),
        "startedAt": time_of(record.started_at) if record.started_at else None,
        "finishedAt": time_of(record.finished_at) if record.finished_at else None,
        "containerID": f"{facts.runtime}://{record.id}",
    }
    if record.message:
        told["message"] = record.message[: facts.message_length_max]
    return told


# --- conditions ---


def _conditions(pod: RunnablePod, seen: Seen, facts: Facts, status: JSON) -> list[JSON]:
    phase = status["phase"]
    found = [
        _condition("PodReadyToStartContainers", "True" if seen.sandbox and not facts.is_final else "False"),
        _initialized(pod, status, phase),
    ]
    containers_ready = _containers_ready(pod, status, phase)
    found += [_ready(pod, containers_ready), containers_ready, _condition("PodScheduled", "True")]
    before = {each.type: each for each in pod.status.conditions}
    told = [_dated(each, before.get(each["type"]), pod.metadata.generation, facts.now) for each in found]
    for each in facts.conditions:
        own = _condition(each.type, each.status, each.reason, each.message)
        told.append(_dated(own, before.get(each.type), each.observed_generation, facts.now))
    over = [name for name in CONDITIONS if name in before and all(each.type != name for each in facts.conditions)]
    return [*told, *({"type": name, "$patch": "delete"} for name in over)]


def _condition(type_: str, status: str, reason: str = "", message: str = "") -> JSON:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def _dated(told: JSON, before: PodCondition | None, generation: int, now: float) -> JSON:
    """A condition for the patch: cleared fields are null, and the time is that of its last change."""
    same = before is not None and before.status == told["status"] and before.last_transition_time is not None
    return {
        "type": told["type"],
        "status": told["status"],
        "observedGeneration": generation or None,
        "lastProbeTime": None,
        "lastTransitionTime": before.last_transition_time if same and before is not None else time_of(now),
        "reason": told["reason"] or None,
        "message": told["message"] or None,
    }


def _initialized(pod: Pod, status: JSON, phase: str) -> JSON:
    told = {each["name"]: each for each in status.get("initContainerStatuses", ())}
    if phase == SUCCEEDED:
        return _condition("Initialized", "True", "PodCompleted")
    if any("running" in each["state"] or _has_ended(each) for each in status.get("containerStatuses", ())):
        return _condition("Initialized", "True")
    missing = [
        each.name for each in pod.spec.init_containers if not told[each.name]["started" if each.is_sidecar else "ready"]
    ]
    if missing:
        return _condition(
            "Initialized", "False", "ContainersNotInitialized", f"containers with incomplete status: {_list(missing)}"
        )
    return _condition("Initialized", "True")


def _has_ended(status: JSON) -> bool:
    return "terminated" in status["state"] or "terminated" in status["lastState"]


def _containers_ready(pod: Pod, status: JSON, phase: str) -> JSON:
    if phase in (SUCCEEDED, FAILED):
        return _condition("ContainersReady", "False", "PodCompleted" if phase == SUCCEEDED else "PodFailed")
    every = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    ready = {each["name"]: each["ready"] for each in every}
    counted = (*(each for each in pod.spec.init_containers if each.is_sidecar), *pod.spec.containers)
    missing = [each.name for each in counted if not ready[each.name]]
    if missing:
        text = f"containers with unready status: {_list(missing)}"
        return _condition("ContainersReady", "False", "ContainersNotReady", text)
    return _condition("ContainersReady", "True")


def _ready(pod: RunnablePod, containers_ready: JSON) -> JSON:
    if containers_ready["status"] != "True":
        return {**containers_ready, "type": "Ready"}
    have = {each.type: each.status for each in pod.status.conditions}
    missing = []
    for gate in pod.spec.readiness_gates:
        if gate.condition_type not in have:
            missing.append(f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.')
        elif have[gate.condition_type] != "True":
            missing.append(
                f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {have[gate.condition_type]}'
            )
    if missing:
        return _condition("Ready", "False", "ReadinessGatesNotReady", ", ".join(missing))
    return _condition("Ready", "True")


def _list(names: Sequence[str]) -> str:
    return f"[{' '.join(names)}]"


def is_same(status: JSON, written: Mapping[str, Any]) -> bool:
    """Whether the API already has what would be written."""
    for name, value in status.items():
        if name == "conditions":
            have = {each["type"]: each for each in written.get("conditions") or ()}
            for told in value:
                old = have.get(told["type"], {})
                if "$patch" in told:
                    if old:
                        return False
                    continue
                if any(old.get(field) != wanted for field, wanted in told.items()):
                    return False
        elif _pruned(written.get(name)) != _pruned(value):
            return False
    return True


def _pruned(value: Any) -> Any:
    """Without nulls."""
    if isinstance(value, dict):
        return {name: _pruned(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_pruned(each) for each in value]
    return value
