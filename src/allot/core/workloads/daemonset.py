"""DaemonSets: one pod on each matching node, replaced node by node when their template changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from allot.core.lifecycle.actions import (
    NORMAL,
    WARNING,
    Action,
    Answers,
    Delete,
    Emit,
    Patch,
    RequeueAfter,
    Together,
)
from allot.core.lifecycle.disruption import FAILED, PODS, SUCCEEDED, is_terminal
from allot.core.model.apps_v1 import CONTROLLER_REVISION_HASH, ControllerRevision, DaemonSet, DaemonSetStatus
from allot.core.model.core_v1 import Node, Pod
from allot.core.model.meta import LabelSelector
from allot.core.workloads.counts import scaled
from allot.core.workloads.daemonset_nodes import (
    TEMPLATE_GENERATION_LABEL,
    bound_to,
    daemon_template,
    placement_of,
    target_node,
)
from allot.core.workloads.ownership import claim, reference_to, selector_of, take_over
from allot.core.workloads.pod_states import is_available, is_ready, next_available_s
from allot.core.workloads.pod_templates import (
    create_pod,
    delete_pod,
    generated_name,
    pod_from_template,
    template_key,
)
from allot.core.workloads.resources import CONTROLLER_REVISIONS, DAEMON_SETS
from allot.core.workloads.revisions import Owner, Plan, Revision, key_of, plan
from allot.core.workloads.whole import Whole

# How many pods are created, and how many deleted, per pass.
BURST = 250
ROLLING_UPDATE = "RollingUpdate"
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_BACKOFF_FIRST_S = 1.0
_BACKOFF_MAX_S = 900.0


class FailedPodBackoff:
    """How long a failed pod of a set stays on a node before it is replaced: longer after each failure."""

    def __init__(self) -> None:
        # Set, its generation and node -> when it was last replaced, and how long to wait.
        self._entries: dict[tuple[str, int, str], tuple[float, float]] = {}

    def wait_s(self, key: tuple[str, int, str], now_s: float) -> float:
        """How long to wait from now."""
        since, pause = self._entries.get(key, (now_s, 0.0))
        return max(0.0, since + pause - now_s)

    def note(self, key: tuple[str, int, str], now_s: float) -> None:
        """Record that a pod is being replaced."""
        since, pause = self._entries.get(key, (now_s, 0.0))
        is_forgotten = now_s - since > 2 * _BACKOFF_MAX_S
        next_s = _BACKOFF_FIRST_S if pause == 0 or is_forgotten else min(2 * pause, _BACKOFF_MAX_S)
        self._entries[key] = (now_s, next_s)

    def tidy(self, now_s: float) -> None:
        """Forget old entries."""
        self._entries = {key: entry for key, entry in self._entries.items() if now_s - entry[0] <= 2 * _BACKOFF_MAX_S}


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the decisions about a DaemonSet depend on, besides itself."""

    # Those that it controls, and the orphans in its namespace.
    pods: Sequence[Pod]
    revisions: Sequence[Whole[ControllerRevision]]
    # Any revision in its namespace, by name.
    revision: Callable[[str], Whole[ControllerRevision] | None]
    nodes: Sequence[Node]
    backoff: FailedPodBackoff
    # Whether pods include all earlier writes; if not, only the status is updated.
    is_settled: bool = True


def reconcile(set_: Whole[DaemonSet], view: View, answers: Answers, now_s: float) -> Sequence[Action]:
    """What to do for a DaemonSet."""
    value = set_.value
    if value.spec.selector == LabelSelector():
        note = "This daemon set is selecting all pods. A non-empty selector is required."
        return (_emit(set_, WARNING, "SelectingAll", note),)
    selector = selector_of(value.spec.selector)
    if selector is None or value.spec.template is None or value.metadata.deletion_timestamp is not None:
        return ()
    kept = claim(value.metadata, lambda one: selector.matches(one.metadata.labels), view.revisions)
    keeping, is_all = take_over(DAEMON_SETS, value.metadata, CONTROLLER_REVISIONS, kept, answers)
    if is_all:
        return keeping
    claimed = claim(value.metadata, lambda pod: selector.matches(pod.metadata.labels), view.pods)
    taking, is_all = take_over(DAEMON_SETS, value.metadata, PODS, claimed, answers)
    if is_all:
        return taking
    owner = Owner(
        resource=DAEMON_SETS,
        metadata=value.metadata,
        template=value.spec.template,
        collision_count=value.status.collision_count or 0,
        hash_label=CONTROLLER_REVISION_HASH,
    )
    planned = plan(owner, kept.members, view.revision)
    look = _Look(set_, claimed.members, planned, view, now_s)
    return (*keeping, *taking, *planned.writes, *look.decide())


