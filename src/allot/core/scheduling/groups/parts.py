"""Groups of other dialects in parts: what every part needs comes first, then one pod after the other.

Pods beyond the minimum of their part are not tried while other parts still have too few: they would take room that is
needed. When all parts have enough, the rest is tried at once, as in KAI and Volcano.
"""

from __future__ import annotations

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups.dialects import ForeignTree
from allot.core.scheduling.groups.forest import Tree
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.plan import Decision, Refusal, Unit
from allot.core.scheduling.status import Verdict

PLUGIN = "GangScheduling"


class Turn(msgspec.Struct, frozen=True):
    """The part of a unit to try now. later: pods whose turn comes when these have their nodes; strays: pods of no part, and why."""

    unit: Unit
    later: tuple[Pod, ...] = ()
    strays: tuple[Refusal, ...] = ()

    def told(self, decision: Decision) -> Decision:
        """The decision on the unit, including the others: pods whose turn comes later fail with the group, or else wait."""
        if not self.strays and not self.later:
            return decision
        refusals = (*decision.refusals, *self.strays)
        if self.later and not decision.placements and decision.refusals:
            first = decision.refusals[0]
            message = decision.group.message if decision.group is not None and decision.group.message else first.message
            refusals += tuple(
                Refusal(pod=pod, verdict=first.verdict, message=message, plugins=first.plugins) for pod in self.later
            )
        return msgspec.structs.replace(decision, refusals=refusals)


def turn_of(cluster: Cluster, unit: Unit) -> Turn:
    """The part of a unit to try now."""
    tree = unit.tree
    if tree is None or not isinstance(tree.group, ForeignTree):
        return Turn(unit)
    missing = {key: minimum_of(leaf) - cluster.scheduled_count(leaf) for key, leaf in tree.leaves()}
    strays = tuple(_stray(tree, pod) for pod in unit.pods if cluster.membership.key(pod) not in missing)
    pods = [pod for pod in unit.pods if cluster.membership.key(pod) in missing]
    if has_minimum(cluster, tree):
        return Turn(msgspec.structs.replace(unit, pods=tuple(pods)), strays=strays)
    core: list[Pod] = []
    later: list[Pod] = []
    for pod in pods:
        key = cluster.membership.key(pod)
        (core if missing[key] > 0 else later).append(pod)
        missing[key] -= 1
    # A group may need more pods in total than its parts do.
    count = len(core) + sum(cluster.scheduled_count(leaf) for _, leaf in tree.leaves())
    more = max(0, tree.group.min_pods - count)
    core, later = [*core, *later[:more]], later[more:]
    return Turn(msgspec.structs.replace(unit, pods=tuple(core)), tuple(later), strays)


def has_minimum(cluster: Cluster, tree: Tree) -> bool:
    """Whether a group has what it needs, so that any further pod is extra."""
    scheduled = {key: cluster.scheduled_count(leaf) for key, leaf in tree.leaves()}
    root = tree.group
    return _has_minimum(tree, scheduled) and (
        not isinstance(root, ForeignTree) or sum(scheduled.values()) >= root.min_pods
    )


def _has_minimum(tree: Tree, scheduled: dict[str, int]) -> bool:
    if tree.key in scheduled:
        return scheduled[tree.key] >= _leaf_minimum(tree)
    return sum(_has_minimum(child, scheduled) for child in tree.children) >= tree.minimum


def _leaf_minimum(tree: Tree) -> int:
    return next((minimum_of(leaf) for _, leaf in tree.leaves()), 0)


def _stray(tree: Tree, pod: Pod) -> Refusal:
    group = tree.group
    names = ", ".join(sorted(key.rpartition(":")[2] for key, _ in tree.leaves()))
    name = f"{group.metadata.namespace}/{group.metadata.name}"
    return Refusal(
        pod=pod,
        verdict=Verdict.UNSCHEDULABLE,
        message=f"the pod names no part of PodGroup {name}, whose pods are in {names}",
        plugins=frozenset((PLUGIN,)),
    )
