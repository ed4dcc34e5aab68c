"""Pods that are starting on their node: pulling images, running init containers, waiting for volumes attached elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from allot.core.advice.explain.causes.containers import not_started
from allot.core.advice.explain.causes.kinship import deployment_of
from allot.core.advice.explain.causes.selecting import without_endpoints
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import duration, joined, named, one_line
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1, observed_v1

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
        return _failed(what_if, pod, one_line(last.message))
    if last is not None and last.reason == _PULLING:
        return _pulling(what_if, last)
    found = _init_container(what_if, pod)
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


def _attached_elsewhere(what_if: WhatIfCluster, pod: core_v1.Pod, volume: str) -> Diagnosis:
    """A single-node volume that is still attached to another node."""
    claims = [
        claim
        for claim in what_if.all(core_v1.PersistentVolumeClaim)
        if claim.spec.volume_name == volume and claim.metadata.namespace == pod.metadata.namespace
    ]
    names = {claim.metadata.name for claim in claims}
    users = [each for each in what_if.all(core_v1.Pod) if each is not pod and _is_other_user(each, pod, names)]
    mode = f" ({joined(claims[0].spec.access_modes)})" if claims and claims[0].spec.access_modes else ""
    whose = f" of PersistentVolumeClaim {claims[0].metadata.name}" if claims else ""
    text = f"volume {volume}{whose}{mode} is still attached to another node"
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
            f"bring node {node} back, or, if it is off for good, taint it node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, so that "
            "its pods go and its volumes are detached"
        )
        return
    if own and own == deployment_of(what_if, user):
        yield f"set strategy: {{type: Recreate}} in Deployment {own}, so that the old pod is deleted before the new one is created"
    yield f"delete pod {name}, or wait until it ends"


def _is_up(what_if: WhatIfCluster, user: core_v1.Pod) -> bool:
    """Whether the node of a pod is there and ready."""
    info = what_if.cluster.nodes.get(user.spec.node_name)
    return info is not None and all(
        each.status == "True" for each in info.node.status.conditions if each.type == "Ready"
    )


# --- init containers ---


def _init_container(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """A running init container: the others start when it has ended."""
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
        service, why, fix = _waited_for(what_if, metadata.namespace, name)
        if service:
            text += f"; Service {service}, which it seems to wait for, {why}"
            return Diagnosis(
                reason=Reason.STARTING, text=text, advice=(*([fix] if fix else []), f"see what it waits for: {log}")
            )
        reason = Reason.STARTING if seconds is not None and seconds > _LONG_S else Reason.PROGRESSING
        return Diagnosis(reason=reason, text=text, advice=(f"see what it waits for: {log}",))
    return None


def _waited_for(what_if: WhatIfCluster, namespace: str, container: str) -> tuple[str, str, str]:
    """A Service without endpoints whose name is in the name of an init container, why, and what to do."""
    for service in what_if.all(core_v1.Service):
        name = service.metadata.name
        if service.metadata.namespace == namespace and f"-{name}-" in f"-{container}-":
            why, fix = without_endpoints(what_if, namespace, name)
            if why:
                return name, why, fix
    return "", "", ""
