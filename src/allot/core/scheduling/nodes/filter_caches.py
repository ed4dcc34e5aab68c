"""Filter caches and rankings that are kept for equal pods."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from allot.core.scheduling.nodes.filter_cache import FilterCache
from allot.core.scheduling.nodes.ranking import Ranking
from allot.core.scheduling.nodes.topology_ranking import TopologyRanking
from allot.core.scheduling.nodes.topology_terms import Spreads
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import Settings

if TYPE_CHECKING:
    from allot.core.scheduling.cluster import Cluster

_KEPT_MIN = 32
_KEPT_MAX = 256
# Nodes in all of them together.
_ENTRIES_MAX = 200_000


class FilterCaches:
    """Filter caches and rankings that are kept; the least recently used is dropped first."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By the id of the settings, which a filter cache keeps alive: ids are unique among these.
        self._caches: dict[tuple[int, bytes], FilterCache] = {}
        self._rankings: dict[tuple[int, bytes, Hashable, Hashable], Ranking] = {}
        # Work done, for tests and benchmarks.
        self.evaluations = 0
        self.device_fits = 0

    def _kept_max(self) -> int:
        """How many are kept: fewer if they are large."""
        return max(_KEPT_MIN, min(_KEPT_MAX, _ENTRIES_MAX // (len(self._cluster.nodes) + 1)))

    def filter_cache(self, profile: Profile, settings: Settings) -> FilterCache:
        """The filter cache of pods of one shape, not yet refreshed."""
        key = (id(settings), profile.shape)
        filter_cache = self._caches.pop(key, None)
        if filter_cache is None:
            while len(self._caches) >= self._kept_max():
                del self._caches[next(iter(self._caches))]
            filter_cache = FilterCache(self._cluster, profile, settings)
        self._caches[key] = filter_cache
        return filter_cache

    def ranking(
        self, profile: Profile, settings: Settings, fit_key: Hashable, spreads: Spreads | None = None
    ) -> Ranking:
        """The ranking of a profile and of fits with this key, not yet refreshed. spreads: other pods matter."""
        aspect = None if spreads is None else self._aspect(profile, spreads)
        key = (id(settings), profile.shape, fit_key, aspect)
        ranking = self._rankings.pop(key, None)
        filter_cache = self.filter_cache(profile, settings)
        if ranking is None or ranking.filter_cache is not filter_cache:
            while len(self._rankings) >= self._kept_max():
                del self._rankings[next(iter(self._rankings))]
            if spreads is None:
                ranking = Ranking(self._cluster, filter_cache)
            else:
                ranking = TopologyRanking(self._cluster, filter_cache, profile, spreads)
        if isinstance(ranking, TopologyRanking):
            ranking.profile = profile
        self._rankings[key] = ranking
        return ranking

    def _aspect(self, profile: Profile, spreads: Spreads) -> Hashable:
        """Everything about a pod that matters where pods on other nodes do. Of labels, only what they match."""
        affinity_index = self._cluster.affinity_index
        itself = [spread.selector is not None and spread.selector.matches(profile.labels) for spread in spreads.hard]
        first = bool(profile.affinity_terms) and affinity_index.matches_itself(profile)
        return profile.namespace, spreads, tuple(itself), first, affinity_index.aspect(profile)
