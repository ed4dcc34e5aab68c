"""Groups of groups: enough groups that have enough pods, at once, or none.

As upstream: the groups below one are tried one after the other, the oldest first, each with those before it in force; one that fails while
enough others succeed is left out. A group whose nodes must share a label is tried in one domain after the other, within the domain of the
group above it. If that is not enough and no group below the root is bound to a domain, all pods are one search (`joint`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.domains import domains_of, in_one_domain
from allot.core.scheduling.groups.forest import AnyGroup, Tree
from allot.core.scheduling.groups.passes import place
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.plan import Placement, Refusal, Unit
from allot.core.scheduling.settings import Settings


class TreeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a tree. failures: by the key of a group, why it did not get what it needs; of the root, if all was in vain."""

    placements: Mapping[int, Placement]
    refusals: Mapping[int, Refusal]
    failures: Mapping[str, str]
    proof: str = ""

    def failed(self, tree: Tree) -> str:
        """Why the tree as a whole got nothing; empty if it did."""
        return self.failures.get(tree.key, "")


def place_tree(cluster: Cluster, unit: Unit, tree: Tree, settings: Settings, now: float) -> TreeOutcome:
    """Enough of a tree's groups, or none. Leaves no trace."""
    attempt = _TreePass(cluster, unit, settings, now)
    try:
        attempt.place(tree, None)
    finally:
        attempt.take_back(0)
    outcome = TreeOutcome(placements=dict(attempt.found), refusals=attempt.refusals, failures=attempt.failures)
    if not outcome.failed(tree):
        return outcome
    refused = msgspec.structs.replace(outcome, placements={})
    inner = [each for each in tree.nodes() if each is not tree]
    if settings.topology_placements and any(_key_of(each.group) for each in (tree, *inner)):
        return msgspec.structs.replace(refused, proof="other arrangements of its groups in domains were not searched")
    return _jointly(cluster, unit, tree, settings, now, refused)


def _key_of(group: AnyGroup) -> str:
    constraints = group.spec.scheduling_constraints
    return constraints.topology[0].key if constraints is not None and constraints.topology else ""


class _TreePass:
    def __init__(self, cluster: Cluster, unit: Unit, settings: Settings, now: float) -> None:
        self._cluster = cluster
        self._unit = unit
        self._settings = settings
        self._now = now
        self._tried: list[tuple[int, Placement]] = []
        self.refusals: dict[int, Refusal] = {}
        self.failures: dict[str, str] = {}
        self._leaf: dict[str, list[int]] = {}
        for index, pod in enumerate(unit.pods):
            self._leaf.setdefault(cluster.membership.key(pod), []).append(index)
        self.found: dict[int, Placement] = {}

    def take_back(self, count: int) -> None:
        """Undo all but so many placements."""
        while len(self._tried) > count:
            _, placement = self._tried.pop()
            self._cluster.forget(placement)

    def place(self, tree: Tree, allowed: Collection[str] | None) -> bool:
        """Whether a group gets what it needs; if so its placements are in force, else nothing is changed."""
        key = _key_of(tree.group) if self._settings.topology_placements else ""
        if isinstance(tree.group, PodGroup):
            return self._place_pods(tree.key, tree.group, key, allowed)
        if not key:
            return self._place_groups(tree, allowed)
        names = None if allowed is None else frozenset(allowed)
        domains = domains_of(self._cluster, key)
        for value in sorted(domains):
            nodes = [name for name in domains[value] if names is None or name in names]
            if nodes and self._place_groups(tree, frozenset(nodes)):
                self.failures.pop(tree.key, None)
                return True
        said = self.failures.get(tree.key, "no feasible placements found")
        self.failures[tree.key] = f"0/{len(domains)} placements are available, first placement status: {said}"
        return False

    def _place_groups(self, tree: Tree, allowed: Collection[str] | None) -> bool:
        before, found = len(self._tried), dict(self.found)
        done, left = 0, len(tree.children)
        for child in tree.children:
            if done + left < tree.minimum:
                break
            done += self.place(child, allowed)
            left -= 1
        if done >= tree.minimum and len(self._tried) > before:
            return True
        self.take_back(before)
        self.found = found
        rest = f"{done} scheduled, {left} remaining"
        self.failures[tree.key] = (
            f"minGroupCount ({tree.minimum}) cannot be satisfied: {rest}"
            if done < tree.minimum
            else "pod group is unschedulable"
        )
        return False

    def _place_pods(self, key: str, group: PodGroup, label: str, allowed: Collection[str] | None) -> bool:
        indexes = self._leaf.get(key, [])
        if not indexes:
            return self._cluster.scheduled_count(group) >= minimum_of(group)
        unit = Unit(pods=tuple(self._unit.pods[index] for index in indexes), group=group)
        cluster, settings, now = self._cluster, self._settings, self._now
        if label:
            done = in_one_domain(cluster, unit, group, settings, now, label, allowed)
        else:
            done = place(cluster, unit, group, settings, now, allowed)
        for position, refusal in done.refusals.items():
            self.refusals[indexes[position]] = refusal
        if done.failure:
            self.failures[key] = done.failure
            return False
        self.failures.pop(key, None)
        for position, result in done.found.items():
            if isinstance(result, Placement):
                index = indexes[position]
                cluster.assume(result)
                self._tried.append((index, result))
                self.found[index] = result
                self.refusals.pop(index, None)
        return True


def _jointly(
    cluster: Cluster, unit: Unit, tree: Tree, settings: Settings, now: float, refused: TreeOutcome
) -> TreeOutcome:
    leaves = dict(tree.leaves())
    task = joint.Task(cluster, unit, None, settings, now, 1, None, _Goal(cluster, tree))
    with cluster.unpromised(unit.pods):
        answer = joint.search(task)
    if isinstance(answer, joint.Found):
        counts: dict[str, int] = {}
        for placement in answer.placements.values():
            key = cluster.membership.key(placement.pod)
            counts[key] = counts.get(key, 0) + 1
        kept = task.goal.kept(tree, counts) if isinstance(task.goal, _Goal) else frozenset()
        placements = {
            index: placement
            for index, placement in answer.placements.items()
            if cluster.membership.key(placement.pod) in kept
        }
        return TreeOutcome(placements=placements, refusals={}, failures={})
    if isinstance(answer, joint.Undecided):
        proof = f"undecided after {answer.steps} steps whether enough of its {len(leaves)} groups can be placed at once"
    else:
        proof = f"however the pods of its {len(leaves)} groups are arranged, too few of them can have nodes at once"
    return msgspec.structs.replace(refused, proof=proof)


class _Goal:
    """Whether so many pods of each group are enough."""

    def __init__(self, cluster: Cluster, tree: Tree) -> None:
        self._cluster = cluster
        self._tree = tree

    def __call__(self, counts: Mapping[str, int]) -> bool:
        return any(counts.values()) and self._is_met(self._tree, counts)

    def kept(self, tree: Tree, counts: Mapping[str, int]) -> frozenset[str]:
        """The groups of pods whose placements are of use: others have too few."""
        if not self._is_met(tree, counts):
            return frozenset()
        if isinstance(tree.group, PodGroup):
            return frozenset((tree.key,))
        return frozenset(key for child in tree.children for key in self.kept(child, counts))

    def _is_met(self, tree: Tree, counts: Mapping[str, int]) -> bool:
        if isinstance(tree.group, PodGroup):
            return counts.get(tree.key, 0) + self._cluster.scheduled_count(tree.group) >= minimum_of(tree.group)
        return sum(self._is_met(child, counts) for child in tree.children) >= tree.minimum
