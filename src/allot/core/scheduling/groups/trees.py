"""Groups of groups: enough groups with enough pods at once, or none.

As upstream: the groups below one are tried one after the other, the oldest first, each with those before it applied; one that fails while
enough others succeed is left out. A group whose nodes must share a label is tried in one domain after the other, the tightest first, within
the domain of the group above it. If that is not enough, all pods are one search (`tree_search`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.dialects import ForeignGroup, ForeignTree
from allot.core.scheduling.groups.domains import NO_DOMAIN, NoHome, domains_for, no_placement, tightest_first
from allot.core.scheduling.groups.forest import AnyGroup, Tree
from allot.core.scheduling.groups.levels import ANYWHERE, NoSuchLevel, levels_of, place_near
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.groups.task import Task
from allot.core.scheduling.groups.tree_search import Goal, search_tree
from allot.core.scheduling.plan import Placement, Refusal, Unit


class TreeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tree. failures: by the key of a group, why it did not get what it needs; of the root, if all failed."""

    placements: Mapping[int, Placement]
    refusals: Mapping[int, Refusal]
    failures: Mapping[str, str]
    proof: str = ""

    def failed(self, tree: Tree) -> str:
        """Why the tree as a whole got nothing; empty if it got what it needs."""
        return self.failures.get(tree.key, "")


def place_tree(task: Task, tree: Tree) -> TreeOutcome:
    """Enough of a tree's groups, or none. Leaves no trace."""
    attempt = _TreePass(task)
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
    return _jointly(task, tree, msgspec.structs.replace(outcome, placements={}))


class _TreePass:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._cluster = task.cluster
        self._tried: list[tuple[int, Placement]] = []
        self.refusals: dict[int, Refusal] = {}
        self.failures: dict[str, str] = {}
        self._leaf: dict[str, list[int]] = {}
        for index, pod in enumerate(task.unit.pods):
            self._leaf.setdefault(self._cluster.membership.key(pod), []).append(index)
        self.found: dict[int, Placement] = {}

    def take_back(self, count: int) -> None:
        """Undo all but this many placements."""
        while len(self._tried) > count:
            _, placement = self._tried.pop()
            self._cluster.forget(placement)

    def place(self, tree: Tree, allowed: Collection[str] | None) -> bool:
        """Whether a group gets what it needs; if so its placements are applied, else nothing is changed."""
        levels = levels_of(self._cluster, tree.group, self._task.settings)
        if isinstance(tree.group, PodGroup):
            return self._place_pods(tree.key, tree.group, levels, allowed)
        return any(self._place_at(tree, level, allowed) for level in levels)

    def _place_at(self, tree: Tree, level: str, allowed: Collection[str] | None) -> bool:
        """All of a group of groups within a domain of a level."""
        if level == ANYWHERE:
            return self._place_groups(tree, allowed)
        return self._place_in_domain(tree, level, allowed)

    def _place_in_domain(self, tree: Tree, key: str, allowed: Collection[str] | None) -> bool:
        members = [member for _, leaf in tree.leaves() for member in self._cluster.members(leaf)]
        domains = domains_for(self._cluster, key, members, allowed)
        if isinstance(domains, NoHome):
            self.failures[tree.key] = domains.message
            return False
        said: dict[str, str] = {}
        for domain in tightest_first(self._of([key for key, _ in tree.leaves()]), domains):
            if self._place_groups(tree, frozenset(domain.nodes)):
                self.failures.pop(tree.key, None)
                return True
            said[domain.value] = self.failures[tree.key]
        self.failures[tree.key] = no_placement(domains, said[min(said)] if said else NO_DOMAIN)
        return False

    def _of(self, leaves: list[str]) -> Task:
        """The waiting pods of some groups."""
        pods = tuple(self._task.unit.pods[index] for key in leaves for index in self._leaf.get(key, ()))
        return msgspec.structs.replace(self._task, unit=Unit(pods=pods))

    def check_total(self, tree: Tree) -> None:
        """A group that needs a total number of pods, whatever its parts need, has failed without them."""
        root = tree.group
        if not isinstance(root, ForeignTree) or tree.key in self.failures:
            return
        # The found placements are applied.
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
        task = msgspec.structs.replace(self._of([key]), group=group, allowed=allowed)
        done = place_near(task, levels)
        for position, refusal in done.refusals.items():
            self.refusals[indexes[position]] = refusal
        if done.failure:
            self.failures[key] = done.failure
            # A part that has what it needs succeeds even if there is no room for more.
            return isinstance(group, ForeignGroup) and self._cluster.scheduled_count(group) >= minimum_of(group)
        self.failures.pop(key, None)
        for position, result in done.found.items():
            if isinstance(result, Placement):
                index = indexes[position]
                self._cluster.assume(result)
                self._tried.append((index, result))
                self.found[index] = result
                self.refusals.pop(index, None)
        return True


def _is_part(group: AnyGroup) -> bool:
    return isinstance(group, ForeignTree) and group.parent is not None


def _jointly(task: Task, tree: Tree, refused: TreeOutcome) -> TreeOutcome:
    cluster = task.cluster
    goal = Goal(cluster, tree)
    with cluster.unpromised(task.unit.pods):
        answer = search_tree(msgspec.structs.replace(task, goal=goal), tree)
    count = len(list(tree.leaves()))
    if isinstance(answer, joint.Found):
        counts: dict[str, int] = {}
        for placement in answer.placements.values():
            key = cluster.membership.key(placement.pod)
            counts[key] = counts.get(key, 0) + 1
        kept = goal.kept(tree, counts)
        placements = {
            index: placement
            for index, placement in answer.placements.items()
            if cluster.membership.key(placement.pod) in kept
        }
        return TreeOutcome(placements=placements, refusals={}, failures={})
    if isinstance(answer, joint.Undecided):
        proof = f"undecided after {answer.steps} steps whether enough of its {count} groups can be placed at once"
    else:
        proof = f"however the pods of its {count} groups are arranged, too few of them can have nodes at once"
    return msgspec.structs.replace(refused, proof=proof)
