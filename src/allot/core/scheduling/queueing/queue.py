"""The order in which units (single pods and pod groups) are tried, and how long they wait after a refusal.

A unit is in one place. Active: to be tried. Back-off: may be tried
again, but not before its time. Unschedulable: refused, waiting for an event that can help one of the plugins that refused it
(`hints`), or for five minutes as a safety net. Gated: not to be tried before something outside happens; it is checked
again when its own pods, its claims or its group change. Pods whose placements are being written are remembered with their
unit but wait nowhere.

Has no clock: the time is an argument of every method. Nothing happens between `pop` and `decided`: `Machine.next` calls both.
The order (`queue_order`) decides which active unit is first. Groups wait for events like single pods; kube-scheduler tries a group
again after each back-off, whether or not anything has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.groups.dialects import ForeignGroup, Membership
from allot.core.scheduling.groups.dialects import group_key as key_of_group
from allot.core.scheduling.groups.forest import AnyGroup, Forest
from allot.core.scheduling.groups.forest import key_of as key_of_any
from allot.core.scheduling.plan import Refusal, Unit
from allot.core.scheduling.podinfo import pod_key
from allot.core.scheduling.queueing.backoff import BackoffTimes
from allot.core.scheduling.queueing.gates import Closed
from allot.core.scheduling.queueing.hints import (
    INTERESTED,
    NO_NODES,
    ClusterEvent,
    EventResource,
    claim_keys,
    frees_devices,
    may_help,
)
from allot.core.scheduling.queueing.queue_order import PriorityOrder, QueueOrder
from allot.core.scheduling.queueing.waiting import Heap, Member, Place, Waiting
from allot.core.scheduling.status import Status, Verdict

FLUSH_AFTER_S = 300.0
_NOBODY = frozenset((NO_NODES,))

Helps = Callable[[str, ClusterEvent, Pod], bool]


class Gatekeeper(Protocol):
    """Knows why a unit must not be tried yet (`gates`)."""

    def closed_to_unit(self, unit: Unit, group: str) -> Closed | None:
        """What a unit lacks as a whole. group: the name of its group, or empty."""

    def closed_to(self, pod: Pod) -> Status | None:
        """What a pod itself lacks."""


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A unit to decide now."""

    key: str
    unit: Unit
    # When its first pod came, and when it was first tried.
    since: float
    # How often it was refused before.
    refusals: int
    # Tried before its back-off was over, because there was nothing else to do.
    is_early: bool = False
    # It has waited for as long as its group may.
    is_late: bool = False


