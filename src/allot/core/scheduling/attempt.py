"""One attempt to find a node for one pod: a placement, or all that is known about why there is none.

The usual pod is answered from a `Ranking`: what equal pods got to know carries over. Pods that look at pods of other
nodes (affinity, spreading), or that may have only a few nodes, are answered by a survey of those nodes. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import volumes
from allot.core.scheduling.board import (
    Board,
    Item,
    Ranking,
    Raw,
    local_refusal,
    policy_score,
    relative_score,
)
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.nodeinfo import NodeInfo
from allot.core.scheduling.plan import Placement
from allot.core.scheduling.plugins import inter_pod_affinity, node_affinity, node_name, pod_topology_spread
from allot.core.scheduling.podinfo import PodInfo, Profile, Spread, pod_key
from allot.core.scheduling.questions import DeviceQuestion
from allot.core.scheduling.settings import Policy, Settings
from allot.core.scheduling.status import Status, Verdict


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod got no node."""

    # No node was looked at (PreFilter), or the attempt as a whole failed.
    status: Status | None = None
    # Whether it was before any node was looked at.
    early: bool = False
    # What each node said.
    refusals: Mapping[str, Status] = {}
    # How many nodes said the same.
    histogram: Mapping[Status, int] = {}
    question: DeviceQuestion | None = None


def attempt(
    cluster: Cluster,
    pod: core_v1.Pod,
    group: PodGroup | None,
    settings: Settings,
    now: float,
    allowed: Collection[str] | None = None,
) -> Placement | Failure:
    """The best node for a pod. allowed: the only nodes that may be considered."""
    profile = cluster.profiles.of(pod)
    status = _pre_refusal(cluster, profile, pod, settings)
    if status is not None:
        return Failure(status=status, early=True)
    question = cluster.devices.question(pod, group, now) if cluster.devices is not None else None
    if isinstance(question, Status):
        return Failure(status=question, early=True)
    promised = pod.status.nominated_node_name
    if promised and (allowed is None or promised in allowed):
        info = cluster.nodes.get(promised)
        if info is not None and _Survey(cluster, pod, profile, question, settings).refusal(info) is None:
            return _placement(pod, info, question)
    only = allowed if question is None else _both(allowed, question.nodes)
    only = _both(only, profile.node_names)
    if pod.spec.node_name:
        only = _both(only, frozenset((pod.spec.node_name,)))
    if only is not None and allowed is None and len(only) <= _FEW_NODES:
        found = _among_few(cluster, pod, profile, question, settings, only)
        if isinstance(found, Placement):
            return found
        if profile.node_names is not None or pod.spec.node_name:
            return found
    key = None if question is None else question.key
    if only is not None or (question is not None and key is None) or looks_around(cluster, profile, settings):
        return _surveyed(cluster, pod, profile, question, settings, allowed)
    ranking = cluster.boards.ranking(profile, settings, key)
    ranking.refresh(question)
    return _ranked(cluster, pod, profile, question, settings, ranking)


_FEW_NODES = 16


def _both(names: Collection[str] | None, others: Collection[str] | None) -> Collection[str] | None:
    if names is None or others is None:
        return others if names is None else names
    return frozenset(names) & frozenset(others)


def _pre_refusal(cluster: Cluster, profile: Profile, pod: core_v1.Pod, settings: Settings) -> Status | None:
    if profile.node_names is not None and node_affinity.NAME not in settings.disabled_filters:
        status = node_affinity.pre_refusal(profile)
        if status is not None:
            return status
    if profile.volume_claims and volumes.BINDING not in settings.disabled_filters:
        return cluster.volumes.pre_refusal(profile, pod)
    return None


def looks_around(cluster: Cluster, profile: Profile, settings: Settings) -> bool:
    """Whether pods of other nodes have a say."""
    if (
        profile.affinity_terms
        or profile.anti_affinity_terms
        or profile.preferred_terms
        or profile.hard_spreads
        or profile.soft_spreads
    ):
        return True
    if profile.wants_spread and settings.default_spreads and cluster.owners.selector(profile) is not None:
        return True
    if profile.volume_claims and cluster.volumes.exclusive(profile):
        return True
    return cluster.neighbours.concern(profile)


