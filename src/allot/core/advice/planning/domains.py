"""Upper bounds from what pods want of pods on other nodes: how many like pods fit if they spread evenly, or stay together.

Given is how many of them each node can take by itself. All bounds hold for pods that are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from allot.core.advice.world import World
from allot.core.model import core_v1
from allot.core.scheduling import PodTerm, Profile, Spread
from allot.core.scheduling.plugins.pod_topology_spread import is_counted


def domain_bounds(world: World, pod: core_v1.Pod, most: Mapping[str, int]) -> Iterator[int]:
    """How many pods like this one there cannot be more of. most: by node, how many it can take."""
    profile = world.cluster.profiles.of(pod)
    for spread in profile.hard_spreads:
        if spread.selector is not None and spread.selector.matches(profile.labels):
            yield _evenly(world, profile, spread, _by_domain(world, spread.topology_key, most))
    for term in profile.anti_affinity_terms:
        yield _apart(world, profile, term, most)
    if profile.affinity_terms:
        nodes = _nodes_of(world, profile.affinity_terms)
        for term in profile.affinity_terms:
            yield _together(world, profile, term, nodes, _by_domain(world, term.topology_key, most))


def _by_domain(world: World, key: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Sums over the nodes that have a value of a label; those without it are left out."""
    found: dict[str, int] = {}
    for name, count in counts.items():
        value = world.cluster.nodes[name].labels.get(key)
        if value is not None:
            found[value] = found.get(value, 0) + count
    return found


def _evenly(world: World, profile: Profile, spread: Spread, room: Mapping[str, int]) -> int:
    """In no domain more than in the emptiest one and the skew: the emptiest one can at most be full."""
    pods = world.cluster.affinity_index.on_nodes(profile.namespace, spread.selector)
    counted = {info.name for info in world.cluster.nodes.values() if is_counted(spread, profile, info)}
    there = _by_domain(world, spread.topology_key, {name: pods.get(name, 0) for name in counted})
    least = 0
    if there and len(there) >= spread.min_domains:
        least = min(count + room.get(value, 0) for value, count in there.items())
    return sum(min(count, max(0, least + spread.max_skew - there.get(value, 0))) for value, count in room.items())


def _apart(world: World, profile: Profile, term: PodTerm, most: Mapping[str, int]) -> int:
    """None where pods are that they keep off; one in each domain if they keep off each other. Without the label anything goes."""
    nodes, key = world.cluster.nodes, term.topology_key
    taken = {nodes[name].labels.get(key) for name in _nodes_of(world, (term,))}
    free = {value: count for value, count in _by_domain(world, key, most).items() if value not in taken}
    elsewhere = sum(count for name, count in most.items() if key not in nodes[name].labels)
    if _means_itself(world, profile, term):
        return elsewhere + sum(count > 0 for count in free.values())
    return elsewhere + sum(free.values())


def _together(world: World, profile: Profile, term: PodTerm, nodes: set[str], room: Mapping[str, int]) -> int:
    """In the domains where pods are that they want to be near; if there are none, all in the one where the first goes."""
    if nodes:
        near = {world.cluster.nodes[name].labels.get(term.topology_key) for name in nodes}
        return sum(count for value, count in room.items() if value in near)
    return max(room.values(), default=0) if _means_itself(world, profile, term) else 0


def _means_itself(world: World, profile: Profile, term: PodTerm) -> bool:
    labels = world.cluster.affinity_index.namespace_labels(profile.namespace)
    return term.matches(profile.namespace, profile.labels, labels)


def _nodes_of(world: World, terms: Sequence[PodTerm]) -> set[str]:
    """The nodes of pods that all these terms mean."""
    found: set[str] = set()
    for other in world.cluster.pods.values():
        metadata = other.pod.metadata
        labels = world.cluster.affinity_index.namespace_labels(metadata.namespace)
        if other.node in world.cluster.nodes and all(
            term.matches(metadata.namespace, metadata.labels, labels) for term in terms
        ):
            found.add(other.node)
    return found
