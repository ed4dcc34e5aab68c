"""Pods that are scheduled together: enough of them at once, or none.

As upstream one pass, pod by pod in the order of the queue, without going back: each pod sees the ones before it in force.
Pods beyond the minimum are placed in the same pass if there is room. Groups of groups, and nodes that must share a label,
are not known here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PREEMPT_LOWER_PRIORITY, PodGroup
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.messages import explanation, refusal_text, refusing_plugins
from allot.core.scheduling.plan import CleanUp, GroupOutcome, Placement, Refusal, Unit
from allot.core.scheduling.questions import DeviceQuestion
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status, Verdict

PLUGIN = "GangScheduling"
CONDITION = "PodGroupInitiallyScheduled"
_NOTHING_FITS = "pod group is unschedulable"

Decided = tuple[tuple[Placement, ...], tuple[Refusal, ...], GroupOutcome | None]


def minimum_of(group: PodGroup) -> int:
    """How many pods must have a node at least."""
    gang = group.spec.scheduling_policy.gang
    return gang.min_count if gang is not None else 1


class _Progress(msgspec.Struct):
    """How far a group has come in one pass."""

    minimum: int
    scheduled: int
    remaining: int

    def failure(self) -> str:
        """Why the group cannot get what it needs any more; empty if it still can."""
        if self.remaining + self.scheduled >= self.minimum:
            return ""
        return f"minCount ({self.minimum}) cannot be satisfied: {self.scheduled} scheduled, {self.remaining} remaining"


def decide_group(cluster: Cluster, unit: Unit, group: PodGroup, settings: Settings, now: float) -> Decided:
    """Placements for at least the minimum of a group's pods, or refusals for all."""
    problem = _problem(cluster, unit, group)
    if problem:
        return _failed(unit, group, problem)
    progress = _Progress(minimum_of(group), cluster.scheduled_count(group), len(unit.pods))
    found: dict[int, Placement | Failure] = {}
    failure = progress.failure()
    with cluster.trying() as tried:
        for index, pod in enumerate(unit.pods):
            if failure:
                break
            result = found[index] = attempt(cluster, pod, group, settings, now)
            progress.remaining -= 1
            if isinstance(result, Placement):
                cluster.assume(result)
                tried.append(result)
                progress.scheduled += 1
            elif result.status is not None and result.status.verdict is Verdict.ERROR:
                return _failed(unit, group, refusal_text(len(cluster.nodes), result))
            failure = progress.failure()
        explained = {
            index: _refusal(cluster, unit.pods[index], result)
            for index, result in found.items()
            if isinstance(result, Failure)
        }
        placed = bool(tried)
    if not failure and not placed:
        failure = _NOTHING_FITS
    if failure:
        clean_ups, said = _clean_ups(cluster, unit, group, found)
        failure = f"{failure}, {said}" if said else failure
        refusals = [explained.get(index) or _group_refusal(pod, failure) for index, pod in enumerate(unit.pods)]
        if clean_ups:
            refusals[0] = msgspec.structs.replace(refusals[0], clean_ups=clean_ups)
        return (), tuple(refusals), _outcome(group, "False", "Unschedulable", failure)
    placements = tuple(result for result in found.values() if isinstance(result, Placement))
    return placements, tuple(explained.values()), _outcome(group, "True", "Scheduled", "")


def _clean_ups(
    cluster: Cluster, unit: Unit, group: PodGroup, found: Mapping[int, Placement | Failure]
) -> tuple[tuple[CleanUp, ...], str]:
    """Devices that the group cannot use where they are are given back; and what is said about it."""
    if cluster.devices is None:
        return (), ""
    refused: list[tuple[core_v1.Pod, DeviceQuestion | None, Mapping[str, Status]]] = []
    for index, result in found.items():
        if isinstance(result, Failure):
            refused.append((unit.pods[index], result.question, result.refusals))
        else:
            refused.append((unit.pods[index], None, {}))
    if not refused:
        return (), ""
    clean_ups, status = cluster.devices.group_clean_ups(group, refused, cluster.scheduled_count(group))
    return clean_ups, ", ".join(status.reasons) if clean_ups else ""


def _refusal(cluster: Cluster, pod: core_v1.Pod, failure: Failure) -> Refusal:
    return Refusal(
        pod=pod,
        verdict=Verdict.UNRESOLVABLE if failure.status is not None else Verdict.UNSCHEDULABLE,
        message=refusal_text(len(cluster.nodes), failure),
        explanation=explanation(cluster, cluster.profiles.of(pod), failure),
        plugins=refusing_plugins(failure),
    )


def _group_refusal(pod: core_v1.Pod, message: str) -> Refusal:
    """For a pod that would have had a node, or was not tried, because its group did not get what it needs."""
    return Refusal(pod=pod, verdict=Verdict.UNSCHEDULABLE, message=message, plugins=frozenset((PLUGIN,)))


def _failed(unit: Unit, group: PodGroup, message: str) -> Decided:
    refusals = tuple(Refusal(pod=pod, verdict=Verdict.ERROR, message=message) for pod in unit.pods)
    return (), refusals, _outcome(group, "False", "SchedulerError", message)


def _outcome(group: PodGroup, status: str, reason: str, message: str) -> GroupOutcome | None:
    """The condition to be written; once it is True it stays so."""
    if any(condition.type == CONDITION and condition.status == "True" for condition in group.status.conditions):
        return None
    return GroupOutcome(group=group, status=status, reason=reason, message=message)


def _problem(cluster: Cluster, unit: Unit, group: PodGroup) -> str:
    """What is wrong with a group: its pods, also those that have a node, must agree in what concerns them all."""
    if not unit.pods:
        return ""
    first = unit.pods[0].spec
    policy = first.preemption_policy or PREEMPT_LOWER_PRIORITY
    priority = group.spec.priority or 0
    rule = "all pods in a single pod group should have the same"
    for pod in (*unit.pods, *(member.pod for member in cluster.members(group))):
        spec = pod.spec
        if spec.scheduler_name != first.scheduler_name:
            return f'{rule} .spec.schedulerName set, got: "{spec.scheduler_name}" and "{first.scheduler_name}"'
        if (spec.priority or 0) != priority:
            return f"{rule} priority as the pod group's priority, got {spec.priority or 0} and {priority}"
        own = spec.preemption_policy or PREEMPT_LOWER_PRIORITY
        if own != policy:
            return f"{rule} preemption policy, got {own} and {policy}"
    return ""