def _placement(pod: core_v1.Pod, info: NodeInfo, question: DeviceQuestion | None) -> Placement:
    if question is None:
        return Placement(pod=pod, node=info.name)
    claims, extended, node_allocatable = question.steps(info)
    return Placement(pod=pod, node=info.name, claims=claims, extended=extended, node_allocatable=node_allocatable)


# --- by the ranking of equal pods ---


def _ranked(
    cluster: Cluster,
    pod: core_v1.Pod,
    profile: Profile,
    question: DeviceQuestion | None,
    settings: Settings,
    ranking: Ranking,
) -> Placement | Failure:
    failed = ranking.failed
    if failed is not None:
        # The error names the claim, so each pod has its own.
        error = question.exact(failed) if question is not None else None
        return Failure(status=error or ranking.refusals[failed.name], question=question)
    # Nodes that only this pod may not have, because others were promised them.
    aside: dict[str, tuple[Item, Status]] = {}
    try:
        while (name := ranking.best()) is not None:
            info = cluster.nodes[name]
            if name in cluster.nominated:
                status = promised_refusal(cluster, pod, profile, info, settings)
                if status is not None:
                    aside[name] = (ranking.set_aside(name), status)
                    continue
            status = question.exact(info) if question is not None else None
            if status is None:
                return _placement(pod, info, question)
            ranking.refuse(name, status)
            if status.verdict is Verdict.ERROR:
                return Failure(status=status, question=question)
        if not aside:
            return Failure(refusals=ranking.refusals, histogram=ranking.histogram, question=question)
        refusals = {**ranking.refusals, **{name: status for name, (_, status) in aside.items()}}
        return Failure(refusals=refusals, histogram=counted(refusals.values()), question=question)
    finally:
        for item, _ in aside.values():
            ranking.put_back(item)


