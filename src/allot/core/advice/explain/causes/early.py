"""Causes that the scheduler's filters never see: gates, schedulers that do not exist, groups that are not complete."""

from __future__ import annotations

from allot.core.advice.explain.causes.claims import unusable
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, patch_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import known_schedulers
from allot.core.advice.explain.wording import named
from allot.core.advice.nearest import nearest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.claim_owners import group_name
from allot.core.model import core_v1, observed_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import GANG_SCHEDULING, SCHEDULING_GATES, Status, group_key, minimum_of


def before_scheduling(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis | None:
    """Why the scheduler does not look at a pod; None if it does, or if only another pod of its gang is in the way. Whether it
    does is what the scheduler's own gates say; here are only the words."""
    metadata, spec = pod.metadata, pod.spec
    if metadata.deletion_timestamp is not None:
        return Diagnosis(reason=Reason.BEING_DELETED, text=f"it is being deleted since {metadata.deletion_timestamp}")
    if spec.scheduler_name not in known_schedulers(what_if) and not _has_events_of(what_if, spec.scheduler_name):
        return _no_scheduler(pod)
    closed = _closed(what_if, pod)
    if closed is None:
        return None
    if closed.plugin == SCHEDULING_GATES:
        return _gated(pod)
    if closed.plugin == GANG_SCHEDULING:
        return _group(what_if, pod)
    for entry in spec.resource_claims:
        found = unusable(what_if, pod, entry)
        if found is not None:
            return found
    return Diagnosis(reason=Reason.CLAIM_MISSING, text=", ".join(closed.reasons))


def _closed(what_if: WhatIfCluster, pod: core_v1.Pod) -> Status | None:
    """The gate that holds back the pod, or its gang as a whole."""
    closed = what_if.machine.closed(f"{pod.metadata.namespace}/{pod.metadata.name}")
    if closed is None or closed.pod is None or closed.pod is pod:
        return closed.status if closed is not None else None
    return what_if.machine.gates.closed_to(pod)


def _gated(pod: core_v1.Pod) -> Diagnosis:
    names = [gate.name for gate in pod.spec.scheduling_gates]
    them = "it" if len(names) == 1 else "them"
    text = f"it is held back by {named('scheduling gate', names)}, which whoever set {them} has to remove"
    remove = patch_of(
        "Pod", pod.metadata.name, {"op": "remove", "path": "/spec/schedulingGates"}, namespace=pod.metadata.namespace
    )
    candidate = Candidate(
        rank=Rank.FIX, text=f"remove {named('scheduling gate', names)} from the pod", patches=(remove,)
    )
    return Diagnosis(reason=Reason.SCHEDULING_GATE, text=text, candidates=(candidate,))


def _has_events_of(what_if: WhatIfCluster, scheduler: str) -> bool:
    return any(event.reporting_component == scheduler for event in what_if.all(observed_v1.Event))


def _no_scheduler(pod: core_v1.Pod) -> Diagnosis:
    name = pod.spec.scheduler_name
    text = (
        f'its spec.schedulerName is "{name}", and no scheduler of that name has placed or even tried a pod: nobody looks '
        "at it"
    )
    change = patch_of(
        "Pod",
        pod.metadata.name,
        {"op": "add", "path": "/spec/schedulerName", "value": "default-scheduler"},
        namespace=pod.metadata.namespace,
        recreate=True,
    )
    return Diagnosis(
        reason=Reason.NO_SUCH_SCHEDULER,
        text=text,
        candidates=(Candidate(rank=Rank.FIX, text="set spec.schedulerName to default-scheduler", patches=(change,)),),
        advice=(f"start scheduler {name}",),
    )


# --- groups ---


def _group(what_if: WhatIfCluster, pod: core_v1.Pod) -> Diagnosis:
    name = group_name(pod)
    namespace = pod.metadata.namespace
    group = what_if.get(PodGroup, name, namespace)
    if group is None:
        others = [found.metadata.name for found in what_if.all(PodGroup) if found.metadata.namespace == namespace]
        meant = nearest(name, others)
        hint = f' (did you mean "{meant}"?)' if meant is not None else ""
        return Diagnosis(
            reason=Reason.GROUP_MISSING, text=f"it belongs to PodGroup {namespace}/{name}, which does not exist{hint}"
        )
    minimum = minimum_of(group)
    unit = what_if.machine.unit_of(group_key(f"{namespace}/{name}"))
    there = what_if.cluster.scheduled_count(group) + (len(unit.pods) if unit is not None else 0)
    members = [
        found
        for found in what_if.all(core_v1.Pod)
        if found.metadata.namespace == namespace and group_name(found) == name
    ]
    text = f"its PodGroup {namespace}/{name} needs {minimum} pods to start, but only {there} of them exist"
    if len(members) > there:
        text = f"{text}: {len(members) - there} more have ended or are being deleted"
    lower = patch_of(
        "PodGroup",
        name,
        {"op": "replace", "path": "/spec/schedulingPolicy/gang/minCount", "value": there},
        namespace=namespace,
        recreate=True,
    )
    return Diagnosis(
        reason=Reason.GROUP_INCOMPLETE,
        text=text,
        candidates=(Candidate(rank=Rank.FEWER, text=f"lower minCount to {there}", patches=(lower,)),),
        advice=("create the missing pods",),
    )
