"""Failing probes: what they check, and what the container offers."""

from __future__ import annotations

import re

from allot.core.advice.explain.causes.images import split
from allot.core.advice.explain.causes.kinship import deployment_of
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import duration, listed, named, one_line
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, observed_v1
from allot.core.workloads.pod_states import is_ready

_FAILED = re.compile(
    r"(?P<kind>Readiness|Liveness|Startup) probe (?:failed|errored(?: and resulted in \S+ state)?): (?P<said>.*)"
)
_PORT = re.compile(r"[\d\])]:(?P<port>\d{2,5})\b")
_PORT_FLAG = re.compile(r"--?(?:http[-_]|listen[-_]|server[-_])?port[= ](?P<port>\d{2,5})\b")
_PATH = re.compile(r'"?https?://[^/"\s]+(?P<path>/[^"\s]*)')
_CONTAINER = re.compile(r"\{(?P<name>[^}]+)\}")
_UNREADY = re.compile(r"containers with (?:unready|incomplete) status: \[(?P<names>[^]]*)\]")
_GATE = re.compile(r'condition of pod readiness gate "([^"]+)" (?:does not exist|status is not "True")')
# A probe that was not answered in time.
_SLOW = ("deadline exceeded", "Timeout exceeded", "timed out", "timeout")
# What a server answers that is up, but asked for a path that it does not have, or without a login.
_NOT_SERVED = re.compile(r"statuscode: 4(?:01|03|04|05)\b")
# How containers end that the kubelet kills: by SIGKILL, or by SIGTERM.
KILLED = (137, 143)
# What a pod has to end in if it does not say.
_GRACE_S = 30
# How long a server may take to start, and one that loads a model into devices.
_STARTING_S, _LOADING_S = 300, 1200
_KINDS = {"Readiness": "readiness", "Liveness": "liveness", "Startup": "startup"}


