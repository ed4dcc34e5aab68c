"""StatefulSets: pods with an ordinal, a stable name and their own volumes, created, updated and deleted in order.

With policy OrderedReady each pod waits for the one before it; with Parallel none does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from allot.core.lifecycle.actions import Action, Answers, Create, RequeueAfter, Together
from allot.core.lifecycle.disruption import PODS, is_terminal
from allot.core.model.apps_v1 import (
    CONTROLLER_REVISION_HASH,
    REVISION_HASH,
    ControllerRevision,
    StatefulSet,
    StatefulSetStatus,
)
from allot.core.model.core_v1 import Pod
from allot.core.workloads.counts import scaled
from allot.core.workloads.ownership import claim, selector_of, take_over
from allot.core.workloads.pod_states import is_available, is_ready, next_available_s
from allot.core.workloads.resources import CONTROLLER_REVISIONS, STATEFUL_SETS
from allot.core.workloads.revisions import Owner, Plan, Revision, plan, truncated
from allot.core.workloads.statefulset_pods import PodWriter, Range, ordinal_of, parent_and_ordinal
from allot.core.workloads.whole import Object, Whole

PARALLEL = "Parallel"
ROLLING_UPDATE = "RollingUpdate"
_UNSETTLED_S = 30.0
_STALE_CLAIM_S = 1.0


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the decisions about a StatefulSet depend on, besides itself."""

    # Those that it controls, and the orphans in its namespace.
    pods: Sequence[Pod]
    revisions: Sequence[Whole[ControllerRevision]]
    # Any revision in its namespace, by name.
    revision: Callable[[str], Whole[ControllerRevision] | None]
    # A volume claim in its namespace, by name.
    claim: Callable[[str], Object | None]
    # Whether pods include all earlier writes.
    is_settled: bool = True


def reconcile(set_: Whole[StatefulSet], view: View, answers: Answers, now_s: float) -> Sequence[Action]:
    """What to do for a StatefulSet."""
    value = set_.value
    selector = selector_of(value.spec.selector)
    if selector is None or value.spec.template is None:
        return ()
    if not view.is_settled:
        return (RequeueAfter(seconds=_UNSETTLED_S),)
    name = value.metadata.name

    def is_member(pod: Pod) -> bool:
        return selector.matches(pod.metadata.labels) and parent_and_ordinal(pod.metadata.name)[0] == name

    claimed = claim(value.metadata, is_member, view.pods)
    taking, is_all = take_over(STATEFUL_SETS, value.metadata, PODS, claimed, answers)
    if is_all:
        return taking
    kept = claim(value.metadata, lambda one: selector.matches(one.metadata.labels), view.revisions)
    kept = msgspec.structs.replace(kept, released=())
    keeping, is_all = take_over(STATEFUL_SETS, value.metadata, CONTROLLER_REVISIONS, kept, answers)
    if is_all:
        return keeping
    owner = Owner(
        resource=STATEFUL_SETS,
        metadata=value.metadata,
        template=value.spec.template,
        collision_count=value.status.collision_count or 0,
        hash_label=REVISION_HASH,
    )
    planned = plan(owner, kept.members, view.revision)
    look = _Look(set_, claimed.members, planned, PodWriter(set_, view.claim), now_s)
    return (*taking, *keeping, *planned.writes, *look.decide())


def max_unavailable(set_: StatefulSet) -> int:
    """How many pods may be unavailable during an update: percentages are rounded down, and one is always allowed."""
    rolling = set_.spec.update_strategy.rolling_update
    given = rolling.max_unavailable if rolling is not None else None
    return max(1, scaled(given, Range.of(set_).replicas, round_up=False, default=1))


