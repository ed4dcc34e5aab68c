"""PodTopologySpread: pods of one kind spread evenly over the values of a node label."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.nodes.pod_affinity_index import PodAffinityIndex
from allot.core.scheduling.plugins.taint_toleration import has_untolerated
from allot.core.scheduling.podinfo import Profile, Spread
from allot.core.scheduling.settings import HOSTNAME
from allot.core.scheduling.status import Status, Verdict

NAME = "PodTopologySpread"
_UNEVEN_TEXT = "node(s) didn't match pod topology spread constraints"
_UNEVEN = Status(verdict=Verdict.UNSCHEDULABLE, plugin=NAME, reasons=(_UNEVEN_TEXT,))
_NO_LABEL = Status(verdict=Verdict.UNRESOLVABLE, plugin=NAME, reasons=(f"{_UNEVEN_TEXT} (missing required label)",))


def is_counted(spread: Spread, profile: Profile, node: NodeInfo) -> bool:
    """Whether the pods of a node count: nodes that the pod cannot have are left out as the constraint says."""
    if spread.honors_affinity and not profile.selects(node.name, node.labels):
        return False
    return not (spread.honors_taints and has_untolerated(profile, node))


class Filter:
    """The hard constraints of one pod, ready to be checked on many nodes."""

    def __init__(
        self,
        profile: Profile,
        spreads: Sequence[Spread],
        affinity_index: PodAffinityIndex,
        nodes: Iterable[tuple[NodeInfo, int]],
    ) -> None:
        """nodes: each with how many it stands for."""
        self._rules: list[tuple[str, Mapping[str, int], int]] = []
        keys = [spread.topology_key for spread in spreads]
        counts: list[dict[str, int]] = [{} for _ in spreads]
        on_nodes = [affinity_index.on_nodes(profile.namespace, spread.selector) for spread in spreads]
        for node, times in nodes:
            labels = node.labels
            if not all(key in labels for key in keys):
                continue
            for spread, found, pods in zip(spreads, counts, on_nodes, strict=True):
                if is_counted(spread, profile, node):
                    value = labels[spread.topology_key]
                    found[value] = found.get(value, 0) + pods.get(node.name, 0) * times
        for spread, found in zip(spreads, counts, strict=True):
            least = min(found.values(), default=0) if len(found) >= spread.min_domains else 0
            itself = spread.selector is not None and spread.selector.matches(profile.labels)
            # How many pods a domain may already have.
            self._rules.append((spread.topology_key, found, least + spread.max_skew - itself))

    def refusal(self, node: NodeInfo) -> Status | None:
        """Why the pod may not have the node."""
        for key, counts, most in self._rules:
            value = node.labels.get(key)
            if value is None:
                return _NO_LABEL
            if counts.get(value, 0) > most:
                return _UNEVEN
        return None


class Score:
    """How crowded each of the nodes that passed is, by the soft constraints of one pod: the less, the better."""

    def __init__(
        self,
        profile: Profile,
        spreads: Sequence[Spread],
        affinity_index: PodAffinityIndex,
        passed: Sequence[tuple[NodeInfo, int]],
        nodes: Iterable[tuple[NodeInfo, int]],
        *,
        all_labels: bool,
    ) -> None:
        """passed, nodes: each with how many it stands for."""
        self._all_labels = all_labels
        self._keys = [spread.topology_key for spread in spreads]
        on_nodes = [affinity_index.on_nodes(profile.namespace, spread.selector) for spread in spreads]
        counts: list[dict[str, int]] = [{} for _ in spreads]
        scored = [(node, times) for node, times in passed if not self.is_ignored(node)]
        for node, _ in scored:
            for key, found in zip(self._keys, counts, strict=True):
                if key != HOSTNAME:
                    found.setdefault(node.labels.get(key, ""), 0)
        for node, times in nodes:
            if self.is_ignored(node):
                continue
            for spread, found, pods in zip(spreads, counts, on_nodes, strict=True):
                value = node.labels.get(spread.topology_key, "")
                if value in found and is_counted(spread, profile, node):
                    found[value] += pods.get(node.name, 0) * times
        self._rules: list[tuple[str, Callable[[NodeInfo], int], float, int]] = []
        for spread, found, pods in zip(spreads, counts, on_nodes, strict=True):
            size = sum(times for _, times in scored) if spread.topology_key == HOSTNAME else len(found)
            count = _by_node(pods) if spread.topology_key == HOSTNAME else _by_value(found, spread.topology_key)
            self._rules.append((spread.topology_key, count, math.log(size + 2), spread.max_skew - 1))

    def is_ignored(self, node: NodeInfo) -> bool:
        """Whether the node gets no score because it lacks a label."""
        return self._all_labels and not all(key in node.labels for key in self._keys)

    def raw(self, node: NodeInfo) -> int:
        """How crowded the node is."""
        total = 0.0
        for key, count, weight, slack in self._rules:
            if key in node.labels:
                total += count(node) * weight + slack
        return math.floor(total + 0.5)


def _by_node(pods: Mapping[str, int]) -> Callable[[NodeInfo], int]:
    return lambda node: pods.get(node.name, 0)


def _by_value(counts: Mapping[str, int], key: str) -> Callable[[NodeInfo], int]:
    return lambda node: counts.get(node.labels[key], 0)


def normalized(raw: Sequence[int | None]) -> list[int]:
    """100 for the least crowded node; 0 for nodes that were ignored (None)."""
    known = [points for points in raw if points is not None]
    most, least = max(known, default=0), min(known, default=0)
    return [0 if points is None else 100 if not most else 100 * (most + least - points) // most for points in raw]
