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
from allot.core.scheduling.groups.dialects import ForeignGroup, ForeignTree
from allot.core.scheduling.groups.domains import domains_of, value_in
from allot.core.scheduling.groups.forest import AnyGroup, Tree
from allot.core.scheduling.groups.levels import ANYWHERE, NoSuchLevel, levels_of, place_near
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
        attempt.check_total(tree)
    except NoSuchLevel as error:
        return TreeOutcome(placements={}, refusals={}, failures={tree.key: str(error)})
    finally:
        attempt.take_back(0)
    outcome = TreeOutcome(placements=dict(attempt.found), refusals=attempt.refusals, failures=attempt.failures)
    if not outcome.failed(tree):
        return outcome
    refused = msgspec.structs.replace(outcome, placements={})
    if any(levels_of(cluster, each.group, settings)[-1] for each in tree.nodes()):
        return msgspec.structs.replace(refused, proof="other arrangements of its groups in domains were not searched")
    return _jointly(cluster, unit, tree, settings, now, refused)


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
        levels = levels_of(self._cluster, tree.group, self._settings)
        if isinstance(tree.group, PodGroup):
            return self._place_pods(tree.key, tree.group, levels, allowed)
        return any(self._place_at(tree, level, allowed) for level in levels)

    def _place_at(self, tree: Tree, level: str, allowed: Collection[str] | None) -> bool:
        """All of a group of groups within a domain of a level."""
        if level == ANYWHERE:
            return self._place_groups(tree, allowed)
        names = None if allowed is None else frozenset(allowed)
        domains = domains_of(self._cluster, level)
        homes = self._homes(tree, level)
        for value in sorted(domains):
            if homes and value not in homes:
                continue
            nodes = [name for name in domains[value] if names is None or name in names]
            if nodes and self._place_groups(tree, frozenset(nodes)):
                self.failures.pop(tree.key, None)
                return True
        said = self.failures.get(tree.key, "no feasible placements found")
        self.failures[tree.key] = f"0/{len(domains)} placements are available, first placement status: {said}"
        return False

    def _homes(self, tree: Tree, level: str) -> frozenset[str]:
        """The domains of a level in which some of its pods are: the others go there too."""
        nodes = self._cluster.nodes
        members = (member for _, leaf in tree.leaves() for member in self._cluster.members(leaf))
        found = (value_in(nodes[each.node].labels, level) for each in members if each.node in nodes)
        return frozenset(value for value in found if value is not None)

    def check_total(self, tree: Tree) -> None:
        """A group that needs so many pods in all, whatever its parts need, has failed without them."""
        root = tree.group
        if not isinstance(root, ForeignTree) or tree.key in self.failures:
            return
        # What was found is in force.
        count = sum(self._cluster.scheduled_count(leaf) for _, leaf in tree.leaves())
        if count < root.min_pods:
            self.failures[tree.key] = f"minMember ({root.min_pods}) cannot be satisfied: {count} scheduled"

    def _place_groups(self, tree: Tree, allowed: Collection[str] | None) -> bool:
        before, found = len(self._tried), dict(self.found)
        done, left = 0, len(tree.children)
        for child in tree.children:
            if done + left < tree.minimum:
                break
            done += self.place(child, allowed)
            left -= 1
        if done >= tree.minimum and (len(self._tried) > before or _is_part(tree.group)):
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

    def _place_pods(self, key: str, group: PodGroup, levels: tuple[str, ...], allowed: Collection[str] | None) -> bool:
        indexes = self._leaf.get(key, [])
        if not indexes:
            return self._cluster.scheduled_count(group) >= minimum_of(group)
        unit = Unit(pods=tuple(self._unit.pods[index] for index in indexes), group=group)
        cluster, settings, now = self._cluster, self._settings, self._now
        done = place_near(cluster, unit, group, settings, now, levels, allowed)
        for position, refusal in done.refusals.items():
            self.refusals[indexes[position]] = refusal
        if done.failure:
            self.failures[key] = done.failure
            # A part that has what it needs has it, also if there is no room for more.
            return isinstance(group, ForeignGroup) and cluster.scheduled_count(group) >= minimum_of(group)
        self.failures.pop(key, None)
        for position, result in done.found.items():
            if isinstance(result, Placement):
                index = indexes[position]
                cluster.assume(result)
                self._tried.append((index, result))
                self.found[index] = result
                self.refusals.pop(index, None)
        return True


def _is_part(group: AnyGroup) -> bool:
    return isinstance(group, ForeignTree) and group.parent is not None


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
        if not any(counts.values()) or not self._is_met(self._tree, counts):
            return False
        root = self._tree.group
        if not isinstance(root, ForeignTree) or not root.min_pods:
            return True
        scheduled = sum(self._cluster.scheduled_count(leaf) for _, leaf in self._tree.leaves())
        return sum(counts.values()) + scheduled >= root.min_pods

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
