"""The row of a pod, with its status word from phase, conditions and container states."""

from __future__ import annotations

from typing import Any, TypedDict, cast

import msgspec

from allot.apiserver.printing.cells import (
    NONE,
    Cells,
    Moment,
    Object,
    Printer,
    columns,
    integer,
    items,
    members,
    name_of,
    seconds_of,
    text,
)
from allot.core.validation.builtin.values import flag


class _Restarts:
    """How often containers were restarted, and when last."""

    def __init__(self) -> None:
        self.count = 0
        self.last = ""

    def add(self, status: Object) -> None:
        self.count += integer(status, "restartCount")
        finished = text(status, "lastState", "terminated", "finishedAt")
        if finished and (seconds_of(finished) or 0) > (seconds_of(self.last) or 0 if self.last else 0):
            self.last = finished

    def shown(self, now: Moment) -> str:
        return f"{self.count} ({now.since(self.last)} ago)" if self.count and self.last else str(self.count)


class _State:
    """What is computed about a pod while its containers are checked."""

    def __init__(self, pod: Object) -> None:
        self.pod = pod
        self.spec, self.status = members(pod, "spec"), members(pod, "status")
        self.init = items(self.spec, "initContainers")
        self.restartable = {text(item, "name") for item in self.init if item.get("restartPolicy") == "Always"}
        self.total = len(items(self.spec, "containers")) + len(
            [item for item in self.init if item.get("restartPolicy") == "Always"]
        )
        self.ready = 0
        self.restarts = _Restarts()
        self.reason = text(self.status, "reason") or text(self.status, "phase")
        for found in items(self.status, "conditions"):
            if found.get("type") == "PodScheduled" and found.get("reason") == "SchedulingGated":
                self.reason = "SchedulingGated"

    def condition_holds(self, type_: str) -> bool:
        return any(
            found.get("type") == type_ and found.get("status") == "True" for found in items(self.status, "conditions")
        )

    def look_at_init_containers(self) -> bool:
        """Whether the pod is still initializing. Sidecars that have started count as containers."""
        sidecars = _Restarts()
        initializing = False
        for position, status in enumerate(items(self.status, "initContainerStatuses")):
            self.restarts.add(status)
            is_sidecar = text(status, "name") in self.restartable
            if is_sidecar:
                sidecars.add(status)
            terminated = _given(status, "terminated")
            if terminated is not None and not integer(terminated, "exitCode"):
                continue
            if is_sidecar and flag(status, "started"):
                self.ready += flag(status, "ready")
                continue
            self.reason = self._init_reason(status, position)
            initializing = True
            break
        if not initializing or self.condition_holds("Initialized"):
            self.restarts = sidecars
            return False
        return True

    def _init_reason(self, status: Object, position: int) -> str:
        terminated, waiting = _given(status, "terminated"), text(status, "state", "waiting", "reason")
        if terminated is not None:
            return f"Init:{_ended(terminated)}"
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{position}/{len(self.init)}"

    def look_at_containers(self) -> None:
        running, error = False, ""
        for status in reversed(items(self.status, "containerStatuses")):
            self.restarts.add(status)
            waiting, terminated = text(status, "state", "waiting", "reason"), _given(status, "terminated")
            if waiting:
                self.reason = waiting
            elif terminated is not None:
                self.reason = _ended(terminated)
                if integer(terminated, "exitCode"):
                    error = self.reason
            elif flag(status, "ready") and _given(status, "running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and self.condition_holds("Ready"):
                self.reason = "Running"
            elif error:
                self.reason = error
            elif running:
                self.reason = "NotReady"

    def look_at_deletion(self) -> None:
        if not text(self.pod, "metadata", "deletionTimestamp"):
            return
        if text(self.status, "reason") == "NodeLost":
            self.reason = "Unknown"
        elif text(self.status, "phase") not in ("Failed", "Succeeded"):
            self.reason = "Terminating"


def _given(status: Object, name: str) -> Object | None:
    """A container's state of the given type, if that is its state."""
    state = members(status, "state").get(name)
    return state if isinstance(state, dict) else None


def _ended(terminated: Object) -> str:
    signal = integer(terminated, "signal")
    return text(terminated, "reason") or (
        f"Signal:{signal}" if signal else f"ExitCode:{integer(terminated, 'exitCode')}"
    )


def _gates(spec: Object, status: Object) -> str:
    gates = items(spec, "readinessGates")
    if not gates:
        return NONE
    held = {found.get("type") for found in items(status, "conditions") if found.get("status") == "True"}
    return f"{sum(gate.get('conditionType') in held for gate in gates)}/{len(gates)}"


def _cells(pod: Object, now: Moment) -> Cells:
    state = _State(pod)
    if not state.look_at_init_containers():
        state.look_at_containers()
    state.look_at_deletion()
    addresses = items(state.status, "podIPs")
    return [
        name_of(pod),
        f"{state.ready}/{state.total}",
        state.reason,
        state.restarts.shown(now),
        now.age(pod),
        (text(addresses[0], "ip") if addresses else "") or NONE,
        text(state.spec, "nodeName") or NONE,
        text(state.status, "nominatedNodeName") or NONE,
        _gates(state.spec, state.status),
    ]


def _conditions(pod: Object) -> list[Object]:
    match text(pod, "status", "phase"):
        case "Succeeded":
            reason, message = "Succeeded", "The pod has completed successfully."
        case "Failed":
            reason, message = "Failed", "The pod failed."
        case _:
            return []
    return [{"type": "Completed", "status": "True", "reason": reason, "message": message}]


class _Metadata(TypedDict, total=False):
    name: str
    creationTimestamp: str | None
    deletionTimestamp: str | None


class _Container(TypedDict, total=False):
    name: str
    restartPolicy: str | None


class _Spec(TypedDict, total=False):
    containers: list[_Container] | None
    initContainers: list[_Container] | None
    nodeName: str | None
    readinessGates: Any


class _Pod(TypedDict, total=False):
    """What is shown of a pod."""

    metadata: _Metadata
    spec: _Spec
    status: Any


_decoder = msgspec.json.Decoder(_Pod)


def _read(encoded: bytes) -> Object:
    try:
        return cast(Object, _decoder.decode(encoded))
    except msgspec.ValidationError:
        return cast(Object, msgspec.json.decode(encoded))


POD = Printer(
    columns("Name|Ready|Status|Restarts|Age|IP+|Node+|Nominated Node+|Readiness Gates+"), _cells, _conditions, _read
)