class Queue:
    """helps(plugin, event, pod): whether an event may change that plugin's mind about the pod."""

    def __init__(
        self,
        gates: Gatekeeper,
        helps: Helps,
        times: BackoffTimes | None = None,
        flush_after_s: float = FLUSH_AFTER_S,
        *,
        order: QueueOrder | None = None,
        membership: Membership | None = None,
        forest: Forest | None = None,
    ) -> None:
        """membership: which group a pod belongs to; forest: which group belongs to which."""
        self._forest = forest if forest is not None else Forest()
        self._gates = gates
        self._membership = membership if membership is not None else Membership()
        self._helps = helps
        self._times = times if times is not None else BackoffTimes()
        self._flush_after_s = flush_after_s
        self._waiting: dict[str, Waiting] = {}
        self._groups: dict[str, PodGroup] = {}
        # Which unit a pod belongs to.
        self._unit_of: dict[str, str] = {}
        self._active: QueueOrder = order if order is not None else PriorityOrder()
        # Two, because only units not waiting after an error may be tried early when there is nothing else to do.
        self._backoff = Heap()
        self._error_backoff = Heap()
        # In the order of arrival, so that the first has waited longest.
        self._unschedulable: dict[str, float] = {}
        # Those of them that may not wait forever.
        self._limited: dict[str, None] = {}
        self._refused_by: dict[str, dict[str, None]] = {}
        self._using: dict[str, dict[str, None]] = {}
        self._gated: dict[str, float] = {}
        self._tokens = 0
        self._counts: dict[Place, int] = dict.fromkeys(Place, 0)

    # --- what there is ---

    def put_pod(self, pod: Pod, now: float) -> None:
        """A pod without a node that this scheduler is responsible for: new, or changed."""
        key = name_of(pod)
        known = self._waiting.get(self._unit_of.get(key, ""))
        if known is None:
            self._add_pod(key, pod, now)
            return
        member = known.writing.get(key)
        if member is not None:
            member.pod = pod
            return
        member = known.members[key]
        before, member.pod = member.pod, pod
        known.add(key, member)
        claims, member.claims = member.claims, claim_keys(pod)
        if claims != member.claims:
            self._reindex_claims(known, claims, member.claims)
        self._own_pod_changed(known, key, before, pod, now)

    def delete_pod(self, key: str, now: float) -> None:
        """A pod is gone, has got a node, or is another scheduler's."""
        waiting = self._waiting.get(self._unit_of.pop(key, ""))
        if waiting is None:
            return
        member = waiting.remove(key) or waiting.writing.pop(key, None)
        waiting.plugins.pop(key, None)
        if member is not None:
            self._reindex_claims(waiting, member.claims, ())
        if not waiting.members:
            self._leave(waiting)
            if not waiting.writing:
                del self._waiting[waiting.key]
        elif waiting.place in (Place.ACTIVE, Place.GATED):
            # The pod that closed the gate may be the one that is gone; and without it there may be too few.
            self._enter_checked(waiting, now)

    def put_group(self, group: PodGroup, now: float) -> None:
        """A pod group: new, or changed."""
        self._groups[group_name_of(group)] = group
        self.put_tree(group, now)

    def put_tree(self, group: AnyGroup, now: float) -> None:
        """A group, perhaps one of groups, is new or changed: pods that wait for it are checked again, in the unit of its root."""
        self._forest.put(group)
        name = key_of_any(group)
        self._move_to_root(name, now)
        waiting = self._waiting.get(group_key(self._forest.root(name)))
        if waiting is not None:
            self._know_group(waiting)
            self._look_again(waiting, now)

    def delete_tree(self, group: AnyGroup, now: float) -> None:
        """A group of groups is gone; what belongs to it waits for another of that name."""
        root = group_key(self._forest.root(key_of_any(group)))
        self._forest.delete(group)
        waiting = self._waiting.get(root)
        if waiting is not None:
            self._know_group(waiting)
            if waiting.members and waiting.place is not Place.NOWHERE:
                self._enter_checked(waiting, now)

    def _know_group(self, waiting: Waiting) -> None:
        waiting.group = self._groups.get(waiting.group_name)
        waiting.tree = self._forest.tree(waiting.group_name) if waiting.group is None else None

    def _move_to_root(self, name: str, now: float) -> None:
        """Move pods that waited under a group that turns out to belong to another."""
        root = self._forest.root(name)
        waiting = self._waiting.get(group_key(name)) if root != name else None
        if waiting is None:
            return
        self._leave(waiting)
        del self._waiting[waiting.key]
        target = self._waiting.get(group_key(root))
        if target is None:
            target = self._waiting[group_key(root)] = Waiting(group_key(root), root, now)
        self._know_group(target)
        for key, member in (*waiting.members.items(), *waiting.writing.items()):
            self._unit_of[key] = target.key
            self._reindex_claims(waiting, member.claims, ())
        for key, member in waiting.members.items():
            target.add(key, member)
        target.writing |= waiting.writing
        for member in (*waiting.members.values(), *waiting.writing.values()):
            self._reindex_claims(target, (), member.claims)
        if target.members and target.place in (Place.NOWHERE, Place.GATED):
            self._enter_checked(target, now)

    def delete_group(self, name: str, now: float) -> None:
        """A pod group is gone; its pods wait for another of that name."""
        group = self._groups.pop(name, None)
        root = self._forest.root(name)
        if group is not None:
            self._forest.delete(group)
        waiting = self._waiting.get(group_key(root))
        if waiting is None:
            return
        self._know_group(waiting)
        if root != name:
            # Its pods wait alone for another group of that name.
            for member in [each for each in waiting.members.values() if self._membership.key(each.pod) == name]:
                self.delete_pod(name_of(member.pod), now)
                self._add_pod(name_of(member.pod), member.pod, now)
        elif waiting.members and waiting.place is not Place.NOWHERE:
            self._enter_checked(waiting, now)

    def regroup(self, now: float) -> None:
        """Pods may belong to other groups than before; those that are being written stay where they are."""
        members = [member for waiting in self._waiting.values() for member in waiting.members.values()]
        for member in members:
            key, group = name_of(member.pod), self._membership.key(member.pod)
            if self._unit_of[key] != (group_key(self._forest.root(group)) if group else key):
                self.delete_pod(key, now)
                self._add_pod(key, member.pod, now)

    # --- what happens ---

    def tell(self, event: ClusterEvent, now: float) -> int:
        """Something has happened in the cluster: units that it can help are retried. Returns how many."""
        moved = 0
        if event.resource is EventResource.CLAIM:
            moved += self._open_gates(self._using.get(event.key, ()), now)
        for plugin in INTERESTED.get(event.resource, ()):
            refused = self._refused_by.get(plugin)
            if not refused or not may_help(plugin, event):
                continue
            for key in tuple(self._concerned(event, refused)):
                waiting = self._waiting[key]
                if self._is_helped(waiting, plugin, event):
                    self._requeue(waiting, now)
                    moved += 1
        return moved

    def look_at_gated_groups(self, names: Iterable[str], now: float) -> None:
        """Pods of these groups came or got nodes: their quorum may be complete."""
        for name in names:
            waiting = self._waiting.get(group_key(self._forest.root(name)))
            if waiting is not None and waiting.place is Place.GATED:
                self._enter_checked(waiting, now)

    # --- what is tried ---

    def pop(self, now: float, *, early: bool = False) -> Attempt | None:
        """The next unit to decide. early: take one whose back-off is not over if there is no other, as an idle
        kube-scheduler does; never one that waits after an error. A group whose gate has closed since it came in is gated instead;
        for a single pod this is checked when it is refused (`is_held_back`)."""
        self._expire(now)
        while True:
            waiting = self._active.first()
            is_early = waiting is None and early
            if is_early:
                waiting = self._backoff.first()
            if waiting is None:
                return None
            self._leave(waiting)
            if not waiting.group_name or not self._is_gated(waiting, now):
                break
        waiting.tries += 1
        for member in waiting.members.values():
            member.attempts += 1
            if member.tried_first_at is None:
                member.tried_first_at = now
        is_late = waiting.deadline is not None and waiting.deadline <= now
        if is_late:
            waiting.deadline = None
        return Attempt(
            key=waiting.key,
            unit=waiting.unit(),
            since=waiting.since,
            refusals=waiting.refusals,
            is_early=is_early,
            is_late=is_late,
        )

    def is_held_back(self, attempt: Attempt, now: float) -> bool:
        """Whether a unit that found no place is gated, as its gate has closed since it came in: then it counts as not tried.
        So whether a unit is tried does not depend on the order of events."""
        waiting = self._waiting[attempt.key]
        # A group was checked when it was taken.
        if waiting.group_name or not self._is_gated(waiting, now):
            return False
        for member in waiting.members.values():
            member.attempts -= 1
        return True

    def next_at(self) -> float | None:
        """When time alone makes something ready to try; None if never."""
        if self._active.first() is not None:
            return 0.0
        times = [first.ready_at for heap in (self._backoff, self._error_backoff) if (first := heap.first()) is not None]
        if self._unschedulable:
            times.append(next(iter(self._unschedulable.values())) + self._flush_after_s)
        times += [at for key in self._limited if (at := self._waiting[key].deadline) is not None]
        return min(times, default=None)

    def decided(self, attempt: Attempt, placed: Sequence[Pod], refusals: Sequence[Refusal], now: float) -> None:
        """A unit was decided: from now on, placed pods are being written, the others wait."""
        waiting = self._waiting[attempt.key]
        for pod in placed:
            key = name_of(pod)
            member = waiting.remove(key)
            assert member is not None, f"{key} was decided"
            waiting.writing[key] = member
            waiting.plugins.pop(key, None)
        if not waiting.members:
            return
        for refusal in refusals:
            waiting.plugins[name_of(refusal.pod)] = refusal.plugins or _NOBODY
        self._after_decision(waiting, bool(placed), refusals, now)

    def limit(self, key: str, at: float) -> None:
        """Retry a refused unit at a given time if nothing helps it before; a time that was already set stays."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.place is Place.UNSCHEDULABLE:
            self._limited[key] = None
            if waiting.deadline is None:
                waiting.deadline = at

    def written(self, pod: Pod) -> Member | None:
        """A placed pod has its node. Returns what is known about its wait; None if it was already gone."""
        waiting, member = self._end_writing(pod)
        if waiting is None or member is None:
            return None
        del self._unit_of[name_of(pod)]
        self._reindex_claims(waiting, member.claims, ())
        if not waiting.members and not waiting.writing:
            del self._waiting[waiting.key]
        return member

    def failed(self, pod: Pod, now: float, *, pause_s: float | None = None) -> bool:
        """The placement of a pod could not be written: it is tried again after a back-off, or after this pause if only
        another writer was faster. Returns whether it still waits."""
        waiting, member = self._end_writing(pod)
        if waiting is None or member is None:
            return False
        waiting.add(name_of(pod), member)
        if pause_s is not None:
            waiting.errors = max(waiting.errors, 1)
            waiting.ready_at = now + pause_s
            self._enter(waiting, Place.BACKOFF, now)
        else:
            waiting.errors += waiting.failed_try != waiting.tries
            waiting.failed_try = waiting.tries
            waiting.since = now
            self._enter_backoff(waiting, now)
        return True

    def retry(self, key: str, now: float) -> None:
        """An action for a refused pod has failed: the pod is retried after its back-off, without an event."""
        waiting = self._waiting.get(self._unit_of.get(key, ""))
        if waiting is not None and waiting.place is Place.UNSCHEDULABLE:
            self._requeue(waiting, now)

    def hurry(self, key: str) -> None:
        """Others are evicted for a pod: it is tried without back-off when they are gone."""
        waiting = self._waiting.get(self._unit_of.get(key, ""))
        if waiting is not None and waiting.place is Place.UNSCHEDULABLE:
            waiting.refusals = 0

    # --- queries ---

    @property
    def is_waited(self) -> bool:
        """Whether any unit waits for events, so that they are worth reporting."""
        return bool(self._unschedulable or self._gated)

    def counts(self) -> Mapping[Place, int]:
        """How many units are where."""
        return self._counts

    def refused_by(self) -> Mapping[str, int]:
        """How many units each plugin keeps waiting."""
        return {plugin: len(refused) for plugin, refused in self._refused_by.items() if plugin != NO_NODES}

    def attempts(self, key: str) -> int:
        """How often a pod that still waits was tried."""
        member = self._member(key)
        return member.attempts if member is not None else 0

    def pod(self, key: str) -> Pod | None:
        """A pod that still waits, as it was last seen."""
        member = self._member(key)
        return member.pod if member is not None else None

    def _member(self, key: str) -> Member | None:
        waiting = self._waiting.get(self._unit_of.get(key, ""))
        return (waiting.members.get(key) or waiting.writing.get(key)) if waiting is not None else None

    def place(self, key: str) -> Place | None:
        """Where a pod's unit is; None if the pod does not wait."""
        waiting = self._waiting.get(self._unit_of.get(key, ""))
        return None if waiting is None else waiting.place

    def place_of_group(self, root: str) -> Place | None:
        """Where the unit of a group is, by the key of its root; None if no pod of it waits."""
        waiting = self._waiting.get(group_key(root))
        return waiting.place if waiting is not None and waiting.members else None

    def members_of(self, group: str) -> int:
        """How many pods of a group wait or are being written."""
        waiting = self._waiting.get(group_key(self._forest.root(group)))
        return 0 if waiting is None else len(waiting.members) + len(waiting.writing)

    def pods(self) -> list[Pod]:
        """All pods that are known here, wherever they are."""
        return [
            member.pod
            for waiting in self._waiting.values()
            for members in (waiting.members, waiting.writing)
            for member in members.values()
        ]

    def waiting_pods(self) -> dict[str, Pod]:
        """Pods that want a place and are not held back, by key of the cluster."""
        return {
            pod_key(member.pod): member.pod
            for waiting in self._waiting.values()
            if waiting.place not in (Place.GATED, Place.NOWHERE)
            for member in waiting.members.values()
        }

    def units(self) -> list[tuple[int, Unit]]:
        """Units that want a place and are not held back, with their priorities."""
        return [
            (waiting.priority, waiting.unit())
            for waiting in self._waiting.values()
            if waiting.place not in (Place.GATED, Place.NOWHERE) and waiting.members
        ]

    def long_gated(self, now: float, grace_s: float) -> list[tuple[Pod, Status]]:
        """Pods that have been gated for longer than the patience with that reason; each is reported once per reason."""
        found: list[tuple[Pod, Status]] = []
        for key, since in self._gated.items():
            waiting = self._waiting[key]
            if waiting.gate is None or waiting.gate_is_told or now - since < waiting.gate.patience_s(grace_s):
                continue
            waiting.gate_is_told = True
            found.extend((member.pod, waiting.gate.status) for member in waiting.members.values())
        return found

    def unit_of(self, key: str) -> tuple[Unit, str] | None:
        """What would be decided with a pod, by its key, or of a group, by "group:" and its name; and the name of the group."""
        waiting = self._waiting.get(self._unit_of.get(key, key))
        return (waiting.unit(), waiting.group_name) if waiting is not None and waiting.members else None

    # --- moving ---

    def _add_pod(self, key: str, pod: Pod, now: float) -> None:
        group_name = self._forest.root(self._membership.key(pod))
        unit_key = group_key(group_name) if group_name else key
        waiting = self._waiting.get(unit_key)
        if waiting is None:
            waiting = self._waiting[unit_key] = Waiting(unit_key, group_name, now)
            if group_name:
                self._know_group(waiting)
        self._unit_of[key] = unit_key
        member = Member(pod, claim_keys(pod), now)
        waiting.add(key, member)
        self._reindex_claims(waiting, (), member.claims)
        if waiting.place is Place.BACKOFF:
            return
        if waiting.place is Place.UNSCHEDULABLE:
            # A refused group is worth a retry with one more pod.
            self._requeue(waiting, now)
        else:
            self._enter_checked(waiting, now)

    def _own_pod_changed(self, waiting: Waiting, key: str, before: Pod, pod: Pod, now: float) -> None:
        if waiting.place is Place.GATED:
            self._enter_checked(waiting, now)
        elif waiting.place is Place.UNSCHEDULABLE:
            event = ClusterEvent(resource=EventResource.OWN_POD, key=key, old=before, new=pod)
            if any(self._helps(plugin, event, pod) for plugin in sorted(waiting.plugins.get(key, ()))):
                self._requeue(waiting, now)
        elif before.spec.priority != pod.spec.priority and waiting.place is Place.ACTIVE:
            self._enter(waiting, Place.ACTIVE, now)

    def _after_decision(self, waiting: Waiting, any_placed: bool, refusals: Sequence[Refusal], now: float) -> None:
        failed = any(refusal.verdict is Verdict.ERROR for refusal in refusals)
        if any_placed:
            # The rest of a group gets its turn without back-off; then it fails as a group, or is placed.
            waiting.errors = waiting.refusals = 0
            self._enter_checked(waiting, now)
        elif failed:
            waiting.errors += 1
            waiting.since = now
            self._enter_backoff(waiting, now)
        else:
            waiting.errors = 0
            waiting.refusals += 1
            waiting.since = now
            self._enter(waiting, Place.UNSCHEDULABLE, now)

    def _end_writing(self, pod: Pod) -> tuple[Waiting | None, Member | None]:
        key = name_of(pod)
        waiting = self._waiting.get(self._unit_of.get(key, ""))
        member = waiting.writing.get(key) if waiting is not None else None
        if waiting is None or member is None or member.pod.metadata.uid != pod.metadata.uid:
            # Deleted meanwhile, or a new pod of that name.
            return None, None
        del waiting.writing[key]
        return waiting, member

    def _requeue(self, waiting: Waiting, now: float) -> None:
        """From unschedulable to active, or to back-off if that is not over."""
        failures = waiting.errors or waiting.refusals
        waiting.ready_at = waiting.since + self._times.pause_s(failures, len(waiting.members))
        if waiting.ready_at > now:
            self._enter(waiting, Place.BACKOFF, now)
        else:
            self._enter_checked(waiting, now)

    def _look_again(self, waiting: Waiting, now: float) -> None:
        """A group has changed: what it waits for may be different now."""
        if waiting.place is Place.GATED:
            self._enter_checked(waiting, now)
        elif waiting.place is Place.UNSCHEDULABLE:
            self._requeue(waiting, now)

    def _open_gates(self, keys: Iterable[str], now: float) -> int:
        gated = [self._waiting[key] for key in keys if key in self._gated]
        for waiting in gated:
            self._enter_checked(waiting, now)
        return sum(waiting.place is Place.ACTIVE for waiting in gated)

    def _expire(self, now: float) -> None:
        """Handle timeouts: the end of back-offs, and of the longest wait for an event."""
        for heap in (self._backoff, self._error_backoff):
            while (first := heap.first()) is not None and first.ready_at <= now:
                self._enter_checked(first, now)
        while self._unschedulable:
            key, since = next(iter(self._unschedulable.items()))
            if since + self._flush_after_s > now:
                break
            self._requeue(self._waiting[key], now)
        for key in [key for key in self._limited if (self._waiting[key].deadline or now + 1) <= now]:
            self._enter_checked(self._waiting[key], now)

    def _enter_checked(self, waiting: Waiting, now: float) -> None:
        """To active, unless a gate is closed."""
        if not self._is_gated(waiting, now):
            self._enter(waiting, Place.ACTIVE, now)

    def _is_gated(self, waiting: Waiting, now: float) -> bool:
        """Whether a gate is closed; if so, the unit is gated."""
        if waiting.place not in (Place.ACTIVE, Place.GATED):
            # While it is active, each change is checked at once; but others may take what a group needs before its turn.
            waiting.ask_all()
        closed = self._closed(waiting)
        if closed is None:
            waiting.gate = None
            return False
        if waiting.gate is None or waiting.gate.status.reasons != closed.status.reasons:
            waiting.gate_is_told = False
        waiting.gate = closed
        if waiting.place is not Place.GATED:
            self._enter(waiting, Place.GATED, now)
        return True

    def _closed(self, waiting: Waiting) -> Closed | None:
        for key in waiting.held:
            pod = waiting.members[key].pod
            status = self._gates.closed_to(pod)
            assert status is not None, f"{key} has scheduling gates"
            return Closed(status, pod)
        closed = self._gates.closed_to_unit(waiting.unordered(), waiting.group_name)
        if closed is not None:
            return closed
        for key in tuple(waiting.lacking):
            pod = waiting.members[key].pod
            status = self._gates.closed_to(pod)
            if status is not None:
                return Closed(status, pod)
            del waiting.lacking[key]
        return None

    def _enter_backoff(self, waiting: Waiting, now: float) -> None:
        waiting.ready_at = now + self._times.pause_s(waiting.errors or waiting.refusals, len(waiting.members))
        self._enter(waiting, Place.BACKOFF, now)

    def _enter(self, waiting: Waiting, place: Place, now: float) -> None:
        self._leave(waiting)
        self._tokens += 1
        waiting.token, waiting.place = self._tokens, place
        self._counts[place] += 1
        if place is Place.ACTIVE:
            self._active.push(waiting)
        elif place is Place.BACKOFF:
            heap = self._error_backoff if waiting.errors else self._backoff
            heap.push((waiting.ready_at, -waiting.priority), waiting)
        elif place is Place.GATED:
            self._gated[waiting.key] = now
        elif place is Place.UNSCHEDULABLE:
            self._unschedulable[waiting.key] = now
            if isinstance(waiting.group, ForeignGroup) and waiting.group.timeout_s:
                self._limited[waiting.key] = None
                if waiting.deadline is None:
                    waiting.deadline = now + waiting.group.timeout_s
            for plugins in waiting.plugins.values():
                for plugin in sorted(plugins):
                    self._refused_by.setdefault(plugin, {})[waiting.key] = None

    def _leave(self, waiting: Waiting) -> None:
        place, waiting.place = waiting.place, Place.NOWHERE
        waiting.token = 0
        if place is Place.NOWHERE:
            return
        self._counts[place] -= 1
        if place is Place.ACTIVE:
            self._active.discard(waiting)
        elif place is Place.BACKOFF:
            (self._error_backoff if waiting.errors else self._backoff).discard()
        elif place is Place.GATED:
            del self._gated[waiting.key]
        elif place is Place.UNSCHEDULABLE:
            del self._unschedulable[waiting.key]
            self._limited.pop(waiting.key, None)
            for refused in self._refused_by.values():
                refused.pop(waiting.key, None)

    # --- units that an event affects ---

    def _concerned(self, event: ClusterEvent, refused: Mapping[str, None]) -> Iterable[str]:
        """Of the units that a plugin refused, those that need a closer check."""
        if event.resource is not EventResource.CLAIM or frees_devices(event):
            return refused
        return [key for key in self._using.get(event.key, ()) if key in refused]

    def _is_helped(self, waiting: Waiting, plugin: str, event: ClusterEvent) -> bool:
        return any(
            plugin in waiting.plugins.get(key, ()) and self._helps(plugin, event, member.pod)
            for key, member in waiting.members.items()
        )

    def _reindex_claims(self, waiting: Waiting, old: Sequence[str], new: Sequence[str]) -> None:
        """A pod of the unit has come, changed or gone, and the unit itself already knows."""
        for claim in old:
            users = self._using.get(claim, {})
            if claim not in new and not _uses(waiting, claim):
                users.pop(waiting.key, None)
            if not users:
                self._using.pop(claim, None)
        for claim in new:
            self._using.setdefault(claim, {})[waiting.key] = None


def group_name_of(group: PodGroup) -> str:
    """namespace/key of a group."""
    return f"{group.metadata.namespace}/{key_of_group(group)}"


def _uses(waiting: Waiting, claim: str) -> bool:
    return any(claim in member.claims for members in (waiting.members, waiting.writing) for member in members.values())


def name_of(pod: Pod) -> str:
    """namespace/name: the key under which a pod waits."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def group_key(name: str) -> str:
    """The key of a group's unit. name: namespace/name."""
    # No namespace has a colon in its name, so that no pod's key looks like this.
    return f"group:{name}"
