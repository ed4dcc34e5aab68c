"""PodDisruptionBudgets: how many of their pods may be evicted now. Evictions check the status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from allot.core.lifecycle.actions import (
    NORMAL,
    WARNING,
    Action,
    Answers,
    Emit,
    LookUp,
    Patch,
    RequeueAfter,
    Resource,
    Retry,
)
from allot.core.lifecycle.disruption import DISRUPTION_TARGET, is_terminal, patch_status
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import Condition, LabelSelector, OwnerReference
from allot.core.model.policy_v1 import PodDisruptionBudget, PodDisruptionBudgetStatus
from allot.core.workloads.counts import is_percent, scaled
from allot.core.workloads.ownership import controller_reference
from allot.core.workloads.pod_states import condition_of, is_ready
from allot.core.workloads.whole import Object, Whole

# A pod that is not being deleted this long after its eviction was allowed is expected to stay.
DELETION_TIMEOUT_S = 120.0
DISRUPTION_ALLOWED = "DisruptionAllowed"
_BY_KUBELET = "TerminationByKubelet"
_KINDS: Mapping[str, tuple[str, ...]] = {
    "ReplicationController": ("",),
    "ReplicaSet": ("apps", "extensions"),
    "StatefulSet": ("apps",),
    "Deployment": ("apps", "extensions"),
}


class Scalable(msgspec.Struct, frozen=True):
    """A kind that can control pods. has_scale: whether it specifies how many."""

    resource: Resource
    has_scale: bool


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What the decisions about a budget depend on, besides itself."""

    # Those that it selects.
    pods: Sequence[Pod]
    # A ReplicaSet, Deployment, StatefulSet or ReplicationController in its namespace, by kind and name.
    controller: Callable[[str, str], Object | None]
    # Any other kind, by apiVersion and kind; None if the server does not have it.
    scalable: Callable[[str, str], Scalable | None]


class _Unknown(Exception):
    """The expected number of pods cannot be determined."""


def reconcile(budget: Whole[PodDisruptionBudget], view: View, answers: Answers, now_s: float) -> Sequence[Action]:
    """What to do for a budget."""
    told: list[Action] = []
    if not view.pods:
        told.append(_emit(budget, NORMAL, "NoPods", "No matching pods found"))
    count = _Count(budget.value, view, answers)
    try:
        expected, desired = count.expected()
    except _Unknown as error:
        note = f"Failed to calculate the number of expected pods: {error}"
        told.append(_emit(budget, WARNING, "CalculateExpectedPodCountFailed", note))
        return (*_failed(budget, str(error), now_s), *told, Retry(message=str(error)))
    if count.questions:
        return count.questions
    if count.unmanaged:
        told.append(_emit(budget, WARNING, "UnmanagedPods", _unmanaged_note(budget.value.spec.selector)))
    disrupted, wait = _disrupted(budget, view.pods, now_s, told)
    healthy = sum(1 for pod in view.pods if _is_healthy(pod, disrupted))
    allowed = max(0, healthy - desired) if expected > 0 else 0
    before, generation = budget.value.status, budget.metadata.generation
    reason = ("True", "SufficientPods") if allowed > 0 else ("False", "InsufficientPods")
    status = msgspec.structs.replace(
        before,
        observed_generation=generation,
        disrupted_pods=disrupted,
        disruptions_allowed=allowed,
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=expected,
        conditions=_conditions(before, *reason, "", generation, now_s),
    )
    actions: list[Action] = [] if status == before else [budget.update_status(status)]
    if wait is not None:
        actions.append(RequeueAfter(seconds=wait))
    return (*actions, *told)


def _emit(budget: Whole[PodDisruptionBudget], type_: str, reason: str, note: str) -> Emit:
    return Emit(regarding=budget.reference, type=type_, reason=reason, action=reason, note=note)


def _failed(budget: Whole[PodDisruptionBudget], message: str, now_s: float) -> Sequence[Action]:
    """Pods that cannot be counted must not be disrupted."""
    before = budget.value.status
    conditions = _conditions(before, "False", "SyncFailed", message, before.observed_generation, now_s)
    status = msgspec.structs.replace(before, disruptions_allowed=0, conditions=conditions)
    return () if status == before else (budget.update_status(status),)


def _conditions(
    status: PodDisruptionBudgetStatus, value: str, reason: str, message: str, generation: int, now_s: float
) -> tuple[Condition, ...]:
    old = next((one for one in status.conditions if one.type == DISRUPTION_ALLOWED), None)
    new = Condition(
        type=DISRUPTION_ALLOWED,
        status=value,
        observed_generation=generation,
        last_transition_time=old.last_transition_time if old is not None and old.status == value else time_of(now_s),
        reason=reason,
        message=message,
    )
    if old is None:
        return (*status.conditions, new)
    return tuple(new if one is old else one for one in status.conditions)


# --- how many there should be ---


