"""Pods that have a node: why they do not run yet, and what they have if they do."""

from __future__ import annotations

import re

from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.report import Reason, UsedDevice
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

FAILED_PREPARE = "FailedPrepareDynamicResources"
_FAILURES = (FAILED_PREPARE, "FailedCreatePodSandBox", "Failed", "BackOff", "FailedMount", "FailedBinding")
_PREFIXES = ("Failed to prepare dynamic resources: ", "prepare dynamic resources: ", "preparing devices: ")
_NOT_REGISTERED = re.compile(r"DRA driver (?P<driver>\S+) is not registered")
_STRATEGY = re.compile(r"unknown GPU sharing strategy: (?P<strategy>\w+)")
# Feature gates of NVIDIA's driver without which it does not know a strategy.
_STRATEGY_GATES = {"TimeSlicing": "TimeSlicingSettings", "MPS": "MPSSupport"}


def after_scheduling(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    """Why a pod that has a node does not run."""
    node = pod.spec.node_name
    prepare = events_of(what_if, pod, FAILED_PREPARE)
    if prepare:
        return _prepare(what_if, pod, prepare[0].message)
    others = events_of(what_if, pod, *_FAILURES)
    said = others[0].message if others else ""
    info = what_if.cluster.nodes.get(node)
    if info is None:
        text = f"it is bound to node {node}, which the cluster does not have"
    elif said:
        text = f"it is bound to node {node} and does not start there: {said}"
    else:
        text = f"it is bound to node {node}, which has not started it yet"
    return Diagnosis(reason=Reason.STARTING, text=text)


def _prepare(what_if: WhatIfCluster, pod: core_v1.Pod, message: str) -> Diagnosis:
    node = pod.spec.node_name
    said = message
    for prefix in _PREFIXES:
        said = said.removeprefix(prefix)
    advice: tuple[str, ...]
    missing = _NOT_REGISTERED.search(message)
    if missing is not None:
        driver = missing["driver"]
        text = (
            f"DRA driver {driver} is not registered with the kubelet of node {node}: its plugin does not run there, so that "
            "its devices cannot be prepared"
        )
        advice = (
            f"see that the pods of driver {driver} run on node {node}, and that they reach the kubelet's plugin folder",
        )
        return Diagnosis(reason=Reason.PREPARE, text=text, details=(message,), advice=advice)
    unknown = _STRATEGY.search(message)
    if unknown is not None:
        strategy = unknown["strategy"]
        gate = _STRATEGY_GATES.get(strategy)
        why = f": the driver's feature gate {gate} is off" if gate is not None else ""
        text = (
            f"the driver on node {node} does not know the sharing strategy {strategy} that the claim is configured with "
            f'("unknown GPU sharing strategy: {strategy}"){why}'
        )
        advice = (
            f"switch feature gate {gate} of the driver on" if gate is not None else "use another strategy",
            "leave the sharing configuration out of the claim",
        )
        return Diagnosis(reason=Reason.PREPARE, text=text, details=(message,), advice=advice)
    text = f"node {node} cannot prepare its devices: {said}"
    return Diagnosis(reason=Reason.PREPARE, text=text, details=_configurations(what_if, pod))


def _configurations(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[str, ...]:
    """Where the configuration that a driver gets comes from."""
    found = []
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is not None and claim.spec.devices.config:
            drivers = {config.opaque.driver for config in claim.spec.devices.config if config.opaque is not None}
            found.append(f"claim {namespace}/{name} has a configuration for driver {', '.join(sorted(drivers))}")
    return tuple(found)


def devices_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[UsedDevice, ...]:
    """The devices that a pod's claims have."""
    return tuple(
        UsedDevice(
            claim=f"{namespace}/{name}",
            request=result.request,
            device=f"{result.driver}/{result.pool}/{result.device}",
        )
        for namespace, name in what_if.claims.claims_of(pod)
        if (claim := what_if.get(api.ResourceClaim, name, namespace)) is not None
        and claim.status.allocation is not None
        for result in claim.status.allocation.devices.results
    )
