"""Which pods are near which others: counts by selector and by node label, kept change by change.

Two directions. Terms of new pods about existing ones: `near` and `on_nodes` count, for a term or selector, the pods
that match, by the value of a node label or by node; each count is built on first use. And terms of existing
pods about new ones: these are collected, equal ones once, with the places where they apply.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from allot.core.scheduling.podinfo import PodInfo, PodTerm, Profile
from allot.core.selectors import Requirements

_COUNTS_MAX = 256
_ASPECTS_MAX = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Labels = Mapping[str, str]
# How often by the value of a node label.
Domains = dict[str, int]


class _Near:
    """Pods that match all of some terms, by the value of each term's node label."""

    __slots__ = ("domains", "terms")

    def __init__(self, terms: tuple[PodTerm, ...]) -> None:
        self.terms = terms
        self.domains: dict[str, Domains] = {term.topology_key: {} for term in terms}


class _OnNodes:
    """Living pods of a namespace that match a selector, by node."""

    __slots__ = ("counts", "namespace", "selector")

    def __init__(self, namespace: str, selector: Requirements) -> None:
        self.namespace = namespace
        self.selector = selector
        self.counts: dict[str, int] = {}


class PodAffinityIndex:
    """The pods of all nodes, as other pods see them."""

    def __init__(self) -> None:
        self._pods: dict[str, tuple[PodInfo, Labels]] = {}
        self._near: dict[tuple[PodTerm, ...], _Near] = {}
        self._on_nodes: dict[tuple[str, Requirements], _OnNodes] = {}
        # Terms of existing pods: where pods that have them are.
        self._away: dict[PodTerm, Domains] = {}
        self._required: dict[PodTerm, Domains] = {}
        self._wishes: dict[tuple[PodTerm, int], Domains] = {}
        self._namespaces: dict[str, Labels] = {}
        # Grows when a term of existing pods comes or goes, or labels of a namespace change.
        self.version = 0
        self._aspects: dict[bytes, tuple[Hashable, ...]] = {}
        self._aspects_version = 0

    # --- changes ---

    def put_namespace(self, name: str, labels: Labels | None) -> None:
        """A namespace has these labels; None: it is gone."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            self._namespaces.pop(name, None)
        else:
            self._namespaces[name] = labels
        self._near = {
            terms: near for terms, near in self._near.items() if all(term.namespace_selector is None for term in terms)
        }
        self.version += 1

    def namespace_labels(self, name: str) -> Labels:
        """The labels of a namespace; none if it is unknown."""
        return self._namespaces.get(name) or {}

    def add(self, pod: PodInfo, labels: Labels) -> None:
        """A pod is on a node with these labels."""
        self._pods[pod.key] = (pod, labels)
        self._count(pod, labels, 1)
        profile = pod.profile
        if profile.affinity_terms or profile.anti_affinity_terms or profile.preferred_terms:
            self._note_terms(profile, labels, 1)

    def remove(self, key: str) -> None:
        """A pod no longer exists."""
        pod, labels = self._pods.pop(key)
        self._count(pod, labels, -1)
        profile = pod.profile
        if profile.affinity_terms or profile.anti_affinity_terms or profile.preferred_terms:
            self._note_terms(profile, labels, -1)

    def _count(self, pod: PodInfo, labels: Labels, sign: int) -> None:
        for near in self._near.values():
            if self._matches_all(near.terms, pod.profile):
                _count_near(near, labels, sign)
        for on_nodes in self._on_nodes.values():
            if _is_counted(on_nodes, pod):
                _bump(on_nodes.counts, pod.node, sign)

    def _note_terms(self, profile: Profile, labels: Labels, sign: int) -> None:
        for term in profile.anti_affinity_terms:
            self._note(self._away, term, term.topology_key, labels, sign)
        for term in profile.affinity_terms:
            self._note(self._required, term, term.topology_key, labels, sign)
        for wish in profile.preferred_terms:
            self._note(self._wishes, (wish.term, wish.weight), wish.term.topology_key, labels, sign)

    def _note(self, terms: dict[K, Domains], term: K, topology_key: str, labels: Labels, sign: int) -> None:
        value = labels.get(topology_key)
        if value is None:
            return
        domains = terms.get(term)
        if domains is None:
            domains = terms[term] = {}
            self.version += 1
        _bump(domains, value, sign)
        if not domains:
            del terms[term]
            self.version += 1

    def _matches_all(self, terms: tuple[PodTerm, ...], profile: Profile) -> bool:
        labels = self.namespace_labels(profile.namespace)
        return all(term.matches(profile.namespace, profile.labels, labels) for term in terms)

    # --- what new pods ask ---

    def near(self, terms: tuple[PodTerm, ...]) -> Mapping[str, Domains]:
        """How many pods match all the terms: by the topology key of each term and the values of that node label."""
        near = self._near.get(terms)
        if near is None:
            _make_room(self._near)
            near = self._near[terms] = _Near(terms)
            for pod, labels in self._pods.values():
                if self._matches_all(terms, pod.profile):
                    _count_near(near, labels, 1)
        return near.domains

    def on_nodes(self, namespace: str, selector: Requirements | None) -> Mapping[str, int]:
        """How many living pods of the namespace match, by node. As upstream an empty selector counts nothing."""
        if selector is None or not selector.all:
            return {}
        key = (namespace, selector)
        found = self._on_nodes.get(key)
        if found is None:
            _make_room(self._on_nodes)
            found = self._on_nodes[key] = _OnNodes(namespace, selector)
            for pod, _ in self._pods.values():
                if _is_counted(found, pod):
                    _bump(found.counts, pod.node, 1)
        return found.counts

    def matches_itself(self, profile: Profile) -> bool:
        """Whether a pod matches its own required terms: the first of its kind may go anywhere."""
        return self._matches_all(profile.affinity_terms, profile)

    # --- terms of existing pods about a new one ---

    def concern(self, profile: Profile) -> bool:
        """Whether terms of existing pods match the pod at all."""
        return bool(self.aspect(profile))

    def aspect(self, profile: Profile) -> tuple[Hashable, ...]:
        """The terms of existing pods that match the pod: the full effect of its labels on them."""
        if not self._away and not self._required and not self._wishes:
            return ()
        if self._aspects_version != self.version or len(self._aspects) >= _ASPECTS_MAX:
            self._aspects, self._aspects_version = {}, self.version
        known = self._aspects.get(profile.key)
        if known is None:
            known = self._aspects[profile.key] = tuple(self._matching(profile))
        return known

    def _matching(self, profile: Profile) -> Iterator[Hashable]:
        labels = self.namespace_labels(profile.namespace)
        for number, terms in enumerate((self._away, self._required)):
            for term in terms:
                if term.matches(profile.namespace, profile.labels, labels):
                    yield number, term
        for term, weight in self._wishes:
            if term.matches(profile.namespace, profile.labels, labels):
                yield weight, term

    def kept_away(self, profile: Profile) -> Iterator[tuple[str, Domains]]:
        """Node labels and values where existing pods do not want the pod."""
        labels = self.namespace_labels(profile.namespace)
        for term, domains in self._away.items():
            if term.matches(profile.namespace, profile.labels, labels):
                yield term.topology_key, domains

    def drawn(self, profile: Profile, required_weight: int) -> Iterator[tuple[str, Domains, int]]:
        """Node labels and values where existing pods would like the pod to be, or not to be, and how much each."""
        labels = self.namespace_labels(profile.namespace)
        if required_weight:
            for term, domains in self._required.items():
                if term.matches(profile.namespace, profile.labels, labels):
                    yield term.topology_key, domains, required_weight
        for (term, weight), domains in self._wishes.items():
            if term.matches(profile.namespace, profile.labels, labels):
                yield term.topology_key, domains, weight


def _is_counted(on_nodes: _OnNodes, pod: PodInfo) -> bool:
    profile = pod.profile
    return (
        profile.namespace == on_nodes.namespace and not pod.is_terminating and on_nodes.selector.matches(profile.labels)
    )


def _count_near(near: _Near, labels: Labels, sign: int) -> None:
    # Two terms may have one topology key: as upstream, a pod counts for each.
    for term in near.terms:
        value = labels.get(term.topology_key)
        if value is not None:
            _bump(near.domains[term.topology_key], value, sign)


def _bump(counts: dict[str, int], key: str, sign: int) -> None:
    left = counts.get(key, 0) + sign
    if left:
        counts[key] = left
    else:
        del counts[key]


def _make_room(counts: dict[K, V]) -> None:
    if len(counts) >= _COUNTS_MAX:
        del counts[next(iter(counts))]