def not_serving(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Why a running pod is not ready; None if it is, or if unknown. text: phrased to follow "is not ready: "."""
    ready = next((each for each in pod.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status != "False":
        return None
    # A container that is killed before it listens is not ready, either: the probe that kills it is the cause.
    kinds = ("Readiness", "Startup", "Liveness") if _restarts(pod) else ("Readiness", "Startup")
    found = being_killed(what_if, pod) or probe_trouble(what_if, pod, *kinds) or _wrong_port(what_if, pod)
    if found is not None:
        return found
    said = one_line(ready.message or ready.reason or "")
    gates = _GATE.findall(said)
    if gates:
        text = f"its {named('readiness gate', gates)} {'is' if len(gates) == 1 else 'are'} not True"
        advice = f"check the component that sets condition {listed(gates)} of the pod: its containers are ready"
        return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(advice,))
    unready = _UNREADY.search(said)
    if unready is not None:
        names = unready["names"].split()
        said = f"{named('container', names)} {'is' if len(names) == 1 else 'are'} not ready"
    log = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
    advice = f"check its log ({log}) and its readiness probe"
    return Diagnosis(reason=Reason.NOT_READY, text=said or "no container is ready", advice=(advice,))


def being_killed(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A running pod that the kubelet kills again and again because of a liveness or startup probe, whatever happened since; without a readiness
    probe it may be ready. None once a run has lasted longer than the probe allows."""
    for event in events_of(what_if, pod, "Unhealthy"):
        found = _FAILED.match(one_line(event.message))
        container = _container(pod, event)
        probe = _killing_probe(container, found["kind"]) if found is not None and container is not None else None
        if found is None or container is None or probe is None:
            continue
        status = _status(pod, container)
        running = status.state.running if status is not None and status.state is not None else None
        if status is None or not status.restart_count or not _was_killed(what_if, pod, status):
            continue
        if running is None or running.started_at is None:
            continue
        if what_if.now - seconds_of(running.started_at) <= _allowed(probe) + probe.period_seconds + _grace(pod):
            killed = _killed(what_if, pod, event, found["kind"], found["said"])
            return killed or (None if status.ready else _failed(pod, event, _KINDS[found["kind"]], found["said"]))
    return None


def _killing_probe(container: core_v1.Container, kind: str) -> core_v1.ProbeTimes | None:
    """The probe of a kind after whose failures the kubelet restarts a container; None if it has none."""
    return {"Liveness": container.liveness_probe, "Startup": container.startup_probe}.get(kind)


def _status(pod: core_v1.Pod, container: core_v1.Container) -> core_v1.ContainerStatus | None:
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return next((each for each in statuses if each.name == container.name), None)


def _was_killed(what_if: WhatIfCluster, pod: core_v1.Pod, status: core_v1.ContainerStatus) -> bool:
    """Whether the last run of a container ended as the kubelet ends it, or in an unknown way."""
    if any(f"ontainer {status.name} failed" in event.message for event in events_of(what_if, pod, "Killing")):
        return True
    last = status.last_state.terminated if status.last_state is not None else None
    return last is None or last.exit_code in (*KILLED, 0)


def _allowed(probe: core_v1.ProbeTimes) -> int:
    """How many seconds after its start a probe lets the kubelet kill a container that never answers."""
    return probe.initial_delay_seconds + probe.period_seconds * probe.failure_threshold


def _grace(pod: core_v1.Pod) -> int:
    seconds = pod.spec.termination_grace_period_seconds
    return _GRACE_S if seconds is None else seconds


def _answered_once(pod: core_v1.Pod, status: core_v1.ContainerStatus, probe: core_v1.ProbeTimes) -> bool | None:
    """Whether the last run lasted so long that it must have answered a probe at first; None if unknown."""
    last = status.last_state.terminated if status.last_state is not None else None
    if last is None or last.started_at is None or last.finished_at is None:
        return None
    lasted = seconds_of(last.finished_at) - seconds_of(last.started_at)
    return lasted > _allowed(probe) + 3 * probe.period_seconds + _grace(pod)


def probe_trouble(what_if: WhatIfCluster, pod: core_v1.Pod, *kinds: str) -> Diagnosis | None:
    """The newest probe failure; None if no probe of these kinds failed."""
    for event in events_of(what_if, pod, "Unhealthy"):
        found = _FAILED.match(one_line(event.message))
        if found is not None and found["kind"] in kinds:
            starting = _starting(what_if, pod, event) if found["kind"] == "Startup" else None
            killed = _killed(what_if, pod, event, found["kind"], found["said"])
            return starting or killed or _failed(pod, event, _KINDS[found["kind"]], found["said"])
    return None


def _restarts(pod: core_v1.Pod) -> int:
    return max((each.restart_count for each in pod.status.container_statuses), default=0)


def _killed(
    what_if: WhatIfCluster, pod: core_v1.Pod, event: observed_v1.Event, kind: str, said: str
) -> Diagnosis | None:
    """A container that the kubelet kills again and again because of a probe, with the times that it allows; None if it does not, or if the probe
    asks for what the container does not serve."""
    container = _container(pod, event)
    probe = _killing_probe(container, kind) if container is not None else None
    status = _status(pod, container) if container is not None else None
    if container is None or probe is None or status is None or not status.restart_count:
        return None
    port = _PORT.search(said)
    served = {each.container_port for each in container.ports} | {told for told in (_told_port(container),) if told}
    if (port is not None and served and int(port["port"]) not in served) or _NOT_SERVED.search(said):
        return None
    allowed = _allowed(probe)
    times = "once" if status.restart_count == 1 else f"{status.restart_count} times"
    slow = any(word in said for word in _SLOW)
    if kind == "Liveness" and slow:
        text = f"the kubelet has restarted container {container.name} {times}: it does not answer its liveness probe within {probe.timeout_seconds} s (timeoutSeconds)"
        fix = f"raise timeoutSeconds of the liveness probe from {probe.timeout_seconds} to {max(5, 5 * probe.timeout_seconds)} in the pod"
        return Diagnosis(reason=Reason.NOT_READY, text=f"{text}: {said}", advice=(fix,))
    answered = _answered_once(pod, status, probe)
    if kind == "Liveness" and (container.startup_probe is not None or answered):
        return None
    if kind == "Liveness" and answered is None and "refused" not in said:
        return None
    # Ages are rounded to minutes; what a probe allows is not.
    given = f"{allowed}s" if allowed % 60 else duration(allowed)
    how = f"{probe.period_seconds} s periodSeconds x {probe.failure_threshold} failureThreshold"
    how += f" after {probe.initial_delay_seconds} s initialDelaySeconds" if probe.initial_delay_seconds else ""
    how += ", no startup probe" if kind == "Liveness" else ""
    text = f"its {_KINDS[kind]} probe gives container {container.name} {given} to start ({how}), which is not enough: the kubelet has killed and restarted it {times}"
    target = max(_LOADING_S if pod.spec.resource_claims else _STARTING_S, 4 * allowed)
    like = _started_alike(what_if, pod, container, target)
    if kind == "Liveness" and like is not None:
        whose, other = like
        period, enough, as_there = other.period_seconds, other.failure_threshold, f", as {whose} has it"
    else:
        period = probe.period_seconds if kind == "Startup" else 10
        enough, as_there = -(-target // period), ""
    gives = f"which gives it {duration(enough * period)}{as_there}"
    fix = f"raise failureThreshold of the startup probe from {probe.failure_threshold} to {enough} in the pod, {gives}"
    if kind == "Liveness":
        fix = f"add a startup probe with the same check, periodSeconds: {period} and failureThreshold: {enough} to container {container.name} of the pod, {gives}"
    log = f"if it still does not start, see its log: kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} -c {container.name} --previous"
    return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(fix, log))


def _started_alike(
    what_if: WhatIfCluster, pod: core_v1.Pod, container: core_v1.Container, enough_s: int
) -> tuple[str, core_v1.ProbeTimes] | None:
    """A ready container of the namespace with the same image, whatever its tag, whose startup probe gives it enough time: whose it is, and the
    probe."""
    for other in what_if.all(core_v1.Pod):
        if other.metadata.namespace != pod.metadata.namespace or other is pod or not is_ready(other):
            continue
        for each in other.spec.containers:
            probe = each.startup_probe
            same = split(each.image)[0] == split(container.image)[0]
            if probe is None or not same or probe.period_seconds * probe.failure_threshold < enough_s:
                continue
            maker, deployment = controller_of(other), deployment_of(what_if, other)
            whose = f"{maker.kind} {maker.name}" if maker is not None else f"pod {other.metadata.name}"
            return f"Deployment {deployment}" if deployment else whose, probe
    return None


def _starting(what_if: WhatIfCluster, pod: core_v1.Pod, event: observed_v1.Event) -> Diagnosis | None:
    """A container that may still start: its startup probe has attempts left; None if it has none."""
    container = _container(pod, event)
    probe = container.startup_probe if container is not None else None
    if container is None or probe is None:
        return None
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    # A container that was killed before is not just slow.
    state = next((each.state for each in statuses if each.name == container.name and not each.restart_count), None)
    started = state.running.started_at if state is not None and state.running is not None else None
    allowed = probe.initial_delay_seconds + probe.failure_threshold * probe.period_seconds
    used = round(what_if.now - seconds_of(started)) if started is not None else allowed
    port = _PORT.search(event.message)
    declared = [each.container_port for each in container.ports]
    if not 0 <= used < allowed or (port is not None and declared and int(port["port"]) not in declared):
        return None
    text = (
        f"container {container.name} is still starting: it has used {duration(used)} of the {duration(allowed)} that its "
        "startup probe allows"
    )
    log = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} -c {container.name}"
    return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(f"wait, and check its progress: {log}",))


