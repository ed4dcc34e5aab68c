"""Pods that are starting on their node: pulling images, running init containers, waiting for volumes attached elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allot.core.advice.explain.causes.containers import not_started
from allot.core.advice.explain.causes.kinship import deployment_of
from allot.core.advice.explain.causes.selecting import without_endpoints
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.holding import OUT_OF_SERVICE, running_and_ended
from allot.core.advice.explain.messages.facts import MODULES
from allot.core.advice.explain.moving import fits_on
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import duration, joined, named, one_line
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, observed_v1, storage_v1

_PULLING, _PULLED = "Pulling", "Pulled"
_PROGRESS = (_PULLING, _PULLED, "Created", "Started")
FAILURES = (
    "FailedCreatePodSandBox",
    "Failed",
    "BackOff",
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedBinding",
    "NetworkNotReady",
)
_IMAGE = re.compile(r'image "(?P<image>[^"]+)"')
_MULTI_ATTACH = re.compile(r'Multi-Attach error for volume "(?P<volume>[^"]+)"')
_LOOP = re.compile(r"\b(?:until|while)\b")
_HOST_PATH = re.compile(r"(?P<path>/(?:host/)?(?:sys|dev|proc|run|var|opt|usr)/[\w./-]*\w)")
# Longer than most init containers take.
_LONG_S = 300


def starting(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    """What a node is doing for a pod that does not run yet, from the last event."""
    node = pod.spec.node_name
    if node not in what_if.cluster.nodes:
        text = f"it is bound to node {node}, which does not exist"
        return Diagnosis(reason=Reason.STARTING, text=text)
    last = next(iter(events_of(what_if, pod, *FAILURES, *_PROGRESS)), None)
    if last is not None and last.reason in FAILURES:
        return _failed(what_if, pod, one_line(_behind(what_if, pod, last).message))
    if last is not None and last.reason == _PULLING:
        return _pulling(what_if, last)
    found = init_container(what_if, pod)
    if found is not None:
        return found
    text = "it has not started its containers yet"
    log = f"if this persists, check the kubelet of node {node} (kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name})"
    return Diagnosis(reason=Reason.PROGRESSING, text=text, advice=(log,))


def _pulling(what_if: WhatIfCluster, event: observed_v1.Event) -> Diagnosis:
    image = _IMAGE.search(event.message)
    since = since_text(what_if, event.first_timestamp or event.seen_at)
    text = f"its image {image['image'] if image is not None else ''} is being pulled{since}".replace("  ", " ")
    return Diagnosis(reason=Reason.PROGRESSING, text=text)


def since_text(what_if: WhatIfCluster, time: str | None) -> str:
    """`, for 3m`; empty if unknown."""
    seconds = _age(what_if, time)
    return f", for {duration(seconds)}" if seconds is not None else ""


def _age(what_if: WhatIfCluster, time: str | None) -> int | None:
    if not time or what_if.taken_at is None:
        return None
    try:
        return max(0, int(what_if.taken_at - seconds_of(time)))
    except ValueError:
        return None


# --- what failed ---


def _failed(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Diagnosis:
    twice = _MULTI_ATTACH.search(said)
    if twice is not None:
        return _attached_elsewhere(what_if, pod, twice["volume"])
    text = f"it is bound to node {pod.spec.node_name} and does not start there: {said}"
    return not_started(what_if, pod, text, said)


def _behind(what_if: WhatIfCluster, pod: core_v1.Pod, last: observed_v1.Event) -> observed_v1.Event:
    """Why a volume is not there, of a kubelet that has waited for it in vain: what was said of attaching it, if that failed last."""
    if last.reason != "FailedMount" or "timed out" not in last.message:
        return last
    attaching = next(iter(events_of(what_if, pod, "FailedAttachVolume", "SuccessfulAttachVolume")), None)
    return attaching if attaching is not None and attaching.reason == "FailedAttachVolume" else last


def _attached_elsewhere(what_if: WhatIfCluster, pod: core_v1.Pod, volume: str) -> Diagnosis:
    """A single-node volume that is still attached to another node."""
    claims = [
        claim
        for claim in what_if.all(core_v1.PersistentVolumeClaim)
        if claim.spec.volume_name == volume and claim.metadata.namespace == pod.metadata.namespace
    ]
    names = {claim.metadata.name for claim in claims}
    users = [each for each in what_if.all(core_v1.Pod) if each is not pod and _is_other_user(each, pod, names)]
    attached = [
        each.spec.node_name
        for each in what_if.all(storage_v1.VolumeAttachment)
        if each.spec.source.persistent_volume_name == volume and each.spec.node_name != pod.spec.node_name
    ]
    mode = f" ({joined(claims[0].spec.access_modes)})" if claims and claims[0].spec.access_modes else ""
    whose = f" of PersistentVolumeClaim {claims[0].metadata.name}" if claims else ""
    where = named("node", attached) if attached else "another node"
    text = f"volume {volume}{whose}{mode} is still attached to {where}"
    if not users:
        advice = (
            "wait until it is detached, which takes some minutes if its node is down; see kubectl get volumeattachments"
        )
        return Diagnosis(reason=Reason.VOLUME, text=text, advice=(advice,))
    nodes = sorted({each.spec.node_name for each in users})
    text = f"volume {volume}{whose}{mode} is still attached to {named('node', nodes)} for {named('pod', [each.metadata.name for each in users])}"
    if not _is_up(what_if, users[0]):
        text += f", and node {users[0].spec.node_name} is down"
    return Diagnosis(reason=Reason.VOLUME, text=text, advice=tuple(_detached(what_if, pod, users[0])))


def _is_other_user(other: core_v1.Pod, pod: core_v1.Pod, claims: set[str]) -> bool:
    return (
        other.metadata.namespace == pod.metadata.namespace
        and other.spec.node_name not in ("", pod.spec.node_name)
        and any(
            volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name in claims
            for volume in other.spec.volumes
        )
    )


def _detached(what_if: WhatIfCluster, pod: core_v1.Pod, user: core_v1.Pod) -> Iterator[str]:
    own = deployment_of(what_if, pod)
    name, node = user.metadata.name, user.spec.node_name
    if not _is_up(what_if, user):
        yield (
            f"bring node {node} back, or, if it is off for good, taint it {OUT_OF_SERVICE}, so that "
            "its pods go and its volumes are detached"
        )
        return
    if own and own == deployment_of(what_if, user):
        yield f"set strategy: {{type: Recreate}} in Deployment {own}, so that the old pod is deleted before the new one is created"
    yield f"delete pod {name}, or wait until it ends"
    share = "give it a ReadWriteMany volume or a clone"
    beside = f"run this pod on node {node} too (nodeSelector kubernetes.io/hostname: {node}), or "
    yield f"{beside if fits_on(what_if, pod, node) else ''}{share}"


def _is_up(what_if: WhatIfCluster, user: core_v1.Pod) -> bool:
    """Whether the node of a pod is there and ready."""
    info = what_if.cluster.nodes.get(user.spec.node_name)
    return info is not None and all(
        each.status == "True" for each in info.node.status.conditions if each.type == "Ready"
    )


# --- containers that go on after the work is done ---


def incomplete(pod: core_v1.Pod) -> Diagnosis | None:
    """A pod whose work is done, while a container that only serves it goes on. None if it is not that. text: phrased to follow the pod's
    node."""
    running, ended = running_and_ended(pod)
    if not running or not ended or any(ended.values()) or len(running) + len(ended) < len(pod.spec.containers):
        return None
    have, run = ("has", "have"), ("runs", "run")
    over = f"{named('container', ended)} {have[len(ended) > 1]} ended with exit code 0"
    rest = f"{named('container', running)} still {run[len(running) > 1]}"
    text = f"does not complete: {over}, but {rest}, and a pod completes when all its containers have ended"
    only = len(running) == 1
    which = f"{named('container', running)} {'a sidecar' if only else 'sidecars'}"
    sidecar = f"make {which} in the pod: {'an entry' if only else 'entries'} of initContainers with restartPolicy: Always, {'which ends' if only else 'which end'} after the others"
    metadata = pod.metadata
    now = (
        f"let {joined(list(ended))} stop {'it' if only else 'them'} at the end; to complete this pod now: "
        + "; ".join(f"kubectl exec -n {metadata.namespace} {metadata.name} -c {name} -- kill 1" for name in running)
    )
    return Diagnosis(reason=Reason.NOT_READY, text=text, advice=(sidecar, now))


# --- init containers ---


def init_container(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A running init container: the others start when it has ended. None if none runs."""
    sidecars = {each.name for each in pod.spec.init_containers if each.is_sidecar}
    for status in pod.status.init_container_statuses:
        running = status.state.running if status.state is not None else None
        if running is None or status.name in sidecars:
            continue
        name, metadata = status.name, pod.metadata
        seconds = _age(what_if, running.started_at or pod.status.start_time)
        since = f" for {duration(seconds)}" if seconds is not None else ""
        text = f"its init container {name} has been running{since}, and the others start when it has ended"
        log = f"kubectl logs -n {metadata.namespace} {metadata.name} -c {name}"
        path = _awaited_path(pod, name)
        if path:
            module = next((module for start, module in MODULES.items() if path.startswith(start)), "")
            text += f"; it seems to wait for {path}" + (f", which the {module} makes" if module else "")
            load = f"load the {module} on node {pod.spec.node_name}, so that {path} is there (log: {log})"
            see = f"make {path} appear on node {pod.spec.node_name}, or see what it waits for: {log}"
            return Diagnosis(reason=_verdict(seconds), text=text, advice=(load if module else see,))
        service, why, fix = _waited_for(what_if, metadata.namespace, name)
        if service:
            text += f"; Service {service}, which it seems to wait for, {why}"
            return Diagnosis(
                reason=Reason.STARTING, text=text, advice=(*([fix] if fix else []), f"see what it waits for: {log}")
            )
        return Diagnosis(reason=_verdict(seconds), text=text, advice=(f"see what it waits for: {log}",))
    return None


def _verdict(seconds: int | None) -> Reason:
    return Reason.STARTING if seconds is not None and seconds > _LONG_S else Reason.PROGRESSING


def _awaited_path(pod: core_v1.Pod, container: str) -> str:
    """The file or device of the node that the command of an init container waits for in a loop; empty if it does not."""
    found = next((each for each in pod.spec.init_containers if each.name == container), None)
    said = " ".join((*found.command, *found.args)) if found is not None else ""
    path = _HOST_PATH.search(said) if _LOOP.search(said) is not None else None
    return path["path"] if path is not None else ""


def _waited_for(what_if: WhatIfCluster, namespace: str, container: str) -> tuple[str, str, str]:
    """A Service without endpoints whose name is in the name of an init container, why, and what to do."""
    for service in what_if.all(core_v1.Service):
        name = service.metadata.name
        if service.metadata.namespace == namespace and f"-{name}-" in f"-{container}-":
            why, fix = without_endpoints(what_if, namespace, name)
            if why:
                return name, why, fix
    return "", "", ""
