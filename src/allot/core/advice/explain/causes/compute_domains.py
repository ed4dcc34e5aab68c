"""Pods that wait for their ComputeDomain: which domain, on which node it is not ready, and what its daemon lacks there."""

from __future__ import annotations

import re

import msgspec

from allot.core.advice.explain.causes.containers import container_trouble
from allot.core.advice.explain.causes.unplaced import unplaced
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.events import events_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import listed, one_line
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.compute_domains import (
    CHANNEL_CONFIG,
    DOMAIN_LABEL,
    DRIVER,
    KIND,
    READY,
    ComputeDomain,
)
from allot.core.workloads.daemonset_nodes import target_node

FAILED_PREPARE = "FailedPrepareDynamicResources"
_FAILED = (FAILED_PREPARE, "FailedScheduling", "FailedCreatePodSandBox", "Unhealthy")
_SHOWN_MAX = 3
# What the daemon says if the host's own daemon uses its port.
_TAKEN = re.compile(r"address\b.*\balready in use", re.IGNORECASE)
_HOST_IMEX = "the host's own daemon, nvidia-imex.service,"


class _Parameters(msgspec.Struct, frozen=True):
    kind: str = ""
    domain_id: str = msgspec.field(default="", name="domainID")


def waits_for_domain(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Why the domain of a pod's channel is not ready on its node; None if it is, or if the pod has no channel of a domain that is known."""
    uid = _domain_of(what_if, pod)
    domain = next((each for each in what_if.all(ComputeDomain) if each.metadata.uid == uid), None) if uid else None
    if domain is None or domain.metadata.namespace != pod.metadata.namespace:
        # The driver reports what is wrong with such a claim.
        return None
    node = pod.spec.node_name
    entry = domain.node(node)
    if entry is not None and entry.status == READY:
        return None
    name = f"{KIND} {domain.metadata.namespace}/{domain.metadata.name}"
    daemon = _daemon_pod(what_if, uid, node)
    waits = unplaced(what_if, daemon) if daemon is not None else None
    text = f"{name} is not ready on node {node}: {_daemon(what_if, domain, node, waits)}"
    others = [each.name for each in domain.status.nodes if each.status != READY and each.name != node]
    details = [each.message for each in events_of(what_if, pod, FAILED_PREPARE)[:1]]
    if others:
        details.append(f"it is not ready on {listed(others, _SHOWN_MAX)} either")
    advice = (
        *(waits.advice if waits is not None else ()),
        *(
            [
                f"stop the process that listens there on node {node}: {_HOST_IMEX} if it runs (systemctl disable --now nvidia-imex.service)"
            ]
            if _TAKEN.search(text)
            else []
        ),
        *([f"see the log of the daemon: {log}"] if (log := _log(daemon)) else []),
        *(
            []
            if waits is not None
            else [f"see the pods of the domain's daemons: kubectl get pods -A -l {DOMAIN_LABEL}={uid} -o wide"]
        ),
    )
    return Diagnosis(reason=Reason.PREPARE, text=text, details=tuple(details), advice=advice)


def _domain_of(what_if: WhatIfCluster, pod: core_v1.Pod) -> str:
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is None or claim.status.allocation is None:
            continue
        for config in claim.status.allocation.devices.config or claim.spec.devices.config:
            if config.opaque is not None and config.opaque.driver == DRIVER and config.opaque.parameters is not None:
                try:
                    found = msgspec.json.decode(config.opaque.parameters.data, type=_Parameters)
                except msgspec.MsgspecError:
                    continue
                if found.kind == CHANNEL_CONFIG:
                    return found.domain_id
    return ""


def _daemon_pod(what_if: WhatIfCluster, uid: str, node: str) -> core_v1.Pod | None:
    pods = what_if.all(core_v1.Pod)
    return next((p for p in pods if p.metadata.labels.get(DOMAIN_LABEL) == uid and target_node(p) == node), None)


def _log(daemon: core_v1.Pod | None) -> str:
    """How to read what a daemon says; empty if it does not run."""
    if daemon is None or not daemon.spec.node_name:
        return ""
    return f"kubectl logs -n {daemon.metadata.namespace} {daemon.metadata.name}"


def _daemon(what_if: WhatIfCluster, domain: ComputeDomain, node: str, waits: Diagnosis | None) -> str:
    """What is wrong with the daemon on a node, phrased to follow a colon. waits: why its pod has no node."""
    info = what_if.cluster.nodes.get(node)
    joined = info.node.metadata.labels.get(DOMAIN_LABEL, "") if info is not None else ""
    if joined != domain.metadata.uid:
        return (
            f"the node is in another {KIND} ({joined}), and a node can be in only one at a time"
            if joined
            else f"driver {DRIVER} has not added the node to the domain yet"
        )
    pod = _daemon_pod(what_if, joined, node)
    if pod is None:
        return "its daemon does not run there yet"
    if waits is not None:
        return f"its daemon there, pod {full_name(pod)}, is pending because {waits.text}"
    trouble = container_trouble(what_if, pod)
    said = events_of(what_if, pod, *_FAILED)
    why = trouble.text if trouble is not None else one_line(said[0].message) if said else "it is starting"
    taken = f"; {_HOST_IMEX} has its port, if it runs on the node" if _TAKEN.search(why) else ""
    return f"its daemon there, pod {full_name(pod)}, is not ready: {why}{taken}"
