"""Pods that are scheduled together: enough of them at once, or none.

As upstream one pass, pod by pod in the order of the queue, without going back: each pod sees the ones before it in force.
Pods beyond the minimum are placed in the same pass if there is room. If the nodes of a group must share a label, there is
a pass for each of its values, and the best one counts. Groups of groups are not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PREEMPT_LOWER_PRIORITY, PodGroup
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.device_fit import DeviceFit
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.messages import explanation, refusal_text, refusing_plugins
from allot.core.scheduling.plan import CleanUp, GroupOutcome, Placement, Refusal, Unit
from allot.core.scheduling.plugins.node_resources_fit import allocatable, asked, in_use
from allot.core.scheduling.podinfo import PodInfo
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


class _Pass(msgspec.Struct, frozen=True):
    """What became of a group's pods in one pass over them."""

    found: dict[int, Placement | Failure]
    # Why the group did not get what it needs; empty if it did.
    failure: str = ""
    is_error: bool = False
    # For pods that found no node, while the others were in force.
    refusals: dict[int, Refusal] = {}

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Pods that found a node."""
        return tuple(result for result in self.found.values() if isinstance(result, Placement))


def decide_group(cluster: Cluster, unit: Unit, group: PodGroup, settings: Settings, now: float) -> Decided:
    """Placements for at least the minimum of a group's pods, or refusals for all."""
    problem = _problem(cluster, unit, group)
    if problem:
        return _failed(unit, group, problem)
    key = topology_key(group) if settings.topology_placements else ""
    done = (
        _in_one_domain(cluster, unit, group, settings, now, key) if key else _try(cluster, unit, group, settings, now)
    )
    if done.is_error:
        return _failed(unit, group, done.failure)
    if not done.failure:
        return done.placements, tuple(done.refusals.values()), _outcome(group, "True", "Scheduled", "")
    failure = done.failure
    clean_ups, said = _clean_ups(cluster, unit, group, done.found) if not key else ((), "")
    failure = f"{failure}, {said}" if said else failure
    refusals = [done.refusals.get(index) or _group_refusal(pod, failure) for index, pod in enumerate(unit.pods)]
    if clean_ups:
        refusals[0] = msgspec.structs.replace(refusals[0], clean_ups=clean_ups)
    return (), tuple(refusals), _outcome(group, "False", "Unschedulable", failure)


def _try(
    cluster: Cluster,
    unit: Unit,
    group: PodGroup,
    settings: Settings,
    now: float,
    allowed: Collection[str] | None = None,
) -> _Pass:
    """One pass over the pods. allowed: the only nodes that may be considered. Leaves no trace."""
    progress = _Progress(minimum_of(group), cluster.scheduled_count(group), len(unit.pods))
    nodes = len(cluster.nodes) if allowed is None else len(allowed)
    found: dict[int, Placement | Failure] = {}
    failure = progress.failure()
    with cluster.trying() as tried:
        for index, pod in enumerate(unit.pods):
            if failure:
                break
            result = found[index] = attempt(cluster, pod, group, settings, now, allowed)
            progress.remaining -= 1
            if isinstance(result, Placement):
                cluster.assume(result)
                tried.append(result)
                progress.scheduled += 1
            elif result.status is not None and result.status.verdict is Verdict.ERROR:
                return _Pass(found, refusal_text(nodes, result), is_error=True)
            failure = progress.failure()
        refusals = {
            index: _refusal(cluster, unit.pods[index], result, nodes)
            for index, result in found.items()
            if isinstance(result, Failure)
        }
        placed = bool(tried)
    return _Pass(found, failure or ("" if placed else _NOTHING_FITS), refusals=refusals)


# --- nodes that must share a label ---


def topology_key(group: PodGroup) -> str:
    """The node label whose value all pods of a group must share; empty if there is none."""
    constraints = group.spec.scheduling_constraints
    return constraints.topology[0].key if constraints is not None and constraints.topology else ""


def _in_one_domain(cluster: Cluster, unit: Unit, group: PodGroup, settings: Settings, now: float, key: str) -> _Pass:
    """The best of the passes over the nodes of one domain each. Where members are, the others have to be."""
    domains: dict[str, list[str]] = {}
    for name, info in cluster.nodes.items():
        value = info.labels.get(key)
        if value is not None:
            domains.setdefault(value, []).append(name)
    members = cluster.members(group)
    if members:
        home = _domain_of(cluster, members, key)
        if isinstance(home, _Pass):
            return home
        domains = {home: domains[home]} if home in domains else {}
    if not domains:
        return _Pass({}, "no feasible placements found")
    passes = {}
    for value in sorted(domains):
        done = _try(cluster, unit, group, settings, now, frozenset(domains[value]))
        if done.is_error:
            return done
        passes[value] = done
    feasible = {value: done for value, done in passes.items() if not done.failure}
    if not feasible:
        first = next(iter(passes.values()))
        text = f"0/{len(passes)} placements are available, first placement status: {first.failure}"
        return msgspec.structs.replace(first, failure=text)
    most = max(len(done.placements) for done in feasible.values()) + len(members)

    def score(value: str) -> int:
        count = (len(feasible[value].placements) + len(members)) * 100 // most
        return count + _fullness(cluster, domains[value], feasible[value].placements, settings)

    return feasible[max(sorted(feasible), key=score)]


def _domain_of(cluster: Cluster, members: Sequence[PodInfo], key: str) -> str | _Pass:
    """The domain in which a group's pods are already, or what is wrong with that."""
    found = ""
    rule = "cannot determine domain for already scheduled pods"
    for member in sorted(members, key=lambda member: member.key):
        info = cluster.nodes.get(member.node)
        value = info.labels.get(key) if info is not None else None
        name = f"{member.pod.metadata.namespace}/{member.pod.metadata.name}"
        if value is None:
            return _Pass({}, f"{rule}: no topology domain found for pod {name}", is_error=True)
        if found and found != value:
            return _Pass({}, f"{rule}: more than 1 domain found for pod group: {found}, {value}", is_error=True)
        found = value
    return found


def _fullness(cluster: Cluster, names: Sequence[str], placements: Sequence[Placement], settings: Settings) -> int:
    """How full a domain would be with the group, 0 to 100, whatever the strategy for single nodes is."""
    nodes = [cluster.nodes[name] for name in names]
    profiles = [cluster.profiles.of(placement.pod) for placement in placements]
    total = weights = 0
    for resource in settings.strategy_resources:
        there = sum(allocatable(info, resource.name) for info in nodes)
        used = sum(in_use(info, resource.name) for info in nodes)
        used += sum(asked(profile, resource.name) for profile in profiles)
        if there:
            total += min(used, there) * 100 // there * resource.weight
            weights += resource.weight
    return total // weights if weights else 0


def _clean_ups(
    cluster: Cluster, unit: Unit, group: PodGroup, found: Mapping[int, Placement | Failure]
) -> tuple[tuple[CleanUp, ...], str]:
    """Devices that the group cannot use where they are are given back; and what is said about it."""
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


def _refusal(cluster: Cluster, pod: core_v1.Pod, failure: Failure, nodes: int) -> Refusal:
    return Refusal(
        pod=pod,
        verdict=Verdict.UNRESOLVABLE if failure.status is not None else Verdict.UNSCHEDULABLE,
        message=refusal_text(nodes, failure),
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
