"""Places copies one by one as the scheduler would now, and says why the next one does not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from allot.core.advice.planning.copies import Copy, Manifest
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling import (
    DYNAMIC_RESOURCES,
    Claims,
    Cluster,
    Failure,
    ForeignGroup,
    ObjectChange,
    Placement,
    Status,
    Unit,
    explanation,
    group_name_of,
    put_into_force,
    refusal_text,
)


class NodeReason(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The answer of some nodes."""

    reason: str
    count: int
    # Some of them.
    examples: tuple[str, ...] = ()


class Blocked(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why another copy does not fit. message: in the scheduler's words; nodes: the number of nodes by answer."""

    message: str
    explanation: str = ""
    nodes: tuple[NodeReason, ...] = ()


class Filled(msgspec.Struct, frozen=True, kw_only=True):
    """The result: placements of all pods, in order. blocked: None if there was room for all."""

    copies: int
    placements: tuple[Placement, ...]
    blocked: Blocked | None = None


_EXAMPLES_MAX = 5


@contextmanager
def filled(
    what_if: WhatIfCluster,
    manifest: Manifest,
    limit: int,
    advance: Callable[[], None] = lambda: None,
) -> Iterator[Filled]:
    """Place as many copies as fit, up to the limit. They exist inside the context and are reverted afterwards."""
    copies: list[Copy] = []
    before = list(what_if.claims.claims())
    blocked = None
    with what_if.cluster.trying() as placements:
        try:
            for number in range(limit):
                copy = manifest.copy(number)
                copies.append(copy)
                create_objects(what_if, copy)
                blocked = place(what_if, copy, placements)
                if blocked is not None:
                    break
                advance()
            done = len(copies) if blocked is None else len(copies) - 1
            yield Filled(copies=done, placements=tuple(placements), blocked=blocked)
        finally:
            _restore(what_if.claims, before)
    for copy in copies:
        delete_objects(what_if, copy)


def _restore(claims: Claims, before: Iterable[api.ResourceClaim]) -> None:
    """Restore claims."""
    for claim in before:
        if claims.claim(*_name(claim)) is not claim:
            claims.delete_claim(*_name(claim))
            claims.put_claim(claim)


def create_objects(what_if: WhatIfCluster, copy: Copy) -> None:
    """Add the claims and the group of a copy."""
    for object_ in copy.objects:
        what_if.machine.apply(ObjectChange(None, object_), 0.0)


def delete_objects(what_if: WhatIfCluster, copy: Copy) -> None:
    """Remove them again, and release what the pods were charged to queues."""
    for pod in copy.pods:
        what_if.machine.book.remove_pod(pod)
    for object_ in copy.objects:
        what_if.machine.apply(ObjectChange(object_, None), 0.0)


def _name(claim: api.ResourceClaim) -> tuple[str, str]:
    return claim.metadata.namespace, claim.metadata.name


# --- one copy ---


def place(what_if: WhatIfCluster, copy: Copy, placements: list[Placement]) -> Blocked | None:
    """Place a copy; returns the reason if it does not fit."""
    cluster = what_if.cluster
    if copy.group is not None:
        return _placed_gang(what_if, copy, copy.group, placements)
    first = len(placements)
    before = [found for pod in copy.pods for found in _claims_of(what_if.claims, pod)]
    for pod in copy.pods:
        outcome = what_if.machine.consider(Unit(pods=(pod,)), what_if.now)
        if outcome.failure is not None:
            blocked = blocked_by(cluster, pod, outcome.failure)
            for placement in reversed(placements[first:]):
                cluster.forget(placement)
            del placements[first:]
            _restore(what_if.claims, before)
            return blocked
        (found,) = outcome.placements
        put_into_force(what_if.cluster, what_if.claims, found)
        placements.append(found)
    return None


def _claims_of(claims: Claims, pod: core_v1.Pod) -> Iterator[api.ResourceClaim]:
    for id_ in claims.claims_of(pod):
        claim = claims.claim(*id_)
        if claim is not None:
            yield claim


def _placed_gang(what_if: WhatIfCluster, copy: Copy, group: PodGroup, placements: list[Placement]) -> Blocked | None:
    first = len(placements)
    before = [found for pod in copy.pods for found in _claims_of(what_if.claims, pod)]
    waiting = copy.pods
    while waiting:
        found = _turn(what_if, group, waiting)
        if isinstance(found, Blocked):
            for placement in reversed(placements[first:]):
                what_if.cluster.forget(placement)
            del placements[first:]
            _restore(what_if.claims, before)
            return found
        for placement in found:
            put_into_force(what_if.cluster, what_if.claims, placement)
            placements.append(placement)
        placed = {placement.pod.metadata.name for placement in found}
        waiting = tuple(pod for pod in waiting if pod.metadata.name not in placed)
    return None


def _turn(what_if: WhatIfCluster, group: PodGroup, pods: tuple[core_v1.Pod, ...]) -> Sequence[Placement] | Blocked:
    """The placements of a gang's pods. In a gang with parts, required parts come first."""
    forest = what_if.cluster.forest
    tree = forest.tree(forest.root(group_name_of(group))) if isinstance(group, ForeignGroup) else None
    unit = Unit(pods=pods, group=group) if tree is None else Unit(pods=pods, tree=tree)
    outcome = what_if.machine.consider(unit, what_if.now)
    if outcome.failure is not None:
        # Its queue does not admit it.
        return blocked_by(what_if.cluster, pods[0], outcome.failure)
    decision = outcome.decision
    assert decision is not None, "a gang is decided as a whole"
    found, refusals = decision.placements, decision.refusals
    if len(found) == len(pods) or (tree is not None and found and not refusals):
        return found
    said = decision.group.message if decision.group is not None else ""
    refused = next((refusal for refusal in refusals if refusal.explanation), refusals[0])
    texts = dict.fromkeys(text for text in (said, refused.message) if text)
    return Blocked(message=": ".join(texts), explanation=refused.explanation)


def _nearest_misses(cluster: Cluster, pod: core_v1.Pod, failure: Failure) -> str:
    """What the nearest node lacks, once for nodes that lack devices and once for others."""
    lacking: dict[str, Status] = {}
    others: dict[str, Status] = {}
    for node, status in failure.refusals.items():
        (lacking if status.plugin == DYNAMIC_RESOURCES else others)[node] = status
    profile = cluster.profiles.of(pod)
    said = (explanation(cluster, profile, replace(failure, refusals=part)) for part in (lacking, others))
    return "; ".join(dict.fromkeys(sentence for sentence in said if sentence))


def blocked_by(cluster: Cluster, pod: core_v1.Pod, failure: Failure) -> Blocked:
    """The answers of the scheduler and the nodes."""
    examples: dict[str, list[str]] = {}
    for node, status in failure.refusals.items():
        for reason in status.reasons:
            examples.setdefault(reason, []).append(node)
    return Blocked(
        message=refusal_text(len(cluster.nodes), failure),
        explanation=_nearest_misses(cluster, pod, failure),
        nodes=tuple(
            NodeReason(reason=reason, count=len(nodes), examples=tuple(sorted(nodes)[:_EXAMPLES_MAX]))
            for reason, nodes in sorted(examples.items(), key=lambda item: (-len(item[1]), item[0]))
        ),
    )
