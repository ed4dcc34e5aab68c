"""Decisions with queues: what a queue admits, and making room for its jobs.

A unit of a queue is held against its limits, placed like any other, and never preempts by itself. When nothing is left to
try, a round over all waiting jobs (`rounds`) decides which pods move or go for which jobs; a job that would fit once those that are
leaving are gone evicts none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.attempt import attempt, looks_around
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.groups.parts import has_minimum
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.plan import Decision, Placement, Refusal, Unit, Victim
from allot.core.scheduling.podinfo import pod_key
from allot.core.scheduling.queues.amounts import Amounts, total
from allot.core.scheduling.queues.book import QueueBook
from allot.core.scheduling.queues.costs import Costs
from allot.core.scheduling.queues.jobs import Job, Task
from allot.core.scheduling.queues.limits import NO_QUEUE, TOO_EARLY, Excess, amounts_text, excess, too_early
from allot.core.scheduling.queues.model import QueueShares
from allot.core.scheduling.queues.rounds import Round, Started
from allot.core.scheduling.queues.shapes import takes_at_s
from allot.core.scheduling.queues.takeover import CONSOLIDATE, PREEMPT, TRIALS_MAX, Nothing, Takeover
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status, Verdict

PLUGIN = "Queues"
_NAMED_MAX = 3

# How many nodes are tried for a pod that would cost more than its queue may have where it would go first.
_NODES_MAX = 16


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at all jobs found. refusals: pods for which others are evicted, with these; promised: pods that will fit when
    terminating pods are gone, and where; refused: why others get nothing, by job. started and takeovers are the basis
    for that, for explanations."""

    refusals: tuple[Refusal, ...] = ()
    promised: tuple[tuple[Pod, str, Amounts], ...] = ()
    refused: Mapping[str, Excess | Nothing] = {}
    started: tuple[Started, ...] = ()
    takeovers: tuple[Takeover, ...] = ()
    # When time alone may entitle a job to room, in seconds since 1970; None: never.
    wake_at_s: float | None = None


