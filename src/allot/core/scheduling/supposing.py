"""What-if changes: hypothetical nodes and placements. Everything is reverted, in reverse order.

Waiting units are not notified, so that trying many nodes costs only the nodes, not the queue. For code that
uses the machine with a hypothetical cluster: plans, the autoscaler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from msgspec.structs import replace

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.devices.claims import Claims
from allot.core.scheduling.devices.group_claims import controller_of
from allot.core.scheduling.plan import ClaimStep, Placement


class Supposing:
    """What has been supposed so far. `mark` and `undo` go back to a point; at the end, `undo()` leaves no trace."""

    def __init__(self, cluster: Cluster, claims: Claims) -> None:
        self._cluster = cluster
        self._claims = claims
        self._undo: list[Callable[[], None]] = []

    @property
    def mark(self) -> int:
        """The current point."""
        return len(self._undo)

    def undo(self, mark: int = 0) -> None:
        """Revert what was supposed since."""
        while len(self._undo) > mark:
            self._undo.pop()()

    def add_node(self, node: core_v1.Node, slices: tuple[api.ResourceSlice, ...] = ()) -> None:
        """Add a node with its devices; one of the same name is replaced."""
        before = self._cluster.nodes.get(node.metadata.name)
        self._cluster.put_node(node)
        if before is None:
            self._undo.append(lambda: self._cluster.delete_node(node.metadata.name))
        else:
            known = before.node
            self._undo.append(lambda: self._cluster.put_node(known))
        for slice_ in slices:
            self._claims.put_slice(slice_)
            self._undo.append(lambda name=slice_.metadata.name: self._claims.delete_slice(name))  # type: ignore[misc]

    def remove_node(self, node: core_v1.Node, slices: tuple[api.ResourceSlice, ...]) -> None:
        """Remove a node and its devices."""
        for slice_ in slices:
            self._claims.delete_slice(slice_.metadata.name)
        self._cluster.delete_node(node.metadata.name)

        def put_back() -> None:
            self._cluster.put_node(node)
            for slice_ in slices:
                self._claims.put_slice(slice_)

        self._undo.append(put_back)

    def add_claim(self, claim: api.ResourceClaim) -> None:
        """Add a claim with a new name."""
        metadata = claim.metadata
        self._claims.put_claim(claim)
        self._undo.append(lambda: self._claims.delete_claim(metadata.namespace, metadata.name))

    def without(self, pods: Sequence[core_v1.Pod]) -> None:
        """These pods have left their nodes and hold no devices; they can be placed again."""
        context = self._cluster.without(pods, anew=True)
        context.__enter__()
        self._undo.append(lambda: _close(context))

    def place(self, placement: Placement) -> None:
        """Apply a decision."""
        before = put_into_force(self._cluster, self._claims, placement)

        def take_back() -> None:
            self._cluster.forget(placement)
            for claim in before:
                self._claims.delete_claim(claim.metadata.namespace, claim.metadata.name)
                self._claims.put_claim(claim)

        self._undo.append(take_back)


def _close(context: AbstractContextManager[None]) -> None:
    context.__exit__(None, None, None)


def put_into_force(cluster: Cluster, claims: Claims, placement: Placement) -> list[api.ResourceClaim]:
    """A decision as it is once the scheduler has written it. A claim that others may share must be, before they can use it;
    these are given back as they were."""
    cluster.assume(placement)
    before = []
    for step in placement.claims:
        claim = claims.claim(step.claim.metadata.namespace, step.claim.metadata.name)
        if claim is not None and controller_of(claim) is None:
            claims.put_claim(_written(step, claim))
            before.append(claim)
    return before


def _written(step: ClaimStep, claim: api.ResourceClaim) -> api.ResourceClaim:
    status = claim.status
    if step.allocation is not None:
        status = replace(status, allocation=step.allocation)
    if step.consumer is not None:
        status = replace(status, reserved_for=(*status.reserved_for, step.consumer))
    return replace(claim, status=status)
