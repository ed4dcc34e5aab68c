"""The nodes that a kind of pod can use, in the order in which they are tried; kept for equal pods.

A `Ranking` adds the devices to what a `FilterCache` knows. Scores that are relative to the best node (TaintToleration,
NodeAffinity, prioritized lists) are computed again for all nodes only when the best one changes. What depends on pods of
other nodes (affinity, spreading) is added by `topology_ranking`.

Order among equal scores: the node with the fewest pods first, then by name. So equal nodes fill evenly, and the same cluster
gives the same answer, however it came to be.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeVar

from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.nodes.filter_cache import FilterCache
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.settings import Policy, Settings
from allot.core.scheduling.status import Status, Verdict

if TYPE_CHECKING:
    from allot.core.scheduling.cluster import Cluster

K = TypeVar("K")
# Points that are relative to the best node: PreferNoSchedule taints, preferred nodes, rank of the devices.
Raw = tuple[int, int, int]
_NO_POINTS: Raw = (0, 0, 0)
# Score negated, number of pods, name: the smallest is the best.
Item = tuple[int, int, str]


class Ranking:
    """The nodes that a kind of pod can use, best first; and why it cannot use the others."""

    def __init__(self, cluster: Cluster, filter_cache: FilterCache, among: Collection[str] | None = None) -> None:
        """among: the only nodes to consider."""
        self._cluster = cluster
        self._among = among
        self.filter_cache = filter_cache
        self._live: dict[str, Item] = {}
        self._raw: dict[str, Raw] = {}
        self._raw_counts: dict[Raw, int] = {}
        self._heap: list[Item] = []
        self._tops = _NO_POINTS
        self._position = self._device_position = -1
        self._volume_version = -1
        self.refusals: dict[str, Status] = {}
        # How many nodes refused in the same words.
        self.histogram: dict[Status, int] = {}
        self._errors: dict[str, Status] = {}

    def refresh(self, fit: DeviceFit | None) -> None:
        """Catch up with what changed. The fit must be equal to the ones before."""
        filter_cache, cluster = self.filter_cache, self._cluster
        filter_cache.refresh()
        changed = self._changed(fit is not None)
        if changed is None:
            self._clear()
            changed = set(cluster.nodes)
        if self._among is not None:
            changed = changed.intersection(self._among)
        for name in changed:
            self._update(name, fit)
        tops = self._find_tops() if self._raw_counts else _NO_POINTS
        if tops != self._tops or len(self._heap) > 4 * len(self._live) + 64:
            self._tops = tops
            self._rank_again(fit)

    def _clear(self) -> None:
        self._live, self._raw, self._raw_counts, self._heap = {}, {}, {}, []
        self.refusals, self.histogram, self._errors = {}, {}, {}

    def _changed(self, has_devices: bool) -> set[str] | None:
        cluster = self._cluster
        position, self._position = self._position, cluster.changes.position
        changed = cluster.changes.since(position) if position >= 0 else None
        if has_devices or self.filter_cache.profile.scalars:
            position, self._device_position = self._device_position, cluster.device_changes.position
            devices = cluster.device_changes.since(position) if position >= 0 else None
            changed = None if changed is None or devices is None else changed | devices
        version, self._volume_version = self._volume_version, cluster.volumes.version
        if version != self._volume_version and self.filter_cache.profile.volume_claims:
            changed = None
        return changed

    def _update(self, name: str, fit: DeviceFit | None) -> None:
        self._leave(name)
        raw = self._raw.pop(name, None)
        if raw is not None:
            _less(self._raw_counts, raw)
        refused = self.refusals.pop(name, None)
        if refused is not None:
            self._uncount(name, refused)
        info = self._cluster.nodes.get(name)
        if info is None:
            return
        entry = self.filter_cache.entries[name]
        status = entry.status
        rank = 0
        if status is None and fit is not None:
            self._cluster.filter_caches.device_fits += 1
            if fit.needs_exact:
                status = fit.exact(info)
                if status is None:
                    rank = fit.rank(info)
            else:
                status = fit.quick(info)
        if status is not None:
            self.refuse(name, status)
            return
        if rank or entry.unwelcome or entry.wishes:
            raw = self._raw[name] = (entry.unwelcome, entry.wishes, rank)
            self._raw_counts[raw] = self._raw_counts.get(raw, 0) + 1
        self._enter(self._item(info, fit))

    def _enter(self, item: Item) -> None:
        """A node is available."""
        self._live[item[2]] = item
        heappush(self._heap, item)

    def _leave(self, name: str) -> Item | None:
        """A node is not available, or is about to be checked again."""
        return self._live.pop(name, None)

    def _item(self, info: NodeInfo, fit: DeviceFit | None) -> Item:
        settings = self.filter_cache.settings
        if settings.policy is Policy.FIRST_FIT:
            return 0, 0, info.name
        score = self.filter_cache.entries[info.name].score
        if self._tops != _NO_POINTS:
            score += relative_score(self._raw.get(info.name, _NO_POINTS), self._tops, settings)
        if fit is not None and settings.policy:
            score += policy_score(fit, info, settings)
        return -score, len(info.pods), info.name

    def _find_tops(self) -> Raw:
        points = self._raw_counts
        return max(raw[0] for raw in points), max(raw[1] for raw in points), max(raw[2] for raw in points)

    def _rank_again(self, fit: DeviceFit | None) -> None:
        nodes = self._cluster.nodes
        self._live = {name: self._item(nodes[name], fit) for name in self._live}
        self._heap = list(self._live.values())
        heapify(self._heap)

    @property
    def is_relative(self) -> bool:
        """Whether nodes differ in scores that are relative to the best node."""
        return bool(self._raw_counts)

    def best(self) -> str | None:
        """The next node to try."""
        heap, live = self._heap, self._live
        while heap:
            item = heap[0]
            if live.get(item[2]) is item:
                return item[2]
            heappop(heap)
        return None

    def refuse(self, name: str, status: Status) -> None:
        """A node turned out not to fit; this holds until it changes."""
        self._leave(name)
        self.refusals[name] = status
        self.histogram[status] = self.histogram.get(status, 0) + 1
        if status.verdict is Verdict.ERROR:
            self._errors[name] = status

    def _uncount(self, name: str, status: Status) -> None:
        _less(self.histogram, status)
        self._errors.pop(name, None)

    def set_aside(self, name: str) -> Item:
        """Leave a node out this time; `put_back` undoes it."""
        item = self._leave(name)
        assert item is not None, f"node {name} is a candidate"
        return item

    def put_back(self, item: Item) -> None:
        """Undo `set_aside`."""
        self._enter(item)

    def outcome(self) -> tuple[Mapping[str, Status], Mapping[Status, int]]:
        """When no node is left: the status of each, and how many have the same."""
        return self.refusals, self.histogram

    @property
    def failed(self) -> NodeInfo | None:
        """A node whose error makes the whole attempt fail: the first by name."""
        if not self._errors:
            return None
        return self._cluster.nodes[min(self._errors)]


def _less(counts: dict[K, int], key: K) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


def relative_score(raw: Raw, tops: Raw, settings: Settings) -> int:
    """Weighted scores of 0 to 100 of what is relative to the best node."""
    weights = settings.weights
    score = 0
    if tops[0]:
        score += (100 - raw[0] * 100 // tops[0]) * weights.taint_toleration
    if tops[1]:
        score += raw[1] * 100 // tops[1] * weights.node_affinity
    if tops[2]:
        score += raw[2] * 100 // tops[2] * weights.dynamic_resources
    return score


def policy_score(fit: DeviceFit, info: NodeInfo, settings: Settings) -> int:
    """The weighted score of a policy that packs or spreads devices."""
    held, there = fit.occupancy(info)
    points = held * 100 // there if there else 0
    if settings.policy is Policy.SPREAD:
        points = 100 - points
    return points * settings.weights.device_policy
