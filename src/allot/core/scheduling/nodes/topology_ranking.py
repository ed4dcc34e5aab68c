"""Rankings for pods that depend on pods of other nodes: affinity and spreading.

Nodes that are equal in all that matters for that form a group: the same values of the node labels that are asked about, the
same number of matching pods. Filters and scores are computed once per group and decision; within a group the order is
that of the ranking. So a decision costs the number of groups, not of nodes, and a change costs the nodes that changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.nodes.filter_cache import FilterCache
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.ranking import Item, Ranking
from allot.core.scheduling.nodes.topology_terms import Spreads, TopologyTerms
from allot.core.scheduling.plugins import inter_pod_affinity, pod_topology_spread
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import HOSTNAME
from allot.core.scheduling.status import Status

if TYPE_CHECKING:
    from allot.core.scheduling.cluster import Cluster


class _NodeGroup:
    """Equal nodes."""

    __slots__ = ("heap", "live", "members")

    def __init__(self) -> None:
        # All of them; one stands for all.
        self.members: dict[str, None] = {}
        # How many of them are available according to the ranking, and these in order; stale entries are skipped.
        self.live = 0
        self.heap: list[Item] = []


class TopologyRanking(Ranking):
    """A ranking that depends on pods on other nodes."""

    def __init__(self, cluster: Cluster, filter_cache: FilterCache, profile: Profile, spreads: Spreads) -> None:
        super().__init__(cluster, filter_cache)
        # The filter cache is that of all pods of the same shape; here it matters what labels mean. Of the pod that asks now.
        self.profile = profile
        self._spreads = spreads
        self._groups: dict[Hashable, _NodeGroup] = {}
        self._group_of: dict[str, _NodeGroup] = {}
        self._keys: tuple[str, ...] = ()
        self._version = -1
        self._filter = inter_pod_affinity.Filter(profile, cluster.affinity_index)
        self._wishes = inter_pod_affinity.Score(profile, cluster.affinity_index, filter_cache.settings)
        # Computed when a decision first needs it, dropped when anything changes: the groups that were asked, and by
        # their numbers what they said.
        self._asked: list[_NodeGroup] = []
        self._refused: dict[int, Status] = {}
        self._scores: dict[int, int] | None = None

    # --- which group a node belongs to ---

    def refresh(self, fit: DeviceFit | None) -> None:
        """Catch up with what changed."""
        affinity_index = self._cluster.affinity_index
        profile, settings = self.profile, self.filter_cache.settings
        self._filter = inter_pod_affinity.Filter(profile, affinity_index)
        self._wishes = inter_pod_affinity.Score(profile, affinity_index, settings)
        if affinity_index.version != self._version:
            # The relevant terms may have changed.
            self._version = affinity_index.version
            self._position = -1
            rules = (*self._filter.near, *self._filter.away, *self._filter.unwanted)
            keys = {key for key, _ in rules} | {key for key, _, _ in self._wishes.wishes}
            keys |= {spread.topology_key for spread in (*self._spreads.hard, *self._spreads.soft)}
            self._keys = tuple(sorted(keys - {HOSTNAME}))
        super().refresh(fit)
        self._scores = None

    def _clear(self) -> None:
        super()._clear()
        self._groups, self._group_of = {}, {}

    def _update(self, name: str, fit: DeviceFit | None) -> None:
        self._leave(name)
        before = self._group_of.pop(name, None)
        if before is not None:
            del before.members[name]
        info = self._cluster.nodes.get(name)
        if info is not None:
            key = self._group_key(info)
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _NodeGroup()
            group.members[name] = None
            self._group_of[name] = group
        super()._update(name, fit)

    def _group_key(self, info: NodeInfo) -> Hashable:
        """Everything about a node that filters and scores look at. Hostnames are many, so the rules' results for each are used instead."""
        labels, profile = info.labels, self.profile
        key: list[Hashable] = [labels.get(label) for label in self._keys]
        host = labels.get(HOSTNAME)
        key.append(host is None)
        if host is not None:
            rules = (*self._filter.near, *self._filter.away, *self._filter.unwanted)
            key += [host in domains for label, domains in rules if label == HOSTNAME]
            wishes = self._wishes.wishes
            key.append(sum(domains.get(host, 0) * weight for label, domains, weight in wishes if label == HOSTNAME))
        for spread in (*self._spreads.hard, *self._spreads.soft):
            key.append(self._cluster.affinity_index.on_nodes(profile.namespace, spread.selector).get(info.name, 0))
            key.append(pod_topology_spread.is_counted(spread, profile, info))
        return tuple(key)

    # --- the order ---

    def _enter(self, item: Item) -> None:
        self._live[item[2]] = item
        group = self._group_of[item[2]]
        group.live += 1
        heappush(group.heap, item)
        self._scores = None

    def _leave(self, name: str) -> Item | None:
        item = self._live.pop(name, None)
        if item is not None:
            self._group_of[name].live -= 1
            self._scores = None
        return item

    def _rank_again(self, fit: DeviceFit | None) -> None:
        nodes = self._cluster.nodes
        for group in self._groups.values():
            group.live, group.heap = 0, []
        for name in list(self._live):
            self._enter(self._item(nodes[name], fit))

    def best(self) -> str | None:
        """The next node to try."""
        if self._scores is None:
            self._ask_groups()
        best: Item | None = None
        for index, score in (self._scores or {}).items():
            item = self._first(self._asked[index])
            if item is None:
                continue
            found = (item[0] - score, item[1], item[2])
            if best is None or found < best:
                best = found
        return None if best is None else best[2]

    def _first(self, group: _NodeGroup) -> Item | None:
        heap, live = group.heap, self._live
        while heap:
            item = heap[0]
            if live.get(item[2]) is item:
                return item
            heappop(heap)
        return None

    def _ask_groups(self) -> None:
        """Compute for each group with members whether it fits, and its score."""
        nodes = self._cluster.nodes
        self._groups = {key: group for key, group in self._groups.items() if group.members}
        self._asked = list(self._groups.values())
        standing = [(nodes[next(iter(group.members))], len(group.members)) for group in self._asked]
        affinity_index, settings = self._cluster.affinity_index, self.filter_cache.settings
        topology = TopologyTerms(self.profile, self._spreads, affinity_index, settings, standing)
        self._refused = {}
        passed = []
        for index, (group, (info, _)) in enumerate(zip(self._asked, standing, strict=True)):
            if not group.live:
                continue
            status = topology.refusal(info)
            if status is None:
                passed.append((index, (info, group.live)))
            else:
                self._refused[index] = status
        scores = topology.scores([counted for _, counted in passed])
        self._scores = {index: score for (index, _), score in zip(passed, scores, strict=True)}

    def outcome(self) -> tuple[Mapping[str, Status], Mapping[Status, int]]:
        """When no node is left: the status of each, and how many have the same."""
        if self._scores is None:
            self._ask_groups()
        refusals, histogram = dict(self.refusals), dict(self.histogram)
        for index, status in self._refused.items():
            for name in self._asked[index].members:
                if name in self._live:
                    refusals[name] = status
                    histogram[status] = histogram.get(status, 0) + 1
        return refusals, histogram
