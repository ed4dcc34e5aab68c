"""From watches to what decisions are made on: every change of an object goes into `Cluster` and `Claims`, and, as an event, to
the queue. Nothing is decided here but what is whose business.

Handlers are called for every change in the cluster, so they leave early: most changes of pods and nodes (their status, their
heartbeats) matter to no decision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

import msgspec

from allot.client.informer import Change
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.meta import APIStruct
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.quantity import Quantity
from allot.core.scheduling.backoff import BackoffTimes
from allot.core.scheduling.claims import Claims
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.hints import Event, Happening, helps
from allot.core.scheduling.plan import Unit
from allot.core.scheduling.queue import Queue, group_of
from allot.core.scheduling.status import Status, Verdict
from allot.process.clock import Clock

_FINISHED = ("Succeeded", "Failed")
_MILLI_NANO = 10**6
_NANO = 10**9

T = TypeVar("T", bound=APIStruct)


class SchedulerCache:
    """What the scheduler knows, and who waits."""

    def __init__(
        self,
        clock: Clock,
        scheduler_names: Collection[str],
        *,
        claims: Callable[[Callable[[str | None], None]], Claims],
        backoff: BackoffTimes,
        uses_groups: bool,
        wake: Callable[[], None],
    ) -> None:
        """claims: makes the view of claims, given whom to tell of nodes whose devices change; wake: called when the queue may
        have got something to try."""
        self._clock = clock
        self._scheduler_names = scheduler_names
        self.claims = claims(lambda name: self.cluster.device_changes.add(name))
        self.cluster = Cluster(self.claims)
        self.queue = Queue(self._gate, self._helps, backoff, uses_groups=uses_groups)
        self._wake = wake
        # By group: the place of the pod whose claims were missing.
        self._in_the_way: dict[str, int] = {}
        self.on_requeued: Callable[[str, int], None] = lambda _event, _units: None

    # --- pods ---

    def pod_changed(self, change: Change[Pod]) -> None:
        """A pod came, changed or went. One that has finished is as good as gone."""
        old = change.old if change.old is not None and change.old.status.phase not in _FINISHED else None
        new = change.new if change.new is not None and change.new.status.phase not in _FINISHED else None
        if new is None:
            if old is not None:
                self._pod_gone(change.key, old)
        elif new.spec.node_name:
            self._assigned_pod(change.key, old, new)
        elif new.spec.scheduler_name in self._scheduler_names:
            self._unassigned_pod(change.key, old, new)
        else:
            self.cluster.put_pod(new)

    def _pod_gone(self, key: str, pod: Pod) -> None:
        was_counted = bool(pod.spec.node_name) or self.cluster.is_assumed(pod)
        self.cluster.delete_pod(pod)
        self.queue.delete_pod(key, self._clock.monotonic())
        if was_counted or pod.status.nominated_node_name:
            self._tell(Event(happening=Happening.ASSIGNED_POD, key=key, old=pod))

    def _assigned_pod(self, key: str, old: Pod | None, new: Pod) -> None:
        if old is not None and old.spec.node_name:
            if old.spec == new.spec and old.metadata.labels == new.metadata.labels and not _began_to_end(old, new):
                self.cluster.put_pod(new)
                return
            self.cluster.put_pod(new)
            self._tell(Event(happening=Happening.ASSIGNED_POD, key=key, old=old, new=new))
            return
        self.cluster.put_pod(new)
        self.queue.delete_pod(key, self._clock.monotonic())
        self._tell(Event(happening=Happening.ASSIGNED_POD, key=key, new=new))
        group = group_of(new)
        if group:
            self.queue.look_at_gated_groups((group,), self._clock.monotonic())
            self._wake()

    def _unassigned_pod(self, key: str, old: Pod | None, new: Pod) -> None:
        now = self._clock.monotonic()
        self.cluster.put_pod(new)
        if new.metadata.deletion_timestamp is not None:
            self.queue.delete_pod(key, now)
            return
        # A pod that is bound already, as far as we know: the watch is a little behind.
        if self.cluster.is_assumed(new) and self.queue.place(key) is None:
            return
        self.queue.put_pod(new, now)
        if old is not None and old.status.nominated_node_name not in ("", new.status.nominated_node_name):
            self._tell(Event(happening=Happening.ASSIGNED_POD, key=key, old=old))
        if old is None and group_of(new):
            self._tell(Event(happening=Happening.UNSCHEDULED_POD, key=key, new=new))
        self._wake()

    def nominate(self, pod: Pod, node: str) -> None:
        """A pod has been promised a node; known here at once, so that nobody takes it before the watch brings it."""
        status = msgspec.structs.replace(pod.status, nominated_node_name=node)
        self.cluster.put_pod(msgspec.structs.replace(pod, status=status))

    # --- nodes ---

    def node_changed(self, change: Change[Node]) -> None:
        """A node came, changed or went."""
        old, new = change.old, change.new
        if new is None:
            self.cluster.delete_node(change.key)
        else:
            self.cluster.put_node(new)
            if old is not None and _is_heartbeat(old, new):
                return
        self._tell(Event(happening=Happening.NODE, key=change.key, old=old, new=new))

    # --- devices ---

    def claim_changed(self, change: Change[api.ResourceClaim]) -> None:
        """A claim came, changed or went."""
        if change.new is None:
            namespace, _, name = change.key.partition("/")
            self.claims.delete_claim(namespace, name)
        else:
            self.claims.put_claim(change.new)
        self._tell(
            Event(
                happening=Happening.CLAIM,
                key=change.key,
                old=change.old,
                new=change.new,
                is_final_state_unknown=change.is_final_state_unknown,
            )
        )

    def class_changed(self, change: Change[api.DeviceClass]) -> None:
        """A device class came, changed or went."""
        if change.new is None:
            self.claims.delete_class(change.key)
        else:
            self.claims.put_class(change.new)
        self._tell(Event(happening=Happening.CLASS, key=change.key, old=change.old, new=change.new))

    def slice_changed(self, change: Change[api.ResourceSlice]) -> None:
        """A slice came, changed or went."""
        if change.new is None:
            self.claims.delete_slice(change.key)
        else:
            self.claims.put_slice(change.new)
        self._tell(Event(happening=Happening.SLICE, key=change.key, old=change.old, new=change.new))

    def taint_rule_changed(self, change: Change[api.DeviceTaintRule]) -> None:
        """A taint rule came, changed or went: for those who wait, the slices that it speaks of have changed."""
        if change.new is None:
            self.claims.delete_taint_rule(change.key)
        else:
            self.claims.put_taint_rule(change.new)
        state = change.object
        self._tell(Event(happening=Happening.SLICE, key=change.key, old=state, new=state))

    # --- groups ---

    def group_changed(self, change: Change[PodGroup]) -> None:
        """A pod group came, changed or went."""
        namespace, _, name = change.key.partition("/")
        now = self._clock.monotonic()
        if change.new is None:
            self.cluster.delete_group(namespace, name)
            self.claims.delete_pod_group(namespace, name)
            self.queue.delete_group(change.key, now)
        else:
            self.cluster.put_group(change.new)
            self.claims.put_pod_group(change.new)
            # A condition that we wrote ourselves is no news to those who wait.
            if change.old is None or change.old.spec != change.new.spec or _got_claims(change.old, change.new):
                self.queue.put_group(change.new, now)
                self._wake()

    def namespace_changed(self, change: Change[core_v1.Namespace]) -> None:
        """A namespace came, changed its labels, or went."""
        self.cluster.put_namespace(change.key, change.new.metadata.labels if change.new is not None else None)

    # --- what the queue asks ---

    def tell(self, happening: Happening, change: Change[T]) -> None:
        """An object of a kind that the cluster has taken note of has changed."""
        self._tell(Event(happening=happening, key=change.key, old=change.old, new=change.new))

    def _tell(self, event: Event) -> None:
        moved = self.queue.tell(event, self._clock.monotonic())
        if moved:
            self.on_requeued(event.label, moved)
            self._wake()

    def _gate(self, unit: Unit, group: str) -> Status | None:
        """Why a unit must not be tried yet (PreEnqueue), in kube-scheduler's order."""
        for pod in unit.pods:
            if pod.spec.scheduling_gates:
                names = " ".join(gate.name for gate in pod.spec.scheduling_gates)
                return _gated("SchedulingGates", f"waiting for scheduling gates: [{names}]")
        if group:
            quorum = self._quorum(unit, group)
            if quorum is not None:
                return quorum
        return self._missing_claims(unit.pods, group)

    def _missing_claims(self, pods: Sequence[Pod], group: str) -> Status | None:
        # A group is asked again for each of its pods that changes: begin with the pod that was in the way the last time.
        first = self._in_the_way.pop(group, 0) if group else 0
        for number in range(first, first + len(pods)):
            pod = pods[number % len(pods)]
            if pod.spec.resource_claims:
                status = self.claims.gate(pod)
                if status is not None:
                    if group:
                        self._in_the_way[group] = number % len(pods)
                    return status
        return None

    def _quorum(self, unit: Unit, group: str) -> Status | None:
        if unit.group is None:
            name = group.partition("/")[2]
            text = f'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
            return _gated("GangScheduling", text)
        gang = unit.group.spec.scheduling_policy.gang
        if gang is not None and len(unit.pods) + self.cluster.scheduled_count(unit.group) < gang.min_count:
            text = "waiting for minCount pods from a gang to appear in scheduling queue"
            return _gated("GangScheduling", text)
        return None

    def _helps(self, plugin: str, event: Event, pod: Pod) -> bool:
        return helps(plugin, event, pod, self)

    def claims_are_usable(self, pod: Pod) -> bool:
        """Whether every claim of the pod exists and may be used by it."""
        return self.claims.gate(pod) is None

    def requests(self, pod: Pod) -> dict[str, Quantity]:
        """What the pod asks of a node."""
        profile = self.cluster.profile(pod)
        amounts = {"cpu": profile.cpu * _MILLI_NANO, "memory": profile.memory * _NANO}
        amounts["ephemeral-storage"] = profile.storage * _NANO
        amounts |= {name: amount * _NANO for name, amount in profile.scalars.items()}
        return {name: Quantity.from_nano(nano) for name, nano in amounts.items() if nano}

    def sizes(self) -> dict[str, int]:
        """How much there is, for metrics."""
        return {"nodes": len(self.cluster.nodes), "pods": len(self.cluster.pods)}


def _gated(plugin: str, text: str) -> Status:
    return Status(verdict=Verdict.UNRESOLVABLE, plugin=plugin, reasons=(text,))


def _began_to_end(old: Pod, new: Pod) -> bool:
    return old.metadata.deletion_timestamp is None and new.metadata.deletion_timestamp is not None


def _got_claims(old: PodGroup, new: PodGroup) -> bool:
    return old.status.resource_claim_statuses != new.status.resource_claim_statuses


def _is_heartbeat(old: Node, new: Node) -> bool:
    """Whether a node has changed in nothing that a hint looks at."""
    return (
        old.spec == new.spec
        and old.metadata.labels == new.metadata.labels
        and old.status.allocatable == new.status.allocatable
        and old.status.declared_features == new.status.declared_features
    )
