"""Devices held by related pods: other replicas, or those that an update is about to replace."""

from __future__ import annotations

from collections.abc import Sequence

from allot.core.advice.explain.holding import are_siblings, controller_of
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model.apps_v1 import ReplicaSet

_WITH_REPLICAS = ("ReplicaSet", "StatefulSet")


def kinship(what_if: WhatIfCluster, pod: core_v1.Pod, users: Sequence[core_v1.Pod]) -> str:
    """How the holders of devices relate to the waiting pod: pods of its controller, or of its predecessor."""
    own = controller_of(pod)
    if own is None or not users:
        return ""
    if are_siblings(pod, users):
        return f", {'another pod' if len(users) == 1 else 'the other pods'} of {own.kind} {own.name}"
    deployments = {deployment_of(what_if, each) for each in users}
    if deployments == {deployment_of(what_if, pod)} and "" not in deployments:
        return f", which the update of Deployment {deployments.pop()} replaces"
    return ""


def deployment_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    """The Deployment of a pod; empty if unknown."""
    maker = controller_of(pod)
    made_by = what_if.get(ReplicaSet, maker.name, pod.metadata.namespace) if maker is not None else None
    owners = made_by.metadata.owner_references if made_by is not None else ()
    return next((each.name for each in owners if each.kind == "Deployment"), "")


def kin_advice(what_if: WhatIfCluster, pod: core_v1.Pod, text: str) -> tuple[str, ...]:
    """Remedies if related pods hold the devices."""
    own = controller_of(pod)
    name = deployment_of(what_if, pod)
    if own is None:
        return ()
    if "which the update of Deployment" in text:
        return (f"let the update delete old pods first: maxSurge: 0 and maxUnavailable: 1 in Deployment {name}",)
    if f"of {own.kind} {own.name}" in text:
        return (f"run fewer replicas of {f'Deployment {name}' if name else f'{own.kind} {own.name}'}",)
    return ()


def fewer_replicas(what_if: WhatIfCluster, pod: core_v1.Pod, others: Sequence[core_v1.Pod]) -> tuple[str, ...]:
    """As many replicas as have what only some can have; nothing for a pod without such others, or one that waits its turn."""
    own = controller_of(pod)
    if own is None or own.kind not in _WITH_REPLICAS or not are_siblings(pod, others):
        return ()
    name = deployment_of(what_if, pod)
    number = len({each.metadata.uid for each in others})
    workload = f"Deployment {name}" if name else f"{own.kind} {own.name}"
    return (
        f"run {number if number == 1 else f'at most {number}'} {'replica' if number == 1 else 'replicas'} of {workload}",
    )
