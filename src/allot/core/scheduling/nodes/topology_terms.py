"""Rules between one pod and the pods of all nodes: spreading, and affinity to and from other pods.

Each node has a count: one node may stand for many that are equal in all that matters here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.pod_affinity_index import PodAffinityIndex
from allot.core.scheduling.nodes.spread_selectors import SpreadSelectors
from allot.core.scheduling.plugins import inter_pod_affinity, pod_topology_spread
from allot.core.scheduling.podinfo import Profile, Spread
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status

# A node, and how many nodes it stands for.
Counted = tuple[NodeInfo, int]


class Spreads(msgspec.Struct, frozen=True):
    """The constraints of a pod, its own or those by default."""

    hard: tuple[Spread, ...] = ()
    soft: tuple[Spread, ...] = ()
    # Whether nodes without the labels are left out of the scores.
    all_labels: bool = True


_NO_SPREADS = Spreads()


def spreads_of(profile: Profile, selectors: SpreadSelectors, settings: Settings) -> Spreads:
    """The constraints of a pod. Pods of services and controllers have some by default."""
    if not profile.wants_spread:
        return Spreads(profile.hard_spreads, profile.soft_spreads)
    if not settings.default_spreads and not settings.default_hard_spreads:
        return _NO_SPREADS
    selector = selectors.selector(profile)
    if selector is None:
        return _NO_SPREADS
    hard, soft = (
        tuple(msgspec.structs.replace(spread, selector=selector) for spread in spreads)
        for spreads in (settings.default_hard_spreads, settings.default_spreads)
    )
    return Spreads(hard, soft, not settings.system_default_spreads)


class TopologyTerms:
    """The current effect of all nodes' pods on one pod."""

    def __init__(
        self,
        profile: Profile,
        spreads: Spreads,
        affinity_index: PodAffinityIndex,
        settings: Settings,
        nodes: Iterable[Counted],
    ) -> None:
        self._profile = profile
        self._spreads = spreads
        self._affinity_index = affinity_index
        self._settings = settings
        self._nodes = nodes
        disabled = settings.disabled_filters
        hard = () if pod_topology_spread.NAME in disabled else spreads.hard
        self._spread = pod_topology_spread.Filter(profile, hard, affinity_index, nodes) if hard else None
        self._affinity = None
        if inter_pod_affinity.NAME not in disabled:
            affinity = inter_pod_affinity.Filter(profile, affinity_index)
            self._affinity = affinity if affinity.is_needed else None

    def refusal(self, node: NodeInfo) -> Status | None:
        """Why the pod may not have the node."""
        if self._spread is not None:
            status = self._spread.refusal(node)
            if status is not None:
                return status
        return self._affinity.refusal(node) if self._affinity is not None else None

    def scores(self, passed: Sequence[Counted]) -> list[int]:
        """Weighted scores of the nodes that passed all filters."""
        weights = self._settings.weights
        total = [0] * len(passed)
        if not passed:
            return total
        if weights.inter_pod_affinity:
            near = inter_pod_affinity.Score(self._profile, self._affinity_index, self._settings)
            if near.is_needed:
                points = inter_pod_affinity.normalized([near.raw(node) for node, _ in passed])
                total = [score + more * weights.inter_pod_affinity for score, more in zip(total, points, strict=True)]
        spreads = self._spreads
        if weights.pod_topology_spread and spreads.soft:
            spread = pod_topology_spread.Score(
                self._profile, spreads.soft, self._affinity_index, passed, self._nodes, all_labels=spreads.all_labels
            )
            raw = [None if spread.is_ignored(node) else spread.raw(node) for node, _ in passed]
            points = pod_topology_spread.normalized(raw)
            total = [score + more * weights.pod_topology_spread for score, more in zip(total, points, strict=True)]
        return total
