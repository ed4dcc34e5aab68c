"""Nodes that someone empties: cordoned, about to be removed, or deleted; and which pods keep them from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from allot.core.advice.explain.causes import driver_pods
from allot.core.advice.explain.causes.keepers import idle_keeper
from allot.core.advice.explain.causes.vendors import vendor_of
from allot.core.advice.explain.holding import controller_of
from allot.core.advice.explain.nodes import leaving
from allot.core.advice.explain.report import Explanation, Reason
from allot.core.advice.explain.upkeep import upkeep
from allot.core.advice.explain.wording import count, joined, listed, named
from allot.core.advice.explain.workloads.budgets import explain_budget, members, rule_of
from allot.core.advice.explain.workloads.scene import Scene, as_wanted, live_pods, not_as_wanted, terminating
from allot.core.advice.what_if import full_name
from allot.core.model import core_v1
from allot.core.model.policy_v1 import PodDisruptionBudget

_KIND = "Node"
# Pods that drains leave alone.
_STAYING = ("DaemonSet", "Node")
# Karpenter evicts no pod with it, from nodes that it removes as well.
_DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"


class Blocked(NamedTuple):
    """Why pods cannot leave a node, phrased to follow a colon, and what lets them go."""

    text: str
    advice: tuple[str, ...]


def emptied(scene: Scene, found: core_v1.Node) -> Explanation | None:
    """A node that is to be removed, and what keeps it; None for one that stays."""
    since, going = found.metadata.deletion_timestamp, leaving(found)
    if since is None and not going:
        return None
    text = f"has been terminating since {since}" if since is not None else going
    pods = pods_to_move(scene, found.metadata.name)
    blocked = _blocked(scene, pods, (_under_budget, _not_to_be_disrupted, _not_ending))
    if blocked is not None:
        text += f", and cannot be drained: {blocked.text}"
        return not_as_wanted(_KIND, found, Reason.BEING_DELETED, text, advice=_then(blocked, "the node goes by itself"))
    left = f": {count(len(pods), 'pod')} {'has' if len(pods) == 1 else 'have'} to leave it first" if pods else ""
    finalizers = found.metadata.finalizers if since is not None else ()
    if not finalizers:
        return as_wanted(_KIND, found, f"{text}{left}")
    domains = [each.partition("/")[0] for each in finalizers]
    keeper = idle_keeper(scene.what_if, finalizers, "removes it", [f"nodes.{each}" for each in domains])
    text += f", and still has {named('finalizer', finalizers)}{f': {keeper.text}' if keeper is not None else left}"
    see = "check that the component which set it runs, and see its log"
    advice = (keeper.advice if keeper is not None else see,)
    return not_as_wanted(_KIND, found, Reason.BEING_DELETED, text, advice=advice)


def cordoned(scene: Scene, found: core_v1.Node) -> Explanation:
    """A node that takes no new pods, and the budgets that keep it from being drained."""
    name = found.metadata.name
    work = upkeep(found)
    text = f"is cordoned{f' ({work})' if work else ''}: it is ready, but takes no new pods"
    back = f"kubectl uncordon {name}, if its maintenance is over"
    blocked = _blocked(scene, pods_to_move(scene, name), (_under_budget,))
    advice: list[str] = []
    if blocked is not None:
        text += f", and cannot be drained: {blocked.text}"
        advice += _then(blocked, f"drain node {name}")
    stuck = driver_pods.failing_of_vendor(scene.what_if, _whose(work), name)[:1] if work else []
    text += "".join(f"; {each.text}" for each in stuck)
    advice = [*(each.advice for each in stuck), *advice, back]
    return not_as_wanted(_KIND, found, Reason.CORDONED, text, advice=advice)


def _whose(work: str) -> str:
    """The vendor who has cordoned a node: `nvidia` for label nvidia.com/gpu-driver-upgrade-state."""
    return vendor_of(work.split(" ")[1].partition("/")[0])


def pods_to_move(scene: Scene, node: str) -> list[core_v1.Pod]:
    """The pods that have to leave a node that is drained."""
    info = scene.what_if.cluster.nodes.get(node)
    pods = [each.pod for each in info.pods.values()] if info is not None else []
    makers = [(pod, controller_of(pod)) for pod in pods]
    return [pod for pod, maker in makers if maker is None or maker.kind not in _STAYING]


def _then(blocked: Blocked, after: str) -> Sequence[str]:
    first, *others = blocked.advice
    return (f"{first}{'; then' if after.startswith('the') else ', then'} {after}", *others[:1])


def _blocked(
    scene: Scene,
    pods: Sequence[core_v1.Pod],
    obstacles: Sequence[Callable[[Scene, Sequence[core_v1.Pod]], Blocked | None]],
) -> Blocked | None:
    found = [each for obstacle in obstacles if (each := obstacle(scene, pods)) is not None]
    if not found:
        return None
    return Blocked(joined([each.text for each in found]), tuple(text for each in found for text in each.advice))


def _under_budget(scene: Scene, pods: Sequence[core_v1.Pod]) -> Blocked | None:
    """Pods that a budget keeps from being evicted."""
    texts, advice = [], []
    names = {full_name(pod) for pod in pods}
    for budget in scene.what_if.all(PodDisruptionBudget):
        kept = [name for pod in members(scene, budget) if (name := full_name(pod)) in names]
        if not kept or budget.status.disruptions_allowed > 0:
            continue
        rule = f"{rule_of(budget)} of {count(budget.status.expected_pods, 'pod')}, no disruption allowed now"
        texts.append(f"{named('pod', kept)} may not be evicted (PodDisruptionBudget {full_name(budget)}: {rule})")
        advice += [change.text for change in explain_budget(scene, budget, briefly=False).changes]
    return Blocked(listed(texts), tuple(advice)) if texts else None


def _not_to_be_disrupted(_: Scene, pods: Sequence[core_v1.Pod]) -> Blocked | None:
    kept = [pod for pod in live_pods(pods) if pod.metadata.annotations.get(_DO_NOT_DISRUPT) == "true"]
    if not kept:
        return None
    who = named("pod", map(full_name, kept))
    has, ends = ("has", "ends") if len(kept) == 1 else ("have", "end")
    first = kept[0].metadata
    command = f"kubectl annotate pod {first.name} -n {first.namespace} {_DO_NOT_DISRUPT}-"
    text = f"{who} {has} annotation {_DO_NOT_DISRUPT}=true"
    return Blocked(
        text, (f"let Karpenter evict {'it' if len(kept) == 1 else 'them'} ({command}), or wait until {who} {ends}",)
    )


def _not_ending(scene: Scene, pods: Sequence[core_v1.Pod]) -> Blocked | None:
    """Pods that were deleted and stay."""
    held = terminating(scene, pods, briefly=False)
    return Blocked(held.text, tuple(change.text for change in held.explanation.changes)) if held is not None else None
