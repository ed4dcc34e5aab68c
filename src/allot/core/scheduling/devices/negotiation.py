"""Scheduling of pods whose claims drivers' controllers allocate (PodSchedulingContext, feature gate DRAControlPlaneController).

The scheduler names nodes that fit except for these claims; controllers name unsuitable ones; the scheduler selects a remaining one,
for which they allocate. This module decides what the scheduler writes next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from allot.core.model import resource_v1 as api
from allot.core.model.classic import POTENTIAL_NODES_MAX, suitable_nodes
from allot.core.model.core_v1 import Node
from allot.core.selectors import NodeMatcher, node_matcher

# How many nodes are offered at a time, besides those found unsuitable.
OFFERED_MAX = 16


class Negotiation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one negotiation. unsuitable: nodes, by the claim's name in the pod."""

    selected_node: str = ""
    potential_nodes: tuple[str, ...] = ()
    unsuitable: Mapping[str, frozenset[str]] = {}


def next_offer(
    known: Negotiation | None, claims: Collection[str], best: Callable[[frozenset[str]], Iterable[str]]
) -> Negotiation:
    """What to offer. claims: those that wait, by their names in the pod; best: fitting nodes except the given ones, best first.

    A node known to be unsuitable stays in the offer, so that controllers keep reporting it; otherwise it would look new. With one claim
    a node is selected at once: its controller reports if it is unsuitable. With several, only after all controllers have reported.
    """
    known = known or Negotiation()
    unsuitable = frozenset(node for name in claims for node in known.unsuitable.get(name, ()))
    suitable = []
    for node in best(unsuitable):
        suitable.append(node)
        if len(suitable) == OFFERED_MAX:
            break
    selected = known.selected_node if known.selected_node in suitable else ""
    is_heard = len(claims) == 1 or all(name in known.unsuitable for name in claims)
    if not selected and suitable and is_heard:
        selected = suitable[0]
    kept = [node for node in known.potential_nodes if node in unsuitable]
    offered = (*suitable, *kept)[:POTENTIAL_NODES_MAX] or tuple(best(frozenset()))[:OFFERED_MAX]
    return msgspec.structs.replace(known, selected_node=selected, potential_nodes=tuple(sorted(offered)))


def allowed_nodes(
    claims: Iterable[api.ResourceClaim], classes: Mapping[str, api.DeviceClass], nodes: Iterable[Node]
) -> frozenset[str]:
    """The nodes that all classes of the claims allow."""
    matchers: list[NodeMatcher] = []
    for name in sorted({name for claim in claims for name in _class_names(claim)}):
        selector = suitable_nodes(classes[name]) if name in classes else None
        if selector is not None:
            matchers.append(node_matcher(selector))
    return frozenset(node.metadata.name for node in nodes if all(each.matches_node(node) for each in matchers))


def _class_names(claim: api.ResourceClaim) -> Iterable[str]:
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        for alternative in request.first_available or ():
            yield alternative.device_class_name