class _Look:
    """One pass over a StatefulSet."""

    def __init__(
        self, set_: Whole[StatefulSet], pods: Sequence[Pod], planned: Plan, writer: PodWriter, now_s: float
    ) -> None:
        self._set = set_
        self._spec = set_.value.spec
        self._pods = pods
        self._plan = planned
        self._writer = writer
        self._now_s = now_s
        self._range = Range.of(set_.value)
        self._is_ordered = self._spec.pod_management_policy != PARALLEL
        self._update = planned.update
        self._current = planned.named(set_.value.status.current_revision) or planned.update
        numbered = {ordinal_of(pod): pod for pod in pods}
        self._replicas = [
            numbered.get(ordinal) for ordinal in range(self._range.start, self._range.start + self._range.replicas)
        ]
        outside = [pod for pod in pods if ordinal_of(pod) >= 0 and ordinal_of(pod) not in self._range]
        self._condemned = sorted(outside, key=ordinal_of, reverse=True)

    def decide(self) -> Sequence[Action]:
        """What to do once the revision exists."""
        changes: list[Action] = []
        replaced = 0
        if self._set.metadata.deletion_timestamp is None and self._keep_replicas(changes):
            self._condemn(changes)
            is_waiting = self._is_ordered and bool(self._condemned)
            if not is_waiting and self._spec.update_strategy.type == ROLLING_UPDATE:
                going = self._to_replace()
                replaced = sum(1 for pod in going if _revision_of(pod) == self._current.name)
                changes += [self._writer.delete(pod) for pod in going]
        status = self._status(replaced)
        actions: list[Action] = []
        if _differs(status, self._set.value.status):
            actions.append(self._set.update_status(status))
        live = dict.fromkeys((self._current.name, self._update.name, *map(_revision_of, self._pods)))
        actions += truncated(self._plan.history, live, self._spec.revision_history_limit)
        actions += changes
        if status.ready_replicas != status.available_replicas:
            seconds = self._spec.min_ready_seconds
            wait = next_available_s(self._pods, seconds, self._now_s)
            actions.append(RequeueAfter(seconds=float(seconds) if wait is None else wait))
        return actions

    # --- desired pods ---

    def _keep_replicas(self, changes: list[Action]) -> bool:
        """Create missing pods and repair wrong ones; returns whether pods outside the range may be checked."""
        claims: list[Create] = []
        creations: list[Create] = []
        for index, pod in enumerate(self._replicas):
            ordinal = self._range.start + index
            if pod is None:
                made, problems = self._create(ordinal)
                if self._is_ordered:
                    changes += [*made, *problems]
                    return False
                claims += made[:-1]
                creations += made[-1:]
                changes += problems
            elif self._tend(pod, ordinal, changes) and self._is_ordered:
                return False
        if creations:
            if claims:
                changes.append(Together(writes=tuple(claims), slow_start=True))
            changes.append(Together(writes=tuple(creations), slow_start=True))
        return True

    def _create(self, ordinal: int) -> tuple[list[Create], list[Action]]:
        """A pod with its claims, or why it cannot be created yet."""
        if self._writer.has_stale_claim(ordinal):
            # It is deleted with the previous pod, and no event reports when it is gone.
            return [], [RequeueAfter(seconds=_STALE_CLAIM_S)]
        claims, problems = self._writer.missing_claims(ordinal)
        return (
            ([], problems) if problems else ([*claims, self._writer.create(ordinal, self._revision_for(ordinal))], [])
        )

    def _revision_for(self, ordinal: int) -> Revision:
        """Below the partition, pods are created from the current revision."""
        rolling = self._spec.update_strategy.rolling_update
        if rolling is not None:
            kept = rolling.partition or 0
        elif self._spec.update_strategy.type == ROLLING_UPDATE:
            kept = self._set.value.status.current_replicas
        else:
            kept = 0
        return self._current if ordinal < self._range.start + kept else self._update

    def _tend(self, pod: Pod, ordinal: int, changes: list[Action]) -> bool:
        """Do what one pod needs; returns whether the next has to wait for it."""
        if is_terminal(pod):
            if pod.metadata.deletion_timestamp is None:
                changes.append(self._writer.delete(pod))
            return True
        if pod.status.phase == "Pending":
            claims, problems = self._writer.missing_claims(ordinal)
            changes += [*claims, *self._writer.claim_owner_writes(ordinal, pod), *problems]
            if problems:
                return True
        if self._is_ordered and (
            pod.metadata.deletion_timestamp is not None or not _is_serving(pod) or not self._is_available(pod)
        ):
            return True
        changes += self._writer.repairs(pod)
        return False

    # --- excess pods ---

    def _condemn(self, changes: list[Action]) -> None:
        """Delete pods outside the range; with OrderedReady the last first, and none while another is unhealthy."""
        for pod in self._condemned:
            changes += self._writer.claim_owner_writes(ordinal_of(pod), pod)
        first = self._first_unhealthy()
        for pod in self._condemned:
            is_going = pod.metadata.deletion_timestamp is not None
            if not self._is_ordered:
                if not is_going:
                    changes.append(self._writer.delete(pod))
                continue
            if not is_going and (pod is first or (_is_serving(pod) and self._is_available(pod))):
                changes.append(self._writer.delete(pod))
            return

    def _first_unhealthy(self) -> Pod | None:
        for pod in (*self._replicas, *reversed(self._condemned)):
            if pod is None:
                return None
            if self._is_unavailable(pod):
                return pod
        return None

    # --- updating ---

    def _to_replace(self) -> list[Pod]:
        """The pods of another template that may be deleted now, from the last down to the partition."""
        rolling = self._spec.update_strategy.rolling_update
        partition = (rolling.partition or 0) if rolling is not None else 0
        updatable = [pod for pod in reversed(self._replicas[partition:]) if pod is not None and self._is_outdated(pod)]
        unavailable = sum(1 for pod in self._replicas if pod is None or self._is_unavailable(pod))
        budget = max(0, max_unavailable(self._set.value) - unavailable)
        if self._is_ordered:
            return updatable[:budget]
        # Broken pods are replaced outside the budget.
        broken = [pod for pod in updatable if not self._is_available(pod)]
        working = [pod for pod in updatable if self._is_available(pod)]
        return broken + working[:budget]

    def _is_outdated(self, pod: Pod) -> bool:
        return _revision_of(pod) != self._update.name and pod.metadata.deletion_timestamp is None

    # --- looking ---

    def _is_available(self, pod: Pod) -> bool:
        return is_available(pod, self._spec.min_ready_seconds, self._now_s)

    def _is_unavailable(self, pod: Pod) -> bool:
        return pod.metadata.deletion_timestamp is not None or not self._is_available(pod)

    def _status(self, replaced: int) -> StatefulSetStatus:
        created = [pod for pod in self._pods if pod.status.phase]
        staying = [_revision_of(pod) for pod in created if pod.metadata.deletion_timestamp is None]
        serving = [pod for pod in created if _is_serving(pod)]
        status = msgspec.structs.replace(
            self._set.value.status,
            observed_generation=self._set.metadata.generation,
            replicas=len(created),
            ready_replicas=len(serving),
            available_replicas=sum(1 for pod in serving if self._is_available(pod)),
            current_replicas=staying.count(self._current.name) - replaced,
            updated_replicas=staying.count(self._update.name),
            current_revision=self._current.name,
            update_revision=self._update.name,
            collision_count=self._plan.collision_count,
        )
        wanted = self._range.replicas
        if status.updated_replicas == status.ready_replicas == status.replicas == wanted:
            return msgspec.structs.replace(
                status, current_replicas=status.updated_replicas, current_revision=status.update_revision
            )
        return status


def _differs(status: StatefulSetStatus, old: StatefulSetStatus) -> bool:
    """Whether the status has changed; a missing collision count equals 0."""
    return msgspec.structs.replace(status, collision_count=None) != msgspec.structs.replace(
        old, collision_count=None
    ) or (status.collision_count or 0) != (old.collision_count or 0)


def _revision_of(pod: Pod) -> str:
    return pod.metadata.labels.get(CONTROLLER_REVISION_HASH, "")


def _is_serving(pod: Pod) -> bool:
    return pod.status.phase == "Running" and is_ready(pod)
