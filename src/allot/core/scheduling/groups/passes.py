"""One pass over the pods of a group, in order and without going back, as kube-scheduler does it; then, if that was not enough,
the joint search. Each pod sees the ones before it in force. Pods beyond the minimum are placed if there is room."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.attempt import DomainRankings, attempt
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.messages import explanation, refusal_text, refusing_plugins
from allot.core.scheduling.plan import Placement, Refusal, Unit
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Verdict

_NOTHING_FITS = "pod group is unschedulable"


class Pass(msgspec.Struct, frozen=True):
    """What became of a group's pods, by their position in the unit."""

    found: Mapping[int, Placement | Failure]
    # Why the group did not get what it needs, in upstream's words; empty if it did.
    failure: str = ""
    is_error: bool = False
    # For pods that found no node, while the others were in force.
    refusals: Mapping[int, Refusal] = {}
    # What a search that tried everything says of it, in ours.
    proof: str = ""
    steps: int = 0

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Pods that found a node."""
        return tuple(result for result in self.found.values() if isinstance(result, Placement))


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


def place(
    cluster: Cluster,
    unit: Unit,
    group: PodGroup,
    settings: Settings,
    now: float,
    allowed: Collection[str] | None = None,
) -> Pass:
    """Enough pods of a group, first in order, then by the joint search. allowed: the only nodes that may be considered."""
    done = in_order(cluster, unit, group, settings, now, allowed)
    if not done.failure or done.is_error or not done.found:
        return done
    needed = max(1, minimum_of(group) - cluster.scheduled_count(group))
    task = joint.Task(cluster, unit, group, settings, now, needed, allowed)
    with cluster.unpromised(unit.pods):
        answer = joint.search(task)
    if isinstance(answer, joint.Found):
        return _with_others(task, answer)
    scheduled = cluster.scheduled_count(group)
    return msgspec.structs.replace(done, proof=_told(answer, len(unit.pods), needed, scheduled), steps=answer.steps)


def _told(answer: joint.Impossible | joint.Undecided, pods: int, needed: int, scheduled: int) -> str:
    if isinstance(answer, joint.Undecided):
        return f"undecided after {answer.steps} steps whether {needed} of its {pods} pods can be placed at once"
    more = f" more, besides {scheduled} that have one," if scheduled else ""
    return f"however its pods are arranged, at most {answer.most} of the {needed} that it needs{more} can have a node at once"


def in_order(
    cluster: Cluster,
    unit: Unit,
    group: PodGroup,
    settings: Settings,
    now: float,
    allowed: Collection[str] | None = None,
) -> Pass:
    """One pass over the pods. Leaves no trace."""
    progress = _Progress(minimum_of(group), cluster.scheduled_count(group), len(unit.pods))
    nodes = len(cluster.nodes) if allowed is None else len(allowed)
    rankings = None if allowed is None else DomainRankings(allowed)
    found: dict[int, Placement | Failure] = {}
    failure = progress.failure()
    with cluster.trying() as tried:
        for index, pod in enumerate(unit.pods):
            if failure:
                break
            result = found[index] = attempt(cluster, pod, group, settings, now, allowed, rankings)
            progress.remaining -= 1
            if isinstance(result, Placement):
                cluster.assume(result)
                tried.append(result)
                progress.scheduled += 1
            elif result.status is not None and result.status.verdict is Verdict.ERROR:
                return Pass(found, refusal_text(nodes, result), is_error=True)
            failure = progress.failure()
        refusals = _refusals(cluster, unit, found, nodes)
        placed = bool(tried)
    return Pass(found, failure or ("" if placed else _NOTHING_FITS), refusals=refusals)


def _with_others(task: joint.Task, answer: joint.Found) -> Pass:
    """What the joint search found, and whatever other pods there is room for."""
    cluster, unit, allowed = task.cluster, task.unit, task.allowed
    found: dict[int, Placement | Failure] = {}
    nodes = len(cluster.nodes) if allowed is None else len(allowed)
    rankings = None if allowed is None else DomainRankings(allowed)
    with cluster.trying() as tried:
        for placement in answer.placements.values():
            cluster.assume(placement)
            tried.append(placement)
        for index, pod in enumerate(unit.pods):
            placed = answer.placements.get(index)
            if placed is not None:
                found[index] = placed
                continue
            result = found[index] = attempt(cluster, pod, task.group, task.settings, task.now, allowed, rankings)
            if isinstance(result, Placement):
                cluster.assume(result)
                tried.append(result)
        refusals = _refusals(cluster, unit, found, nodes)
    return Pass(found, refusals=refusals, steps=answer.steps)


def _refusals(cluster: Cluster, unit: Unit, found: Mapping[int, Placement | Failure], nodes: int) -> dict[int, Refusal]:
    return {
        index: _refusal(cluster, unit.pods[index], result, nodes)
        for index, result in found.items()
        if isinstance(result, Failure)
    }


def _refusal(cluster: Cluster, pod: core_v1.Pod, failure: Failure, nodes: int) -> Refusal:
    return Refusal(
        pod=pod,
        verdict=Verdict.UNRESOLVABLE if failure.status is not None else Verdict.UNSCHEDULABLE,
        message=refusal_text(nodes, failure),
        explanation=explanation(cluster, cluster.profiles.of(pod), failure),
        plugins=refusing_plugins(failure),
    )
