"""InterPodAffinity: pods that must or would like to be near other pods, or away from them."""

from __future__ import annotations

from collections.abc import Mapping

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.pod_affinity_index import PodAffinityIndex
from allot.core.scheduling.podinfo import Profile
from allot.core.scheduling.settings import Settings
from allot.core.scheduling.status import Status, Verdict

NAME = "InterPodAffinity"
_NOT_NEAR = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=("node(s) didn't match pod affinity rules",))
_TOO_NEAR = Status(
    verdict=Verdict.UNSCHEDULABLE, plugin=NAME, reasons=("node(s) didn't match pod anti-affinity rules",)
)
_UNWANTED = Status(
    verdict=Verdict.UNSCHEDULABLE,
    plugin=NAME,
    reasons=("node(s) didn't satisfy existing pods anti-affinity rules",),
)


class Filter:
    """The rules of one pod, and those of existing pods about it, ready to be checked on many nodes."""

    def __init__(self, profile: Profile, affinity_index: PodAffinityIndex) -> None:
        self.near = [
            (term.topology_key, affinity_index.near(profile.affinity_terms)[term.topology_key])
            for term in profile.affinity_terms
        ]
        # No pod to be near yet: the first pod with affinity to its own kind may go anywhere.
        nobody = not any(domains for _, domains in self.near)
        self._is_first = nobody and bool(self.near) and affinity_index.matches_itself(profile)
        self.away = [
            (term.topology_key, affinity_index.near((term,))[term.topology_key]) for term in profile.anti_affinity_terms
        ]
        self.unwanted = list(affinity_index.kept_away(profile))

    @property
    def is_needed(self) -> bool:
        """Whether any node can be refused."""
        return bool(self.near or self.away or self.unwanted)

    def refusal(self, node: NodeInfo) -> Status | None:
        """Why the pod may not have the node."""
        labels = node.labels
        for key, domains in self.near:
            value = labels.get(key)
            if value is None or (value not in domains and not self._is_first):
                return _NOT_NEAR
        for key, domains in self.away:
            value = labels.get(key)
            if value is not None and value in domains:
                return _TOO_NEAR
        for key, domains in self.unwanted:
            value = labels.get(key)
            if value is not None and value in domains:
                return _UNWANTED
        return None


class Score:
    """How much a pod and existing pods would like it to be on each of many nodes."""

    def __init__(self, profile: Profile, affinity_index: PodAffinityIndex, settings: Settings) -> None:
        self.wishes: list[tuple[str, Mapping[str, int], int]] = [
            (wish.term.topology_key, affinity_index.near((wish.term,))[wish.term.topology_key], wish.weight)
            for wish in profile.preferred_terms
        ]
        if profile.preferred_terms or not settings.ignore_preferred_terms_of_existing_pods:
            self.wishes += affinity_index.drawn(profile, settings.hard_pod_affinity_weight)

    @property
    def is_needed(self) -> bool:
        """Whether nodes can differ."""
        return any(domains for _, domains, _ in self.wishes)

    def raw(self, node: NodeInfo) -> int:
        """The node's points; `normalized` makes scores of them."""
        total = 0
        for key, domains, weight in self.wishes:
            value = node.labels.get(key)
            if value is not None:
                total += domains.get(value, 0) * weight
        return total


def normalized(raw: list[int]) -> list[int]:
    """0 for the node with the fewest points, 100 for the one with the most."""
    least, most = min(raw), max(raw)
    if least == most:
        return [0] * len(raw)
    return [int(100 * ((points - least) / (most - least))) for points in raw]