def _failed(pod: core_v1.Pod, event: observed_v1.Event, kind: str, said: str) -> Diagnosis:
    container = _container(pod, event)
    where = f" of container {container.name}" if container is not None and len(pod.spec.containers) > 1 else ""
    port = _PORT.search(said)
    path = _PATH.search(said)
    declared = {each.container_port: each.name for each in container.ports} if container is not None else {}
    refused = "refused" in said
    log = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name}"
    if port is not None and refused:
        asked = int(port["port"])
        text = f"its {kind} probe{where} connects to port {asked}, where nothing listens (connection refused)"
        if declared and asked not in declared and container is not None:
            shown = listed(f"{number} ({name})" if name else str(number) for number, name in declared.items())
            text += f"; container {container.name} declares port {shown}"
            first = next(iter(declared))
            return Diagnosis(
                reason=Reason.NOT_READY, text=text, advice=(f"set the port of the {kind} probe to {first} in the pod",)
            )
        told = _told_port(container) if container is not None else None
        if told is not None and told != asked and container is not None:
            text += f"; container {container.name} is set to listen on port {told}"
            return Diagnosis(
                reason=Reason.NOT_READY, text=text, advice=(f"set the port of the {kind} probe to {told} in the pod",)
            )
        advice = f"check that it has started, and on which port it listens: {log}"
        return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(advice,))
    text = f"its {kind} probe{_asked(container, kind) if path is None else ''}{where} fails: {said}"
    advice = f"check its log ({log}) and its {kind} probe"
    if "statuscode: 404" in said and path is not None:
        advice = f"give the {kind} probe a path that the container serves, instead of {path['path']}"
    elif "statuscode: 401" in said or "statuscode: 403" in said:
        advice = f"point the {kind} probe to a path that needs no login"
    elif "deadline exceeded" in said or "Timeout exceeded" in said or "timed out" in said:
        probe = container.liveness_probe if container is not None and kind == "liveness" else None
        more = f" from {probe.timeout_seconds} to {max(5, 5 * probe.timeout_seconds)}" if probe is not None else ""
        advice = f"raise timeoutSeconds of the {kind} probe{more} in the pod, or see why the container is slow: {log}"
    return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(advice,))


