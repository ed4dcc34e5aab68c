"""One attempt to find a node for one pod: a placement, or everything known about why there is none.

A typical pod uses a `Ranking`, which equal pods share. Pods that may have only a few nodes
are evaluated on those. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.failure import Failure, counted
from allot.core.scheduling.nodes.full_evaluation import (
    FullEvaluation,
    evaluate_all,
    evaluate_few,
    placement_of,
    pre_refusal,
    promised_refusal,
)
from allot.core.scheduling.nodes.ranking import Item, Ranking
from allot.core.scheduling.nodes.topology_terms import spreads_of
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status, Verdict


def attempt(
    cluster: Cluster,
    pod: core_v1.Pod,
    group: PodGroup | None,
    settings: Settings,
    now: float,
    allowed: Collection[str] | None = None,
    rankings: DomainRankings | None = None,
) -> Placement | Failure:
    """The best node for a pod. allowed: the only nodes that may be considered; rankings: rankings of these, for several pods in turn."""
    profile = cluster.profiles.of(pod)
    status = pre_refusal(cluster, profile, pod, settings)
    if status is not None:
        return Failure(status=status, early=True)
    fit = cluster.devices.fit(pod, group, now) if cluster.devices is not None else None
    if isinstance(fit, Status):
        return Failure(status=fit, early=True)
    return _Search(cluster, pod, profile, fit, settings, allowed).best(rankings)


# So few nodes are evaluated one by one: a ranking of all would cost more.
_FEW_NODES = 16


@dataclass(slots=True, eq=False)
class _Search:
    """One pod that may be placed, and the nodes that it may have."""

    cluster: Cluster
    pod: core_v1.Pod
    profile: Profile
    fit: DeviceFit | None
    settings: Settings
    allowed: Collection[str] | None

    def best(self, rankings: DomainRankings | None) -> Placement | Failure:
        """On the node that was promised; else among the few nodes that come into question; else among all."""
        found: Placement | Failure | None = self._promised()
        if found is not None:
            return found
        only = self._only_nodes()
        if only is not None and self.allowed is None and len(only) <= _FEW_NODES:
            found = evaluate_few(self.cluster, self.pod, self.profile, self.fit, self.settings, only)
            if isinstance(found, Placement) or self.profile.node_names is not None or self.pod.spec.node_name:
                return found
        ranking = self._ranking_of_allowed(rankings, only) or self._ranking_of_all(only)
        if ranking is None:
            return evaluate_all(self.cluster, self.pod, self.profile, self.fit, self.settings, self.allowed)
        return self._first_of(ranking)

    def _promised(self) -> Placement | None:
        """On the node for which others were preempted, if it still fits."""
        name = self.pod.status.nominated_node_name
        info = self.cluster.nodes.get(name) if name and (self.allowed is None or name in self.allowed) else None
        if info is None:
            return None
        evaluation = FullEvaluation(self.cluster, self.pod, self.profile, self.fit, self.settings)
        return evaluation.placement(info) if evaluation.refusal(info) is None else None

    def _only_nodes(self) -> Collection[str] | None:
        """The nodes that the caller, the devices and the pod itself all name; None if nobody names any."""
        only = self.allowed if self.fit is None else _both(self.allowed, self.fit.nodes)
        only = _both(only, self.profile.node_names)
        return _both(only, frozenset((self.pod.spec.node_name,))) if self.pod.spec.node_name else only

    def _can_share(self) -> bool:
        """Whether another pod's device fit can answer for this one's."""
        return self.fit is None or self.fit.key is not None

    def _ranking_of_allowed(self, rankings: DomainRankings | None, only: Collection[str] | None) -> Ranking | None:
        if rankings is None or only is not self.allowed or not self._can_share():
            return None
        key = None if self.fit is None else self.fit.key
        ranking = rankings.ranking(self.cluster, self.profile, self.settings, key)
        if ranking is not None:
            ranking.refresh(self.fit)
        return ranking

    def _ranking_of_all(self, only: Collection[str] | None) -> Ranking | None:
        """The ranking that equal pods share, unless this pod's answer depends on more than a ranking knows."""
        cluster, profile, settings = self.cluster, self.profile, self.settings
        if only is not None or not self._can_share() or _shares_exclusively(cluster, profile):
            return None
        spreads = (
            spreads_of(profile, cluster.spread_selectors, settings)
            if looks_around(cluster, profile, settings)
            else None
        )
        if spreads is not None and not cluster.has_unique_hostnames:
            return None
        ranking = cluster.filter_caches.ranking(profile, settings, None if self.fit is None else self.fit.key, spreads)
        ranking.refresh(self.fit)
        # Relative scores are relative to the nodes that other pods allow.
        return None if spreads is not None and ranking.is_relative else ranking

    def _first_of(self, ranking: Ranking) -> Placement | Failure:
        """The best node of a ranking that has the devices and is promised to nobody else."""
        cluster, fit = self.cluster, self.fit
        failed = ranking.failed
        if failed is not None:
            # The error names the claim, so each pod gets its own.
            error = fit.exact(failed) if fit is not None else None
            return Failure(status=error or ranking.refusals[failed.name], fit=fit)
        # Nodes that are unavailable only to this pod, because they were promised to others.
        aside: dict[str, tuple[Item, Status]] = {}
        try:
            while (name := ranking.best()) is not None:
                info = cluster.nodes[name]
                if name in cluster.nominated:
                    status = promised_refusal(cluster, self.pod, self.profile, info, self.settings)
                    if status is not None:
                        aside[name] = (ranking.set_aside(name), status)
                        continue
                status = fit.exact(info) if fit is not None else None
                if status is None:
                    return placement_of(cluster, self.pod, self.profile, info, fit)
                ranking.refuse(name, status)
                if status.verdict is Verdict.ERROR:
                    return Failure(status=status, fit=fit)
            refusals, histogram = ranking.outcome()
            if not aside:
                return Failure(refusals=refusals, histogram=histogram, fit=fit)
            refusals = {**refusals, **{name: status for name, (_, status) in aside.items()}}
            return Failure(refusals=refusals, histogram=counted(refusals.values()), fit=fit)
        finally:
            for item, _ in aside.values():
                ranking.put_back(item)


