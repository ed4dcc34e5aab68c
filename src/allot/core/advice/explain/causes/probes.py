"""Failing probes: what they check, and what the container offers."""

from __future__ import annotations

import re

from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import duration, listed, named, one_line
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, observed_v1

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
# How long a server may take to start, and one that loads a model into devices.
_STARTING_S, _LOADING_S = 300, 1200
_KINDS = {"Readiness": "readiness", "Liveness": "liveness", "Startup": "startup"}


def not_serving(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Why a running pod is not ready; None if it is, or if unknown. text: phrased to follow "is not ready: "."""
    ready = next((each for each in pod.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status != "False":
        return None
    kinds = ("Readiness", "Startup", "Liveness") if _restarts(pod) else ("Readiness", "Startup")
    found = probe_trouble(what_if, pod, *kinds)
    found = found or _wrong_port(what_if, pod)
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
    """A ready pod that the kubelet kills again and again: without a readiness probe it is ready as soon as it runs. None once a run has lasted
    longer than its liveness probe allows."""
    for event in events_of(what_if, pod, "Unhealthy"):
        found = _FAILED.match(one_line(event.message))
        container = _container(pod, event)
        if found is None or found["kind"] != "Liveness" or container is None or container.liveness_probe is None:
            continue
        status = next((each for each in pod.status.container_statuses if each.name == container.name), None)
        running = status.state.running if status is not None and status.state is not None else None
        if running is None or running.started_at is None:
            continue
        probe = container.liveness_probe
        allowed = probe.initial_delay_seconds + probe.period_seconds * (probe.failure_threshold + 1)
        if what_if.now - seconds_of(running.started_at) <= allowed:
            return _killed(pod, event, "Liveness", found["said"])
    return None


def probe_trouble(what_if: WhatIfCluster, pod: core_v1.Pod, *kinds: str) -> Diagnosis | None:
    """The newest probe failure; None if no probe of these kinds failed."""
    for event in events_of(what_if, pod, "Unhealthy"):
        found = _FAILED.match(one_line(event.message))
        if found is not None and found["kind"] in kinds:
            starting = _starting(what_if, pod, event) if found["kind"] == "Startup" else None
            killed = _killed(pod, event, found["kind"], found["said"])
            return starting or killed or _failed(pod, event, _KINDS[found["kind"]], found["said"])
    return None


def _restarts(pod: core_v1.Pod) -> int:
    return max((each.restart_count for each in pod.status.container_statuses), default=0)


def _killed(pod: core_v1.Pod, event: observed_v1.Event, kind: str, said: str) -> Diagnosis | None:
    """A container that the kubelet kills again and again because of a probe, with the times that it allows; None if it does not."""
    container = _container(pod, event)
    probe = container.startup_probe if container is not None and kind == "Startup" else None
    probe = container.liveness_probe if container is not None and kind == "Liveness" else probe
    status = next((each for each in pod.status.container_statuses if container and each.name == container.name), None)
    port = _PORT.search(said)
    declared = [each.container_port for each in container.ports] if container is not None else []
    if container is None or probe is None or status is None or not status.restart_count:
        return None
    if port is not None and declared and int(port["port"]) not in declared:
        return None
    allowed = probe.initial_delay_seconds + probe.period_seconds * probe.failure_threshold
    # Ages are rounded to minutes; what a probe allows is not.
    given = f"{allowed}s" if allowed % 60 else duration(allowed)
    how = f"{probe.period_seconds} s periodSeconds x {probe.failure_threshold} failureThreshold"
    how += f" after {probe.initial_delay_seconds} s" if probe.initial_delay_seconds else ""
    times = "once" if status.restart_count == 1 else f"{status.restart_count} times"
    slow = any(word in said for word in _SLOW)
    if kind == "Liveness" and slow:
        text = f"the kubelet has restarted container {container.name} {times}: it does not answer its liveness probe within {probe.timeout_seconds} s (timeoutSeconds)"
        fix = f"raise timeoutSeconds of the liveness probe from {probe.timeout_seconds} to {max(5, 5 * probe.timeout_seconds)} in the pod"
        return Diagnosis(reason=Reason.NOT_READY, text=f"{text}: {said}", advice=(fix,))
    if kind == "Liveness" and (container.startup_probe is not None or "refused" not in said):
        return None
    text = f"its {_KINDS[kind]} probe gives container {container.name} {given} to start ({how}), which is not enough: the kubelet has killed and restarted it {times}"
    target = max(_LOADING_S if pod.spec.resource_claims else _STARTING_S, 4 * allowed)
    enough = -(-target // probe.period_seconds)
    fix = f"raise failureThreshold of the startup probe from {probe.failure_threshold} to {enough} in the pod, which gives it {duration(enough * probe.period_seconds)}"
    if kind == "Liveness":
        fix = f"add a startup probe with the same check, periodSeconds: 10 and failureThreshold: {target // 10} to container {container.name} of the pod, which gives it {duration(target)}"
    log = f"if it still does not start, see its log: kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} -c {container.name} --previous"
    return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(fix, log))


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
    text = f"its {kind} probe{where} fails: {said}"
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
