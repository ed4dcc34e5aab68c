"""The scheduler as a state machine: object changes go in, decisions come out, and the results of their writes go back in.

    machine.apply(change, now)                 what happened in the cluster
    machine.next(now, seconds)                 the next decision, already applied; None if there is nothing to try
    machine.settled(placement, outcome, now)   the result of writing a placement
    machine.next_at()                          when time alone makes something ready to try

It has no clock, task, lock or log: time is an argument, what to write or report is returned. So the same calls give the
same decisions for every driver of the machine: the scheduler feeds it from watches and writes what it says; `explain`
and `plan` feed it a snapshot and `ask` what would happen to a pod (`ask` and `next` differ only in applying the
answer); a simulator advances its time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from allot.core.allocation import FIRST_FIT
from allot.core.allocation import Policy as DevicePolicy
from allot.core.cel.data.times import SECOND, go_duration_text
from allot.core.cel.data.values import Duration
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import KaiTopology
from allot.core.model.kai_words import SKIP_GROUPER
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup, PriorityClass
from allot.core.quantity import Quantity
from allot.core.scheduling.attempt import attempt
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.decide import decide
from allot.core.scheduling.devices.binding_conditions import BINDING_TIMEOUT_SECONDS
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.failure import Failure
from allot.core.scheduling.groups.dialects import (
    DIALECTS,
    AnyForeign,
    Dialect,
    ForeignGroup,
    Membership,
    dialect_of,
    group_key,
)
from allot.core.scheduling.groups.forest import AnyGroup, key_of
from allot.core.scheduling.groups.halves import Halves, grace_s, told_to_give_up, tree_of
from allot.core.scheduling.groups.parts import turn_of
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.groups.tree_search import Goal
from allot.core.scheduling.intake import Change, Kind, kinds
from allot.core.scheduling.plan import Decision, Placement, Refusal, Unit
from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.queueing.backoff import BackoffTimes
from allot.core.scheduling.queueing.gates import Closed, Gates
from allot.core.scheduling.queueing.hints import ClusterEvent, EventResource, helps
from allot.core.scheduling.queueing.queue import Attempt, Queue, group_name_of, name_of
from allot.core.scheduling.queueing.queue_order import PriorityOrder, QueueOrder
from allot.core.scheduling.queueing.waiting import Place
from allot.core.scheduling.queues.book import QueueBook
from allot.core.scheduling.queues.decisions import Look
from allot.core.scheduling.queues.dialects import QUEUE_KINDS
from allot.core.scheduling.queues.fair_order import FairOrder
from allot.core.scheduling.queues.jobs import Job
from allot.core.scheduling.queues.model import Queue as TeamQueue
from allot.core.scheduling.queues.room import Room
from allot.core.scheduling.queues.takeover import TRIALS_MAX
from allot.core.scheduling.settings import DEFAULT_SETTINGS, AddedAffinity, Settings
from allot.core.scheduling.status import Status, Verdict

_FINISHED = ("Succeeded", "Failed")
_MILLI_NANO = 10**6
_NANO = 10**9
# Another writer was faster: the watch will show it in a moment. A pod to which that happens repeatedly waits longer,
# and eventually as after any other failure.
_CONFLICT_PAUSE_S = 0.02
_CONFLICTS_MAX = 6
# An event may affect thousands of pods and make room for one. This many of them are tried at once if there is nothing else to
# do; more, as long as some are placed.
_EARLY_MAX = 16
_INTERNAL = "internal error of the scheduler; its log says more"


class Applied(msgspec.Struct, frozen=True, gc=False):
    """What a change meant to waiting units. wakes: there may be something to try; units: how many are retried because of
    the event."""

    wakes: bool = False
    event: str = ""
    units: int = 0


_NOTHING = Applied()
_WAKES = Applied(wakes=True)


class Bound(msgspec.Struct, frozen=True):
    """A pod has a node: as decided, or a different one from another scheduler."""

    node: str


class NotBound(msgspec.Struct, frozen=True, kw_only=True):
    """A placement could not be written. is_conflict: another writer was faster."""

    message: str = _INTERNAL
    is_conflict: bool = False


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a finished write. is_bound: the pod is on the intended node; attempts, since: how often it was tried
    and since when it waited, None if it was already gone; refusal: to be reported, None if there is nothing to report."""

    is_bound: bool
    attempts: int = 1
    since: float | None = None
    refusal: Refusal | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What would happen to a unit if it were tried now. closed: why it would not be tried; failure: of a single pod without a node;
    decision: of a group."""

    unit: Unit
    closed: Closed | None = None
    placements: tuple[Placement, ...] = ()
    failure: Failure | None = None
    decision: Decision | None = None


class DecisionFailed(Exception):
    """A bug of ours prevented the decision on a unit; it waits as after any error. The decision reports this to its pods."""

    def __init__(self, unit: str, decision: Decision) -> None:
        super().__init__(f"deciding {unit}")
        self.decision = decision


class Machine:
    """Everything known about a cluster, and the waiting units."""

    def __init__(
        self,
        settings: Callable[[str], Settings | None],
        gates: FeatureGates = DEFAULT_GATES,
        *,
        device_policy: DevicePolicy = FIRST_FIT,
        binding_timeout_s: float = BINDING_TIMEOUT_SECONDS,
        backoff: BackoffTimes | None = None,
        order: QueueOrder | None = None,
    ) -> None:
        """settings: how the pods of a scheduler's name are decided; None if this scheduler is not responsible for them.
        device_policy: one way to choose devices, for all. order: which unit is next; by default as in kube-scheduler."""
        self._settings = settings
        self.claims = Claims(gates, policy=device_policy, binding_timeout=binding_timeout_s)
        self.membership = Membership(uses_pod_groups="GenericWorkload" in gates)
        self.cluster = Cluster(self.claims, self.membership)
        self.claims.listen(self.cluster.device_changes.add)
        self.gates = Gates(self.claims, self.cluster, self._awaits_group)
        # Queues: which pods are in which, and their charges.
        self.book = QueueBook(self.cluster, self.claims)
        self._room = Room(self.cluster, self.book)
        self._halves = Halves(self.cluster, settings)
        beneath = order if order is not None else PriorityOrder()
        self.queue = Queue(
            self.gates,
            self._helps,
            backoff,
            order=FairOrder(self.book, beneath),
            membership=self.membership,
            forest=self.cluster.forest,
        )
        if order is not None:
            self.cluster.listen(order.placed, order.left)
        # Placements that are being written.
        self.in_flight = 0
        self._early_left = _EARLY_MAX
        self._kinds = kinds(self.cluster, self.claims)
        self._handlers: dict[type[APIStruct], Callable[[Change, float], Applied]] = {
            type_: self._handler(kind, is_rule=type_ is api.DeviceTaintRule) for type_, kind in self._kinds.items()
        }
        self._handlers[Pod] = self._pod_changed
        self._handlers[PodGroup] = self._group_changed
        if "CompositePodGroup" in gates:
            self._handlers[CompositePodGroup] = self._composite_changed
        offering: tuple[type[APIStruct], ...] = (core_v1.Node, api.ResourceSlice, api.DeviceClass)
        for kind_of_room in offering:
            self._handlers[kind_of_room] = self._capacity_handler(self._handlers[kind_of_room])
        for kind_of_queue, read in QUEUE_KINDS.items():
            self._handlers[kind_of_queue] = self._queue_handler(read)
        for dialect in DIALECTS:
            self._handlers[dialect.type] = self._foreign_handler(dialect)
        self._handlers[KaiTopology] = self._topology_changed
        self._handlers[PriorityClass] = self._priority_class_changed

    # --- changes ---

    def apply(self, change: Change, now: float) -> Applied:
        """An object came, changed or went. Changes of one object come in order; of different objects, in any."""
        new = change.new
        handle = self._handlers.get(type(new if new is not None else change.old))
        return handle(change, now) if handle is not None else _NOTHING

    def _handler(self, kind: Kind, *, is_rule: bool) -> Callable[[Change, float], Applied]:
        """Handles changes of a kind without a handler of its own. Called for every object, so it returns early."""
        put, delete, event, is_news = kind
        queue = self.queue

        def handle(change: Change, now: float) -> Applied:
            old, new = change.old, change.new
            if new is None:
                delete(old)
            else:
                put(new)
            if event is None or not queue.is_waited:
                return _NOTHING
            if old is not None and new is not None and not is_news(old, new):
                return _NOTHING
            if is_rule:
                # To waiting pods, the slices that it selects have changed.
                old = new = new if new is not None else old
            is_unknown = change.is_final_state_unknown
            found = ClusterEvent(resource=event, key=change.key, old=old, new=new, is_final_state_unknown=is_unknown)
            return self._tell(found, now)

        return handle

    def _capacity_handler(self, handle: Callable[[Change, float], Applied]) -> Callable[[Change, float], Applied]:
        """The total capacity may have changed too."""

        def handle_and_count(change: Change, now: float) -> Applied:
            applied = handle(change, now)
            if self.book and (change.old is None or change.new is None or _is_other_capacity(change.old, change.new)):
                self.book.capacity_changed()
                self._room.wanted()
                return applied if applied.wakes else _WAKES
            return applied

        return handle_and_count

    def _queue_handler(self, read: Callable[[Any], TeamQueue | None]) -> Callable[[Change, float], Applied]:
        """Queues of teams, of any dialect."""

        def handle(change: Change, now: float) -> Applied:
            old = read(change.old) if change.old is not None else None
            new = read(change.new) if change.new is not None else None
            if old == new:
                return _NOTHING
            if old is not None and (new is None or new.name != old.name):
                self.book.delete_queue(old.name)
            if new is not None:
                is_first = not self.book
                self.book.put_queue(new)
                if is_first:
                    # Until now nothing was counted.
                    self.book.put_all([*(info.pod for info in self.cluster.pods.values()), *self.queue.pods()])
            self._room.wanted()
            name = change.key
            return self._tell(ClusterEvent(resource=EventResource.QUEUE, key=name, old=old, new=new), now, _WAKES)

        return handle

    def _pod_changed(self, change: Change, now: float) -> Applied:
        """A finished pod is as good as gone."""
        applied = self._pod_changed_itself(change, now)
        if self.cluster.groups and _may_have_held(change):
            applied = self._look_at_group(change.new if change.new is not None else change.old, applied, now)
        return self._charged(change, applied) if self.book else applied

    def _charged(self, change: Change, applied: Applied) -> Applied:
        """What a change of a pod means to its queue."""
        pod: Pod = change.new if change.new is not None else change.old
        if not self.book.queue_of(pod):
            return applied
        new = change.new
        if new is None or new.status.phase in _FINISHED:
            self.book.remove_pod(pod)
            is_less = True
        elif new.spec.node_name or self._settings(new.spec.scheduler_name) is not None:
            self.book.put_pod(new)
            is_less = new.metadata.deletion_timestamp is not None
        else:
            return applied
        if is_less:
            self._room.wanted()
            return applied if applied.wakes else _WAKES
        return applied

    def _pod_changed_itself(self, change: Change, now: float) -> Applied:
        old: Pod | None = change.old
        new: Pod | None = change.new
        if old is not None and old.status.phase in _FINISHED:
            self.cluster.forget_finished(old)
            old = None
        if new is None or new.status.phase in _FINISHED:
            applied = self._pod_gone(change.key, old, now) if old is not None else _NOTHING
            if new is not None:
                if old is None:
                    self.cluster.put_pod(new)
                self.cluster.remember_finished(new)
            return applied
        if new.spec.node_name:
            return self._assigned_pod(change.key, old, new, now)
        if self._settings(new.spec.scheduler_name) is not None:
            return self._unassigned_pod(change.key, old, new, now)
        self.cluster.put_pod(new)
        return _NOTHING

    def _pod_gone(self, key: str, pod: Pod, now: float) -> Applied:
        made_room = bool(pod.spec.node_name or self.cluster.promised_to(pod)) or self.cluster.is_assumed(pod)
        self.cluster.delete_pod(pod)
        self.queue.delete_pod(key, now)
        if made_room and self.queue.is_waited:
            return self._tell(ClusterEvent(resource=EventResource.ASSIGNED_POD, key=key, old=pod), now)
        return _NOTHING

    def _assigned_pod(self, key: str, old: Pod | None, new: Pod, now: float) -> Applied:
        is_waited = self.queue.is_waited
        assumed = self.cluster.assumed(new) if is_waited else None
        promised = self.cluster.promised_to(new) if is_waited else ""
        self.cluster.put_pod(new)
        if old is not None and old.spec.node_name:
            if old.spec == new.spec and old.metadata.labels == new.metadata.labels and not _began_to_end(old, new):
                return _NOTHING
            return self._tell(ClusterEvent(resource=EventResource.ASSIGNED_POD, key=key, old=old, new=new), now)
        self.queue.delete_pod(key, now)
        if not is_waited:
            return _NOTHING
        applied = self._tell(ClusterEvent(resource=EventResource.ASSIGNED_POD, key=key, new=new), now)
        if assumed is not None and assumed.metadata.labels != new.metadata.labels:
            # Others may have been refused because of its assumed state.
            event = ClusterEvent(resource=EventResource.ASSIGNED_POD, key=key, old=assumed, new=new)
            applied = self._tell(event, now, applied)
        if promised not in ("", new.spec.node_name):
            applied = self._break_promise(new, promised, now, applied)
        group = self.membership.key(new)
        if group:
            self.queue.look_at_gated_groups((group,), now)
            return applied if applied.wakes else _WAKES
        return applied

    def _unassigned_pod(self, key: str, old: Pod | None, new: Pod, now: float) -> Applied:
        promised = self.cluster.promised_to(new)
        self.cluster.put_pod(new)
        if new.metadata.deletion_timestamp is not None:
            self.queue.delete_pod(key, now)
            return _NOTHING
        # As far as we know, the pod is already bound: the watch lags a little.
        if self.cluster.is_assumed(new) and self.queue.place(key) is None:
            return _NOTHING
        if (
            old is not None
            and old.metadata is not new.metadata
            and self.membership.key(old) != self.membership.key(new)
        ):
            # It was assigned its group.
            self.queue.delete_pod(key, now)
        self.queue.put_pod(new, now)
        applied = _WAKES
        if promised not in ("", new.status.nominated_node_name):
            applied = self._break_promise(new, promised, now, _WAKES)
        if old is None and self.membership.key(new):
            applied = self._tell(ClusterEvent(resource=EventResource.UNSCHEDULED_POD, key=key, new=new), now, applied)
        return applied

    def _break_promise(self, pod: Pod, node: str, now: float, otherwise: Applied = _NOTHING) -> Applied:
        """A pod no longer needs the node that it was promised, so others may use it."""
        gone = _on_node(pod, node)
        event = ClusterEvent(resource=EventResource.ASSIGNED_POD, key=name_of(pod), old=gone)
        return self._tell(event, now, otherwise)

    def _group_changed(self, change: Change, now: float) -> Applied:
        kind = self._kinds[PodGroup]
        old, new = change.old, change.new
        if new is None:
            kind.delete(old)
            self.queue.delete_group(change.key, now)
            return _NOTHING
        kind.put(new)
        self._halves.look(self.cluster.forest.root(key_of(new)), now)
        if old is not None and not kind.is_news(old, new):
            return _NOTHING
        self.queue.put_group(new, now)
        return _WAKES

    def _composite_changed(self, change: Change, now: float) -> Applied:
        old, new = change.old, change.new
        if new is None:
            self.queue.delete_tree(old, now)
            return _NOTHING
        if old is not None and old.spec == new.spec:
            # Only its conditions: known, but no news to waiting pods.
            self.cluster.forest.put(new)
            self._halves.look(self.cluster.forest.root(key_of(new)), now)
            return _NOTHING
        self.queue.put_tree(new, now)
        self._halves.look(self.cluster.forest.root(key_of(new)), now)
        return _WAKES

    def _foreign_handler(self, dialect: Dialect) -> Callable[[Change, float], Applied]:
        """Handles the groups of another scheduler: like all others, once they are converted."""

        def handle(change: Change, now: float) -> Applied:
            old = dialect.read(change.old) if change.old is not None else ()
            new = dialect.read(change.new) if change.new is not None else ()
            if old and new and _is_same(old, new):
                for group in new:
                    if isinstance(group, ForeignGroup):
                        self.cluster.put_group(group)
                return _NOTHING
            namespace, whole = (new or old)[0].metadata.namespace, group_key((new or old)[0])
            members = self._members_of(namespace, whole)
            parts = frozenset(group.part for group in new if isinstance(group, ForeignGroup) and group.part)
            with self.cluster.regrouping(members):
                self.membership.divide(namespace, whole, parts)
            places = {group_key(group): (type(group), group.parent) for group in new}
            for group in reversed(old):
                if places.get(group_key(group)) != (type(group), group.parent):
                    self._forget_group(group, now)
            for group in new:
                if isinstance(group, ForeignGroup):
                    self.cluster.put_group(group)
                    self.queue.put_group(group, now)
                else:
                    self.queue.put_tree(group, now)
            if self.book:
                # Its queue, and whether it can be evicted, may have changed.
                self.book.refresh([self.cluster.pods[key].pod for key in members if key in self.cluster.pods])
            self._halves.look(f"{namespace}/{whole}", now)
            return _WAKES if new else _NOTHING

        return handle

    def _awaits_group(self, pod: Pod) -> bool:
        """Whether a controller is going to create a group for a pod that names none."""
        settings = self._settings(pod.spec.scheduler_name)
        if settings is None or not settings.awaits_groups or pod.spec.scheduling_group is not None:
            return False
        metadata = pod.metadata
        skips = "true" in (metadata.labels.get(SKIP_GROUPER), metadata.annotations.get(SKIP_GROUPER))
        return not skips and any(
            dialect.scheduler == pod.spec.scheduler_name and self.membership.serves(dialect.api_group)
            for dialect in DIALECTS
        )

    def _members_of(self, namespace: str, whole: str) -> tuple[str, ...]:
        parts = sorted(self.membership.parts(namespace, whole))
        keys = (whole, *(f"{whole}:{part}" for part in parts))
        return tuple(member for key in keys for member in self.cluster.member_keys(namespace, key))

    def _forget_group(self, group: AnyForeign, now: float) -> None:
        if isinstance(group, ForeignGroup):
            self.cluster.delete_group(group)
            self.queue.delete_group(group_name_of(group), now)
        else:
            self.queue.delete_tree(group, now)

    def _topology_changed(self, change: Change, now: float) -> Applied:
        new: KaiTopology | None = change.new
        name = (new if new is not None else change.old).metadata.name
        if new is None:
            self.cluster.topologies.pop(name, None)
            return _NOTHING
        self.cluster.topologies[name] = new.spec.levels
        return self._tell(ClusterEvent(resource=EventResource.TOPOLOGY, key=name, old=change.old, new=new), now, _WAKES)

    def _priority_class_changed(self, change: Change, now: float) -> Applied:  # noqa: ARG002
        new: PriorityClass | None = change.new
        if new is None:
            self.cluster.priority_classes.pop(change.old.metadata.name, None)
        else:
            self.cluster.priority_classes[new.metadata.name] = new.value
        return _NOTHING

    def serve(self, api_group: str, now: float = 0.0) -> None:
        """From now on, pods may name groups of another scheduler, whose kind is in this API group."""
        if self.membership.serves(api_group):
            return
        named = [
            info.key
            for dialect in DIALECTS
            if dialect.api_group == api_group
            for info in self.cluster.pods.values()
            if dialect.name_in(info.pod)
        ]
        with self.cluster.regrouping(named):
            self.membership.serve(api_group)
        self.queue.regroup(now)

    def _tell(self, event: ClusterEvent, now: float, otherwise: Applied = _NOTHING) -> Applied:
        units = self.queue.tell(event, now)
        if not units:
            return otherwise
        self._early_left = _EARLY_MAX
        return Applied(wakes=True, event=event.label, units=units)

    # --- decisions ---

    def next(self, now: float, seconds: float) -> Decision | None:
        """Decide the next unit and apply the decision. now: of any monotonic clock; seconds: since 1970.
        DecisionFailed if that fails through no fault of the pod."""
        while True:
            taken = self.queue.pop(now, early=not self.in_flight and self._early_left > 0)
            if taken is None:
                return self._idle(now, seconds)
            self._early_left -= taken.is_early
            decision = self._decide(taken, now, seconds)
            held = self._halves.held_by(taken.unit, decision)
            if taken.is_late and not decision.placements:
                decision = told_to_give_up(decision, taken.unit, held) if held else _too_late(decision, taken.unit)
            # Placed pods cannot lack what a gate asks for, so only others are checked again.
            if decision.placements or not self.queue.is_held_back(taken, now):
                self._put_into_force(taken, decision, now)
                self._limit(taken, held, now)
                return decision

    def _idle(self, now: float, seconds: float) -> Decision | None:
        """Nothing is left to try: which groups must release what they have, for themselves or for others."""
        return self._halves.given_up(now, self._is_tried) or (self._make_room(now, seconds) if self.book else None)

    def _limit(self, taken: Attempt, held: Sequence[PodInfo], now: float) -> None:
        """A group that holds too little is retried before its grace period ends."""
        tree = tree_of(taken.unit) if held else None
        grace = grace_s(tree) if tree is not None else None
        if grace is not None:
            self.queue.limit(taken.key, now + grace)

    def _is_tried(self, root: str) -> bool:
        """Whether pods of a group wait, and will be retried in time."""
        return self.queue.place_of_group(root) not in (None, Place.GATED)

    def _look_at_group(self, pod: Pod, applied: Applied, now: float) -> Applied:
        """A pod of a group was placed or is gone: the group may now have too little, and have to release it."""
        key = self.membership.key(pod)
        if not key or not self._halves.look(self.cluster.forest.root(key), now):
            return applied
        return applied if applied.wakes else _WAKES

    def _decide(self, taken: Attempt, now: float, seconds: float) -> Decision:
        unit = taken.unit
        settings = self._settings(unit.pods[0].spec.scheduler_name)
        assert settings is not None, f"{taken.key} is none of ours"
        try:
            return self._decided(unit, settings, seconds)
        except Exception as error:
            refusals = tuple(Refusal(pod=pod, verdict=Verdict.ERROR, message=_INTERNAL) for pod in unit.pods)
            decision = Decision(refusals=refusals)
            self._put_into_force(taken, decision, now)
            raise DecisionFailed(taken.key, decision) from error

    def _decided(self, unit: Unit, settings: Settings, seconds: float) -> Decision:
        turn = turn_of(self.cluster, unit)
        if not turn.unit.pods:
            return turn.told(Decision())
        return turn.told(self._decided_in_turn(turn.unit, settings, seconds))

    def _decided_in_turn(self, unit: Unit, settings: Settings, seconds: float) -> Decision:
        if not self.book:
            return decide(self.cluster, unit, settings, seconds)
        decisions = self._room.decisions
        found = decisions.decide(unit, settings, seconds)
        # A queue that gets something may now exceed its share, to which others that wait are entitled.
        if (found.refusals or self.queue.is_waited) and self.book.queue_of(unit.pods[0]):
            self._room.wanted()
        return found

    def _make_room(self, now: float, seconds: float) -> Decision | None:
        """Nothing is left to try: which pods must leave so that queues get what they are entitled to."""
        if self.in_flight or not self._room.is_due(now):
            return None
        found = self._room.make(self.queue.waiting_pods(), self._settings_of, now, seconds)
        helped = {name_of(refusal.pod) for refusal in found.refusals} if found is not None else set[str]()
        for refusal in found.refusals if found is not None else ():
            self.queue.hurry(name_of(refusal.pod))
        for pod in self._room.undelayed(seconds):
            if name_of(pod) not in helped:
                # Report again why it waits.
                self.queue.retry(name_of(pod), now)
        return found

    def _settings_of(self, pod: Pod) -> Settings:
        settings = self._settings(pod.spec.scheduler_name)
        return settings if settings is not None else DEFAULT_SETTINGS

    def _put_into_force(self, taken: Attempt, decision: Decision, now: float) -> None:
        for placement in decision.placements:
            self.cluster.assume(placement)
            if self.book and placement.claims:
                # It may have got more than the minimum that it asked for.
                self.book.refresh((placement.pod,))
            promised = self.cluster.promised_to(placement.pod)
            if promised not in ("", placement.node):
                self._break_promise(placement.pod, promised, now)
        if decision.placements:
            self.in_flight += len(decision.placements)
            self._early_left = _EARLY_MAX
        self.queue.decided(taken, [placement.pod for placement in decision.placements], decision.refusals, now)
        self._nominate(decision.refusals)

    def _nominate(self, refusals: Sequence[Refusal]) -> None:
        for refusal in refusals:
            if refusal.nominated_node:
                # Applied at once, so that no other pod takes the node before the watch shows the promise.
                status = msgspec.structs.replace(refusal.pod.status, nominated_node_name=refusal.nominated_node)
                self.cluster.put_pod(msgspec.structs.replace(refusal.pod, status=status))

    def settled(self, placement: Placement, outcome: Bound | NotBound, now: float) -> Settled:
        """A placement was written, or cannot be; call this exactly once for each."""
        self.in_flight -= 1
        pod = placement.pod
        if isinstance(outcome, Bound):
            member = self.queue.written(pod)
            self.cluster.volumes.forget(placement)
            if outcome.node != placement.node:
                # The watch will show where it is.
                self._take_back(placement, now)
                return Settled(is_bound=False)
            return Settled(
                is_bound=True,
                attempts=member.attempts if member is not None else 1,
                since=member.since if member is not None else None,
            )
        self._take_back(placement, now)
        self._look_at_group(pod, _NOTHING, now)
        attempts = self.queue.attempts(name_of(pod))
        again = outcome.is_conflict and attempts <= _CONFLICTS_MAX
        waits = self.queue.failed(pod, now, pause_s=_CONFLICT_PAUSE_S * 2.0**attempts if again else None)
        told = Refusal(pod=pod, verdict=Verdict.ERROR, message=outcome.message) if waits and not again else None
        return Settled(is_bound=False, refusal=told)

    def _take_back(self, placement: Placement, now: float) -> None:
        """What was taken for a placement is free again, unless the API says otherwise: others may use it."""
        pod, key = placement.pod, name_of(placement.pod)
        was_counted = self.cluster.is_assumed(pod)
        self.cluster.forget(placement)
        if was_counted:
            gone = _on_node(pod, placement.node)
            self._tell(ClusterEvent(resource=EventResource.ASSIGNED_POD, key=key, old=gone), now)
        taken = [(step.claim, step.allocation, step.claim) for step in placement.claims if step.allocation is not None]
        for claim, allocation, left in taken:
            self._gave_back(claim, allocation, left, now)
        if placement.extended is not None:
            self._gave_back(placement.extended.claim, placement.extended.allocation, None, now)

    def _gave_back(
        self, claim: api.ResourceClaim, allocation: api.AllocationResult, left: api.ResourceClaim | None, now: float
    ) -> None:
        held = msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=allocation))
        key = f"{claim.metadata.namespace}/{claim.metadata.name}"
        self._tell(ClusterEvent(resource=EventResource.CLAIM, key=key, old=held, new=left), now)

    def retry(self, pod: Pod, now: float) -> None:
        """An action for a refused pod has failed: the pod is retried after its back-off, without an event. A node that it
        was promised no longer is, unless the API already says so."""
        key = name_of(pod)
        self._room.failed(pod)
        self.queue.retry(key, now)
        known = self.queue.pod(key)
        if known is None:
            return
        promised = self.cluster.promised_to(known)
        if promised not in ("", known.status.nominated_node_name):
            self.cluster.put_pod(known)
            self._break_promise(known, promised, now)

    # --- questions ---

    def next_at(self) -> float | None:
        """When time alone makes something ready to try; None if never."""
        room_at = self._room.due_at() if self.book and not self.in_flight else None
        times = (self.queue.next_at(), room_at, self._halves.due_at())
        return min((at for at in times if at is not None), default=None)

    def long_gated(self, now: float, grace_s: float) -> list[tuple[Pod, Status]]:
        """Pods that have been held back for so long that their users should know; each is reported once."""
        return self.queue.long_gated(now, grace_s)

    def waiting(self) -> list[Unit]:
        """All units that want a place and are not held back, by priority, then by age."""
        return [unit for _, unit in sorted(self.queue.units(), key=_importance)]

    def unit_of(self, key: str) -> Unit | None:
        """What would be decided together with a pod, by its key, or for a group (`group_key`); None if it does not wait."""
        found = self.queue.unit_of(key)
        return found[0] if found is not None else None

    def closed(self, key: str) -> Closed | None:
        """What holds back a pod or group that waits."""
        found = self.queue.unit_of(key)
        return self.gates.closed(*found) if found is not None else None

    def ask(self, key: str, seconds: float, among: Collection[str] | None = None) -> Outcome | None:
        """What `next` would return if this unit were next, without preemption: nothing is applied. None if it does
        not wait. among: the only nodes to consider for a single pod."""
        found = self.queue.unit_of(key)
        if found is None:
            return None
        unit, group = found
        closed = self.gates.closed(unit, group)
        if closed is not None:
            return Outcome(unit=unit, closed=closed)
        return self.consider(unit, seconds, among)

    def consider(self, unit: Unit, seconds: float, among: Collection[str] | None = None) -> Outcome:
        """As `ask`, for pods that need not be in the queue, whatever holds them back."""
        settings = self._settings(unit.pods[0].spec.scheduler_name)
        assert settings is not None, "the pods of another scheduler are asked about"
        closed = self._room.decisions.refusal(unit) if self.book else None
        if closed is not None:
            return Outcome(unit=unit, failure=Failure(status=closed, early=True))
        if unit.is_lone:
            result = attempt(self.cluster, unit.pods[0], None, settings, seconds, among)
            costly = self._room.decisions.costly(result) if self.book and isinstance(result, Placement) else None
            if costly is not None:
                return Outcome(unit=unit, failure=Failure(status=costly, early=True))
            if isinstance(result, Placement):
                return Outcome(unit=unit, placements=(result,))
            return Outcome(unit=unit, failure=result)
        turn = turn_of(self.cluster, unit)
        decision = decide(self.cluster, turn.unit, settings, seconds) if turn.unit.pods else Decision()
        return Outcome(unit=unit, placements=decision.placements, decision=turn.told(decision))

    def consider_member(
        self, pod: Pod, group: PodGroup, seconds: float, among: Collection[str] | None = None
    ) -> Placement | Failure:
        """The place of one pod of a group, ignoring the others. among: the only nodes to consider."""
        settings = self._settings(pod.spec.scheduler_name)
        assert settings is not None, "the pods of another scheduler are asked about"
        return attempt(self.cluster, pod, group, settings, seconds, among)

    def has_enough(self, outcome: Outcome) -> bool:
        """Whether an outcome gives a pod its node, or a group as many as it needs."""
        group = outcome.unit.group
        # For a tree, either enough is placed or nothing.
        if group is None or not outcome.placements:
            return bool(outcome.placements)
        return len(outcome.placements) + self.cluster.scheduled_count(group) >= minimum_of(group)

    def has_minimum(self, group: AnyGroup) -> bool:
        """Whether as many pods of a group, or of enough groups below it, have a node as it needs."""
        if isinstance(group, PodGroup):
            return self.cluster.scheduled_count(group) >= minimum_of(group)
        tree = self.cluster.forest.tree(key_of(group))
        return tree is not None and Goal(self.cluster, tree).is_met()

    def look(self, seconds: float, trials_max: int = TRIALS_MAX) -> Look:
        """What a look at all jobs of queues would find: which start, which make room for which, and why others wait. Nothing is
        applied. trials_max: sets of pods that are tried for one job; with fewer than usual, more is undecided."""
        if not self.book:
            return Look()
        return self._room.decisions.make_room(self.queue.waiting_pods(), self._settings_of, seconds, trials_max)

    def jobs(self) -> dict[str, Job]:
        """The jobs of queues, by namespace/name, as a look sees them."""
        return self.book.jobs(self.queue.waiting_pods()) if self.book else {}

    def sizes(self) -> dict[str, int]:
        """Sizes of the cache, for metrics."""
        return {"nodes": len(self.cluster.nodes), "pods": len(self.cluster.pods)}

    # --- what hints ask ---

    def _helps(self, plugin: str, event: ClusterEvent, pod: Pod) -> bool:
        return helps(plugin, event, pod, self)

    def claims_are_usable(self, pod: Pod) -> bool:
        """Whether every claim of the pod exists and may be used by it."""
        return self.claims.gate(pod) is None

    def added_affinity(self, pod: Pod) -> AddedAffinity | None:
        """The node affinity that the pod's profile adds."""
        return self._settings_of(pod).added_affinity

    def requests(self, pod: core_v1.Pod) -> dict[str, Quantity]:
        """What the pod asks of a node."""
        profile = self.cluster.profile(pod)
        amounts = {"cpu": profile.cpu * _MILLI_NANO, "memory": profile.memory * _NANO}
        amounts["ephemeral-storage"] = profile.storage * _NANO
        amounts |= {name: amount * _NANO for name, amount in profile.scalars.items()}
        return {name: Quantity.from_nano(nano) for name, nano in amounts.items() if nano}


