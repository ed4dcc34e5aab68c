"""The state of one group decision, passed between steps: the cluster, the pods, and where they may run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.groups.shape import minimum_of
from allot.core.scheduling.plan import Unit
from allot.core.scheduling.settings import Settings


class Task(msgspec.Struct, frozen=True, eq=False):
    """The pods of a unit that need places. now: seconds since 1970; allowed: the only nodes that may be considered. goal: for a group of
    groups, whether this many pods of each group, by its key, are enough."""

    cluster: Cluster
    unit: Unit
    group: PodGroup | None
    settings: Settings
    now: float
    allowed: Collection[str] | None = None
    goal: Callable[[Mapping[str, int]], bool] | None = None

    def within(self, allowed: Collection[str] | None) -> Task:
        """The same on these nodes only."""
        return msgspec.structs.replace(self, allowed=allowed)

    @property
    def needed(self) -> int:
        """The minimum number of pods that must get a node, besides those that have one."""
        if self.group is None:
            return 1
        return max(1, minimum_of(self.group) - self.cluster.scheduled_count(self.group))

    @property
    def node_count(self) -> int:
        """How many nodes may be considered."""
        return len(self.cluster.nodes if self.allowed is None else self.allowed)