class _Count:
    """Counts the expected pods by the controllers of the existing ones."""

    def __init__(self, budget: PodDisruptionBudget, view: View, answers: Answers) -> None:
        self._budget = budget
        self._spec = budget.spec
        self._view = view
        self._answers = answers
        self.questions: tuple[LookUp, ...] = ()
        self.unmanaged = 0

    def expected(self) -> tuple[int, int]:
        """How many pods are expected, and how many of them must be healthy. Not meaningful while lookups are pending."""
        if self._spec.max_unavailable is not None:
            expected = self._scale()
            return expected, max(0, expected - scaled(self._spec.max_unavailable, expected, round_up=True))
        if is_percent(self._spec.min_available):
            expected = self._scale()
            return expected, scaled(self._spec.min_available, expected, round_up=True)
        if self._spec.min_available is not None:
            return len(self._view.pods), scaled(self._spec.min_available, 0, round_up=True)
        return 0, 0

    def _scale(self) -> int:
        """The sum of what all controllers of the pods want."""
        scales: dict[str, int] = {}
        seen: set[str] = set()
        questions: dict[LookUp, None] = {}
        for pod in self._view.pods:
            owner = controller_reference(pod.metadata)
            if owner is None:
                self.unmanaged += 1
                continue
            if owner.uid in seen:
                continue
            seen.add(owner.uid)
            found = self._known(owner) or self._asked(owner, questions)
            if found is not None:
                scales[found[0]] = found[1]
            elif not questions:
                raise _Unknown(f'found no controllers for pod "{pod.metadata.name}"')
        self.questions = tuple(questions)
        return sum(scales.values())

    def _known(self, owner: OwnerReference) -> tuple[str, int] | None:
        """The uid of a controller, or of the Deployment above it, and how many pods it wants."""
        group = owner.api_version.rpartition("/")[0]
        if group not in _KINDS.get(owner.kind, ()) or owner.kind == "Deployment":
            return None
        found = self._view.controller(owner.kind, owner.name)
        if found is None or found["metadata"].get("uid") != owner.uid:
            return None
        if owner.kind == "ReplicaSet":
            above = next((one for one in found["metadata"].get("ownerReferences") or () if one.get("controller")), None)
            if above is not None and above.get("kind") == "Deployment":
                found = self._view.controller("Deployment", str(above.get("name")))
                if found is None or found["metadata"].get("uid") != above.get("uid"):
                    return None
        replicas = (found.get("spec") or {}).get("replicas")
        return found["metadata"]["uid"], 1 if replicas is None else int(replicas)

    def _asked(self, owner: OwnerReference, questions: dict[LookUp, None]) -> tuple[str, int] | None:
        """The same for any kind with a scale."""
        kind = self._view.scalable(owner.api_version, owner.kind)
        if kind is None:
            raise _Unknown(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
        if not kind.has_scale:
            name = f"{kind.resource.plural}.{kind.resource.group}" if kind.resource.group else kind.resource.plural
            raise _Unknown(f"{name} does not implement the scale subresource")
        namespace = self._budget.metadata.namespace
        question = LookUp(resource=kind.resource, name=owner.name, namespace=namespace, subresource="scale")
        if question not in self._answers:
            questions[question] = None
            return None
        scale: Any = self._answers[question]
        if scale is None or scale["metadata"].get("uid") != owner.uid:
            return None
        return owner.uid, int((scale.get("spec") or {}).get("replicas", 0))


def _unmanaged_note(selector: LabelSelector | None) -> str:
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {_written(selector)}) were found to be unmanaged. As a result, "
        "the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these "
        'pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )


def _written(selector: LabelSelector | None) -> str:
    """A selector in Go's format."""
    if selector is None:
        return "nil"
    labels = "".join(f"{key}: {selector.match_labels[key]}," for key in sorted(selector.match_labels))
    requirements = "".join(
        f"LabelSelectorRequirement{{Key:{one.key},Operator:{one.operator},Values:[{' '.join(one.values)}],}},"
        for one in selector.match_expressions
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{requirements}}},}}"
    )


# --- how many there are ---


def _disrupted(
    budget: Whole[PodDisruptionBudget], pods: Iterable[Pod], now_s: float, told: list[Action]
) -> tuple[dict[str, str], float | None]:
    """The pods whose eviction was allowed but that are not being deleted yet, and when to check them again."""
    kept: dict[str, str] = {}
    waits: list[float] = []
    since = budget.value.status.disrupted_pods
    for pod in pods:
        name = pod.metadata.name
        if pod.metadata.deletion_timestamp is not None or name not in since:
            continue
        # Kubernetes reads a null time as the zero time.
        begun = since[name]
        until_s = (seconds_of(begun) if begun else 0.0) + DELETION_TIMEOUT_S
        if begun is None or until_s < now_s:
            namespace = budget.metadata.namespace
            # Kubernetes names the namespace where it means the budget.
            note = f"Pod was expected by PDB {namespace}/{namespace} to be deleted but it wasn't"
            told.append(Emit(regarding=pod, type=WARNING, reason="NotDeleted", action="NotDeleted", note=note))
        else:
            kept[name] = begun
            waits.append(until_s - now_s)
    return kept, min(waits, default=None)


def _is_healthy(pod: Pod, disrupted: Mapping[str, str]) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.metadata.name not in disrupted and is_ready(pod)


# --- pods that were not disrupted after all ---


def stale_disruption_s(pod: Pod, now_s: float) -> float | None:
    """After how many seconds a pod that was to be disrupted, and is not being deleted, counts as spared; None if it was not."""
    if pod.metadata.deletion_timestamp is not None or is_terminal(pod):
        return None
    condition = condition_of(pod, DISRUPTION_TARGET)
    if condition is None or condition.status != "True" or condition.reason == _BY_KUBELET:
        return None
    since = seconds_of(condition.last_transition_time) if condition.last_transition_time is not None else 0.0
    return max(0.0, since + DELETION_TIMEOUT_S - now_s)


def reconcile_pod(pod: Pod, now_s: float) -> Sequence[Action]:
    """A pod that was to be disrupted long ago and still exists is no longer a target."""
    wait = stale_disruption_s(pod, now_s)
    if wait is None:
        return ()
    if wait > 0:
        return (RequeueAfter(seconds=wait),)
    return (_spared(pod, now_s),)


def _spared(pod: Pod, now_s: float) -> Patch:
    condition: dict[str, Any] = {
        "type": DISRUPTION_TARGET,
        "status": "False",
        "reason": None,
        "message": None,
        "lastTransitionTime": time_of(now_s),
    }
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    return patch_status(pod, {"conditions": [condition]})