class DomainRankings:
    """Rankings of some nodes, for pods that are tried there one after the other."""

    def __init__(self, among: Collection[str]) -> None:
        self._among = among
        self._rankings: dict[tuple[bytes, Hashable], Ranking] = {}

    def ranking(self, cluster: Cluster, profile: Profile, settings: Settings, fit_key: Hashable) -> Ranking | None:
        """The ranking of a profile and of fits with this key; None if pods on other nodes matter."""
        if looks_around(cluster, profile, settings) or _shares_exclusively(cluster, profile):
            return None
        key = (profile.shape, fit_key)
        ranking = self._rankings.get(key)
        if ranking is None:
            filter_cache = cluster.filter_caches.filter_cache(profile, settings)
            ranking = self._rankings[key] = Ranking(cluster, filter_cache, self._among)
        return ranking


def _both(names: Collection[str] | None, others: Collection[str] | None) -> Collection[str] | None:
    if names is None or others is None:
        return others if names is None else names
    return frozenset(names) & frozenset(others)


def _shares_exclusively(cluster: Cluster, profile: Profile) -> bool:
    """Whether the pod names a volume claim that only one pod may use."""
    return bool(profile.volume_claims) and bool(cluster.volumes.exclusive(profile))


def looks_around(cluster: Cluster, profile: Profile, settings: Settings) -> bool:
    """Whether pods on other nodes matter."""
    if (
        profile.affinity_terms
        or profile.anti_affinity_terms
        or profile.preferred_terms
        or profile.hard_spreads
        or profile.soft_spreads
    ):
        return True
    if profile.wants_spread and settings.default_spreads and cluster.spread_selectors.selector(profile) is not None:
        return True
    return cluster.affinity_index.concern(profile)
