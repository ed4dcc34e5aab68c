"""Hints that compare two pods: ports, affinity to other pods, and spreading. Parts of `hints`.

Namespace selectors and matchLabelKeys are not checked: a term then matches more pods than it should, which costs an attempt.
"""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.model.core_v1 import ContainerPort, Node, Pod, PodAffinityTerm
from allot.core.model.meta import LabelSelector
from allot.core.selectors import SelectorError, label_requirements

_ANY_ADDRESS = ("", "0.0.0.0")


# --- ports ---


def uses_host_ports(pod: Pod) -> bool:
    """Whether a pod takes a port of its node."""
    return any(True for _ in _host_ports(pod))


def wants_port_of(pod: Pod, other: Pod) -> bool:
    """Whether two pods cannot be on one node because of a host port."""
    taken = tuple(_host_ports(other))
    return bool(taken) and any(_same_port(port, used) for port in _host_ports(pod) for used in taken)


def _host_ports(pod: Pod) -> Iterator[ContainerPort]:
    sidecars = (container for container in pod.spec.init_containers if container.is_sidecar)
    for container in (*pod.spec.containers, *sidecars):
        for port in container.ports:
            if port.host_port > 0:
                yield port


def _same_port(one: ContainerPort, other: ContainerPort) -> bool:
    if one.host_port != other.host_port or (one.protocol or "TCP") != (other.protocol or "TCP"):
        return False
    return one.host_ip == other.host_ip or one.host_ip in _ANY_ADDRESS or other.host_ip in _ANY_ADDRESS


# --- affinity ---


def affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    """Pods that a pod must be near to."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity is not None else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else ()


def anti_affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    """Pods that a pod must be away from."""
    affinity = pod.spec.affinity.pod_anti_affinity if pod.spec.affinity is not None else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity is not None else ()


def affinity_is_helped(old: Pod | None, new: Pod | None, pod: Pod) -> bool:
    """Whether a pod on a node that came, went or changed its labels can help one that was refused for affinity."""
    if old is not None and new is not None:
        terms = (*affinity_terms(pod), *anti_affinity_terms(pod))
        return old.metadata.labels != new.metadata.labels and any(
            _term_matches(term, pod, state) for term in terms for state in (old, new)
        )
    if new is not None:
        terms = affinity_terms(pod)
        return bool(terms) and all(_term_matches(term, pod, new) for term in terms)
    assert old is not None
    return any(_term_matches(term, pod, old) for term in anti_affinity_terms(pod)) or any(
        _term_matches(term, old, pod) for term in anti_affinity_terms(old)
    )


def affinity_is_helped_by_node(old: Node | None, new: Node | None, pod: Pod) -> bool:
    """Whether a node that came, went or got other labels can help. Kube-scheduler does not look at nodes that go: it waits until
    their pods are deleted, too."""
    if new is None:
        # Its pods are no longer near any other.
        return True
    if old is None:
        # A node without pods: nothing to be away from. Only nodes with the label can be near.
        near = affinity_terms(pod)
        has_topology = any(term.topology_key in new.metadata.labels for term in near)
        return has_topology or bool(anti_affinity_terms(pod)) or not near
    # It may have been refused because of another pod's terms, whose topology is not known here.
    return old.metadata.labels != new.metadata.labels


def affinity_is_helped_by_namespace(namespace: str, pod: Pod) -> bool:
    """Whether a namespace that came, went or got other labels can help: it is the pod's own, which terms of others may select, or
    terms of the pod select namespaces."""
    terms = (*affinity_terms(pod), *anti_affinity_terms(pod))
    return namespace == pod.metadata.namespace or any(term.namespace_selector is not None for term in terms)


def _term_matches(term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
    if term.namespace_selector is None:
        namespaces = term.namespaces or (owner.metadata.namespace,)
        if other.metadata.namespace not in namespaces:
            return False
    return _selects(term.label_selector, other)


# --- spreading ---


def spread_is_helped(old: Pod | None, new: Pod | None, pod: Pod) -> bool:
    """Whether a pod on a node that came, went or changed its labels counts for the spreading of one that was refused."""
    state = new if new is not None else old
    assert state is not None
    if state.metadata.namespace != pod.metadata.namespace:
        return False
    if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
        return False
    return any(
        _selects(constraint.label_selector, counted)
        for constraint in pod.spec.topology_spread_constraints
        for counted in (old, new)
        if counted is not None
    )


def spread_is_helped_by_node(old: Node | None, new: Node | None, pod: Pod) -> bool:
    """Whether a node that came, went, or changed counts for the spreading of a pod."""
    keys = tuple(constraint.topology_key for constraint in pod.spec.topology_spread_constraints)
    had = old is not None and all(key in old.metadata.labels for key in keys)
    has = new is not None and all(key in new.metadata.labels for key in keys)
    if old is None or new is None or had != has:
        return had or has
    if not has:
        return False
    moved = any(old.metadata.labels[key] != new.metadata.labels[key] for key in keys)
    return moved or old.spec.taints != new.spec.taints


def _selects(selector: LabelSelector | None, pod: Pod) -> bool:
    try:
        requirements = label_requirements(selector)
    except SelectorError:
        return True
    return requirements is not None and requirements.matches(pod.metadata.labels)
