"""Pods that fit: devices that are allocated but not ready, or a scheduler that has not got to it."""

from __future__ import annotations

from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, patch_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import Subject, unready, would_help
from allot.core.advice.explain.wording import named
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import WhatIfCluster, as_json, full_name
from allot.core.features import GATES
from allot.core.lifecycle.times import time_of
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

_SMALL_NODES_MAX = 100


def not_ready(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Devices of the pod that have been allocated, but are not ready yet."""
    claim = unready(what_if, pod)
    if claim is None or claim.status.allocation is None:
        return None
    for result in claim.status.allocation.devices.results:
        if not result.binding_conditions:
            continue
        device = f"{result.driver}/{result.pool}/{result.device}"
        conditions = named("binding condition", result.binding_conditions)
        text = (
            f"device {device} of claim {full_name(claim)} is allocated but not ready: driver {result.driver} has not set "
            f"{conditions} to True"
        )
        return Diagnosis(
            reason=Reason.BINDING_CONDITIONS,
            text=text,
            candidates=(
                _set_by_driver(
                    what_if, claim, result, f"let driver {result.driver} set {conditions} of device {device}"
                ),
            ),
            advice=(f"see what the controller of driver {result.driver} says of device {device}",),
        )
    return None


def _set_by_driver(
    what_if: WhatIfCluster, claim: api.ResourceClaim, result: api.DeviceRequestAllocationResult, text: str
) -> Candidate:
    """The status that the driver owes."""
    own = (result.driver, result.pool, result.device)
    kept = [
        each
        for each in as_json(claim).get("status", {}).get("devices", [])
        if (each.get("driver"), each.get("pool"), each.get("device")) != own
    ]
    conditions = [
        {"type": name, "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": time_of(what_if.now)}
        for name in result.binding_conditions
    ]
    ready = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": conditions}
    operation = {"op": "add", "path": "/status/devices", "value": [*kept, ready]}
    patch = patch_of("ResourceClaim", claim.metadata.name, operation, namespace=claim.metadata.namespace)
    return Candidate(rank=Rank.ADMIN, text=text, patches=(patch,))


def missing_gate(what_if: WhatIfCluster, subject: Subject, node: str) -> Diagnosis | None:
    """A feature gate without which a pod does not fit that fits with it: its scheduler may run without. Asked of small clusters
    only, as all is read anew for each gate."""
    if len(what_if.cluster.nodes) > _SMALL_NODES_MAX:
        return None
    for gate in GATES.values():
        if gate.locked or gate.name not in what_if.gates or not gate.name.startswith("DRA"):
            continue
        off = (Patch(action="gate", name=gate.name, enabled=False),)
        outcome = would_help(what_if, subject, off)
        if outcome is not None and not outcome.schedulable:
            text = (
                f"its scheduler seems to run without feature gate {gate.name}: with it the pod fits on node {node}, without it "
                "nowhere"
            )
            return Diagnosis(
                reason=Reason.FEATURE, text=text, advice=(f"switch feature gate {gate.name} of the scheduler on",)
            )
    return None


def fits(node: str) -> Diagnosis:
    """Nothing is in the way."""
    text = (
        f"its scheduler has not got to it yet, or sees the cluster differently: nothing in the snapshot stands in its way, it fits "
        f"on node {node}"
    )
    advice = ("see that the scheduler runs, and what its log says of the pod",)
    return Diagnosis(reason=Reason.FITS, text=text, advice=advice)
