"""One pass over the pods of a group, in order and without backtracking, as in kube-scheduler; then, if that was not enough,
the joint search. Each pod sees the previous ones applied. Pods beyond the minimum are placed if there is room."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model import core_v1
from allot.core.scheduling.attempt import DomainRankings, attempt
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.messages import explanation, refusal_text, refusing_plugins
from allot.core.scheduling.plan import Placement, Refusal
from allot.core.scheduling.status import Verdict

_NOTHING_FITS = "pod group is unschedulable"


class Pass(msgspec.Struct, frozen=True):
    """The results of a group's pods, by their position in the unit."""

    found: Mapping[int, Placement | Failure]
    # Why the group did not get what it needs, in upstream's words; empty if it did.
    failure: str = ""
    is_error: bool = False
    # For pods that found no node while the others were applied.
    refusals: Mapping[int, Refusal] = {}
    # The result of an exhaustive search, in our own words.
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
        """Why the group can no longer get what it needs; empty if it still can."""
        if self.remaining + self.scheduled >= self.minimum:
            return ""
        return f"minCount ({self.minimum}) cannot be satisfied: {self.scheduled} scheduled, {self.remaining} remaining"


def place(task: Task) -> Pass:
    """Enough pods of a group, first in order, then by the joint search."""
    done = in_order(task)
    if not done.failure or done.is_error or not done.found:
        return done
    with task.cluster.unpromised(task.unit.pods):
        answer = joint.search(task)
    if isinstance(answer, joint.Found):
        return _with_others(task, answer)
    return msgspec.structs.replace(done, proof=_told(task, answer), steps=answer.steps)


def _told(task: Task, answer: joint.Impossible | joint.Undecided) -> str:
    needed, pods = task.needed, len(task.unit.pods)
    if isinstance(answer, joint.Undecided):
        return f"undecided after {answer.steps} steps whether {needed} of its {pods} pods can be placed at once"
    scheduled = task.cluster.scheduled_count(task.group) if task.group is not None else 0
    more = f" more, in addition to {scheduled} that have one," if scheduled else ""
    return f"however its pods are arranged, at most {answer.most} of the {needed} that it needs{more} can have a node at once"


def in_order(task: Task) -> Pass:
    """One pass over the pods. Leaves no trace."""
    cluster, unit, group, allowed = task.cluster, task.unit, task.group, task.allowed
    assert group is not None, "a group of groups is tried group by group"
    progress = _Progress(minimum_of(group), cluster.scheduled_count(group), len(unit.pods))
    rankings = None if allowed is None else DomainRankings(allowed)
    found: dict[int, Placement | Failure] = {}
    failure = progress.failure()
    with cluster.trying() as tried:
        for index, pod in enumerate(unit.pods):
            if failure:
                break
            result = found[index] = attempt(cluster, pod, group, task.settings, task.now, allowed, rankings)
            progress.remaining -= 1
            if isinstance(result, Placement):
                cluster.assume(result)
                tried.append(result)
                progress.scheduled += 1
            elif result.status is not None and result.status.verdict is Verdict.ERROR:
                return Pass(found, refusal_text(task.node_count, result), is_error=True)
            failure = progress.failure()
        refusals = _refusals(task, found)
        placed = bool(tried)
    return Pass(found, failure or ("" if placed else _NOTHING_FITS), refusals=refusals)


def _with_others(task: Task, answer: joint.Found) -> Pass:
    """The result of the joint search, plus any other pods that there is room for."""
    cluster, allowed = task.cluster, task.allowed
    found: dict[int, Placement | Failure] = {}
    rankings = None if allowed is None else DomainRankings(allowed)
    with cluster.trying() as tried:
        for placement in answer.placements.values():
            cluster.assume(placement)
            tried.append(placement)
        for index, pod in enumerate(task.unit.pods):
            placed = answer.placements.get(index)
            if placed is not None:
                found[index] = placed
                continue
            result = found[index] = attempt(cluster, pod, task.group, task.settings, task.now, allowed, rankings)
            if isinstance(result, Placement):
                cluster.assume(result)
                tried.append(result)
        refusals = _refusals(task, found)
    return Pass(found, refusals=refusals, steps=answer.steps)


def _refusals(task: Task, found: Mapping[int, Placement | Failure]) -> dict[int, Refusal]:
    return {
        index: _refusal(task, task.unit.pods[index], result)
        for index, result in found.items()
        if isinstance(result, Failure)
    }


def _refusal(task: Task, pod: core_v1.Pod, failure: Failure) -> Refusal:
    return Refusal(
        pod=pod,
        verdict=Verdict.UNRESOLVABLE if failure.status is not None else Verdict.UNSCHEDULABLE,
        message=refusal_text(task.node_count, failure),
        explanation=explanation(task.cluster, task.cluster.profiles.of(pod), failure),
        plugins=refusing_plugins(failure),
    )
