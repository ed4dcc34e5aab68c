"""Services that select no pod, and the labels that the intended pods have instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allot.core.advice.explain.events import scaled_from
from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.wording import joined, listed, named
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model.apps_v1 import Deployment
from allot.core.workloads.pod_states import is_ready
from allot.core.workloads.pod_templates import template_value
from allot.core.workloads.rollout import wanted_replicas
from allot.core.workloads.service_endpoints import selects


class Unselected(NamedTuple):
    """Why a Service has no pods. text: phrased to follow its name; advice: what to select instead, empty if unknown."""

    text: str
    advice: str


def selects_nobody(service: core_v1.Service, here: Sequence[core_v1.Pod]) -> Unselected:
    """A Service that selects none of the given pods of its namespace."""
    selector = service.spec.selector
    word = "label" if len(selector) == 1 else "labels"
    text = f"has no endpoints: no pod of its namespace has {word} {_shown(selector)}"
    meant = _meant(service, [pod for pod in here if pod.status.phase not in FINISHED])
    if not meant:
        values = sorted(
            {f"{key}={pod.metadata.labels[key]}" for pod in here for key in selector if key in pod.metadata.labels}
        )
        return Unselected(f"{text} (pods have {listed(values)})" if values else text, "")
    labels = meant[0].metadata.labels
    wrong = [key for key, value in selector.items() if labels.get(key) != value]
    right = {key: labels[key] for key in wrong if key in labels}
    absent = [key for key in wrong if key not in labels]
    pods = named("pod", [pod.metadata.name for pod in meant])
    has = "has" if len(meant) == 1 else "have"
    facts = [_shown(right)] if right else []
    facts += [f"no label {key}" for key in absent]
    steps = [f"select {_shown(right)} instead of {_shown({key: selector[key] for key in right})}"] if right else []
    steps += [f"drop {listed(absent)} from the selector"] if absent else []
    return Unselected(f"{text} ({pods} {has} {joined(facts)})", f"{joined(steps)} in Service {service.metadata.name}")


def _shown(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _meant(service: core_v1.Service, pods: Sequence[core_v1.Pod]) -> list[core_v1.Pod]:
    """Pods that a Service may be meant to select: with most of its labels, with similar ones, or with its port; of one kind."""
    selector = service.spec.selector
    shared = {pod.metadata.uid: len(selector.items() & pod.metadata.labels.items()) for pod in pods}
    best = max(shared.values(), default=0)
    found = [pod for pod in pods if shared[pod.metadata.uid] == best] if best else []
    if not found:
        found = [pod for pod in pods if _is_similar(selector, pod)] or [pod for pod in pods if _listens(service, pod)]
    first = found[0].metadata.labels if found else {}
    return [pod for pod in found if all(pod.metadata.labels.get(key) == first.get(key) for key in selector)]


def _is_similar(selector: Mapping[str, str], pod: core_v1.Pod) -> bool:
    labels = pod.metadata.labels
    return all(key in labels and nearest(value, [labels[key]]) is not None for key, value in selector.items())


def _listens(service: core_v1.Service, pod: core_v1.Pod) -> bool:
    """Whether a pod has a port that the Service targets."""
    ports = {port.target_port or port.port for port in service.spec.ports}
    return any(
        port.container_port in ports or (port.name and port.name in ports)
        for container in pod.spec.containers
        for port in container.ports
    )


def scaled_to_nothing(
    what_if: WhatIfCluster, namespace: str, selector: Mapping[str, str], name: str = ""
) -> Deployment | None:
    """The Deployment scaled to 0 whose pods a Service would select, or that has its name; None if there is none."""
    for found in what_if.all(Deployment):
        labels = (
            (template_value(found.spec.template).get("metadata") or {}).get("labels") or {}
            if found.spec.template
            else {}
        )
        meant = selects(selector, labels) if selector else found.metadata.name == name
        if found.metadata.namespace == namespace and meant and not wanted_replicas(found.spec):
            return found
    return None


def scale_up(what_if: WhatIfCluster, found: Deployment) -> str:
    """The command that scales a Deployment up, to what it had before if that is known."""
    namespace, name = found.metadata.namespace, found.metadata.name
    number = scaled_from(what_if, "Deployment", namespace, name) or "1"
    return f"kubectl scale deployment {name} -n {namespace} --replicas={number}"


def without_endpoints(what_if: WhatIfCluster, namespace: str, name: str) -> tuple[str, str]:
    """Why a Service has no ready endpoint, phrased to follow its name, and what to do; empty if it has ready pods or is unknown."""
    service = what_if.get(core_v1.Service, name, namespace)
    if service is None or not service.spec.selector:
        return "", ""
    here = [pod for pod in what_if.all(core_v1.Pod) if pod.metadata.namespace == namespace]
    pods = [pod for pod in here if selects(service.spec.selector, pod.metadata.labels)]
    if not pods:
        empty = scaled_to_nothing(what_if, namespace, service.spec.selector)
        if empty is not None:
            return f"has no endpoints: Deployment {empty.metadata.name} is scaled to 0", scale_up(what_if, empty)
        return selects_nobody(service, here)
    if any(map(is_ready, pods)):
        return "", ""
    waiting = named("pod", [pod.metadata.name for pod in pods])
    return (
        f"has no ready endpoint: {waiting} {'is' if len(pods) == 1 else 'are'} not ready",
        f"check why {waiting} {'is' if len(pods) == 1 else 'are'} not ready",
    )