def _emit(set_: Whole[DaemonSet], type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=set_.reference, type=type_, reason=reason, action=reason, note=note)


def max_surge(set_: DaemonSet, desired: int) -> int:
    """On how many nodes a new pod may run beside the old one; rounded up."""
    strategy = set_.spec.update_strategy
    if strategy.type != ROLLING_UPDATE or strategy.rolling_update is None:
        return 0
    return scaled(strategy.rolling_update.max_surge, desired, round_up=True)


def max_unavailable(set_: DaemonSet, desired: int) -> int:
    """On how many nodes pods may be unavailable; rounded up. One, if the update could otherwise never proceed."""
    strategy = set_.spec.update_strategy
    if strategy.type != ROLLING_UPDATE:
        return 0
    rolling = strategy.rolling_update
    count = 0 if rolling is None else scaled(rolling.max_unavailable, desired, round_up=True)
    return count or (1 if desired > 0 and max_surge(set_, desired) == 0 else 0)


def _age(pod: Pod) -> tuple[bool, str, str]:
    """Pods on a node come before those not yet bound, and old ones before new ones."""
    return not pod.spec.node_name, pod.metadata.creation_timestamp or "", pod.metadata.name


class _Look:
    """One pass over a DaemonSet."""

    def __init__(self, set_: Whole[DaemonSet], pods: Sequence[Pod], planned: Plan, view: View, now_s: float) -> None:
        self._set = set_
        self._spec = set_.value.spec
        self._plan = planned
        self._view = view
        self._now_s = now_s
        assert self._spec.template is not None
        self._placement = placement_of(self._spec.template)
        self._generation = set_.metadata.annotations.get(TEMPLATE_GENERATION, "")
        self._pods = pods
        self._on_node: dict[str, list[Pod]] = {}
        for pod in pods:
            node = target_node(pod)
            if node and not (is_terminal(pod) and pod.metadata.deletion_timestamp is not None):
                self._on_node.setdefault(node, []).append(pod)
        self._judged = {node.metadata.name: self._placement.judge(node) for node in view.nodes}
        self._told: list[Emit] = []
        self._waits: list[float] = []

    def decide(self) -> Sequence[Action]:
        """What to do once the revision exists."""
        actions: list[Action] = []
        changes: list[Action] = []
        if self._view.is_settled:
            needing, going = self._manage()
            if not needing and not going and self._spec.update_strategy.type == ROLLING_UPDATE:
                needing, going = self._roll()
            changes = self._changes(needing, going)
            actions += self._clean_up()
        status = self._status()
        if status != self._set.value.status:
            actions.insert(0, self._set.update_status(status))
        if status.number_ready != status.number_available:
            seconds = self._spec.min_ready_seconds
            self._waits.append(next_available_s(self._pods, seconds, self._now_s) or float(seconds))
        if self._waits:
            changes.append(RequeueAfter(seconds=min(self._waits)))
        return (*actions, *changes, *self._told)

    # --- one pod on each node ---

    def _manage(self) -> tuple[list[str], list[Pod]]:
        """Nodes that lack a pod, and pods that are on the wrong nodes."""
        needing: list[str] = []
        going: list[Pod] = []
        allows_surge = max_surge(self._set.value, 1) > 0
        for node, (should_run, may_stay) in self._judged.items():
            pods = self._on_node.get(node)
            if should_run and pods is None:
                needing.append(node)
            elif may_stay:
                running = self._running(node, pods or [], going)
                if allows_surge and not running and should_run:
                    needing.append(node)
                elif len(running) > 1:
                    going += self._excess(running, allows_surge)
            else:
                going += [pod for pod in pods or () if pod.metadata.deletion_timestamp is None]
        for node, pods in self._on_node.items():
            if node not in self._judged:
                going += [pod for pod in pods if not pod.spec.node_name]
        return needing, going

    def _running(self, node: str, pods: list[Pod], going: list[Pod]) -> list[Pod]:
        """The pods on a node that have not ended. Ended pods are replaced, failed ones with backoff."""
        running: list[Pod] = []
        for pod in pods:
            if pod.metadata.deletion_timestamp is not None:
                continue
            where = f"daemon pod {pod.metadata.namespace}/{pod.metadata.name} on node {node}"
            if pod.status.phase == FAILED:
                key = (self._set.metadata.uid, self._set.value.status.observed_generation, node)
                wait = self._view.backoff.wait_s(key, self._now_s)
                if wait > 0:
                    self._waits.append(wait)
                    continue
                self._view.backoff.note(key, self._now_s)
                note = f"Found failed {where}, will try to kill it"
                self._told.append(_emit(self._set, WARNING, "FailedDaemonPod", note))
                going.append(pod)
            elif pod.status.phase == SUCCEEDED:
                note = f"Found succeeded {where}, will try to delete it"
                self._told.append(_emit(self._set, NORMAL, "SucceededDaemonPod", note))
                going.append(pod)
            else:
                running.append(pod)
        return running

    def _excess(self, running: list[Pod], allows_surge: bool) -> list[Pod]:
        running = sorted(running, key=_age)
        if not allows_surge:
            return running[1:]
        new = [pod for pod in running if _hash_of(pod) == self._hash]
        old = [pod for pod in running if _hash_of(pod) != self._hash]
        going = new[1:] + old[1:]
        if new and old and (not is_ready(old[0]) or self._is_available(new[0])):
            going.append(old[0])
        return going

    # --- updating ---

    def _roll(self) -> tuple[list[str], list[Pod]]:
        desired = sum(1 for should_run, _ in self._judged.values() if should_run)
        on_node = {node: self._on_node.get(node, []) for node, (should_run, _) in self._judged.items() if should_run}
        on_node = {**{node: pods for node, pods in self._on_node.items() if node not in on_node}, **on_node}
        surge = max_surge(self._set.value, desired)
        if surge:
            return self._roll_with_surge(on_node, desired, surge)
        return [], self._roll_in_place(on_node, max_unavailable(self._set.value, desired))

    def _roll_in_place(self, on_node: Mapping[str, list[Pod]], budget: int) -> list[Pod]:
        """Old pods to delete: those that do not work, and others within the budget."""
        broken: list[Pod] = []
        working: list[Pod] = []
        unavailable = 0
        for pods in on_node.values():
            new, old = self._by_template(pods)
            if len(new) == 0 and len(old) == 1:
                if self._is_available(old[0]):
                    working.append(old[0])
                else:
                    unavailable += 1
                    broken.append(old[0])
            elif not (len(new) == 1 and not old and self._is_available(new[0])):
                unavailable += 1
        return broken + working[: max(0, budget - unavailable)]

    def _roll_with_surge(
        self, on_node: Mapping[str, list[Pod]], desired: int, surge: int
    ) -> tuple[list[str], list[Pod]]:
        """Nodes that get a new pod beside the old one, and old pods that are no longer needed."""
        going: list[Pod] = []
        unwanted: list[Pod] = []
        allowed: list[str] = []
        candidates: list[str] = []
        surging = available = 0
        for node, pods in on_node.items():
            new, old = self._by_template(pods)
            if len(new) > 1 or len(old) > 1:
                surging += 1
                continue
            available += any(self._is_available(pod) for pod in (old or new))
            if not old:
                continue
            should_run = self._judged.get(node, (False, False))[0]
            if new:
                if self._is_available(new[0]):
                    going.append(old[0])
                else:
                    surging += 1
            elif not self._is_available(old[0]):
                if should_run:
                    allowed.append(node)
                else:
                    going.append(old[0])
            elif should_run:
                candidates.append(node)
            else:
                unwanted.append(old[0])
        going += unwanted[: max(0, available - desired)]
        return allowed + candidates[: max(0, surge - surging)], going

    def _by_template(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
        staying = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
        return [pod for pod in staying if self._is_updated(pod)], [pod for pod in staying if not self._is_updated(pod)]

    # --- looking ---

    @property
    def _hash(self) -> str:
        return self._plan.update.hash

    def _is_updated(self, pod: Pod) -> bool:
        if self._generation and pod.metadata.labels.get(TEMPLATE_GENERATION_LABEL) == self._generation:
            return True
        return bool(self._hash) and _hash_of(pod) == self._hash

    def _is_available(self, pod: Pod) -> bool:
        return is_available(pod, self._spec.min_ready_seconds, self._now_s)

    def _status(self) -> DaemonSetStatus:
        desired = current = misscheduled = ready = available = updated = 0
        for node, (should_run, _) in self._judged.items():
            pods = self._on_node.get(node)
            if not should_run:
                misscheduled += bool(pods)
                continue
            desired += 1
            if not pods:
                continue
            current += 1
            oldest = min(pods, key=_age)
            if is_ready(oldest):
                ready += 1
                available += self._is_available(oldest)
            updated += self._is_updated(oldest)
        before = self._set.value.status
        collisions = self._plan.collision_count
        return msgspec.structs.replace(
            before,
            current_number_scheduled=current,
            number_misscheduled=misscheduled,
            desired_number_scheduled=desired,
            number_ready=ready,
            updated_number_scheduled=updated,
            number_available=available,
            number_unavailable=desired - available,
            observed_generation=self._set.metadata.generation if self._view.is_settled else before.observed_generation,
            collision_count=before.collision_count if collisions == (before.collision_count or 0) else collisions,
        )

    # --- writing ---

    def _changes(self, needing: Sequence[str], going: Sequence[Pod]) -> list[Action]:
        changes: list[Action] = []
        told = self._set.reference
        if needing:
            assert self._spec.template is not None
            template = daemon_template(self._spec.template, self._hash, self._generation)
            reference = reference_to(DAEMON_SETS, self._set.metadata)
            pod = pod_from_template(template, reference, self._set.metadata.namespace)
            pod["metadata"]["generateName"] = generated_name(self._set.metadata.name)
            writes = tuple(create_pod(bound_to(pod, node), told) for node in needing[:BURST])
            changes.append(Together(writes=writes, slow_start=True))
        if going:
            changes.append(Together(writes=tuple(delete_pod(pod, told) for pod in going[:BURST])))
        return changes

    def _clean_up(self) -> list[Action]:
        """Keep one revision with the current template, and of the others those in use and as many as the limit allows."""
        assert self._spec.template is not None
        key = template_key(self._spec.template)
        actions: list[Action] = []
        old: list[Revision] = []
        for revision in self._plan.history:
            if key_of(revision) != key:
                old.append(revision)
            elif revision.name != self._plan.update.name:
                actions += [_relabel(pod, self._hash) for pod in self._pods if _hash_of(pod) == revision.hash]
                actions.append(_deletion(revision))
        limit = 10 if self._spec.revision_history_limit is None else self._spec.revision_history_limit
        live = {_hash_of(pod) for pod in self._pods}
        excess = max(0, len(old) - limit)
        return actions + [_deletion(each) for each in [one for one in old if one.hash not in live][:excess]]


def _hash_of(pod: Pod) -> str:
    return pod.metadata.labels.get(CONTROLLER_REVISION_HASH, "")


def _relabel(pod: Pod, hash_: str) -> Patch:
    return Patch(
        resource=PODS,
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        patch={"metadata": {"uid": pod.metadata.uid, "labels": {CONTROLLER_REVISION_HASH: hash_}}},
    )


def _deletion(revision: Revision) -> Delete:
    assert revision.whole is not None
    metadata = revision.whole.metadata
    return Delete(resource=CONTROLLER_REVISIONS, name=metadata.name, namespace=metadata.namespace, uid=metadata.uid)
