"""Disruption budgets: why none of their pods may be evicted now, and which drain waits for that."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allot.core.advice.explain.report import Change, Explanation, Reason
from allot.core.advice.explain.wording import count, named
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, held_back, live_pods, not_as_wanted, of_pod
from allot.core.model import core_v1
from allot.core.model.policy_v1 import PodDisruptionBudget
from allot.core.workloads.ownership import selector_of

_KIND = "PodDisruptionBudget"


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
    return replace(explained, changes=tuple(Change(text=each) for each in looser(found, pods)))


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
    names = sorted(
        {
            pod.spec.node_name
            for pod in pods
            if (info := scene.what_if.cluster.nodes.get(pod.spec.node_name)) is not None
            and info.node.spec.unschedulable
        }
    )
    return (
        f", so {named('node', names)}, which {'is' if len(names) == 1 else 'are'} cordoned, cannot be drained"
        if names
        else ""
    )


def looser(found: PodDisruptionBudget, pods: Sequence[core_v1.Pod]) -> list[str]:
    """A budget that lets one pod go at a time. With a single pod that means a short outage."""
    name = f"{_KIND} {found.metadata.name}"
    more = f"run one more replica of {named('pod', [pod.metadata.name for pod in pods])}"
    if found.spec.min_available is not None and len(pods) > 1:
        return [f"set minAvailable: {len(pods) - 1} in {name}", more]
    if len(pods) > 1:
        return [f"set maxUnavailable: 1 in {name}", more]
    return [more, f"set maxUnavailable: 1 in {name}, if it may be gone for a moment"]
