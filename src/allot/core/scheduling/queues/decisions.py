"""Decisions where there are queues: what a queue lets in, and room for what it does not have yet.

A unit of a queue is held against its limits, placed like any other, and never preempts by itself. When nothing is left to
try, a round over all jobs that wait (`rounds`) says who has to move or go for whom; a job that would fit once those that are
leaving are gone takes from nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.plan import Decision, Refusal, Unit, Victim
from allot.core.scheduling.queues.amounts import Amounts, total
from allot.core.scheduling.queues.book import QueueBook
from allot.core.scheduling.queues.jobs import Job, Task
from allot.core.scheduling.queues.limits import NO_QUEUE, Excess, amounts_text, excess
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.rounds import Round, Started
from allot.core.scheduling.queues.takeover import CONSOLIDATE, PREEMPT, TRIALS_MAX, Nothing, Takeover
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status, Verdict

PLUGIN = "Queues"
_NAMED_MAX = 3

Decide = Callable[[Unit, Settings], Decision]


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at all jobs found. refusals: those for whom others have to go, with these; promised: pods that will fit when
    those who leave are gone, and where; refused: why others get nothing, by job. started and takeovers are what that was made
    of, for whoever explains it."""

    refusals: tuple[Refusal, ...] = ()
    promised: tuple[tuple[Pod, str], ...] = ()
    refused: Mapping[str, Excess | Nothing] = {}
    started: tuple[Started, ...] = ()
    takeovers: tuple[Takeover, ...] = ()