class QueueDecisions:
    """What a machine asks about units that name a queue."""

    def __init__(self, cluster: Cluster, book: QueueBook) -> None:
        self._cluster = cluster
        self._book = book
        self._alike = _Alike(cluster)
        # Pods of groups that were told that they may not preempt yet, by key, and until when.
        self.delayed: dict[str, tuple[Pod, float]] = {}
        # The same settings without preemption, by those with.
        self._without_preemption: dict[int, tuple[Settings, Settings]] = {}

    def refusal(self, unit: Unit) -> Status | None:
        """Why a unit's queue does not admit it at all."""
        name = self._book.queue_of(unit.pods[0])
        over = self._over(unit, name) if name else None
        return (
            Status(verdict=Verdict.UNSCHEDULABLE, plugin=PLUGIN, reasons=(over.message,)) if over is not None else None
        )

    def costly(self, placement: Placement) -> Status | None:
        """Why a single pod may not be where it would fit: its devices are more than its queue may have."""
        name = self._book.queue_of(placement.pod)
        if not name or not placement.claims:
            return None
        firm = self._book.is_firm(placement.pod)
        over = excess(self._queue(name), self._book.cost_of(placement), is_preemptible=not firm)
        return (
            Status(verdict=Verdict.UNSCHEDULABLE, plugin=PLUGIN, reasons=(over.message,)) if over is not None else None
        )

    def _over(self, unit: Unit, name: str) -> Excess | None:
        book = self._book
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
            # Which of its groups are left out is not known before; one that has enough grows pod by pod.
            return 1 if has_minimum(self._cluster, unit.tree) else len(unit.pods)
        if unit.group is None:
            return 1
        return max(1, minimum_of(unit.group) - self._cluster.scheduled_count(unit.group))

    def decide(self, unit: Unit, settings: Settings, now: float) -> Decision:
        """As `decide.decide`, within the limits of the unit's queue."""
        name = self._book.queue_of(unit.pods[0])
        if not name:
            return decide(self._cluster, unit, settings, now)
        reserved = self._book.release(unit.pods)
        if self._cluster.kept:
            unit = msgspec.structs.replace(unit, pods=tuple(self._promised(pod) for pod in unit.pods))
        found = self._decided(unit, name, settings, now)
        if reserved and not found.placements:
            self._book.reserve(reserved)
        return self._delayed(unit, found, now)

    def _delayed(self, unit: Unit, found: Decision, now: float) -> Decision:
        """Report to a group with delayed preemption when it may preempt."""
        group = next((leaf for _, leaf in unit.tree.leaves()), None) if unit.tree is not None else unit.group
        at_s = takes_at_s(group)
        if at_s <= now or found.placements or any(refusal.reason for refusal in found.refusals):
            return found
        self.delayed[pod_key(unit.pods[0])] = (unit.pods[0], at_s)
        text = too_early(at_s)
        refusals = tuple(
            msgspec.structs.replace(each, reason=TOO_EARLY, message=_joined(each.message, text))
            for each in found.refusals
        )
        outcome = found.group
        if outcome is not None and outcome.message:
            outcome = msgspec.structs.replace(outcome, message=_joined(outcome.message, text))
        return msgspec.structs.replace(found, refusals=refusals, group=outcome)

    def _promised(self, pod: Pod) -> Pod:
        """A pod with the node that is kept for it, before the API says so."""
        node = self._cluster.promised_to(pod) if pod_key(pod) in self._cluster.kept else ""
        if node in ("", pod.status.nominated_node_name):
            return pod
        return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, nominated_node_name=node))

    def _decided(self, unit: Unit, name: str, settings: Settings, now: float) -> Decision:
        over = self._over(unit, name)
        if over is not None:
            return _refused(unit.pods, over)
        queue, needed = self._queue(name), self._needed(unit)
        if unit.is_lone and len(unit.pods) == 1:
            found = self._alike.decide(unit, self._unforced(settings), now, self._keeping)
            return self._affordable(queue, unit, found, self._unforced(settings), now)
        let_in, kept_out = self._within(queue, unit, needed)
        decision = self._keeping(msgspec.structs.replace(unit, pods=let_in), self._unforced(settings), now)
        decision = self._afforded(queue, unit, decision, needed)
        if not kept_out:
            return decision
        over = excess(queue, self._amounts((*let_in, kept_out[0])), is_preemptible=not self._book.is_firm(unit.pods[0]))
        assert over is not None, "what is kept out is too much"
        return msgspec.structs.replace(decision, refusals=(*decision.refusals, *_refused(kept_out, over).refusals))

    def _keeping(self, unit: Unit, settings: Settings, now: float) -> Decision:
        """As `decide.decide`, but no pod gets devices that are kept for others if there are other devices for it too."""
        found = decide(self._cluster, unit, settings, now)
        robbed: dict[str, None] = {}
        for _ in range(_NODES_MAX):
            more = self._robbed(unit, found.placements, settings, now)
            if not more:
                return found
            robbed |= more
            with self._cluster.trying() as tried:
                self._put_kept(unit, robbed, tried, settings, now)
                found = decide(self._cluster, unit, settings, now)
        kept = "the room is reserved for other jobs, for which pods are leaving"
        return Decision(
            refusals=tuple(
                Refusal(pod=pod, verdict=Verdict.UNSCHEDULABLE, message=kept, plugins=frozenset((PLUGIN,)))
                for pod in unit.pods
            )
        )

    def _robbed(self, unit: Unit, placements: Sequence[Placement], settings: Settings, now: float) -> dict[str, None]:
        """Nodes kept for pods that have devices there now, and would no longer have them."""
        nodes = {placement.node: None for placement in placements if placement.claims} if self._cluster.kept else {}
        found: dict[str, None] = {}
        for node in nodes:
            if unit.is_lone and self._is_among_equals(unit.pods[0], node, now):
                continue
            with self._cluster.trying() as tried:
                before = self._put_kept(unit, (node,), tried, settings, now)
            if not before:
                continue
            with self._cluster.trying() as tried:
                for placement in placements:
                    self._cluster.assume(placement)
                    tried.append(placement)
                if self._put_kept(unit, (node,), tried, settings, now) < before:
                    found[node] = None
        return found

    def _is_among_equals(self, pod: Pod, node: str, now: float) -> bool:
        """Whether a node is kept for a single pod and for others that ask for the same: which of them comes first makes no difference."""
        cluster = self._cluster
        if pod_key(pod) not in cluster.kept or cluster.promised_to(pod) != node or cluster.devices is None:
            return False
        kept = [other for key, other in cluster.nominated[node].items() if key in cluster.kept]
        fits = [cluster.devices.fit(other, None, now) for other in kept if other.spec.resource_claims]
        first = fits[0] if fits else None
        if first is None or isinstance(first, Status) or first.key is None:
            return False
        return all(not isinstance(fit, Status) and fit is not None and fit.key == first.key for fit in fits)

    def _put_kept(
        self, unit: Unit, nodes: Iterable[str], tried: list[Placement], settings: Settings, now: float
    ) -> int:
        """Put other pods for whom nodes are kept there, as far as they fit already; how many."""
        own = {pod_key(pod) for pod in unit.pods}
        count = 0
        for node in nodes:
            for key, pod in list(self._cluster.nominated.get(node, {}).items()):
                if key in own or key not in self._cluster.kept or key in self._cluster.pods:
                    continue
                if not pod.spec.resource_claims:
                    continue
                found = attempt(self._cluster, pod, None, settings, now, frozenset((node,)))
                if isinstance(found, Placement):
                    self._cluster.assume(found)
                    tried.append(found)
                    count += 1
        return count

    def _affordable(
        self, queue: QueueShares, unit: Unit, decision: Decision, settings: Settings, now: float
    ) -> Decision:
        """A pod whose devices turn out to be more than its queue may have goes where they are less, or nowhere."""
        if not decision.placements or not decision.placements[0].claims:
            return decision
        nodes: set[str] | None = None
        is_preemptible = not self._book.is_firm(unit.pods[0])
        first: Excess | None = None
        for _ in range(_NODES_MAX):
            placement = decision.placements[0]
            over = excess(queue, self._book.cost_of(placement), is_preemptible=is_preemptible)
            if over is None:
                return decision
            first = first or over
            nodes = set(self._cluster.nodes) if nodes is None else nodes
            nodes.discard(placement.node)
            found = attempt(self._cluster, unit.pods[0], None, settings, now, frozenset(nodes))
            if not isinstance(found, Placement):
                break
            decision = Decision(placements=(found,))
        assert first is not None, "it was too much at least once"
        return _refused(unit.pods, first)

    def _afforded(self, queue: QueueShares, unit: Unit, decision: Decision, needed: int) -> Decision:
        """Of a group's placements those that its queue may have, once it is known what they cost; none if these are too few."""
        if not any(placement.claims for placement in decision.placements):
            return decision
        is_preemptible = not self._book.is_firm(unit.pods[0])
        costs: list[Amounts] = []
        for count, placement in enumerate(decision.placements):
            costs.append(self._book.cost_of(placement))
            over = excess(queue, total(costs), is_preemptible=is_preemptible)
            if over is None:
                continue
            if count < needed or unit.tree is not None:
                return _refused(unit.pods, over)
            left = [each.pod for each in decision.placements[count:]]
            return msgspec.structs.replace(
                decision,
                placements=decision.placements[:count],
                refusals=(*decision.refusals, *_refused(left, over).refusals),
            )
        return decision

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
        """Which pods move or go so that jobs get what they are entitled to, as refusals of these jobs' pods with victims. waiting: pods that
        want a place, by key."""
        book = self._book
        self._alike.forget()
        book.settle_total()
        jobs = book.jobs(waiting)
        shares = {name: _shares_text(queue) for name, queue in book.tree.all().items()}
        costs = Costs(book)
        with Round(self._cluster, book.tree, jobs, settings, now, trials_max, costs=costs) as round_:
            started = tuple(round_.allocate())
            found = (*round_.consolidate(), *round_.reclaim(), *round_.preempt())
        promised = {
            placement.pod.metadata.uid: (task.pod, placement.node, costs.of(placement))
            for each in started
            if each.waits
            for task, placement in each.placed
        }
        for takeover in found:
            if takeover.evicted or takeover.moved:
                promised |= {task.pod.metadata.uid: (task.pod, at.node, costs.of(at)) for task, at in takeover.placed}
        return Look(
            refusals=tuple(refusal for takeover in found for refusal in self._refusals(takeover, shares)),
            promised=tuple(promised.values()),
            refused=round_.refusals,
            started=started,
            takeovers=found,
            wake_at_s=round_.wake_at_s,
        )

    def _refusals(self, found: Takeover, shares: Mapping[str, str]) -> Iterable[Refusal]:
        job = found.placed[0][0].job
        victims = [Victim(pod=task.pod, why=_gone_text(found, task, job, shares)) for task in found.evicted]
        for task, placement in found.moved:
            why = f"moved to make room for {job.name}: there is a place on node {placement.node}"
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


