"""Evaluates one pod on nodes one by one: for pods that may have only a few nodes, and for what-if questions.

The answer is always current; only what depends on a node alone may come from a `FilterCache`. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from allot.core.model import core_v1
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.failure import Failure, counted
from allot.core.scheduling.nodes import volumes
from allot.core.scheduling.nodes.filter_cache import FilterCache, local_refusal
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.ranking import Raw, policy_score, relative_score
from allot.core.scheduling.nodes.topology_terms import TopologyTerms, spreads_of
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.plugins import node_affinity, node_name
from allot.core.scheduling.podinfo import PodInfo, Profile, pod_key
from allot.core.scheduling.settings import Policy, Settings
from allot.core.scheduling.status import Status, Verdict

_FEW = 16


class FullEvaluation:
    """All filters of one pod, ready to be checked on many nodes."""

    def __init__(
        self,
        cluster: Cluster,
        pod: core_v1.Pod,
        profile: Profile,
        fit: DeviceFit | None,
        settings: Settings,
        filter_cache: FilterCache | None = None,
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._profile = profile
        self._fit = fit
        self._settings = settings
        self._filter_cache = filter_cache if filter_cache is not None else FilterCache(cluster, profile, settings)
        spreads = spreads_of(profile, cluster.spread_selectors, settings)
        nodes = [(info, 1) for info in cluster.nodes.values()] if spreads.hard or spreads.soft else []
        self._topology = TopologyTerms(profile, spreads, cluster.affinity_index, settings, nodes)
        self._in_use = bool(profile.volume_claims) and self._is_in_use()

    def _is_in_use(self) -> bool:
        """Whether another pod uses a volume claim that only one pod may use."""
        claims = self._cluster.volumes.exclusive(self._profile)
        return bool(claims) and any(
            name in info.volume_claims for info in self._cluster.nodes.values() for name in claims
        )

    def placement(self, info: NodeInfo) -> Placement:
        """The pod on a node that fits."""
        return placement_of(self._cluster, self._pod, self._profile, info, self._fit)

    def refusal(self, info: NodeInfo) -> Status | None:
        """Why the pod may not have the node: the answer of the first filter that refuses."""
        status = node_name.refusal(self._pod.spec.node_name, info.name)
        if status is None:
            status = self._filter_cache.entry(info).status
        if status is None and self._in_use:
            status = volumes.in_use()
        if status is None:
            status = self._topology.refusal(info)
        if status is None and info.name in self._cluster.nominated:
            status = promised_refusal(self._cluster, self._pod, self._profile, info, self._settings)
        if status is None and self._fit is not None:
            self._cluster.filter_caches.device_fits += 1
            status = self._fit.quick(info)
            if status is None:
                status = self._fit.exact(info)
        return status

    def quick_refusal(self, info: NodeInfo) -> Status | None:
        """As `refusal`, but devices get the exact check only if the pod needs that on every node."""
        fit = self._fit
        if fit is None or fit.needs_exact:
            return self.refusal(info)
        self._fit = None
        try:
            status = self.refusal(info)
        finally:
            self._fit = fit
        if status is not None:
            return status
        self._cluster.filter_caches.device_fits += 1
        return fit.quick(info)

    def ordered(self, passed: list[NodeInfo]) -> list[NodeInfo]:
        """Nodes that passed, best first."""
        settings = self._settings
        if settings.policy is Policy.FIRST_FIT:
            return sorted(passed, key=lambda info: info.name)
        if len(passed) < 2:
            return passed
        scores = self._scores(passed)
        return sorted(passed, key=lambda info: (-scores[info.name], len(info.pods), info.name))

    def _scores(self, passed: list[NodeInfo]) -> dict[str, int]:
        settings, fit = self._settings, self._fit
        entries = [self._filter_cache.entry(info) for info in passed]
        ranks = [fit.rank(info) if fit is not None and fit.needs_exact else 0 for info in passed]
        raws: list[Raw] = [(entry.unwelcome, entry.wishes, rank) for entry, rank in zip(entries, ranks, strict=True)]
        tops = (max(raw[0] for raw in raws), max(raw[1] for raw in raws), max(raw[2] for raw in raws))
        scores = [entry.score + relative_score(raw, tops, settings) for entry, raw in zip(entries, raws, strict=True)]
        topology = self._topology.scores([(info, 1) for info in passed])
        scores = [score + more for score, more in zip(scores, topology, strict=True)]
        if fit is not None and settings.policy:
            scores = [score + policy_score(fit, info, settings) for score, info in zip(scores, passed, strict=True)]
        return {info.name: score for info, score in zip(passed, scores, strict=True)}


def evaluate_all(
    cluster: Cluster,
    pod: core_v1.Pod,
    profile: Profile,
    fit: DeviceFit | None,
    settings: Settings,
    allowed: Collection[str] | None,
) -> Placement | Failure:
    """Evaluate every allowed node."""
    if allowed is not None and len(allowed) <= _FEW:
        # Refreshing the cache is not worth it for so few nodes.
        few = [cluster.nodes[name] for name in sorted(allowed) if name in cluster.nodes]
        return _choice(fit, FullEvaluation(cluster, pod, profile, fit, settings), few)
    filter_cache = cluster.filter_caches.filter_cache(profile, settings)
    filter_cache.refresh()
    evaluation = FullEvaluation(cluster, pod, profile, fit, settings, filter_cache)
    nodes: Iterable[NodeInfo] = cluster.nodes.values()
    if allowed is not None:
        nodes = [info for info in nodes if info.name in allowed]
    return _choice(fit, evaluation, nodes)


def evaluate_few(
    cluster: Cluster,
    pod: core_v1.Pod,
    profile: Profile,
    fit: DeviceFit | None,
    settings: Settings,
    only: Collection[str],
) -> Placement | Failure:
    """Evaluate the only nodes that the pod can use."""
    nodes = [info for name in sorted(only) if (info := cluster.nodes.get(name)) is not None]
    found = _choice(fit, FullEvaluation(cluster, pod, profile, fit, settings), nodes)
    if isinstance(found, Placement) or found.status is not None:
        return found
    others = node_name.REFUSED if pod.spec.node_name else node_affinity.NOT_NAMED
    looked_at = {info.name for info in nodes}
    refusals = {**found.refusals, **{name: others for name in cluster.nodes if name not in looked_at}}
    return Failure(refusals=refusals, histogram=counted(refusals.values()), fit=fit)


def _choice(fit: DeviceFit | None, evaluation: FullEvaluation, nodes: Iterable[NodeInfo]) -> Placement | Failure:
    refusals: dict[str, Status] = {}
    passed: list[NodeInfo] = []
    errors: dict[str, Status] = {}
    for info in nodes:
        status = evaluation.quick_refusal(info)
        if status is None:
            passed.append(info)
            continue
        refusals[info.name] = status
        if status.verdict is Verdict.ERROR:
            errors[info.name] = status
    if errors:
        return Failure(status=errors[min(errors)], fit=fit)
    for info in evaluation.ordered(passed):
        status = fit.exact(info) if fit is not None else None
        if status is None:
            return evaluation.placement(info)
        refusals[info.name] = status
        if status.verdict is Verdict.ERROR:
            return Failure(status=status, fit=fit)
    return Failure(refusals=refusals, histogram=counted(refusals.values()), fit=fit)


def placement_of(
    cluster: Cluster, pod: core_v1.Pod, profile: Profile, info: NodeInfo, fit: DeviceFit | None
) -> Placement:
    """The pod on a node that fits."""
    volumes = cluster.volumes.steps(profile, info) if profile.volume_claims else ()
    if fit is None:
        return Placement(pod=pod, node=info.name, volumes=volumes)
    claims, extended, node_allocatable = fit.steps(info)
    return Placement(
        pod=pod,
        node=info.name,
        volumes=volumes,
        claims=claims,
        extended=extended,
        node_allocatable=node_allocatable,
    )


# --- nodes promised to others ---


def promised_refusal(
    cluster: Cluster, pod: core_v1.Pod, profile: Profile, info: NodeInfo, settings: Settings
) -> Status | None:
    """Why a node does not fit if pods of at least the same priority that were promised it were already there.

    What is kept for a pod is its own: only what is kept for others blocks it, not other promises of the same node. Otherwise two pods could
    wait for each other, and evictions for one of them would be in vain, again and again."""
    key, priority = pod_key(pod), pod.spec.priority or 0
    is_kept = key in cluster.kept
    others = [
        PodInfo(other, cluster.profiles.of(other), info.name)
        for other_key, other in cluster.nominated.get(info.name, {}).items()
        if other_key != key
        and other_key not in cluster.pods
        and (other_key in cluster.kept or (not is_kept and (other.spec.priority or 0) >= priority))
    ]
    if not others:
        return None
    for other in others:
        info.add(other)
    try:
        status = local_refusal(cluster, profile, info, settings)
    finally:
        for other in others:
            info.remove(other.key)
    return status if status is not None else _promised_devices(cluster, pod, [other.pod for other in others], info)


def _promised_devices(
    cluster: Cluster, pod: core_v1.Pod, others: Sequence[core_v1.Pod], info: NodeInfo
) -> Status | None:
    """As above, for devices: devices freed for other pods are reserved for these."""
    devices = cluster.devices
    if devices is None:
        return None
    # Not asked for the protocol, which costs more than most answers.
    fit = devices.fit(pod)
    if fit is None or isinstance(fit, Status):
        return None
    taken: list[Placement] = []
    try:
        for other in sorted(others, key=lambda other: -(other.spec.priority or 0)):
            wanted = devices.fit(other)
            if wanted is None or isinstance(wanted, Status):
                continue
            if wanted.quick(info) is None and wanted.exact(info) is None:
                taken.append(placement_of(cluster, other, cluster.profiles.of(other), info, wanted))
                devices.assume(taken[-1])
        if not taken:
            return None
        fit = devices.fit(pod)
        if fit is None or isinstance(fit, Status):
            return fit
        status = fit.quick(info)
        return status if status is not None else fit.exact(info)
    finally:
        for placement in reversed(taken):
            devices.forget(placement)


# --- what-if ---


def pre_refusal(cluster: Cluster, profile: Profile, pod: core_v1.Pod, settings: Settings) -> Status | None:
    """Why no node fits, if that is known before any is checked."""
    if profile.node_names is not None and node_affinity.NAME not in settings.disabled_filters:
        status = node_affinity.pre_refusal(profile)
        if status is not None:
            return status
    if profile.volume_claims and volumes.BINDING not in settings.disabled_filters:
        return cluster.volumes.pre_refusal(profile, pod)
    return None


def fits(cluster: Cluster, pod: core_v1.Pod, node: str, settings: Settings, now: float) -> Status | None:
    """Why a pod may not have a node, with every filter and the exact check of devices. For what-if questions."""
    profile = cluster.profiles.of(pod)
    status = pre_refusal(cluster, profile, pod, settings)
    if status is not None:
        return status
    fit = cluster.devices.fit(pod, None, now) if cluster.devices is not None else None
    if isinstance(fit, Status):
        return fit
    return FullEvaluation(cluster, pod, profile, fit, settings).refusal(cluster.nodes[node])