class QueueDecisions:
    """What a machine asks about units that name a queue."""

    def __init__(self, cluster: Cluster, book: QueueBook) -> None:
        self._cluster = cluster
        self._book = book
        # The same settings without preemption, by those with.
        self._without_preemption: dict[int, tuple[Settings, Settings]] = {}

    def refusal(self, unit: Unit) -> Status | None:
        """Why a unit's queue does not let it in at all."""
        over = self._over(unit) if self._book.queue_of(unit.pods[0]) else None
        return (
            Status(verdict=Verdict.UNSCHEDULABLE, plugin=PLUGIN, reasons=(over.message,)) if over is not None else None
        )

    def _over(self, unit: Unit) -> Excess | None:
        name, book = self._book.queue_of(unit.pods[0]), self._book
        book.settle_total()
        book.refresh(unit.pods)
        closed = book.tree.refusal(name)
        if closed:
            return Excess(reason=NO_QUEUE, message=closed)
        pods = unit.pods[: self._needed(unit)]
        return excess(self._queue(name), self._amounts(pods), is_preemptible=not self._book.is_firm(unit.pods[0]))

    def _queue(self, name: str) -> QueueShares:
        queue = self._book.tree.get(name)
        assert queue is not None, f"queue {name} takes jobs"
        return queue

    def _needed(self, unit: Unit) -> int:
        if unit.tree is not None:
            # Which of its groups are left out is not known before.
            return len(unit.pods)
        if unit.group is None:
            return 1
        return max(1, minimum_of(unit.group) - self._cluster.scheduled_count(unit.group))

    def decide(self, unit: Unit, settings: Settings, decide: Decide) -> Decision:
        """As `decide`, within the limits of the unit's queue."""
        if not self._book.queue_of(unit.pods[0]):
            return decide(unit, settings)
        reserved = self._book.release(unit.pods)
        found = self._decided(unit, settings, decide)
        if reserved and not found.placements:
            self._book.reserve(reserved)
        return found

    def _decided(self, unit: Unit, settings: Settings, decide: Decide) -> Decision:
        over = self._over(unit)
        if over is not None:
            return _refused(unit.pods, over)
        queue, needed = self._queue(self._book.queue_of(unit.pods[0])), self._needed(unit)
        let_in, kept_out = self._within(queue, unit, needed)
        decision = decide(msgspec.structs.replace(unit, pods=let_in), self._unforced(settings))
        if not kept_out:
            return decision
        over = excess(queue, self._amounts((*let_in, kept_out[0])), is_preemptible=not self._book.is_firm(unit.pods[0]))
        assert over is not None, "what is kept out is too much"
        return msgspec.structs.replace(decision, refusals=(*decision.refusals, *_refused(kept_out, over).refusals))

    def _within(self, queue: QueueShares, unit: Unit, needed: int) -> tuple[tuple[Pod, ...], tuple[Pod, ...]]:
        """The pods that the limits leave room for, and the others."""
        firm = self._book.is_firm(unit.pods[0])
        for count in range(needed + 1, len(unit.pods) + 1):
            if excess(queue, self._amounts(unit.pods[:count]), is_preemptible=not firm) is not None:
                return unit.pods[: count - 1], unit.pods[count - 1 :]
        return unit.pods, ()

    def _amounts(self, pods: Iterable[Pod]) -> Amounts:
        return total(self._book.charged(pod) for pod in pods)

    def _unforced(self, settings: Settings) -> Settings:
        known = self._without_preemption.get(id(settings))
        if known is None:
            known = (settings, msgspec.structs.replace(settings, preempts=False))
            self._without_preemption[id(settings)] = known
        return known[1]

    # --- making room ---

    def make_room(
        self,
        waiting: Mapping[str, Pod],
        settings: Callable[[Pod], Settings],
        now: float,
        trials_max: int = TRIALS_MAX,
    ) -> Look:
        """Who has to move or go so that jobs get what is theirs, as refusals of these jobs' pods with victims. waiting: pods that
        want a place, by key."""
        book = self._book
        book.settle_total()
        jobs = book.jobs(waiting)
        shares = {name: _shares_text(queue) for name, queue in book.tree.all().items()}
        with Round(self._cluster, book.tree, jobs, settings, now, trials_max) as round_:
            started = tuple(round_.allocate())
            found = (*round_.consolidate(), *round_.reclaim(), *round_.preempt())
        promised = {
            placement.pod.metadata.uid: (task.pod, placement.node)
            for each in started
            if each.waits
            for task, placement in each.placed
        }
        for takeover in found:
            if takeover.evicted or takeover.moved:
                promised |= {task.pod.metadata.uid: (task.pod, at.node) for task, at in takeover.placed}
        return Look(
            refusals=tuple(refusal for takeover in found for refusal in self._refusals(takeover, shares)),
            promised=tuple(promised.values()),
            refused=round_.refusals,
            started=started,
            takeovers=found,
        )

    def _refusals(self, found: Takeover, shares: Mapping[str, str]) -> Iterable[Refusal]:
        job = found.placed[0][0].job
        victims = [Victim(pod=task.pod, why=_gone_text(found, task, job, shares)) for task in found.evicted]
        for task, placement in found.moved:
            why = f"moved to make room for {job.key}: there is a place on node {placement.node}"
            victims.append(Victim(pod=task.pod, why=why))
        if not victims:
            return
        names = [f"{victim.pod.metadata.namespace}/{victim.pod.metadata.name}" for victim in victims]
        named = ", ".join(names[:_NAMED_MAX]) + (
            f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
        )
        verb = {CONSOLIDATE: "moving", PREEMPT: "preempting"}.get(found.action, "reclaiming from")
        text = f"waiting for room in queue {job.queue}: {verb} {named}"
        for index, (task, placement) in enumerate(found.placed):
            yield Refusal(
                pod=task.pod,
                verdict=Verdict.UNSCHEDULABLE,
                message=text,
                plugins=frozenset((PLUGIN,)),
                nominated_node=placement.node,
                victims=tuple(victims) if index == 0 else (),
            )


def _gone_text(found: Takeover, task: Task, job: Job, shares: Mapping[str, str]) -> str:
    if found.action == PREEMPT:
        return f"preempted by {job.key} of higher priority in queue {job.queue}"
    return f"reclaimed by {job.key}: {shares[job.queue]}; {shares[task.job.queue]}"


def _shares_text(queue: QueueShares) -> str:
    deserved = {name: share.deserved for name, share in queue.shares.items() if share.deserved >= 0}
    held = {name: share.allocated for name, share in queue.shares.items() if name in deserved}
    fair = {name: share.fair_share for name, share in queue.shares.items() if name in deserved}
    return (
        f"queue {queue.title} uses {amounts_text(held)} with a quota of {amounts_text(deserved)} "
        f"and a fair share of {amounts_text(fair)}"
    )


def _refused(pods: Iterable[Pod], over: Excess) -> Decision:
    return Decision(
        refusals=tuple(
            Refusal(pod=pod, verdict=Verdict.UNSCHEDULABLE, message=over.message, plugins=frozenset((PLUGIN,)))
            for pod in pods
        )
    )
