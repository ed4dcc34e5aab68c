"""Pods that another one waits for and that have no node themselves."""

from __future__ import annotations

from allot.core.advice.explain.causes.early import before_scheduling
from allot.core.advice.explain.causes.refused import refused
from allot.core.advice.explain.changes import helpful
from allot.core.advice.explain.diagnosis import Diagnosis
from allot.core.advice.explain.remedies.templates import of_workload
from allot.core.advice.explain.trial import pod_subject, try_out
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.model import core_v1


def unplaced(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Why a pod gets no node, and as advice what was tried and would give it one; None if it has one, or would get one."""
    if pod.spec.node_name:
        return None
    subject = pod_subject(pod)
    found = before_scheduling(what_if, pod)
    if found is None:
        outcome = try_out(what_if, subject)
        if outcome.schedulable or outcome.failure is None:
            return None
        found, _ = refused(what_if, pod, outcome.failure)
    # "The pod" is the one that was asked about.
    name = f"pod {full_name(pod)}"
    advice = tuple(of_workload(change.text, name, "") for change in helpful(what_if, subject, found))
    return Diagnosis(reason=found.reason, text=found.text, advice=advice)
