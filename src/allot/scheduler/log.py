"""Log lines about decisions."""

from __future__ import annotations

import logging

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling import Decision, Placement
from allot.scheduler.reports import text_of

_log = logging.getLogger("allot.scheduler")


def name_of(object_: Pod | PodGroup | CompositePodGroup) -> str:
    """Namespace and name."""
    return f"{object_.metadata.namespace}/{object_.metadata.name}"


def log_decision(decision: Decision) -> None:
    """One line for each decision about devices; it contains "DRA", which users search for."""
    for placement in decision.placements:
        if placement.claims or placement.extended is not None:
            _log.info("DRA: pod %s to node %s: %s", name_of(placement.pod), placement.node, _devices_of(placement))
    for refusal in decision.refusals:
        if "DynamicResources" in refusal.plugins:
            _log.info("DRA: pod %s not placed: %s", name_of(refusal.pod), text_of(refusal))


def _devices_of(placement: Placement) -> str:
    """Each claim with its new or existing devices."""
    allocations = [(step.claim.metadata.name, step.allocation) for step in placement.claims]
    if placement.extended is not None:
        allocations.append(("for extended resources", placement.extended.allocation))
    told = []
    for name, allocation in allocations:
        results = allocation.devices.results if allocation is not None else ()
        devices = ", ".join(f"{result.driver}/{result.pool}/{result.device}" for result in results)
        told.append(f"claim {name} gets {devices}" if devices else f"claim {name} is allocated already")
    return "; ".join(told)
