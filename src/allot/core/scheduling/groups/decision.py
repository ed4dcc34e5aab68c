"""The decision on a group: placements for enough of its pods, or refusals for all, and the resulting actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PREEMPT_LOWER_PRIORITY, PodGroup, PodGroupSpec
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.claim_fit import PLUGIN as DYNAMIC_RESOURCES
from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.groups.dialects import ForeignGroup
from allot.core.scheduling.groups.forest import AnyGroup, Tree
from allot.core.scheduling.groups.levels import NoSuchLevel, levels_of, place_near
from allot.core.scheduling.groups.passes import Pass
from allot.core.scheduling.groups.resource_gap import resource_gap
from allot.core.scheduling.groups.shape import was_scheduled
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.groups.trees import place_tree
from allot.core.scheduling.plan import CleanUp, GroupOutcome, Placement, Refusal, Unit
from allot.core.scheduling.preempting.group_preemption import GroupPreempted, preempt_group
from allot.core.scheduling.queueing.hints import RULES
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status, Verdict

PLUGIN = "GangScheduling"
_ANY_PLUGIN = frozenset(RULES)

Decided = tuple[tuple[Placement, ...], tuple[Refusal, ...], GroupOutcome | None]


def decide_group(cluster: Cluster, unit: Unit, group: PodGroup, settings: Settings, now: float) -> Decided:
    """Placements for at least the minimum of a group's pods, or refusals for all."""
    problem = _problem(cluster, unit, group)
    if problem:
        return _failed(unit, group, problem)
    if isinstance(group, ForeignGroup) and group.min_resources:
        gap = resource_gap(cluster, group)
        if gap:
            refused = tuple(_group_refusal(pod, gap, _ANY_PLUGIN) for pod in unit.pods)
            return (), refused, _outcome(group, "False", "Unschedulable", gap)
    try:
        levels = levels_of(cluster, group, settings)
    except NoSuchLevel as error:
        refused = tuple(_group_refusal(pod, str(error), _ANY_PLUGIN) for pod in unit.pods)
        return (), refused, _outcome(group, "False", "Unschedulable", str(error))
    key = levels[0]

    task = Task(cluster, unit, group, settings, now)

    def placed() -> Pass:
        return place_near(task, levels)

    done = placed()
    if done.is_error:
        return _failed(unit, group, done.failure)
    if not done.failure:
        return done.placements, tuple(done.refusals.values()), _outcome(group, "True", "Scheduled", "")
    clean_ups, said = _clean_ups(cluster, unit, group, done.found) if not key else ((), "")
    preempted = GroupPreempted()
    if settings.preempts and not clean_ups:
        # The domain that pods would join is not known.
        first = {} if key else {index: found for index, found in done.found.items() if isinstance(found, Placement)}
        preempted = preempt_group(task, group, placed, first)
    tried = f"pod group preemption: {preempted.message}" if preempted.message else ""
    failure = ", ".join(text for text in (done.failure, said, tried) if text)
    explained = ". ".join(text for text in (done.proof, preempted.explanation) if text)
    refusals = [done.refusals.get(index) or _group_refusal(pod, failure) for index, pod in enumerate(unit.pods)]
    plugins = _plugins_of_all(cluster, refusals)
    for index, refusal in enumerate(refusals):
        refusals[index] = msgspec.structs.replace(
            refusal,
            plugins=refusal.plugins | plugins,
            explanation=". ".join(text for text in (refusal.explanation, explained) if text),
            nominated_node=preempted.nodes.get(index, ""),
            clean_ups=clean_ups if index == 0 else (),
            victims=preempted.victims if index == 0 else (),
        )
    outcome = _outcome(group, "False", "Unschedulable", failure)
    if outcome is not None and explained:
        outcome = msgspec.structs.replace(outcome, explanation=explained)
    return (), tuple(refusals), outcome


def decide_tree(
    cluster: Cluster, unit: Unit, tree: Tree, settings: Settings, now: float
) -> tuple[tuple[Placement, ...], tuple[Refusal, ...], tuple[GroupOutcome | None, ...]]:
    """Placements for enough of a tree's groups, or refusals for all; and the result of each group, root first."""
    for key, leaf in tree.leaves():
        pods = tuple(pod for pod in unit.pods if cluster.membership.key(pod) == key)
        problem = _problem(cluster, Unit(pods=pods), leaf)
        if problem:
            refused = tuple(Refusal(pod=pod, verdict=Verdict.ERROR, message=problem) for pod in unit.pods)
            return (), refused, tuple(_outcome(each.group, "False", "SchedulerError", problem) for each in tree.nodes())
    task = Task(cluster, unit, None, settings, now)
    done = place_tree(task, tree)
    failure = done.failed(tree)
    preempted = GroupPreempted()
    if failure and settings.preempts:
        preempted = preempt_group(task, _as_one(tree), partial(_pass_of, task, tree), {})
    tried = f"pod group preemption: {preempted.message}" if preempted.message else ""
    failure = ", ".join(text for text in (failure, tried) if text)
    explained = ". ".join(text for text in (done.proof, preempted.explanation) if text)
    refusals: list[Refusal] = []
    for index, pod in enumerate(unit.pods):
        if index in done.placements:
            continue
        said = failure or done.failures.get(cluster.membership.key(pod), "") or "pod group is unschedulable"
        refusal = done.refusals.get(index) or _group_refusal(pod, said)
        refusals.append(
            msgspec.structs.replace(
                refusal,
                plugins=refusal.plugins | _ANY_PLUGIN,
                explanation=". ".join(text for text in (refusal.explanation, explained) if text),
                nominated_node=preempted.nodes.get(index, ""),
                victims=preempted.victims if not refusals else (),
            )
        )
    outcomes: list[GroupOutcome | None] = []
    for each in tree.nodes():
        said = done.failures.get(each.key, "") or failure
        outcome = _outcome(each.group, "False" if said else "True", "Unschedulable" if said else "Scheduled", said)
        if outcome is not None and said and explained:
            outcome = msgspec.structs.replace(outcome, explanation=explained)
        outcomes.append(outcome)
    return tuple(done.placements.values()), tuple(refusals), tuple(outcomes)


