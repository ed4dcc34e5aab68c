"""Whether a pod or a gang could be scheduled now: what the scheduler's machine decides, and what immediately follows."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from allot.core.advice.explain.aftermath import settle
from allot.core.advice.outlook import TRIALS_OF_A_CHANGE, Prospect, by_pod, outlooks
from allot.core.advice.patches import Patch
from allot.core.advice.what_if import CannotChange, Journal, WhatIfCluster, full_name
from allot.core.model import core_v1, observed_v1
from allot.core.model import resource_v1 as api
from allot.core.model.foreign_groups import CoschedulingPodGroup, KaiPodGroup, VolcanoPodGroup
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import (
    DIALECTS,
    Binding,
    Failure,
    Placement,
    Status,
    Verdict,
    binding_state,
    group_key,
    group_name_of,
    has_conditions,
)

DEFAULT_SCHEDULER = "default-scheduler"
# Phases of PodGroups that their controllers set.
_BEFORE_SCHEDULER = ("", "Pending", "PreScheduling")
PodKey = tuple[str, str]


class Subject(msgspec.Struct, frozen=True):
    """The pod or gang in question. key: its key in the queue; pods: those whose claims are created if something changes."""

    key: str
    pods: tuple[PodKey, ...]


def pod_subject(pod: core_v1.Pod) -> Subject:
    """A pod; if it belongs to a gang, the whole gang is tried."""
    namespace, name = pod.metadata.namespace, pod.metadata.name
    return Subject(f"{namespace}/{name}", ((namespace, name),))


def gang_subject(group: PodGroup, waiting: Iterable[core_v1.Pod]) -> Subject:
    """A gang, and its pods that have no node."""
    namespace = group.metadata.namespace
    return Subject(group_key(group_name_of(group)), tuple((namespace, pod.metadata.name) for pod in waiting))


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """The decision. It includes placements that are too few for a gang."""

    schedulable: bool
    placements: tuple[Placement, ...] = ()
    # For a single pod, or if it is not even tried.
    failure: Failure | None = None
    # Other pods that must move or leave first, because its queue is entitled to their place.
    leaving: tuple[str, ...] = ()

    def node_of(self, subject: Subject) -> str:
        """Where the pod goes, or the first of a gang."""
        for placement in self.placements:
            metadata = placement.pod.metadata
            if len(subject.pods) == 1 and (metadata.namespace, metadata.name) == subject.pods[0]:
                return placement.node
        return self.placements[0].node


def schedulers_that_placed(what_if: WhatIfCluster) -> set[str]:
    """Schedulers of pods that have a node."""
    return {info.pod.spec.scheduler_name for info in what_if.cluster.pods.values()}


def schedulers_of_groups(what_if: WhatIfCluster) -> set[str]:
    """Schedulers that have written the status of their own PodGroup: the dialect's, and those that its pods name."""
    found = set()
    for dialect in DIALECTS:
        groups = {full_name(each) for each in what_if.all(dialect.type) if _is_scheduled(each)}
        if not groups:
            continue
        found.add(dialect.scheduler)
        for pod in what_if.all(core_v1.Pod):
            if f"{pod.metadata.namespace}/{dialect.name_in(pod)}" in groups:
                found.add(pod.spec.scheduler_name)
    return found


def _is_scheduled(group: APIStruct) -> bool:
    """Whether a scheduler has handled a group. Its controller, not a scheduler, reports that it is pending or has its pods."""
    if isinstance(group, KaiPodGroup):
        return bool(group.status.scheduling_conditions)
    if isinstance(group, VolcanoPodGroup):
        return bool(group.status.conditions) or group.status.phase not in _BEFORE_SCHEDULER
    assert isinstance(group, CoschedulingPodGroup), "there are three dialects"
    return group.status.schedule_start_time is not None or group.status.phase not in _BEFORE_SCHEDULER


