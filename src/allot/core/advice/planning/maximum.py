"""The maximum number of copies with an optimal choice of nodes and devices.

If copies interact only on nodes (no devices that several nodes can use, no claim or volume that copies share, no affinity across
nodes), a node's limit does not depend on the others. Then the answer is exact: for equal pods the sum over nodes,
for different ones the best combination of what each node can hold. Otherwise, or with too many combinations, it is an upper
bound. The scheduler's own number is a lower bound, so if both are equal, that is the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from allot.core.advice.planning.bounds import cluster_bounds
from allot.core.advice.planning.connections import (
    all_meet_on_one_node,
    meets_on_one_node,
    own_claims,
    what_connects_nodes,
)
from allot.core.advice.planning.copies import Copy, Manifest
from allot.core.advice.planning.domains import domain_bounds
from allot.core.advice.planning.filling import Filled, create_objects, delete_objects
from allot.core.advice.planning.node_capacity import Counts, NodeCapacity, PodShape
from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation import ClaimID
from allot.core.model import core_v1
from allot.core.scheduling import Claims, NodeInfo

# With more combinations of different pods on all nodes together, only a bound is given.
COMBINATIONS_MAX = 20_000
# The same for checks whether pods fit on a node together, which cost about a millisecond each.
QUESTIONS_MAX = 500


class Maximum(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """copies: the exact maximum if is_exact, otherwise an upper bound, for the given reason."""

    copies: int
    is_exact: bool
    reason: str = ""


def maximum_of(what_if: WhatIfCluster, manifest: Manifest, found: Filled, limit: int) -> Maximum:
    """The most copies, given what the scheduler would place, which must be reverted by now."""
    if found.blocked is None:
        return Maximum(copies=found.copies, is_exact=False, reason=f"not more than {limit} were requested")
    copy = manifest.copy(0)
    create_objects(what_if, copy)
    try:
        bound = _bounded(what_if, copy, manifest, found, limit)
    finally:
        delete_objects(what_if, copy)
    if bound.copies <= found.copies:
        # What was actually placed is possible.
        return Maximum(copies=found.copies, is_exact=True)
    return bound


def _bounded(what_if: WhatIfCluster, copy: Copy, manifest: Manifest, found: Filled, limit: int) -> Maximum:
    reason = what_connects_nodes(what_if, copy)
    shapes, members = _shapes(what_if, copy, manifest, is_separable=not reason)
    capacity = NodeCapacity(what_if, shapes)
    placed = _per_node(found, shapes, members)
    nodes = list(what_if.cluster.nodes.values())
    wanted = tuple(members.count(shape) // len(shapes[shape].pods) for shape in range(len(shapes)))
    copies = min((limit, *cluster_bounds(what_if, copy)))
    all_meet = all_meet_on_one_node(what_if.claims, copy)
    for shape, count in enumerate(wanted):
        most = {
            info.name: capacity.most(info, shape, placed.get((info.name, shape), 0), copies * count) for info in nodes
        }
        total = max(most.values(), default=0) if all_meet else sum(most.values())
        copies = min(copies, total // count)
        if len(copy.pods) == count:
            copies = min((copies, *(bound // count for bound in domain_bounds(what_if, copy.pods[0], most))))
    if len(shapes) > 1 and not reason and copies > found.copies:
        best = _best_combination(capacity, nodes, wanted, copies)
        if best is None:
            reason = "there are too many ways to combine different pods on nodes"
        else:
            copies = best
    if capacity.undecided:
        reason = reason or "the search for devices took too long on some nodes"
    return Maximum(copies=copies, is_exact=not reason, reason=reason)


# --- pods that are equal ---


def _shapes(
    what_if: WhatIfCluster, copy: Copy, manifest: Manifest, *, is_separable: bool
) -> tuple[list[PodShape], tuple[int, ...]]:
    """Distinct pods, and the index of each member's shape."""
    if meets_on_one_node(what_if.claims, copy):
        pods = copy.pods if is_separable else tuple(_alone(pod) for pod in copy.pods)
        return [PodShape(pods=pods, claims=copy.claims)], (0,) * len(pods)
    shapes: list[PodShape] = []
    seen: list[core_v1.Pod] = []
    members: list[int] = []
    own = own_claims(what_if.claims, copy)
    for member, pod in zip(manifest.members, copy.pods, strict=True):
        number = next((i for i, other in enumerate(seen) if _are_alike(other, member)), None)
        if number is None:
            number = len(shapes)
            seen.append(member)
            shapes.append(_shape(what_if.claims, pod if is_separable else _alone(pod), own))
        members.append(number)
    return shapes, tuple(members)


