"""The device requirements of one pod, checked node by node: the plugin DynamicResources of kube-scheduler.

`quick` compares counts that the inventory keeps anyway; `exact` runs the allocator and keeps what it found. The texts and
kinds of refusals are upstream's. A fit is made by `Claims.fit` and is valid until anything changes.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from allot.core.allocation import Allocated, AllocationError, Inventory, allocate
from allot.core.allocation.plan import ClaimPlan
from allot.core.allocation.pools import OPTIONAL_NODE_OPERATIONS
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node
from allot.core.scheduling.devices import extended_resources, node_allocatable, reasons
from allot.core.scheduling.devices.binding_conditions import Binding, binding_state
from allot.core.scheduling.devices.claim_record import ClaimRecord
from allot.core.scheduling.devices.device_fit import Steps
from allot.core.scheduling.devices.extended_resources import Wanted
from allot.core.scheduling.devices.group_claims import consumer_of, group_name, is_reserved_for
from allot.core.scheduling.devices.pod_claims import Held, Variant, declares_feature, lifetimes, rank_of
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import ClaimStep, CleanUp, Deallocate, DeleteClaim, NewClaim
from allot.core.scheduling.status import Status, Verdict
from allot.core.selectors import SelectorError

if TYPE_CHECKING:
    from allot.core.scheduling.devices.claims import Claims

PLUGIN = "DynamicResources"


def refusal(reason: str, verdict: Verdict = Verdict.UNRESOLVABLE) -> Status:
    """A refusal by this part of the scheduler."""
    return Status(verdict=verdict, plugin=PLUGIN, reasons=(reason,))


CANNOT_ALLOCATE = refusal("cannot allocate all claims")
NOT_AVAILABLE = refusal("resourceclaim not available on the node")
INVALID_POOLS = refusal("invalid resource pools were encountered")
_LEFT_OVER = refusal("cannot schedule extended resource claim")
_CANNOT_FIT = refusal("cannot fit resource")
DEALLOCATED = "deallocation of ResourceClaim completed"
DELETED = "deletion of ResourceClaim completed"


_NOTHING = Variant(Inventory(), (), ())


class _Result:
    """What the allocator found for a node."""

    __slots__ = ("allocations", "node_allocatable", "variant")

    def __init__(
        self,
        variant: Variant,
        allocations: tuple[api.AllocationResult, ...],
        statuses: tuple[core_v1.NodeAllocatableResourceClaimStatus, ...],
    ) -> None:
        self.variant = variant
        self.allocations = allocations
        self.node_allocatable = statuses


class ClaimFit:
    """Can this pod have its devices on a node?"""

    __slots__ = (
        "_base",
        "_claims",
        "_consumers",
        "_entries",
        "_held",
        "_left_over",
        "_names",
        "_other_names",
        "_pod",
        "_results",
        "_variants",
        "_wanted",
        "key",
        "needs_exact",
    )

    def __init__(
        self,
        claims: Claims,
        pod: core_v1.Pod,
        found: Sequence[tuple[core_v1.PodResourceClaim, ClaimRecord]],
        wanted: Wanted | None,
    ) -> None:
        self._claims = claims
        self._pod = pod
        self._entries = found
        self._base = _NOTHING
        self._held: list[Held] = []
        # The consumers for which the claims of the base variant are reserved.
        self._consumers: list[api.ResourceClaimConsumerReference | None] = []
        self._wanted = wanted
        # Extended resources that devices can serve, and others.
        self._names: tuple[str, ...] = ()
        self._other_names: tuple[str, ...] = ()
        self._left_over: api.ResourceClaim | None = None
        self._variants: dict[tuple[str, ...], Variant] = {}
        self._results: dict[str, _Result] = {}
        # Fits with equal keys have equal answers on every node as long as nothing changes; None: not shared.
        self.key: Hashable | None = None
        # Whether every node needs the exact check: its rank matters, or an error on it is the answer for all.
        self.needs_exact = False

    @staticmethod
    def make(
        claims: Claims,
        pod: core_v1.Pod,
        found: Sequence[tuple[core_v1.PodResourceClaim, ClaimRecord]],
        wanted: Wanted | None,
        now: float,
    ) -> ClaimFit | Status:
        """The fit, or why no node fits (PreFilter)."""
        fit = ClaimFit(claims, pod, found, wanted)
        group = claims.pod_group_of(pod)
        new: list[api.ResourceClaim] = []
        plans: list[ClaimPlan] = []
        key: list[Hashable] = []
        seen: set[ClaimRecord] | None = set() if len(found) > 1 else None
        for entry, record in found:
            claim = record.current
            assert claim is not None, "lookup leaves out claims that do not exist"
            if seen is not None:
                if record in seen:
                    continue  # the pod names it twice, but it is one claim
                seen.add(record)
            consumer = None
            if not claim.status.reserved_for or not is_reserved_for(pod, claim, claims.workload_claims):
                consumer = consumer_of(pod, entry, group)
            if record.allocation is not None:
                held = fit._hold(record, claim, consumer, now)
                if isinstance(held, Status):
                    return held
                key.append(held.key)
                continue
            plan = claims.inventory.plan(claim.spec)
            problem = claims.problem_of(plan, claim)
            if problem is not None:
                return problem
            new.append(claim)
            plans.append(plan)
            fit._consumers.append(consumer)
            key.append(plan)
        fit._base = Variant(claims.inventory, tuple(new), tuple(plans))
        fit._finish(key)
        return fit

    def _hold(
        self,
        record: ClaimRecord,
        claim: api.ResourceClaim,
        consumer: api.ResourceClaimConsumerReference | None,
        now: float,
    ) -> Held | Status:
        claims = self._claims
        pending = claim.status.allocation is None
        if pending:
            group = group_name(self._pod)
            if group is None or group != record.group:
                return refusal(f"resource claim {record.id} is in the process of being allocated")
        unavailable = False
        if not pending and claims.inventory.features.device_binding_and_status:
            state = binding_state(claim, now, claims.binding_timeout)
            unavailable = state.binding in (Binding.FAILED, Binding.TIMED_OUT)
        assert record.allocation is not None
        held = Held(claim, record.allocation, consumer, pending=pending, unavailable=unavailable)
        self._held.append(held)
        return held

    def _finish(self, key: list[Hashable]) -> None:
        """What follows from all claims together."""
        claims, base = self._claims, self._base
        if self._wanted is not None:
            self._names = extended_resources.names_of(self._wanted)
            self._left_over = claims.special_claim_of(self._pod)
            names = {
                name
                for container in (*self._pod.spec.init_containers, *self._pod.spec.containers)
                for name, amount in container.resources.requests.items()
                if "/" in name and amount.sign() > 0 and not claims.backs(name)
            }
            self._other_names = tuple(sorted(name for name in names if not _is_native(name)))
            left_over = self._left_over is not None
            key.append((self._wanted, self._other_names, lifetimes(self._pod), left_over, claims.extended.version))
        for plan in base.plans:
            if not plan.plain and plan.matched is None:
                self._look_closely(plan, key)
        if base.careful or any(index.has_selector_failures for index, _ in base.needs):
            key.extend([record.id for _, record in self._entries])  # errors name the claim
        if not claims.node_allocatable:
            self.key = tuple(key)

    def _look_closely(self, plan: ClaimPlan, key: list[Hashable]) -> None:
        """Requests that counts cannot decide: every node must be checked, and an error is the answer for all."""
        inventory = self._claims.inventory
        for request in plan.requests:
            for leaf in request.leaves:
                if leaf.all_devices or request.prioritized or leaf.derived or leaf.signature is None:
                    self.needs_exact = True
                    troubled = leaf.signature is None or inventory.watch(leaf.signature).has_selector_failures
                    if troubled or leaf.all_devices or leaf.derived:
                        key.extend([record.id for _, record in self._entries])

    # --- the answers ---

    @property
    def nodes(self) -> Collection[str] | None:
        """The only nodes that can pass, if claims of the pod are allocated on known ones; None if any may."""
        names: frozenset[str] | None = None
        for held in self._held:
            if held.names is not None:
                names = held.names if names is None else names & held.names
        return names

    @property
    def new_claims(self) -> Collection[str]:
        """The uids of claims that will get their devices with this pod."""
        return [claim.metadata.uid for claim in self._base.claims]

    def most(self, node: NodeInfo) -> int | None:
        """An upper bound on the pods like this one that can get devices on a node; None if counts cannot tell."""
        variant = self._base if self._wanted is None else self._variant(node)
        if isinstance(variant, Status):
            return 0
        if variant.careful or self.needs_exact:
            return None
        bounds = [
            index.count(node.name) // needed
            for index, needed in variant.needs
            if needed and index.constraint is None and not index.has_shareable and not index.signature.admin_access
        ]
        return min(bounds, default=None)

    def quick(self, node: NodeInfo) -> Status | None:
        """A cheap check that never refuses a node that `exact` accepts, and refuses with the words of `exact`."""
        variant = self._base if self._wanted is None else self._variant(node)
        if isinstance(variant, Status):
            return variant
        if variant.careful:
            return self.exact(node)
        name = node.name
        for index, needed in variant.needs:
            if index.has_selector_failure_on(name):
                return self.exact(node)
            if index.count(name) < needed:
                return self._too_few(node)
        if self._held:
            missing = self._unavailable_on(node.node)
            if isinstance(missing, Status):
                return missing
            if missing:
                # First check whether the other claims can be allocated.
                return self.exact(node) if variant.claims else NOT_AVAILABLE
        return None

    def _too_few(self, node: NodeInfo) -> Status:
        try:
            view = self._claims.inventory.view(node.node)
        except AllocationError as error:
            return error_status(error)
        return INVALID_POOLS if any(pool.invalid for pool in view.pools) else CANNOT_ALLOCATE

    def exact(self, node: NodeInfo) -> Status | None:
        """The answer. What was found is kept for `rank` and `steps`."""
        variant = self.needed_on(node)
        if isinstance(variant, Status):
            return variant
        found = self._allocate(variant, node.node)
        return found if isinstance(found, Status) else self.accept(node, variant, found)

    def needed_on(self, node: NodeInfo) -> Variant | Status:
        """The claims that need devices on a node; a status if the node is ruled out regardless."""
        variant = self._base if self._wanted is None else self._variant(node)
        if isinstance(variant, Status) or not self._held:
            return variant
        missing = self._unavailable_on(node.node)
        if isinstance(missing, Status):
            return missing
        if self._claims.node_allocatable:
            for held in self._held:
                if self._shares_mapped(held):
                    name = held.claim.metadata.name
                    return refusal(
                        f"node allocatable resource claim {name} has a mapped device and cannot be shared across pods"
                    )
        for held in self._held:
            if held.pending and held.needs_feature and not declares_feature(node.node):
                needs = f"requires {OPTIONAL_NODE_OPERATIONS} feature on the node"
                return refusal(f"resource claim {_name(held.claim)} allocation {needs}")
        return variant

    def accept(self, node: NodeInfo, variant: Variant, found: tuple[api.AllocationResult, ...]) -> Status | None:
        """Take these devices for the claims of `needed_on`, unless something else prevents it."""
        statuses: tuple[core_v1.NodeAllocatableResourceClaimStatus, ...] = ()
        if self._claims.node_allocatable:
            accounted = self._account(node, variant, found)
            if isinstance(accounted, Status):
                return accounted
            statuses = accounted
        if self._held and self._unavailable_on(node.node):
            return NOT_AVAILABLE
        self._results[node.name] = _Result(variant, found, statuses)
        return None

    def _allocate(self, variant: Variant, node: Node) -> tuple[api.AllocationResult, ...] | Status:
        if not variant.claims:
            return ()
        claims = self._claims
        try:
            answer = allocate(
                claims.inventory,
                node,
                variant.claims,
                claims.policy,
                steps_max=claims.steps_max,
                with_reasons=False,
                plans=variant.plans,
            )
        except AllocationError as error:
            return error_status(error)
        if isinstance(answer, Allocated):
            claims.search_steps += answer.steps
            return answer.results
        claims.search_steps += answer.steps
        if answer.undecided:
            text = f"node {node.metadata.name}: timed out trying to allocate devices"
            return refusal(text, Verdict.ERROR)
        return CANNOT_ALLOCATE

    def _account(
        self, node: NodeInfo, variant: Variant, found: Sequence[api.AllocationResult]
    ) -> tuple[core_v1.NodeAllocatableResourceClaimStatus, ...] | Status:
        """What devices that provide node resources add to the pod's requests, if the node has room for it."""
        allocations = {held.claim.metadata.name: held.allocation for held in self._held}
        allocations |= {c.metadata.name: a for c, a in zip(variant.claims, found, strict=True)}
        names = {entry.name: record.id.name for entry, record in self._entries}
        try:
            statuses = node_allocatable.claim_statuses(self._claims.inventory, node.node, self._pod, allocations, names)
        except node_allocatable.AccountingError as error:
            return refusal(str(error), Verdict.ERROR)
        except AllocationError as error:
            return error_status(error)
        if not statuses:
            return ()
        problem = node_allocatable.pod_level_problem(self._pod, statuses)
        if problem:
            return refusal(problem)
        short = node_allocatable.shortage(self._pod, statuses, node)
        if short is not None:
            verdict = Verdict.UNRESOLVABLE if short.hopeless else Verdict.UNSCHEDULABLE
            return Status(verdict=verdict, plugin=PLUGIN, reasons=short.reasons)
        return statuses

    def _shares_mapped(self, held: Held) -> bool:
        """Whether another pod uses a claim whose devices provide node resources."""
        if not node_allocatable.is_mapped(self._claims.inventory, held.allocation):
            return False
        if held.pending:
            return True
        claim = held.claim
        return bool(claim.status.reserved_for) and not is_reserved_for(self._pod, claim, self._claims.workload_claims)

    def _unavailable_on(self, node: Node) -> bool | Status:
        try:
            return any(held.unavailable or not held.is_on(node) for held in self._held)
        except SelectorError as error:
            return refusal(str(error), Verdict.ERROR)

    def _variant(self, node: NodeInfo) -> Variant | Status:
        """The variant with the claim for extended resources that this node needs."""
        if self._left_over is not None:
            # From an earlier attempt. It may no longer be valid and is deleted first.
            return _LEFT_OVER
        offered = node.allocatable_scalars
        names = self._names
        for name in self._other_names:
            if name not in offered:
                return _CANNOT_FIT
        if offered:
            names = tuple([name for name in names if not offered.get(name)])
            if not names:
                return self._base
        variant = self._variants.get(names)
        if variant is None:
            claims, base = self._claims, self._base
            assert self._wanted is not None
            requests, mappings = extended_resources.requests_and_mappings(
                self._pod, self._wanted, names, claims.extended.class_name
            )
            claim = extended_resources.special_claim(self._pod, requests)
            plan = claims.inventory.plan(claim.spec)
            variant = Variant(claims.inventory, (*base.claims, claim), (*base.plans, plan), mappings)
            self._variants[names] = variant
        return variant

    def rank(self, node: NodeInfo) -> int:
        """How good the chosen alternatives are: 8 for the first of a list, less for later ones."""
        result = self._results.get(node.name)
        if result is None:
            return 0
        chosen = [*zip(result.variant.claims, result.allocations, strict=True)]
        chosen += [(held.claim, held.allocation) for held in self._held]
        return sum(rank_of(claim.spec, allocation) for claim, allocation in chosen)

    def occupancy(self, node: NodeInfo) -> tuple[int, int]:
        """Of the node's devices that could serve the pod: how many are held, how many there are."""
        variant = self.lacking(node)
        if isinstance(variant, Status):
            return 0, 0
        signatures = {
            leaf.signature
            for plan in variant.plans
            for request in plan.requests
            for leaf in request.leaves
            if leaf.signature is not None
        }
        inventory = self._claims.inventory
        for signature in signatures:
            inventory.watch(signature)
        try:
            view = inventory.view(node.node)
            devices = {entry for signature in signatures for entry in view.candidates(signature).devices}
        except AllocationError:
            return 0, 0
        return sum(entry.state.allocated for entry in devices), len(devices)

    def steps(self, node: NodeInfo) -> Steps:
        """What to write; only after `exact` has accepted the node."""
        result = self._results[node.name]
        variant = result.variant
        steps = [
            ClaimStep(claim=claim, allocation=allocation, consumer=consumer)
            for claim, allocation, consumer in zip(self._base.claims, result.allocations, self._consumers, strict=False)
        ]
        for held in self._held:
            if held.pending or held.consumer is not None:
                steps.append(
                    ClaimStep(
                        claim=held.claim,
                        allocation=held.allocation if held.pending else None,
                        consumer=held.consumer,
                    )
                )
        new = None
        if variant.mappings is not None:
            new = NewClaim(claim=variant.claims[-1], allocation=result.allocations[-1], mappings=variant.mappings)
        return tuple(steps), new, result.node_allocatable

    # --- when no node fits ---

    @property
    def held(self) -> Sequence[Held]:
        """The pod's claims that have their devices."""
        return self._held

    def lacking(self, node: NodeInfo) -> Variant | Status:
        """The pod's claims that would need devices on a node; a status if the node is ruled out."""
        return self._base if self._wanted is None else self._variant(node)

    def unavailable_claims(self, statuses: Mapping[str, Status]) -> list[api.ResourceClaim]:
        """Allocated claims that caused refusals of nodes, those that are unusable everywhere first."""
        if not self._held:
            return []
        refused = [name for name, status in statuses.items() if NOT_AVAILABLE.reasons[0] in status.reasons]
        if not refused:
            return []
        useless = [held.claim for held in self._held if held.unavailable]
        elsewhere = [
            held.claim
            for held in self._held
            if not held.unavailable
            and not held.pending
            and (held.names is None or any(name not in held.names for name in refused))
        ]
        return useless + elsewhere

    def clean_ups(self, statuses: Mapping[str, Status]) -> tuple[tuple[CleanUp, ...], str]:
        """What to clear away if no node passed, and the text for it (PostFilter). One thing at a time, as upstream."""
        own = {self._pod.metadata.uid}
        for claim in self.unavailable_claims(statuses):
            if self._claims.consumers(claim) <= own:
                return (Deallocate(claim=claim),), DEALLOCATED
        if self._left_over is not None:
            return (DeleteClaim(claim=self._left_over),), DELETED
        return (), ""

    def explanation(self, nodes: Sequence[NodeInfo]) -> str:
        """Why none of these nodes, which lack only devices, fits: a sentence or two about the closest one."""
        nearest: NodeInfo | None = None
        best = (0, "")
        for node in nodes:
            variant = self.lacking(node)
            if isinstance(variant, Status) or not variant.claims:
                continue
            lacking = 0
            for index, needed in variant.needs:
                lacking += max(0, needed - index.count(node.name))
            if nearest is None or (lacking, node.name) < best:
                nearest, best = node, (lacking, node.name)
        if nearest is not None:
            variant = self.lacking(nearest)
            assert isinstance(variant, Variant)
            text = reasons.why_not(self._claims.inventory, nearest.node, variant.claims, variant.plans)
            if text:
                return text
        return reasons.where_held([held.claim for held in self._held if not held.pending])


def error_status(error: AllocationError) -> Status:
    """The status of a node on which upstream's attempt ends."""
    if error.per_node:
        return INVALID_POOLS
    return refusal(error.message, Verdict.ERROR)


def _name(claim: api.ResourceClaim) -> str:
    return f"{claim.metadata.namespace}/{claim.metadata.name}"


def _is_native(resource: str) -> bool:
    return "kubernetes.io/" in resource and not resource.startswith(api.IMPLICIT_EXTENDED_RESOURCE_PREFIX)