def is_seen(what_if: WhatIfCluster, scheduler: str) -> bool:
    """Whether a scheduler certainly runs: the default one, and one that has placed a pod, written an event, refused a pod or
    reported on a PodGroup."""
    if scheduler == DEFAULT_SCHEDULER or scheduler in schedulers_that_placed(what_if):
        return True
    if scheduler in schedulers_of_groups(what_if):
        return True
    return any(event.reporting_component == scheduler for event in what_if.all(observed_v1.Event)) or any(
        pod.spec.scheduler_name == scheduler and _was_refused(pod) for pod in what_if.all(core_v1.Pod)
    )


def _was_refused(pod: core_v1.Pod) -> bool:
    """Whether its scheduler said so. The API server, not the scheduler, reports that it is gated."""
    return any(each.type == "PodScheduled" and each.reason == "Unschedulable" for each in pod.status.conditions)


def unready(what_if: WhatIfCluster, pod: core_v1.Pod) -> api.ResourceClaim | None:
    """A claim of the pod whose devices are allocated but not ready."""
    for namespace, name in what_if.claims.claims_of(pod):
        claim = what_if.get(api.ResourceClaim, name, namespace)
        if claim is None or not has_conditions(claim):
            continue
        if binding_state(claim, what_if.now).binding is Binding.PENDING:
            return claim
    return None


def try_out(what_if: WhatIfCluster, subject: Subject, among: Collection[str] | None = None) -> TrialResult:
    """What the scheduler would decide now. among: the only nodes to consider for a single pod."""
    asked = what_if.machine.ask(subject.key, what_if.now, among)
    if asked is None:
        return TrialResult(schedulable=False)
    for name in sorted({pod.spec.scheduler_name for pod in asked.unit.pods}):
        if not is_seen(what_if, name):
            text = f"no scheduler is called {name}"
            status = Status(verdict=Verdict.UNRESOLVABLE, plugin="", reasons=(text,))
            return TrialResult(schedulable=False, failure=Failure(status=status, early=True))
    if asked.closed is not None:
        return TrialResult(schedulable=False, failure=Failure(status=asked.closed.status, early=True))
    schedulable = what_if.machine.has_enough(asked)
    if asked.unit.group is None and schedulable:
        schedulable = unready(what_if, asked.unit.pods[0]) is None
    return TrialResult(schedulable=schedulable, placements=asked.placements, failure=asked.failure)


def would_help(
    what_if: WhatIfCluster, subject: Subject, patches: tuple[Patch, ...], among: Collection[str] | None = None
) -> TrialResult | None:
    """The decision after changes, and if it is no, whether its queue then makes room; None if the changes are impossible. among: the
    only nodes to consider for a single pod."""

    made = [
        (str(patch.object["metadata"]["namespace"]), str(patch.object["metadata"]["name"]))
        for patch in patches
        if patch.object is not None and patch.object.get("kind") == "Pod"
    ]

    def after(changed: WhatIfCluster, journal: Journal) -> None:
        settle(changed, journal, [*subject.pods, *made])

    try:
        with what_if.changed(patches, after) as changed:
            found = try_out(changed, subject, among)
            return found if found.schedulable else _by_queue(changed, subject) or found
    except CannotChange:
        return None


def _by_queue(what_if: WhatIfCluster, subject: Subject) -> TrialResult | None:
    """Where a queue makes room for a pod or gang; None if it does not."""
    unit = what_if.machine.unit_of(subject.key)
    if unit is None or not unit.pods or not what_if.machine.book:
        return None
    outlook = by_pod(outlooks(what_if, trials_max=TRIALS_OF_A_CHANGE)).get(full_name(unit.pods[0]))
    if outlook is None or outlook.prospect not in (Prospect.STARTS_SOON, Prospect.MAKES_ROOM):
        return None
    return TrialResult(schedulable=True, placements=outlook.placements, leaving=outlook.names_of_leaving)