def _too_late(decision: Decision, unit: Unit) -> Decision:
    """The refusals of a group whose waiting time is over, in the words of its scheduler. It is retried when something
    changes, and may wait as long again."""
    group = unit.group
    if not isinstance(group, ForeignGroup):
        # It held something when its time was set, but no longer does.
        return decision
    dialect = dialect_of(group_key(group))
    assert dialect is not None, "a group has one of the dialects"
    waited = go_duration_text(Duration(int(group.timeout_s) * SECOND))
    text = f"rejected due to timeout after waiting {waited} at plugin {dialect.plugin}"
    refusals = tuple(
        msgspec.structs.replace(refusal, message=f"{text}: {refusal.message}") for refusal in decision.refusals
    )
    return msgspec.structs.replace(decision, refusals=refusals)


def _is_same(old: Sequence[AnyForeign], new: Sequence[AnyForeign]) -> bool:
    """Whether groups are the same except for metadata."""
    return len(old) == len(new) and all(
        before == msgspec.structs.replace(after, metadata=before.metadata)
        for before, after in zip(old, new, strict=True)
    )


def _importance(found: tuple[int, Unit]) -> tuple[int, str, str]:
    priority, unit = found
    ages = [(pod.metadata.creation_timestamp or "", name_of(pod)) for pod in unit.pods]
    return -priority, *min(ages)


def _on_node(pod: Pod, node: str) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def _is_other_capacity(old: Any, new: Any) -> bool:
    """Whether a node's capacity differs; for slices and classes, it always may."""
    if not isinstance(old, core_v1.Node) or not isinstance(new, core_v1.Node):
        return True
    return old.status.allocatable != new.status.allocatable or old.spec != new.spec


def _may_have_held(change: Change) -> bool:
    """Whether what a group holds may have changed: pods that only wait hold nothing, whatever happens to them."""
    old, new = change.old, change.new
    if new is None or new.spec.node_name or new.status.phase in _FINISHED:
        return True
    return old is not None and bool(old.spec.node_name or old.status.phase in _FINISHED)


def _began_to_end(old: Pod, new: Pod) -> bool:
    return old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None
