"""Disruption budgets: why none of their pods may be evicted now, and which drain waits for that."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.nodes import leaving
from allot.core.advice.explain.remedies.templates import workload_of
from allot.core.advice.explain.report import Change, Explanation, Reason
from allot.core.advice.explain.wording import count, named
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, held_back, live_pods, not_as_wanted, of_pod
from allot.core.model import core_v1
from allot.core.model.policy_v1 import PodDisruptionBudget
from allot.core.workloads.ownership import selector_of

_KIND = "PodDisruptionBudget"
# How many times as many replicas are still worth a thought, so that a budget lets one go.
_TIMES_MAX = 2


def explain_budget(scene: Scene, found: PodDisruptionBudget, *, briefly: bool) -> Explanation:
    """Why a budget allows no disruption, or that it does."""
    status = found.status
    pods = members(scene, found)
    rival = next((each for each in _others(scene, found) if _shares(scene, each, pods)), None)
    if rival is not None:
        text = f"keeps its pods from being evicted: {_KIND} {rival.metadata.name} selects them, too, and an eviction is refused if two do"
        advice = f"let only one of {_KIND}s {found.metadata.name} and {rival.metadata.name} select each pod"
        return not_as_wanted(_KIND, found, Reason.NO_DISRUPTION, text, advice=(advice,))
    if not pods:
        return not_as_wanted(_KIND, found, Reason.NO_POD_SELECTED, "selects no pod of its namespace")
    if status.disruptions_allowed > 0:
        return as_wanted(
            _KIND, found, f"allows {count(status.disruptions_allowed, 'disruption')} of {count(len(pods), 'pod')}"
        )
    waits = _drains(scene, pods)
    held = held_back(scene, pods, briefly=briefly)
    rule = f"{status.desired_healthy} of {count(status.expected_pods, 'pod')} must stay ({rule_of(found)})"
    if held is not None and status.desired_healthy < status.expected_pods:
        healthy = "is healthy" if status.current_healthy == 1 else "are healthy"
        text = f"allows no disruption{waits}: only {status.current_healthy} {healthy}, and {rule}: {held.text}"
        return of_pod(not_as_wanted(_KIND, found, Reason.NO_DISRUPTION, text), held.explanation)
    text = f"never allows a disruption{waits}: {rule}, even if all are healthy"
    explained = not_as_wanted(_KIND, found, Reason.NO_DISRUPTION, text)
    return replace(explained, changes=tuple(Change(text=each) for each in looser(scene, found, pods)))


def members(scene: Scene, found: PodDisruptionBudget) -> list[core_v1.Pod]:
    """The live pods that a budget selects."""
    requirements = selector_of(found.spec.selector)
    here = live_pods(scene.pods_in(found.metadata.namespace))
    return [pod for pod in here if requirements is not None and requirements.matches(pod.metadata.labels)]


def _others(scene: Scene, found: PodDisruptionBudget) -> list[PodDisruptionBudget]:
    return [
        each
        for each in scene.what_if.all(PodDisruptionBudget)
        if each.metadata.namespace == found.metadata.namespace and each.metadata.name != found.metadata.name
    ]


def _shares(scene: Scene, other: PodDisruptionBudget, pods: Sequence[core_v1.Pod]) -> bool:
    own = {pod.metadata.name for pod in pods}
    return any(pod.metadata.name in own for pod in members(scene, other))


def rule_of(found: PodDisruptionBudget) -> str:
    """`minAvailable: 1`."""
    spec = found.spec
    return (
        f"minAvailable: {spec.min_available}"
        if spec.min_available is not None
        else f"maxUnavailable: {spec.max_unavailable}"
    )


def _drains(scene: Scene, pods: Sequence[core_v1.Pod]) -> str:
    """Nodes that someone empties, and that pods of the budget are still on; nothing if there are none."""
    nodes = scene.what_if.cluster.nodes
    there = [nodes[name].node for name in sorted({pod.spec.node_name for pod in pods}) if name in nodes]
    going = [each.metadata.name for each in there if each.metadata.deletion_timestamp is not None or leaving(each)]
    names = going or [each.metadata.name for each in there if each.spec.unschedulable]
    which = f"which {'is' if len(names) == 1 else 'are'} {'to be removed' if going else 'cordoned'}"
    return f", so {named('node', names)}, {which}, cannot be drained" if names else ""


def looser(scene: Scene, found: PodDisruptionBudget, pods: Sequence[core_v1.Pod]) -> list[str]:
    """A budget that lets one pod go at a time. With a single pod that means a short outage."""
    name = f"{_KIND} {found.metadata.name}"
    makers = {workload_of(scene.what_if, pod) for pod in pods}
    maker = makers.pop() if len(makers) == 1 else ""
    needed = _replicas_needed(found, len(pods))
    many = "one more replica" if needed == len(pods) + 1 else f"{needed - len(pods)} more replicas"
    more = f"run {many} of {named('pod', [pod.metadata.name for pod in pods])}"
    if maker:
        more = f"scale {maker} to {needed} replicas"
    helps = [more] if 0 < needed <= _TIMES_MAX * len(pods) else []
    if found.spec.min_available is not None and len(pods) > 1:
        return [f"set minAvailable: {len(pods) - 1} in {name}", *helps]
    if len(pods) > 1:
        return [f"set maxUnavailable: 1 in {name}", *helps]
    return [*helps, f"set maxUnavailable: 1 in {name}, if it may be gone for a moment"]


def _replicas_needed(found: PodDisruptionBudget, there: int) -> int:
    """With how many replicas a minimum lets one of them go: a percentage is rounded up, so that many may be needed. 0 if with no number, or if
    what counts is how many may be away."""
    minimum = found.spec.min_available
    if minimum is None:
        return 0
    if isinstance(minimum, int):
        return max(minimum, there) + 1
    percent = int(minimum.removesuffix("%")) if minimum.removesuffix("%").isdecimal() else 100
    return max(there + 1, -(-100 // (100 - percent))) if percent < 100 else 0