def _pass_of(task: Task, tree: Tree) -> Pass:
    done = place_tree(task, tree)
    return Pass(found=done.placements, failure=done.failed(tree))


def _as_one(tree: Tree) -> PodGroup:
    """The root as one group, for preemption: only its name, priority and policy matter there."""
    spec = tree.group.spec
    as_one = PodGroupSpec(priority=spec.priority, preemption_policy=spec.preemption_policy)
    return PodGroup(metadata=tree.group.metadata, spec=as_one)


def _plugins_of_all(cluster: Cluster, refusals: Sequence[Refusal]) -> frozenset[str]:
    """What else may help: different pods can be arranged differently once something helps one of them. What equal pods wait for is known from
    the one that found no node."""
    shapes = {cluster.profiles.of(refusal.pod).shape for refusal in refusals}
    if len(shapes) > 1:
        return _ANY_PLUGIN
    return frozenset((DYNAMIC_RESOURCES,) if any(refusal.pod.spec.resource_claims for refusal in refusals) else ())


def _clean_ups(
    cluster: Cluster, unit: Unit, group: PodGroup, found: Mapping[int, Placement | Failure]
) -> tuple[tuple[CleanUp, ...], str]:
    """Release devices that the group cannot use where they are; returns the message about it."""
    if cluster.devices is None:
        return (), ""
    refused: list[tuple[core_v1.Pod, DeviceFit | None, Mapping[str, Status]]] = []
    for index, result in found.items():
        if isinstance(result, Failure):
            refused.append((unit.pods[index], result.fit, result.refusals))
        else:
            refused.append((unit.pods[index], None, {}))
    if not refused:
        return (), ""
    clean_ups, status = cluster.devices.group_clean_ups(group, refused, cluster.scheduled_count(group))
    return clean_ups, ", ".join(status.reasons) if clean_ups else ""


def _group_refusal(pod: core_v1.Pod, message: str, plugins: frozenset[str] = frozenset((PLUGIN,))) -> Refusal:
    """The refusal of a pod that would have had a node, or was not tried, because its group did not get what it needs."""
    return Refusal(pod=pod, verdict=Verdict.UNSCHEDULABLE, message=message, plugins=plugins)


def _failed(unit: Unit, group: PodGroup, message: str) -> Decided:
    refusals = tuple(Refusal(pod=pod, verdict=Verdict.ERROR, message=message) for pod in unit.pods)
    return (), refusals, _outcome(group, "False", "SchedulerError", message)


def _outcome(group: AnyGroup, status: str, reason: str, message: str) -> GroupOutcome | None:
    """The condition to write; once True, it stays True."""
    if was_scheduled(group):
        return None
    return GroupOutcome(group=group, status=status, reason=reason, message=message)


def _problem(cluster: Cluster, unit: Unit, group: PodGroup) -> str:
    """What is wrong with a group: its pods, including those with a node, must agree on group-wide settings."""
    if not unit.pods:
        return ""
    first = unit.pods[0].spec
    policy = first.preemption_policy or PREEMPT_LOWER_PRIORITY
    priority = group.spec.priority or 0
    rule = "all pods in a single pod group should have the same"
    is_foreign = isinstance(group, ForeignGroup)
    # A group may be decided pod by pod, and each time all its members are checked: as lists, which is fastest.
    for spec in [pod.spec for pod in unit.pods] + [member.pod.spec for member in cluster.members(group)]:
        if spec.scheduler_name != first.scheduler_name:
            return f'{rule} .spec.schedulerName set, got: "{spec.scheduler_name}" and "{first.scheduler_name}"'
        if not is_foreign and (spec.priority or 0) != priority:
            return f"{rule} priority as the pod group's priority, got {spec.priority or 0} and {priority}"
        own = spec.preemption_policy or PREEMPT_LOWER_PRIORITY
        if own != policy:
            return f"{rule} preemption policy, got {own} and {policy}"
    return ""
