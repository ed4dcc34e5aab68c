"""Upper bounds from topology rules: how many equal pods fit if they spread evenly, or stay together.

The input is each node's own limit. All bounds hold for equal pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.scheduling import PodTerm, Profile, Spread
from allot.core.scheduling.plugins import pod_topology_spread


def domain_bounds(what_if: WhatIfCluster, pod: core_v1.Pod, most: Mapping[str, int]) -> Iterator[int]:
    """Upper bounds on the number of pods like this one. most: each node's own limit."""
    profile = what_if.cluster.profiles.of(pod)
    for spread in profile.hard_spreads:
        if spread.selector is not None and spread.selector.matches(profile.labels):
            yield _evenly(what_if, profile, spread, _by_domain(what_if, spread.topology_key, most))
    for term in profile.anti_affinity_terms:
        yield _apart(what_if, profile, term, most)
    if profile.affinity_terms:
        nodes = _nodes_of(what_if, profile.affinity_terms)
        for term in profile.affinity_terms:
            yield _together(what_if, profile, term, nodes, _by_domain(what_if, term.topology_key, most))


def _by_domain(what_if: WhatIfCluster, key: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Sums over the nodes with the same value of a label; nodes without it are left out."""
    found: dict[str, int] = {}
    for name, count in counts.items():
        value = what_if.cluster.nodes[name].labels.get(key)
        if value is not None:
            found[value] = found.get(value, 0) + count
    return found


def _evenly(what_if: WhatIfCluster, profile: Profile, spread: Spread, room: Mapping[str, int]) -> int:
    """No domain may exceed the emptiest one by more than the skew."""
    pods = what_if.cluster.affinity_index.on_nodes(profile.namespace, spread.selector)
    counted = {
        info.name for info in what_if.cluster.nodes.values() if pod_topology_spread.is_counted(spread, profile, info)
    }
    there = _by_domain(what_if, spread.topology_key, {name: pods.get(name, 0) for name in counted})
    least = 0
    if there and len(there) >= spread.min_domains:
        least = min(count + room.get(value, 0) for value, count in there.items())
    return sum(min(count, max(0, least + spread.max_skew - there.get(value, 0))) for value, count in room.items())


def _apart(what_if: WhatIfCluster, profile: Profile, term: PodTerm, most: Mapping[str, int]) -> int:
    """None in domains with pods that they avoid; one per domain if they avoid each other. Nodes without the label are free."""
    nodes, key = what_if.cluster.nodes, term.topology_key
    taken = {nodes[name].labels.get(key) for name in _nodes_of(what_if, (term,))}
    free = {value: count for value, count in _by_domain(what_if, key, most).items() if value not in taken}
    elsewhere = sum(count for name, count in most.items() if key not in nodes[name].labels)
    if _means_itself(what_if, profile, term):
        return elsewhere + sum(count > 0 for count in free.values())
    return elsewhere + sum(free.values())


def _together(what_if: WhatIfCluster, profile: Profile, term: PodTerm, nodes: set[str], room: Mapping[str, int]) -> int:
    """Only in domains with pods that they require; if there are none, all in the domain of the first pod."""
    if nodes:
        near = {what_if.cluster.nodes[name].labels.get(term.topology_key) for name in nodes}
        return sum(count for value, count in room.items() if value in near)
    return max(room.values(), default=0) if _means_itself(what_if, profile, term) else 0


def _means_itself(what_if: WhatIfCluster, profile: Profile, term: PodTerm) -> bool:
    labels = what_if.cluster.affinity_index.namespace_labels(profile.namespace)
    return term.matches(profile.namespace, profile.labels, labels)


def _nodes_of(what_if: WhatIfCluster, terms: Sequence[PodTerm]) -> set[str]:
    """The nodes of pods that match all these terms."""
    found: set[str] = set()
    for other in what_if.cluster.pods.values():
        metadata = other.pod.metadata
        labels = what_if.cluster.affinity_index.namespace_labels(metadata.namespace)
        if other.node in what_if.cluster.nodes and all(
            term.matches(metadata.namespace, metadata.labels, labels) for term in terms
        ):
            found.add(other.node)
    return found