def _are_alike(one: core_v1.Pod, other: core_v1.Pod) -> bool:
    return one is other or (
        one.spec == other.spec
        and one.metadata.labels == other.metadata.labels
        and one.metadata.namespace == other.metadata.namespace
        and not any(entry.resource_claim_name for entry in one.spec.resource_claims)
    )


def _shape(claims: Claims, pod: core_v1.Pod, own: set[ClaimID]) -> PodShape:
    found = (claims.claim(*id_) for id_ in claims.claims_of(pod) if id_ in own)
    return PodShape(pods=(pod,), claims=tuple(claim for claim in found if claim is not None))


def _alone(pod: core_v1.Pod) -> core_v1.Pod:
    """Without its rules about pods on other nodes: these can only lower the number."""
    affinity = pod.spec.affinity
    if affinity is not None:
        affinity = replace(affinity, pod_affinity=None, pod_anti_affinity=None)
    return replace(pod, spec=replace(pod.spec, affinity=affinity, topology_spread_constraints=()))


def _per_node(found: Filled, shapes: Sequence[PodShape], members: Sequence[int]) -> Mapping[tuple[str, int], int]:
    """How many of each the scheduler placed on each node."""
    counts: dict[tuple[str, int], int] = {}
    for number, placement in enumerate(found.placements):
        key = (placement.node, members[number % len(members)])
        counts[key] = counts.get(key, 0) + 1
    return {(node, shape): count // len(shapes[shape].pods) for (node, shape), count in counts.items()}


# --- different pods ---


def _best_combination(capacity: NodeCapacity, nodes: Sequence[NodeInfo], wanted: Counts, limit: int) -> int | None:
    """The most copies of `wanted` pods of each shape, up to a limit; None if there are too many combinations."""
    most = tuple(count * limit for count in wanted)
    reachable: set[Counts] = {tuple(0 for _ in wanted)}
    looked_at = asked = 0
    for info in nodes:
        tried = list(islice(_options(capacity, info, most), QUESTIONS_MAX + 1 - asked))
        asked += len(tried)
        if asked > QUESTIONS_MAX:
            return None
        options = _undominated(tried)
        looked_at += len(options) * len(reachable)
        if looked_at > COMBINATIONS_MAX:
            return None
        combined = {
            tuple(min(a + b, top) for a, b, top in zip(before, option, most, strict=True))
            for before in reachable
            for option in options
        }
        reachable = _undominated(combined)
    return max(min(have // need for have, need in zip(counts, wanted, strict=True)) for counts in reachable)


def _options(capacity: NodeCapacity, info: NodeInfo, most: Counts) -> Iterator[Counts]:
    """What a node can hold."""

    def grow(counts: Counts, shape: int) -> Iterator[Counts]:
        if shape == len(most):
            yield counts
            return
        number = 0
        while True:
            raised = (*counts[:shape], number, *counts[shape + 1 :])
            if number > most[shape] or (number and not capacity.fits(info, raised)):
                return
            yield from grow(raised, shape + 1)
            number += 1

    return grow(tuple(0 for _ in most), 0)


def _undominated(all_counts: Iterable[Counts]) -> set[Counts]:
    """The Pareto-optimal ones."""
    kept: set[Counts] = set()
    for counts in sorted(all_counts, key=sum, reverse=True):
        if not any(all(a >= b for a, b in zip(other, counts, strict=True)) for other in kept):
            kept.add(counts)
    return kept
