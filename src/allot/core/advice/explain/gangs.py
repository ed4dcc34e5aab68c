"""Gangs: pods that start together or not at all."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.causes.early import before_scheduling
from allot.core.advice.explain.causes.placing import Placing
from allot.core.advice.explain.causes.refused import refused
from allot.core.advice.explain.causes.waiting import fits
from allot.core.advice.explain.changes import helpful
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.pods import FINISHED
from allot.core.advice.explain.report import Explanation, Reason, State
from allot.core.advice.explain.trial import Subject, gang_subject, try_out
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.lifecycle.claim_owners import group_name
from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import Placement, minimum_of


def explain_gang(what_if: WhatIfCluster, group: PodGroup, *, briefly: bool) -> Explanation:
    """Why a gang waits. briefly: only the cause."""
    namespace, name = group.metadata.namespace, group.metadata.name
    members = [
        pod
        for pod in what_if.all(core_v1.Pod)
        if pod.metadata.namespace == namespace and group_name(pod) == name and pod.status.phase not in FINISHED
    ]
    waiting = [pod for pod in members if not pod.spec.node_name]
    if not waiting:
        return _said(
            group, State.PLACED, Reason.PLACED, f"gang {full_name(group)}: all {len(members)} pods have a node"
        )
    subject = gang_subject(group, waiting)
    unit = what_if.machine.unit_of(subject.key)
    for pod in unit.pods if unit is not None else waiting:
        early = before_scheduling(what_if, pod)
        if early is not None:
            cause = f"gang {full_name(group)} is pending because of pod {pod.metadata.name}: {early.text}"
            first = _said(group, State.PENDING, early.reason, cause)
            return first if briefly else replace(first, changes=helpful(what_if, subject, early), details=early.details)
    outcome = try_out(what_if, subject)
    if outcome.schedulable:
        why = fits(outcome.node_of(subject))
        return _said(group, State.PENDING, why.reason, f"gang {full_name(group)} is pending because {why.text}")
    assert unit is not None, "pods that are waiting and not held back are tried"
    return _refused(what_if, group, unit.pods, subject, briefly)


def _refused(
    what_if: WhatIfCluster, group: PodGroup, waiting: Sequence[core_v1.Pod], subject: Subject, briefly: bool
) -> Explanation:
    """As many pods as can be are placed; the first that cannot be tells why."""
    diagnosis: Diagnosis | None = None
    placing: Placing | None = None
    found = _said(group, State.PENDING, Reason.GANG, "")
    with what_if.cluster.trying() as tried:
        for pod in waiting:
            result = what_if.machine.consider_member(pod, group, what_if.now)
            if isinstance(result, Placement):
                what_if.cluster.assume(result)
                tried.append(result)
            elif diagnosis is None:
                diagnosis, placing = refused(what_if, pod, result)
                if placing is not None and not briefly:
                    found = replace(found, requests=placing.requests(), nodes=placing.groups(), nearest=placing.miss())
        placed = what_if.cluster.scheduled_count(group)
    if diagnosis is None:
        diagnosis = Diagnosis(
            reason=Reason.GANG, text="the scheduler's single pass over them ends before all are placed"
        )
    cause = (
        f"gang {full_name(group)} is pending because only {placed} of the {minimum_of(group)} pods that it needs at once can be "
        f"placed: {diagnosis.text}"
    )
    found = replace(found, cause=cause, details=diagnosis.details, node_count=len(what_if.cluster.nodes))
    return found if briefly else replace(found, changes=helpful(what_if, subject, diagnosis))


def _said(group: PodGroup, state: State, reason: Reason, cause: str) -> Explanation:
    metadata = group.metadata
    return Explanation(
        kind="PodGroup", namespace=metadata.namespace, name=metadata.name, state=state, reason=reason, cause=cause
    )
