"""Groups of groups: which group belongs to which, and thus what is decided together."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling.groups.dialects import group_key, parent_key

# The API allows fewer levels; a longer chain is a cycle.
_DEPTH_MAX = 16
AnyGroup = PodGroup | CompositePodGroup


class Tree(msgspec.Struct, frozen=True):
    """A group with what belongs to it. key: namespace/key."""

    key: str
    group: AnyGroup
    children: tuple[Tree, ...] = ()

    def leaves(self) -> Iterator[tuple[str, PodGroup]]:
        """The groups of pods below, and their keys."""
        if isinstance(self.group, PodGroup):
            yield self.key, self.group
        for child in self.children:
            yield from child.leaves()

    def nodes(self) -> Iterator[Tree]:
        """This one and all below."""
        yield self
        for child in self.children:
            yield from child.nodes()

    @property
    def minimum(self) -> int:
        """How many groups must have what they need, if this is a group of groups."""
        policy = self.group.spec.scheduling_policy
        gang = policy.gang
        return getattr(gang, "min_group_count", 1) if gang is not None else 1


def key_of(group: AnyGroup) -> str:
    """namespace/key of a group."""
    return f"{group.metadata.namespace}/{group_key(group)}"


class Forest:
    """All groups, by their parents."""

    def __init__(self) -> None:
        self._groups: dict[str, AnyGroup] = {}
        self._children: dict[str, dict[str, None]] = {}
        # The key of the parent, for groups that have one.
        self._parents: dict[str, str] = {}

    def put(self, group: AnyGroup) -> None:
        """A group was created or changed; its parent never changes."""
        key, parent = key_of(group), _parent_of(group)
        self._groups[key] = group
        if parent:
            self._children.setdefault(parent, {})[key] = None
            self._parents[key] = parent
        else:
            self._parents.pop(key, None)

    def delete(self, group: AnyGroup) -> None:
        """A group is gone."""
        key, parent = key_of(group), _parent_of(group)
        self._groups.pop(key, None)
        self._parents.pop(key, None)
        children = self._children.get(parent, {})
        children.pop(key, None)
        if not children:
            self._children.pop(parent, None)

    def root(self, key: str) -> str:
        """The key of the group that a group is decided with, which need not be known yet."""
        if not self._parents:
            return key
        for _ in range(_DEPTH_MAX):
            parent = self._parents.get(key)
            if parent is None:
                return key
            key = parent
        return key

    def tree(self, key: str) -> Tree | None:
        """A group of groups with everything known below it; None if it is not one, or not known."""
        group = self._groups.get(key)
        return self._tree(key, group, 0) if isinstance(group, CompositePodGroup) else None

    def _tree(self, key: str, group: AnyGroup, depth: int) -> Tree:
        known = [
            (child, self._groups[child])
            for child in self._children.get(key, ())
            if child in self._groups and depth < _DEPTH_MAX
        ]
        known.sort(key=lambda found: (found[1].metadata.creation_timestamp or "", found[1].metadata.name))
        return Tree(key, group, tuple(self._tree(child, each, depth + 1) for child, each in known))

    def disrupted_with(self, key: str) -> Tree | None:
        """The highest group above a group of pods (or that group itself) that is disrupted only as a whole; None if pods are evicted one by one."""
        found: str | None = None
        for _ in range(_DEPTH_MAX):
            group = self._groups.get(key)
            if group is None:
                break
            mode = group.spec.disruption_mode
            if mode is not None and mode.all is not None:
                found = key
            key = _parent_of(group)
        return self._tree(found, self._groups[found], 0) if found is not None else None

    def priority(self, key: str) -> int | None:
        """The priority of the root of a group; None if not set."""
        group = self._groups.get(self.root(key))
        return group.spec.priority if group is not None else None


def _parent_of(group: AnyGroup) -> str:
    key = parent_key(group)
    return f"{group.metadata.namespace}/{key}" if key else ""
