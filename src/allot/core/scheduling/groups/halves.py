"""Incomplete groups that hold resources: for how long, and their release.

A scheduler ended between the writes of a group's members, a write failed, or members are gone for good. What is left keeps others from
running. It is evicted when the group has been incomplete for its grace period: with the refusal of its waiting pods, if they are tried, else
separately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.model.foreign_groups import KAI
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups.dialects import AnyForeign, ForeignGroup, ForeignTree
from allot.core.scheduling.groups.forest import Tree, key_of
from allot.core.scheduling.groups.parts import has_minimum
from allot.core.scheduling.groups.shape import minimum_of, was_scheduled
from allot.core.scheduling.groups.tree_search import Goal
from allot.core.scheduling.plan import Decision, Unit, Victim
from allot.core.scheduling.podinfo import PodInfo
from allot.core.scheduling.settings import Settings

# How long a group that has less than it needs may hold resources. KAI's default.
STALE_AFTER_S = 60.0


class Halves:
    """One of a machine's parts; only it calls this."""

    def __init__(self, cluster: Cluster, settings: Callable[[str], Settings | None]) -> None:
        self._cluster = cluster
        self._settings = settings
        # Since when groups have been incomplete, by the key of the root.
        self._since: dict[str, float] = {}

    # --- groups whose pods wait ---

    def held_by(self, unit: Unit, decision: Decision) -> list[PodInfo]:
        """The pods of a group that have a node although it has fewer than it needs, has never had enough according to its status, and got
        none now."""
        if decision.placements or not decision.refusals:
            return []
        tree = tree_of(unit)
        return self._held(tree) if tree is not None else []

    def _held(self, tree: Tree) -> list[PodInfo]:
        if was_scheduled(tree.group) or grace_s(tree) is None or self._has_or_had_minimum(tree):
            return []
        members = [member for _, leaf in tree.leaves() for member in self._cluster.members(leaf)]
        return [member for member in members if not member.is_terminating and self._preempts(member.pod)]

    def _preempts(self, pod: Pod) -> bool:
        settings = self._settings(pod.spec.scheduler_name)
        return settings is not None and settings.preempts

    def _has_or_had_minimum(self, tree: Tree) -> bool:
        """Whether a group has what it needs. Groups of other dialects do not record that they once had it, but their pods show that they are
        done."""
        group, cluster = tree.group, self._cluster
        if isinstance(group, PodGroup):
            count, least = cluster.scheduled_count(group), minimum_of(group)
            return count >= least or (
                isinstance(group, ForeignGroup) and count + cluster.finished_count(group) >= least
            )
        if isinstance(group, ForeignTree):
            return has_minimum(cluster, tree) or self._is_partly_done(tree)
        return Goal(cluster, tree).is_met()

    def _is_partly_done(self, tree: Tree) -> bool:
        return any(self._cluster.finished_count(leaf) for _, leaf in tree.leaves())

    # --- groups without waiting pods ---

    def look(self, root: str, now: float) -> bool:
        """Members of a group have come or gone, or the group has changed. root: the key of its root. Returns whether it now has
        too little and must be checked later."""
        if not self._is_by_half(root):
            self._since.pop(root, None)
            return False
        is_new = root not in self._since
        self._since.setdefault(root, now)
        return is_new

    def _is_by_half(self, root: str) -> bool:
        group = self._cluster.groups.get(_split(root))
        # Most have what they need, which is quick to see.
        if group is not None and self._cluster.scheduled_count(group) >= minimum_of(group):
            return False
        tree = self._tree(root)
        if tree is None or not self._gives_back(tree):
            return False
        return bool(self._held(tree))

    def _tree(self, root: str) -> Tree | None:
        group = self._cluster.groups.get(_split(root))
        return Tree(root, group) if group is not None else self._cluster.forest.tree(root)

    def _gives_back(self, tree: Tree) -> bool:
        """Groups of scheduling.k8s.io record whether they have ever had what they need, and then keep the rest. KAI's never do. What is left
        of others is kept, as by their own schedulers: whether they were ever complete is not known."""
        if not isinstance(tree.group, AnyForeign):
            return True
        return tree.group.dialect == KAI and not self._is_partly_done(tree)

    def due_at(self) -> float | None:
        """When the first of them has been incomplete for too long; None if there is none."""
        if not self._since:
            return None
        return min(since + self._grace_of(root) for root, since in self._since.items())

    def _grace_of(self, root: str) -> float:
        tree = self._tree(root)
        grace = grace_s(tree) if tree is not None else None
        return STALE_AFTER_S if grace is None else grace

    def given_up(self, now: float, is_tried: Callable[[str], bool]) -> Decision | None:
        """The next group that has been incomplete for too long and whose other pods are not waiting to be tried."""
        due = [root for root, since in self._since.items() if now >= since + self._grace_of(root)]
        for root in due:
            # If it is still incomplete after as long again, the release failed.
            self._since[root] = now
            tree = self._tree(root)
            if not self._is_by_half(root) or tree is None:
                del self._since[root]
                continue
            held = self._held(tree)
            if not is_tried(root) and not any(self._cluster.is_assumed(member.pod) for member in held):
                return Decision(given_up=_victims(tree, held))
        return None


def _split(root: str) -> tuple[str, str]:
    namespace, _, key = root.partition("/")
    return namespace, key


def grace_s(tree: Tree) -> float | None:
    """How long an incomplete group may hold what it has: as long as it specifies, or as its pods wait for each
    other; None: forever."""
    group = next((leaf for _, leaf in tree.leaves()), None)
    if not isinstance(group, ForeignGroup):
        return STALE_AFTER_S
    if group.staleness_s is not None:
        return group.staleness_s if group.staleness_s >= 0 else None
    return group.timeout_s or STALE_AFTER_S


def tree_of(unit: Unit) -> Tree | None:
    """The group of a unit; None if it is a single pod."""
    if unit.tree is not None or unit.group is None:
        return unit.tree
    return Tree(key_of(unit.group), unit.group)


def _victims(tree: Tree, held: Iterable[PodInfo]) -> tuple[Victim, ...]:
    group = tree.group
    text = f"Workload doesn't meet the minimum required number of pods ({_minimum(tree)}), evicting remaining pod"
    return tuple(
        Victim(
            pod=member.pod,
            by=f"podgroup {group.metadata.uid}",
            why=f"{text}: {member.pod.metadata.namespace}/{member.pod.metadata.name}",
        )
        for member in sorted(held, key=lambda member: member.key)
    )


def _minimum(tree: Tree) -> str:
    return str(minimum_of(tree.group)) if isinstance(tree.group, PodGroup) else "enough groups"


def told_to_give_up(decision: Decision, unit: Unit, held: Sequence[PodInfo]) -> Decision:
    """The refusal of a group that has been incomplete for too long and releases what it has."""
    tree = tree_of(unit)
    assert tree is not None, "held by a group"
    said = (
        f"its {len(held)} pods that have a node give it back: it has not had {_minimum(tree)} at once "
        f"for {grace_s(tree):g} s, so they only keep others from running"
    )
    first, *others = decision.refusals
    explained = ". ".join(text for text in (first.explanation, said) if text)
    victims = (*first.victims, *_victims(tree, held))
    first = msgspec.structs.replace(first, victims=victims, explanation=explained)
    return msgspec.structs.replace(decision, refusals=(first, *others))
