"""Pods: those that wait for a node, those that wait on one, and those that run."""

from __future__ import annotations

from msgspec.structs import replace

from allot.core.advice.explain.causes.early import before_scheduling
from allot.core.advice.explain.causes.late import after_scheduling, devices_of
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.refused import refused
from allot.core.advice.explain.causes.waiting import fits, missing_gate, not_ready
from allot.core.advice.explain.changes import helpful
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.report import Change, Explanation, NodeGroup, Reason, State
from allot.core.advice.explain.trial import pod_subject, try_out
from allot.core.advice.explain.wording import named
from allot.core.advice.what_if import Journal, WhatIfCluster, full_name
from allot.core.lifecycle.claim_owners import claim_keys
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import ClaimFit, Failure

FINISHED = ("Succeeded", "Failed")
_AS_GOOD = "would do as well"


def explain_pod(what_if: WhatIfCluster, pod: core_v1.Pod, *, briefly: bool) -> Explanation:
    """Why a pod is where it is in its life. briefly: only the cause."""
    if pod.status.phase in FINISHED:
        return said("Pod", pod, State.ENDED, Reason.ENDED, f"{full_name(pod)} has ended ({pod.status.phase})")
    if not pod.spec.node_name:
        return _pending(what_if, pod, briefly)
    return _placed(what_if, pod, briefly) if pod.status.phase == "Running" else _starting(what_if, pod)


def said(kind: str, object_: core_v1.Pod | api.ResourceClaim, state: State, reason: Reason, cause: str) -> Explanation:
    """An explanation with its first line only."""
    metadata = object_.metadata
    return Explanation(
        kind=kind, namespace=metadata.namespace, name=metadata.name, state=state, reason=reason, cause=cause
    )


def _pending(what_if: WhatIfCluster, pod: core_v1.Pod, briefly: bool) -> Explanation:
    subject = pod_subject(pod)
    diagnosis: Diagnosis | None = before_scheduling(what_if, pod) or not_ready(what_if, pod)
    placing: Placing | None = None
    if diagnosis is None:
        outcome = try_out(what_if, subject)
        if outcome.schedulable:
            node = outcome.node_of(subject)
            refused_before = bool(_scheduler_said(pod)) and not briefly
            diagnosis = (missing_gate(what_if, subject, node) if refused_before else None) or fits(node)
        else:
            assert outcome.failure is not None, "a pod that is not placed has a reason"
            diagnosis, placing = refused(what_if, pod, outcome.failure)
    first = said("Pod", pod, State.PENDING, diagnosis.reason, f"{full_name(pod)} is pending because {diagnosis.text}")
    if briefly:
        return first
    return replace(
        first,
        details=diagnosis.details,
        changes=helpful(what_if, subject, diagnosis, placing.near if placing is not None else ()),
        requests=placing.requests() if placing is not None else (),
        nodes=placing.groups() if placing is not None else (),
        node_count=len(what_if.cluster.nodes),
        nearest=placing.miss() if placing is not None else None,
        scheduler_said=_scheduler_said(pod),
    )


def _scheduler_said(pod: core_v1.Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.message
    return ""


def _starting(what_if: WhatIfCluster, pod: core_v1.Pod) -> Explanation:
    diagnosis = after_scheduling(what_if, pod)
    cause = f"{full_name(pod)} is pending because {diagnosis.text}"
    return replace(
        said("Pod", pod, State.STARTING, diagnosis.reason, cause),
        details=diagnosis.details,
        changes=tuple(Change(text=text) for text in diagnosis.advice),
        node=pod.spec.node_name,
        devices=devices_of(what_if, pod),
    )


def _placed(what_if: WhatIfCluster, pod: core_v1.Pod, briefly: bool) -> Explanation:
    """A pod that runs; and why not elsewhere, as far as that can still be known: what other nodes would say now."""
    devices = devices_of(what_if, pod)
    has = f" with {named('device', [each.device for each in devices])}" if devices else ""
    cause = f"{full_name(pod)} runs on node {pod.spec.node_name}{has}"
    return replace(
        said("Pod", pod, State.PLACED, Reason.PLACED, cause),
        nodes=() if briefly else _elsewhere(what_if, pod),
        node_count=len(what_if.cluster.nodes),
        node=pod.spec.node_name,
        devices=devices,
    )


def _elsewhere(what_if: WhatIfCluster, pod: core_v1.Pod) -> tuple[NodeGroup, ...]:
    """What other nodes say to a pod like this one, whose claims have no devices yet."""

    def unplace(changed: WhatIfCluster, journal: Journal) -> None:
        changed.put(replace(pod, spec=replace(pod.spec, node_name="")), journal)
        for key in claim_keys(pod):
            namespace, _, name = key.partition("/")
            claim = changed.get(api.ResourceClaim, name, namespace)
            if claim is not None and {user.uid for user in claim.status.reserved_for} <= {pod.metadata.uid}:
                changed.put(replace(claim, status=api.ResourceClaimStatus()), journal)

    with what_if.changed((), unplace):
        fit = what_if.claims.fit(pod, None, what_if.now)
        placing = Placing(what_if, pod, Failure(fit=fit if isinstance(fit, ClaimFit) else None))
        return placing.groups(without=pod.spec.node_name, nothing_wrong=_AS_GOOD)
