"""Pods: their node, or the scheduler's last message. Equal waiting pods have the same *shape*."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from allot.core.advice.explain.holding import FINISHED
from allot.core.advice.explain.pods import is_stuck
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model.core_v1 import Pod
from allot.core.workloads.ownership import controller_reference

_MESSAGE_MAX = 2000


def waits(pod: Pod) -> bool:
    """Whether a pod should run but does not."""
    return pod.status.phase not in FINISHED and (pod.status.phase != "Running" or is_stuck(pod))


def pod_row(what_if: WhatIfCluster, pod: Pod, tried: tuple[int, str] = (0, "")) -> dict[str, Any]:
    """A pod as lists show it. tried: how often in vain, and when last."""
    metadata = pod.metadata
    row: dict[str, Any] = {"s": state_of(pod), "at": metadata.creation_timestamp}
    if pod.spec.node_name:
        row["node"] = pod.spec.node_name
    claims = [id_.name for id_ in what_if.claims.claims_of(pod)]
    if claims:
        row["claims"] = claims
    group = what_if.cluster.membership.key(pod)
    if group:
        row["gang"] = group
    owner = controller_reference(metadata)
    if owner is not None:
        row["owner"] = f"{owner.kind}/{owner.name}"
    if waits(pod):
        reason, message = said_of(pod)
        row["why"] = reason
        row["msg"] = message[:_MESSAGE_MAX]
        row["shape"] = _shape(pod, group, message)
        if pod.spec.priority:
            row["prio"] = pod.spec.priority
        if tried[0]:
            row["tries"], row["tried"] = tried
    return row


def state_of(pod: Pod) -> str:
    """In one word."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    phase = pod.status.phase or "Pending"
    if phase == "Pending":
        return "Starting" if pod.spec.node_name else "Pending"
    return "Stuck" if phase == "Running" and is_stuck(pod) else phase


def said_of(pod: Pod) -> tuple[str, str]:
    """The reported reason and message why a pod does not run."""
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        if status.state is not None and status.state.waiting is not None and status.state.waiting.reason:
            return status.state.waiting.reason, status.state.waiting.message
    if pod.status.reason or pod.status.message:
        return pod.status.reason, pod.status.message
    if pod.spec.node_name:
        return "", "has a node; its containers have not started yet"
    return "", "not scheduled yet"


def _shape(pod: Pod, group: str, message: str) -> str:
    """A key that is equal for pods with the same explanation: of one owner or with one spec, and the same message."""
    owner = controller_reference(pod.metadata)
    if owner is not None and owner.kind != "StatefulSet":
        what: object = owner.uid
    else:
        what = replace(
            pod.spec,
            hostname="",
            resource_claims=tuple(replace(c, resource_claim_name=None) for c in pod.spec.resource_claims),
        )
    key = (pod.metadata.namespace, state_of(pod), group, message, what)
    return blake2b(msgspec.json.encode(key, enc_hook=str), digest_size=9).hexdigest()
