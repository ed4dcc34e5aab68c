"""The claims of one pod, as `claim_fit` needs them: those that have their devices, and those that need some."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from allot.core.allocation import Inventory
from allot.core.allocation.index import AvailabilityIndex
from allot.core.allocation.plan import ClaimPlan
from allot.core.allocation.pools import OPTIONAL_NODE_OPERATIONS
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node, NodeSelector
from allot.core.scheduling.devices.extended_resources import Mappings
from allot.core.selectors import NodeMatcher, node_matcher


class Held:
    """A claim of the pod that has its devices: where they can be used, and whether they are usable at all."""

    __slots__ = ("allocation", "claim", "consumer", "matcher", "names", "needs_feature", "pending", "unavailable")

    def __init__(
        self,
        claim: api.ResourceClaim,
        allocation: api.AllocationResult,
        consumer: api.ResourceClaimConsumerReference | None,
        *,
        pending: bool,
        unavailable: bool,
    ) -> None:
        self.claim = claim
        self.allocation = allocation
        self.consumer = consumer
        # Decided for another pod of the group, not written yet.
        self.pending = pending
        # Unusable on every node: the devices did not become ready.
        self.unavailable = unavailable
        self.matcher: NodeMatcher | None = None
        # The only nodes that can use it, if they are named.
        self.names: frozenset[str] | None = None
        if allocation.node_selector is not None:
            self.matcher, self.names = _prepared(allocation.node_selector)
        self.needs_feature = any(result.skip_node_operations for result in allocation.devices.results)

    @property
    def key(self) -> Hashable:
        """What decides on which nodes it can be used."""
        return self.allocation.node_selector, self.needs_feature, self.pending, self.unavailable

    def is_on(self, node: Node) -> bool:
        """Whether the node can use the devices, ignoring binding conditions. SelectorError if that cannot be determined."""
        if self.matcher is not None and not self.matcher.matches_node(node):
            return False
        return self.pending or not self.needs_feature or declares_feature(node)


@lru_cache(maxsize=8192)
def _prepared(selector: NodeSelector) -> tuple[NodeMatcher, frozenset[str] | None]:
    """The selector in a form that is fast to evaluate, and the only nodes that it names, if any."""
    names: set[str] = set()
    for term in selector.node_selector_terms:
        fields = [f for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
        if not fields:
            return node_matcher(selector), None
        names.update(fields[0].values)
    return node_matcher(selector), frozenset(names)


def declares_feature(node: Node) -> bool:
    return OPTIONAL_NODE_OPERATIONS in node.status.declared_features


class Variant:
    """The claims to be allocated on a node: the same on all nodes unless the pod has extended resources."""

    __slots__ = ("careful", "claims", "mappings", "needs", "plans")

    def __init__(
        self,
        inventory: Inventory,
        claims: tuple[api.ResourceClaim, ...],
        plans: tuple[ClaimPlan, ...],
        mappings: Mappings | None = None,
    ) -> None:
        self.claims = claims
        self.plans = plans
        # Which container uses which request of the last claim, if that stands for extended resources.
        self.mappings = mappings
        self.needs: list[tuple[AvailabilityIndex, int]] = inventory.needs(plans) if plans else []
        # Whether the allocator may find more than counts can tell, so that it must be asked first.
        self.careful = any(map(_is_careful, plans))


def _is_careful(plan: ClaimPlan) -> bool:
    if plan.plain or plan.matched is not None:
        if len(plan.requests) == 1:
            return plan.requests[0].leaves[0].count > api.ALLOCATION_RESULTS_MAX
        return sum(request.leaves[0].count for request in plan.requests) > api.ALLOCATION_RESULTS_MAX
    return (
        plan.constraint_error is not None
        or sum(min(leaf.count for leaf in request.leaves) for request in plan.requests) > api.ALLOCATION_RESULTS_MAX
        or any(
            request.error is not None or leaf.error is not None or leaf.derived
            for request in plan.requests
            for leaf in request.leaves
        )
    )


def rank_of(spec: api.ResourceClaimSpec, allocation: api.AllocationResult) -> int:
    """How good the chosen alternatives are: 8 for the first of a list, less for later ones."""
    total = 0
    chosen: set[str] | None = None
    for request in spec.devices.requests:
        if request.first_available:
            if chosen is None:
                chosen = {result.request for result in allocation.devices.results}
            for position, alternative in enumerate(request.first_available):
                if f"{request.name}/{alternative.name}" in chosen:
                    total += api.FIRST_AVAILABLE_MAX - position
    return total


def lifetimes(pod: core_v1.Pod) -> tuple[str | None, ...]:
    """Which init containers keep running: this decides which containers can share devices."""
    return tuple(container.restart_policy for container in pod.spec.init_containers)
