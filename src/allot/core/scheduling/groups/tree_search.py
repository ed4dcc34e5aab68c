"""The pods of a group of groups as one search, where groups may be bound to a domain inside that of the group above.

Groups that are bound get their domains one after the other, from the root down; what counts of free resources and devices rule out with
the domains chosen so far is not explored further. With all domains chosen, the pods are one joint search, in which those of a group have only
the nodes of its domain. All of it shares one bound of steps.
"""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups import joint
from allot.core.scheduling.groups.dialects import ForeignTree
from allot.core.scheduling.groups.domains import NoHome, domains_for
from allot.core.scheduling.groups.forest import Tree
from allot.core.scheduling.groups.levels import levels_of
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.groups.task import Task

# Nodes of a group's domain; None if it may use any.
_Nodes = frozenset[str] | None


class Goal:
    """Whether this many pods of each group are enough."""

    def __init__(self, cluster: Cluster, tree: Tree) -> None:
        self._cluster = cluster
        self._tree = tree

    def __call__(self, counts: Mapping[str, int]) -> bool:
        return any(counts.values()) and self._is_met(self._tree, counts) and self._has_total(counts)

    def is_met(self) -> bool:
        """Whether the pods that have a node are enough."""
        return self._is_met(self._tree, {}) and self._has_total({})

    def _has_total(self, counts: Mapping[str, int]) -> bool:
        """Whether there are as many pods in total as the root needs, whatever the groups below need."""
        least = self._tree.group.min_pods if isinstance(self._tree.group, ForeignTree) else 0
        if not least:
            return True
        return (
            sum(counts.values()) + sum(self._cluster.scheduled_count(leaf) for _, leaf in self._tree.leaves()) >= least
        )

    def kept(self, tree: Tree, counts: Mapping[str, int]) -> frozenset[str]:
        """The groups of pods whose placements are useful: others have too few."""
        if not self._is_met(tree, counts):
            return frozenset()
        if isinstance(tree.group, PodGroup):
            return frozenset((tree.key,))
        return frozenset(key for child in tree.children for key in self.kept(child, counts))

    def _is_met(self, tree: Tree, counts: Mapping[str, int]) -> bool:
        if isinstance(tree.group, PodGroup):
            return counts.get(tree.key, 0) + self._cluster.scheduled_count(tree.group) >= minimum_of(tree.group)
        return sum(self._is_met(child, counts) for child in tree.children) >= tree.minimum


def search_tree(
    task: Task, tree: Tree, steps_max: int = joint.STEPS_MAX
) -> joint.Found | joint.Impossible | joint.Undecided:
    """Enough pods of enough groups. The task's goal defines what is enough."""
    search = joint.Search(task, steps_max)
    keys = {each.key: levels_of(task.cluster, each.group, task.settings)[-1] for each in tree.nodes()}
    return _DomainSearch(task, tree, search, keys).run() if any(keys.values()) else search.run()


class _DomainSearch:
    def __init__(self, task: Task, tree: Tree, search: joint.Search, keys: Mapping[str, str]) -> None:
        """keys: the label, or labels, whose values the nodes of each group must share; empty if there is none."""
        self._keys = keys
        self._cluster = task.cluster
        self._search = search
        self._parents = {child.key: each.key for each in tree.nodes() for child in each.children}
        # Each group after the one above it.
        self._order = list(tree.nodes())
        self._chosen: dict[str, _Nodes] = {}
        self._rooms: dict[tuple[int, _Nodes], int] = {}
        self._domains: dict[tuple[str, _Nodes], list[frozenset[str]]] = {}
        self._most = 0
        self._is_decided = True

    def run(self) -> joint.Found | joint.Impossible | joint.Undecided:
        """The answer."""
        try:
            found = self._choose(0)
        except joint.OutOfSteps:
            return joint.Undecided(self._search.steps)
        if found is not None:
            return found
        steps = self._search.steps
        return joint.Impossible(self._most, steps) if self._is_decided else joint.Undecided(steps)

    def _choose(self, position: int) -> joint.Found | None:
        """A domain for this group and all after it."""
        if position == len(self._order):
            return self._placed()
        tree = self._order[position]
        above = self._chosen.get(self._parents.get(tree.key, ""))
        key = self._keys[tree.key]
        for nodes in self._domains_of(tree, key, above) if key else [above]:
            self._chosen[tree.key] = nodes
            if not key or self._is_in_reach():
                found = self._choose(position + 1)
                if found is not None:
                    return found
        del self._chosen[tree.key]
        return None

    def _placed(self) -> joint.Found | None:
        nodes_of = {key: nodes for key, nodes in self._chosen.items() if nodes is not None}
        answer = self._search.within(nodes_of)
        if isinstance(answer, joint.Found):
            return answer
        if isinstance(answer, joint.Undecided):
            self._is_decided = False
        else:
            self._most = max(self._most, answer.most)
        return None

    def _domains_of(self, tree: Tree, key: str, above: _Nodes) -> list[frozenset[str]]:
        """The domains of a group, those with the least room first; one without nodes if there are none: the group may be left out."""
        known = self._domains.get((tree.key, above))
        if known is None:
            members = [member for _, leaf in tree.leaves() for member in self._cluster.members(leaf)]
            domains = domains_for(self._cluster, key, members, above)
            values = {} if isinstance(domains, NoHome) else domains
            found = [frozenset(values[value]) for value in sorted(values)]
            leaves = {leaf for leaf, _ in tree.leaves()}
            own = [position for position, group in enumerate(self._search.groups) if group in leaves]
            found.sort(key=lambda nodes: sum(self._room(position, nodes) for position in own))
            known = self._domains[tree.key, above] = found or [frozenset()]
        return known

    def _is_in_reach(self) -> bool:
        """Whether counts do not rule out placing enough pods with the domains chosen so far."""
        self._search.step()
        pods = self._search.rooms().pods
        reach = [
            min(count, self._room(position, self._nodes_for(group)))
            for position, (count, group) in enumerate(zip(pods, self._search.groups, strict=True))
        ]
        return self._search.is_enough(reach)

    def _nodes_for(self, group: str) -> _Nodes:
        """The nodes that a group may use: the domain of the nearest group above that already has one."""
        while group not in self._chosen and group in self._parents:
            group = self._parents[group]
        return self._chosen.get(group)

    def _room(self, position: int, nodes: _Nodes) -> int:
        """How many pods of a class these nodes take, according to counts."""
        known = self._rooms.get((position, nodes))
        if known is None:
            by_node = self._search.rooms().by_node
            names = by_node if nodes is None else nodes
            self._search.step(len(names) // 64)
            known = sum(by_node[name][position] for name in names if name in by_node)
            self._rooms[position, nodes] = known
        return known