def _asked(container: core_v1.Container | None, kind: str) -> str:
    """The path that a probe asks for, which the kubelet does not always say; empty if it asks for none."""
    if container is None:
        return ""
    probe = {"readiness": container.readiness_probe, "liveness": container.liveness_probe}.get(
        kind, container.startup_probe
    )
    return f" {probe.http_get.path}" if probe is not None and probe.http_get is not None else ""


def _told_port(container: core_v1.Container) -> int | None:
    """The port that a container's arguments tell its program to listen on."""
    found = _PORT_FLAG.search(" ".join((*container.command, *container.args)))
    return int(found["port"]) if found is not None else None


def _wrong_port(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A readiness probe of a container that has been up for long, of a port that it neither declares nor is set to listen on; its
    events may be gone."""
    for container in pod.spec.containers:
        status = next((each for each in pod.status.container_statuses if each.name == container.name), None)
        running = status.state.running if status is not None and status.state is not None else None
        probe = container.readiness_probe
        asked = probe.port if probe is not None else None
        if status is None or status.ready or running is None or not isinstance(asked, int):
            continue
        up = what_if.now - seconds_of(running.started_at) if running.started_at is not None else 0
        declared = [each.container_port for each in container.ports]
        told = _told_port(container)
        there = [*([told] if told is not None else []), *declared]
        if not there or asked in there or up < _STARTING_S:
            continue
        source = "is set to listen on" if told is not None else "declares"
        text = f"its readiness probe checks port {asked}, and container {container.name} {source} port {there[0]}"
        fix = f"set the port of the readiness probe to {there[0]} in the pod"
        return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(fix,))
    return None


def _container(pod: core_v1.Pod, event: observed_v1.Event) -> core_v1.Container | None:
    """The container that an event is about."""
    found = _CONTAINER.search(event.involved_object.field_path)
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    if found is not None:
        return next((each for each in containers if each.name == found["name"]), None)
    return pod.spec.containers[0] if len(pod.spec.containers) == 1 else None