class _Alike:
    """Refusals of single pods, kept while nothing changes: where thousands of equal pods wait, each is refused in the same words."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._state: tuple[int, int, int] = (-1, -1, -1)
        self._known: dict[object, Refusal] = {}

    def forget(self) -> None:
        """Something has changed that the cluster does not count."""
        self._known.clear()

    def decide(
        self, unit: Unit, settings: Settings, now: float, decide: Callable[[Unit, Settings, float], Decision]
    ) -> Decision:
        """As `decide`."""
        (pod,) = unit.pods
        if self._now_is() != self._state:
            self._known.clear()
        key = self._key(pod, settings, now)
        known = self._known.get(key) if key is not None else None
        if known is None:
            found = decide(unit, settings, now)
            if key is not None and found.refusals and not found.refusals[0].clean_ups:
                self._known[key] = found.refusals[0]
            # Attempts leave no trace.
            self._state = self._now_is()
            return found
        explanation = known.explanation
        if explanation and pod.spec.resource_claims:
            # It names the claims of the other one.
            first = known.pod.metadata
            explanation = f"as for pod {first.namespace}/{first.name}, which is alike: {explanation}"
        return Decision(refusals=(msgspec.structs.replace(known, pod=pod, explanation=explanation),))

    def _now_is(self) -> tuple[int, int, int]:
        cluster = self._cluster
        return cluster.changes.position, cluster.device_changes.position, cluster.promises

    def _key(self, pod: Pod, settings: Settings, now: float) -> object:
        """Equal for pods that every node treats alike; None if that is not known."""
        cluster = self._cluster
        profile = cluster.profiles.of(pod)
        if (
            pod.spec.node_name
            or profile.volume_claims
            or pod_key(pod) in cluster.kept
            or cluster.promised_to(pod)
            or looks_around(cluster, profile, settings)
        ):
            return None
        fit = cluster.devices.fit(pod, None, now) if cluster.devices is not None else None
        if fit is not None and (isinstance(fit, Status) or fit.key is None):
            return None
        return profile.shape, None if fit is None else fit.key, pod.spec.priority, id(settings)


def _joined(message: str, more: str) -> str:
    return f"{message}{' ' if message.endswith('.') else '. '}{more}" if message else more


def _gone_text(found: Takeover, task: Task, job: Job, shares: Mapping[str, str]) -> str:
    if found.action == PREEMPT:
        return f"preempted by {job.name} of higher priority in queue {job.queue}"
    return f"reclaimed by {job.name}: {shares[job.queue]}; {shares[task.job.queue]}"


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
            Refusal(
                pod=pod,
                verdict=Verdict.UNSCHEDULABLE,
                message=over.message,
                reason=over.reason,
                plugins=frozenset((PLUGIN,)),
            )
            for pod in pods
        )
    )
