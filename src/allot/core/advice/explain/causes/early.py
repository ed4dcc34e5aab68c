"""Causes that the scheduler's filters never see: gates, schedulers that do not exist, groups that are not complete."""

from __future__ import annotations

from allot.core.advice.explain.causes.claims import unusable
from allot.core.advice.explain.diagnosis import Candidate, Diagnosis, Rank, patch_of
from allot.core.advice.explain.report import Reason
from allot.core.advice.explain.trial import known_schedulers
from allot.core.advice.explain.wording import named
from allot.core.advice.nearest import nearest
from allot.core.advice.world import World
from allot.core.lifecycle.claim_owners import group_name
from allot.core.model import core_v1, observed_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.groups import minimum_of


def before_scheduling(world: World, pod: core_v1.Pod) -> Diagnosis | None:
    """Why the scheduler does not look at a pod; None if it does."""
    metadata, spec = pod.metadata, pod.spec
    if metadata.deletion_timestamp is not None:
        return Diagnosis(reason=Reason.BEING_DELETED, text=f"it is being deleted since {metadata.deletion_timestamp}")
    if spec.scheduling_gates:
        return _gated(pod)
    if spec.scheduler_name not in known_schedulers(world) and not _has_events_of(world, spec.scheduler_name):
        return _no_scheduler(pod)
    for entry in spec.resource_claims:
        found = unusable(world, pod, entry)
        if found is not None:
            return found
    return _group(world, pod)


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


def _has_events_of(world: World, scheduler: str) -> bool:
    return any(event.reporting_component == scheduler for event in world.all(observed_v1.Event))


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


def _group(world: World, pod: core_v1.Pod) -> Diagnosis | None:
    name = group_name(pod)
    if not name:
        return None
    namespace = pod.metadata.namespace
    group = world.get(PodGroup, name, namespace)
    if group is None:
        others = [found.metadata.name for found in world.all(PodGroup) if found.metadata.namespace == namespace]
        meant = nearest(name, others)
        hint = f' (did you mean "{meant}"?)' if meant is not None else ""
        return Diagnosis(
            reason=Reason.GROUP_MISSING, text=f"it belongs to PodGroup {namespace}/{name}, which does not exist{hint}"
        )
    members = [
        found for found in world.all(core_v1.Pod) if found.metadata.namespace == namespace and group_name(found) == name
    ]
    minimum = minimum_of(group)
    if len(members) >= minimum:
        return None
    text = f"its PodGroup {namespace}/{name} needs {minimum} pods to start, but only {len(members)} of them exist"
    lower = patch_of(
        "PodGroup",
        name,
        {"op": "replace", "path": "/spec/schedulingPolicy/gang/minCount", "value": len(members)},
        namespace=namespace,
        recreate=True,
    )
    return Diagnosis(
        reason=Reason.GROUP_INCOMPLETE,
        text=text,
        candidates=(Candidate(rank=Rank.FEWER, text=f"lower minCount to {len(members)}", patches=(lower,)),),
        advice=("create the missing pods",),
    )
