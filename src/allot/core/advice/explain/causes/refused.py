"""The cause of a refusal: maps the decision to the module that explains it."""

from __future__ import annotations

import re

from msgspec.structs import replace

from allot.core.advice.explain.causes import combining, devices, nodes, skipped
from allot.core.advice.explain.causes.kueue import by_flavor
from allot.core.advice.explain.causes.placing import DEVICE_REASONS, Placing
from allot.core.advice.explain.causes.plugins import without_plugin
from allot.core.advice.explain.causes.selectors import ended_by_selector
from allot.core.advice.explain.causes.volumes import volume_cause
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, place_of_claim
from allot.core.advice.explain.holding import NOT_FOR_DEVICES
from allot.core.advice.explain.remedies import selectors
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.wording import listed
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PREEMPT_NEVER
from allot.core.scheduling import DEFAULT_SETTINGS, DYNAMIC_RESOURCES, ClaimFit, Failure, Status, Verdict, preempt

_PREEMPTION_NODES_MAX = 500
_RUNTIME_ERROR = "CEL runtime error"
_CLASS = re.compile(r"request (?P<request>\S+): device class (?P<name>\S+) does not exist")


def refused(what_if: WhatIfCluster, pod: core_v1.Pod, failure: Failure) -> tuple[Diagnosis, Placing | None]:
    """Why a pod fits on no node, and the findings about all nodes if they were considered."""
    if failure.status is not None and failure.early:
        return _early(what_if, pod, failure.status), None
    placing = Placing(what_if, pod, failure)
    diagnosis = by_flavor(what_if, pod, _cause(placing))
    told = NOT_FOR_DEVICES in diagnosis.text
    more = () if told else _preemption(what_if, pod, failure, placing)
    return replace(diagnosis, details=(*diagnosis.details, *more)), placing


def failed_before(what_if: WhatIfCluster, pod: core_v1.Pod, said: str) -> Diagnosis | None:
    """A selector's error that ended the attempt of the cluster's own scheduler, which visits nodes in another order, although
    the pod could be placed here; None if no device gives an error now."""
    if _RUNTIME_ERROR not in said:
        return None
    fit = what_if.claims.fit(pod, None, what_if.now)
    if not isinstance(fit, ClaimFit):
        return None
    status = Status(verdict=Verdict.ERROR, plugin=DYNAMIC_RESOURCES, reasons=(said,))
    return ended_by_selector(Placing(what_if, pod, Failure(status=status, fit=fit)))


def _preemption(what_if: WhatIfCluster, pod: core_v1.Pod, failure: Failure, placing: Placing) -> tuple[str, ...]:
    """Pods of lower priority that could be preempted. Skipped for large clusters, where it takes long."""
    if failure.status is not None or len(what_if.cluster.nodes) > _PREEMPTION_NODES_MAX:
        return ()
    group = what_if.group_of(pod)
    if PREEMPT_NEVER in (pod.spec.preemption_policy, group.spec.preemption_policy if group is not None else None):
        return ()
    own = pod.spec.priority or 0
    if all(info.priority >= own for info in what_if.cluster.pods.values()):
        return ()
    found = preempt(what_if.cluster, pod, failure, DEFAULT_SETTINGS, what_if.now)
    if not found.victims:
        return ()
    if not placing.wanted:
        return (
            f"pods of lower priority than its own, {own}, are in its way: the scheduler preempts them in its next attempt",
        )
    return (
        f"pods of lower priority than its own, {own}, have what it needs: allot's scheduler also preempts for devices, "
        "kube-scheduler only for cpu, memory and other node resources",
    )


def _cause(placing: Placing) -> Diagnosis:
    if not placing.what_if.cluster.nodes:
        return nodes.no_nodes(placing)
    ended = ended_by_selector(placing)
    if ended is not None:
        return ended
    bare = nodes.for_bare_node(placing)
    if bare is not None:
        return bare
    checks = placing.checks[placing.nearest[0].name]
    on_devices = any(check.reason in DEVICE_REASONS for check in checks)
    if placing.fit is not None and placing.fit.held and _is_pinned(placing):
        return nodes.pinned(placing, devices.device_cause(placing) if on_devices and placing.wanted else None)
    if on_devices:
        found = devices.device_cause(placing)
        apart = nodes.volume_apart(placing, found)
        if apart is not None:
            return apart
        found = replace(
            found,
            text=found.text + nodes.ruled_out(placing),
            candidates=(*found.candidates, *nodes.let_in(placing)),
            advice=(*found.advice, *nodes.moved_advice(placing)),
        )
        return skipped.without_driver(placing, found)
    return skipped.without_driver(placing, without_plugin(placing, nodes.node_cause(placing)))


def _is_pinned(placing: Placing) -> bool:
    """Whether allocated claims keep the pod from nodes that would otherwise fit."""
    nearest_checks = placing.checks[placing.nearest[0].name]
    if any(check.reason is Reason.PINNED for check in nearest_checks):
        return True
    return any(len(checks) == 1 and checks[0].reason is Reason.PINNED for checks in placing.checks.values())


def _early(what_if: WhatIfCluster, pod: core_v1.Pod, status: Status) -> Diagnosis:
    """The answer before any node was considered."""
    said = ", ".join(status.reasons)
    missing = _CLASS.search(said)
    if missing is not None:
        return _no_class(what_if, pod, missing["request"], missing["name"])
    if status.plugin.startswith("Volume"):
        return volume_cause(what_if, pod, said)
    return combining.switched_off(what_if, said) or Diagnosis(reason=Reason.NO_DEVICES, text=said)


def _no_class(what_if: WhatIfCluster, pod: core_v1.Pod, request: str, name: str) -> Diagnosis:
    candidates: list[Candidate] = []
    owner = ""
    others: list[str] = []
    for namespace, claimed in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, claimed, namespace)
        if claim is not None and name in _classes_of(claim):
            place = place_of_claim(what_if, pod, claim)
            owner = f" of {place.spoken if place is not None else f'claim {namespace}/{claimed}'}"
            others += selectors.beside(claim.spec, request)
            candidates += selectors.missing_class(what_if, pod, claim, request, name)
    known = sorted(class_.metadata.name for class_ in what_if.all(api.DeviceClass))
    meant = selectors.similar_class(what_if, name, others)
    hint = f" (there {'is' if len(known) == 1 else 'are'} {listed(known)})" if known else " (there are none)"
    hint = f' (did you mean "{meant}"?)' if meant is not None else hint
    text = f'DeviceClass {name}, which request "{request}"{owner} asks for, does not exist{hint}'
    advice = (f"install the driver that provides DeviceClass {name}, or enable that part of it",)
    if others:
        advice = (f"create DeviceClass {name}, if there are such devices",)
    return Diagnosis(
        reason=Reason.CLASS_MISSING,
        text=text,
        candidates=tuple(candidates),
        advice=advice if "." in name and meant is None else (),
    )


def _classes_of(claim: api.ResourceClaim) -> list[str]:
    return [
        leaf.device_class_name
        for request in claim.spec.devices.requests
        for leaf in (request.exactly, *request.first_available)
        if leaf is not None
    ]