def promised_refusal(
    cluster: Cluster, pod: core_v1.Pod, profile: Profile, info: NodeInfo, settings: Settings
) -> Status | None:
    """Why a node will not do if pods that are at least as important, and were promised it, were there already."""
    key, priority = pod_key(pod), pod.spec.priority or 0
    others = [
        PodInfo(other, cluster.profiles.of(other), info.name)
        for other_key, other in cluster.nominated.get(info.name, {}).items()
        if other_key != key and other_key not in cluster.pods and (other.spec.priority or 0) >= priority
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
    """As above, for devices: what pods left for others is not for whoever comes first."""
    devices = cluster.devices
    if devices is None or not isinstance(question := devices.question(pod), DeviceQuestion):
        return None
    taken: list[Placement] = []
    try:
        for other in sorted(others, key=lambda other: -(other.spec.priority or 0)):
            wanted = devices.question(other)
            if isinstance(wanted, DeviceQuestion) and wanted.quick(info) is None and wanted.exact(info) is None:
                taken.append(_placement(other, info, wanted))
                devices.assume(taken[-1])
        if not taken:
            return None
        question = devices.question(pod)
        if not isinstance(question, DeviceQuestion):
            return question
        status = question.quick(info)
        return status if status is not None else question.exact(info)
    finally:
        for placement in reversed(taken):
            devices.forget(placement)


# --- by looking at nodes one by one ---


class _Survey:
    """All filters of one pod, ready to be asked of many nodes."""

    def __init__(
        self,
        cluster: Cluster,
        pod: core_v1.Pod,
        profile: Profile,
        question: DeviceQuestion | None,
        settings: Settings,
        board: Board | None = None,
    ) -> None:
        self._cluster = cluster
        self._pod = pod
        self._profile = profile
        self._question = question
        self._settings = settings
        self._board = board if board is not None else Board(cluster, profile, settings)
        disabled = settings.disabled_filters
        hard, self.soft, self.all_labels = _spreads(cluster, profile, settings)
        if pod_topology_spread.NAME in disabled:
            hard = ()
        self._spread = pod_topology_spread.Filter(profile, hard, cluster.neighbours, cluster.nodes.values())
        self._affinity = None
        if inter_pod_affinity.NAME not in disabled:
            affinity = inter_pod_affinity.Filter(profile, cluster.neighbours)
            self._affinity = affinity if affinity.is_needed else None
        self._in_use = bool(profile.volume_claims) and self._is_in_use()

    def _is_in_use(self) -> bool:
        """Whether another pod uses a volume claim that only one pod may use."""
        claims = self._cluster.volumes.exclusive(self._profile)
        return bool(claims) and any(
            name in info.volume_claims for info in self._cluster.nodes.values() for name in claims
        )

    def refusal(self, info: NodeInfo) -> Status | None:
        """Why the pod may not have the node: the answer of the first filter that refuses."""
        status = node_name.refusal(self._pod.spec.node_name, info.name)
        if status is None:
            status = self._board.entry(info).status
        if status is None and self._in_use:
            status = volumes.in_use()
        if status is None and self._spread.is_needed:
            status = self._spread.refusal(info)
        if status is None and self._affinity is not None:
            status = self._affinity.refusal(info)
        if status is None and info.name in self._cluster.nominated:
            status = promised_refusal(self._cluster, self._pod, self._profile, info, self._settings)
        if status is None and self._question is not None:
            self._cluster.boards.device_questions += 1
            status = self._question.quick(info)
            if status is None:
                status = self._question.exact(info)
        return status

    def quick_refusal(self, info: NodeInfo) -> Status | None:
        """As `refusal`, but devices are only asked exactly if the pod needs that of every node."""
        question = self._question
        if question is None or question.needs_exact:
            return self.refusal(info)
        self._question = None
        try:
            status = self.refusal(info)
        finally:
            self._question = question
        if status is not None:
            return status
        self._cluster.boards.device_questions += 1
        return question.quick(info)

    def ordered(self, passed: list[NodeInfo]) -> list[NodeInfo]:
        """Nodes that passed, best first."""
        settings = self._settings
        if settings.policy is Policy.FIRST_FIT:
            return sorted(passed, key=lambda info: info.ordinal)
        if len(passed) < 2:
            return passed
        scores = self._scores(passed)
        return sorted(passed, key=lambda info: (-scores[info.name], info.taken_at, info.ordinal))

    def _scores(self, passed: list[NodeInfo]) -> dict[str, int]:
        settings, question = self._settings, self._question
        entries = [self._board.entry(info) for info in passed]
        ranks = [question.rank(info) if question is not None and question.needs_exact else 0 for info in passed]
        raws: list[Raw] = [(entry.unwelcome, entry.wishes, rank) for entry, rank in zip(entries, ranks, strict=True)]
        tops = (max(raw[0] for raw in raws), max(raw[1] for raw in raws), max(raw[2] for raw in raws))
        scores = [entry.score + relative_score(raw, tops, settings) for entry, raw in zip(entries, raws, strict=True)]
        for points, weight in self._shared_scores(passed):
            scores = [score + more * weight for score, more in zip(scores, points, strict=True)]
        if question is not None and settings.policy:
            scores = [
                score + policy_score(question, info, settings) for score, info in zip(scores, passed, strict=True)
            ]
        return {info.name: score for info, score in zip(passed, scores, strict=True)}

    def _shared_scores(self, passed: list[NodeInfo]) -> Iterable[tuple[list[int], int]]:
        """Scores of 0 to 100 in which pods of other nodes have a say, with their weights."""
        cluster, profile, weights = self._cluster, self._profile, self._settings.weights
        if weights.inter_pod_affinity:
            near = inter_pod_affinity.Score(profile, cluster.neighbours, self._settings)
            if near.is_needed:
                points = inter_pod_affinity.normalized([near.raw(info) for info in passed])
                yield points, weights.inter_pod_affinity
        if weights.pod_topology_spread and self.soft:
            nodes = cluster.nodes.values()
            spread = pod_topology_spread.Score(
                profile, self.soft, cluster.neighbours, passed, nodes, all_labels=self.all_labels
            )
            raw = [None if spread.is_ignored(info) else spread.raw(info) for info in passed]
            yield pod_topology_spread.normalized(raw), weights.pod_topology_spread


def _spreads(
    cluster: Cluster, profile: Profile, settings: Settings
) -> tuple[tuple[Spread, ...], tuple[Spread, ...], bool]:
    """Hard and soft constraints, and whether nodes without the labels are left out of the scores."""
    if not profile.wants_spread:
        return profile.hard_spreads, profile.soft_spreads, True
    if not settings.default_spreads and not settings.default_hard_spreads:
        return (), (), True
    selector = cluster.owners.selector(profile)
    if selector is None:
        return (), (), True
    hard, soft = (
        tuple(msgspec.structs.replace(spread, selector=selector) for spread in spreads)
        for spreads in (settings.default_hard_spreads, settings.default_spreads)
    )
    return hard, soft, not settings.system_default_spreads


def _surveyed(
    cluster: Cluster,
    pod: core_v1.Pod,
    profile: Profile,
    question: DeviceQuestion | None,
    settings: Settings,
    allowed: Collection[str] | None,
) -> Placement | Failure:
    """Look at every node."""
    board = cluster.boards.board(profile, settings)
    board.refresh()
    survey = _Survey(cluster, pod, profile, question, settings, board)
    nodes = cluster.nodes.values()
    if allowed is not None:
        nodes = [info for info in nodes if info.name in allowed]  # type: ignore[assignment]
    return _choice(pod, question, survey, nodes)


def _among_few(
    cluster: Cluster,
    pod: core_v1.Pod,
    profile: Profile,
    question: DeviceQuestion | None,
    settings: Settings,
    only: Collection[str],
) -> Placement | Failure:
    """Look at the only nodes that the pod can have."""
    nodes = [info for name in sorted(only) if (info := cluster.nodes.get(name)) is not None]
    found = _choice(pod, question, _Survey(cluster, pod, profile, question, settings), nodes)
    if isinstance(found, Placement) or found.status is not None:
        return found
    others = node_name.REFUSED if pod.spec.node_name else node_affinity.NOT_NAMED
    looked_at = {info.name for info in nodes}
    refusals = {**found.refusals, **{name: others for name in cluster.nodes if name not in looked_at}}
    return Failure(refusals=refusals, histogram=counted(refusals.values()), question=question)


def _choice(
    pod: core_v1.Pod, question: DeviceQuestion | None, survey: _Survey, nodes: Iterable[NodeInfo]
) -> Placement | Failure:
    refusals: dict[str, Status] = {}
    passed: list[NodeInfo] = []
    error: Status | None = None
    for info in nodes:
        status = survey.quick_refusal(info)
        if status is None:
            passed.append(info)
            continue
        refusals[info.name] = status
        if status.verdict is Verdict.ERROR and error is None:
            error = status
    if error is not None:
        return Failure(status=error, question=question)
    for info in survey.ordered(passed):
        status = question.exact(info) if question is not None else None
        if status is None:
            return _placement(pod, info, question)
        refusals[info.name] = status
        if status.verdict is Verdict.ERROR:
            return Failure(status=status, question=question)
    return Failure(refusals=refusals, histogram=counted(refusals.values()), question=question)


def fits(cluster: Cluster, pod: core_v1.Pod, node: str, settings: Settings, now: float) -> Status | None:
    """Why a pod may not have a node, asked of every filter and, exactly, of the devices. For what-if questions."""
    profile = cluster.profiles.of(pod)
    status = _pre_refusal(cluster, profile, pod, settings)
    if status is not None:
        return status
    question = cluster.devices.question(pod, None, now) if cluster.devices is not None else None
    if isinstance(question, Status):
        return question
    return _Survey(cluster, pod, profile, question, settings).refusal(cluster.nodes[node])


def counted(statuses: Iterable[Status]) -> dict[Status, int]:
    """How many nodes said the same."""
    counts: dict[Status, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    return counts
