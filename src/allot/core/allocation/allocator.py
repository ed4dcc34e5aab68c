"""allocate(): the claims of one pod on one node, all or nothing.

Same input, same answer: devices are chosen in upstream's order (policy first-fit) or by another policy, never at random.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from allot.core.allocation.constraints import AttributeReader, Value
from allot.core.allocation.devices import ClaimID, DeviceEntry
from allot.core.allocation.draft import Draft
from allot.core.allocation.errors import AllocationError
from allot.core.allocation.inventory import Inventory, claim_id
from allot.core.allocation.plan import ClaimPlan, Leaf
from allot.core.allocation.policies import FIRST_FIT, Policy
from allot.core.allocation.pools import NodeView, PoolView
from allot.core.allocation.reasons import explain
from allot.core.allocation.result import Choice, build
from allot.core.allocation.search import STEPS_MAX, OutOfSteps, Search
from allot.core.allocation.signature import SelectorFailure
from allot.core.explain import RequestReason, summarize
from allot.core.model import resource_v1 as api
from allot.core.model.core_v1 import Node

NewShareID = Callable[[api.ResourceClaim, Choice, int], str]


class Allocated(msgspec.Struct, frozen=True):
    """One allocation per claim, in order."""

    results: tuple[api.AllocationResult, ...]
    steps: int = 0


class Unallocatable(msgspec.Struct, frozen=True):
    """The claims do not fit on the node. `undecided`: the search ran out of steps first."""

    reasons: tuple[RequestReason, ...]
    steps: int = 0
    undecided: bool = False

    def summary(self) -> list[str]:
        """A short summary for users, one sentence per problem."""
        if self.undecided:
            return [
                f"gave up after {self.steps} search steps: the claims may or may not fit",
                *summarize(self.reasons),
            ]
        return summarize(self.reasons)


def share_id(claim: api.ResourceClaim, choice: Choice, number: int) -> str:
    """A share id in UUID form that is the same for the same claim, device and place in the result."""
    who = claim.metadata.uid or f"{claim.metadata.namespace}/{claim.metadata.name}"
    digest = hashlib.sha256(f"{who}|{choice.entry.id}|{choice.leaf.full_name}|{number}".encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def allocate(
    inventory: Inventory,
    node: Node,
    claims: Sequence[api.ResourceClaim],
    policy: Policy = FIRST_FIT,
    *,
    new_share_id: NewShareID = share_id,
    steps_max: int = STEPS_MAX,
    with_reasons: bool = True,
    plans: Sequence[ClaimPlan] | None = None,
) -> Allocated | Unallocatable:
    """Find devices for all claims (which are not allocated yet) from one node.

    Reads the inventory and leaves it as it is: to make the allocation count, `inventory.hold` it. Raises AllocationError where
    upstream ends the attempt. with_reasons: compute why not (costs nothing if the claims fit). plans: the plans of the
    claims, if known.
    """
    view = inventory.view(node)
    if plans is None:
        plans = [inventory.plan(claim.spec) for claim in claims]
    if policy is FIRST_FIT and len(plans) == 1:
        choices = _straight(view, plans[0]) if plans[0].plain else _matched(view, plans[0], inventory.reader)
        if choices is not None:
            leaves = [request.leaves[0] for request in plans[0].requests]
            result = build(
                plans[0],
                claims[0].metadata.name,
                choices,
                leaves,
                node.metadata.name,
                inventory.features.device_binding_and_status,
            )
            return Allocated((result,), len(choices))
    return _Attempt(inventory, view, claims, plans, new_share_id, steps_max).run(policy, with_reasons)


def _straight(view: NodeView, plan: ClaimPlan) -> list[Choice] | None:
    """The common case in one pass: exact counts of exclusive devices, nothing in the way.

    None as soon as anything else turns up; the full search then starts from the beginning.
    """
    choices: list[Choice] = []
    used: set[DeviceEntry] = set()
    for request in plan.requests:
        leaf = request.leaves[0]
        assert leaf.signature is not None
        devices, failures = view.candidates(leaf.signature)
        if failures:
            return None
        needed = leaf.count
        for entry in devices:
            state = entry.state
            if state.claims or entry in used:
                continue
            if entry.shareable or state.counters or state.consumed:
                return None
            choices.append(Choice(leaf, entry))
            used.add(entry)
            needed -= 1
            if not needed:
                break
        if needed:
            return None
    return choices if len(choices) <= api.ALLOCATION_RESULTS_MAX else None


def _matched(view: NodeView, plan: ClaimPlan, reader: AttributeReader) -> list[Choice] | None:
    """The other common case: equal requests, all of whose devices must have the same value of one attribute.

    The search would try the first device and everything that has a value in common with it, then the next. Its result
    can be computed directly. None as soon as anything is less simple.
    """
    if plan.matched is None:
        return None
    signature = plan.requests[0].leaves[0].signature
    assert signature is not None
    needed = sum([request.leaves[0].count for request in plan.requests])
    devices, failures = view.candidates(signature)
    if failures or not 0 < needed <= api.ALLOCATION_RESULTS_MAX:
        return None
    free: list[tuple[DeviceEntry, frozenset[Value]]] = []
    counts: dict[Value, int] = {}
    for entry in devices:
        state = entry.state
        if state.claims:
            continue
        if entry.shareable or state.counters or state.consumed:
            return None
        values = reader.read_published(entry, plan.matched)
        if values is None:
            continue
        if values.opaque:
            return None
        free.append((entry, values.values))
        for value in values.values:
            counts[value] = counts.get(value, 0) + 1
    # Only a value that enough devices have can be common to all. A skipped device has none of the values
    # that are left, so continuing is as good as restarting for the next request.
    common = frozenset([value for value, count in counts.items() if count >= needed])
    if not common:
        return None
    chosen = []
    for entry, values_ in free:
        left = common & values_
        if left:
            common = left
            chosen.append(entry)
            if len(chosen) == needed:
                break
    found = iter(chosen)
    return [
        Choice(leaf, next(found))
        for leaf in [request.leaves[0] for request in plan.requests]
        for _ in range(leaf.count)
    ]


class _Attempt:
    """One call of allocate."""

    def __init__(
        self,
        inventory: Inventory,
        view: NodeView,
        claims: Sequence[api.ResourceClaim],
        plans: Sequence[ClaimPlan],
        new_share_id: NewShareID,
        steps_max: int,
    ) -> None:
        self.inventory = inventory
        self.view = view
        self.claims = claims
        self.plans = plans
        self.ids = [claim_id(claim) for claim in claims]
        self.new_share_id = new_share_id
        self.steps_max = steps_max
        self.counts: dict[Leaf, int] = {}

    def run(self, policy: Policy, with_reasons: bool) -> Allocated | Unallocatable:
        """The answer."""
        for id_, plan in zip(self.ids, self.plans, strict=True):
            self._prepare(id_, plan)
        undecided = False
        search = self._search()
        try:
            found = policy.search(search, self._search)
        except OutOfSteps:
            found, undecided = None, True
        if found is not None:
            return Allocated(self._results(found), found.steps)
        if not undecided and any(pool.invalid for pool in self.view.pools):
            raise AllocationError("invalid resource pools were encountered", per_node=True)
        reasons: tuple[RequestReason, ...] = ()
        if with_reasons:
            reasons = explain(self.inventory, self.view, self.ids, self.plans, self.counts)
        return Unallocatable(reasons, search.steps, undecided)

    def _search(self) -> Search:
        draft = Draft(self.view, self.ids, self.plans, self.inventory.features)
        requests = [plan.requests for plan in self.plans]
        return Search(draft, requests, self._candidates, self._blocked, self.counts, self.steps_max)

    def _prepare(self, id_: ClaimID, plan: ClaimPlan) -> None:
        """Refuse what upstream refuses before it chooses devices, in its order."""
        least = 0
        for request in plan.requests:
            if request.error is not None:
                raise AllocationError(f"claim {id_}{request.error}")
            for leaf in request.leaves:
                self.counts[leaf] = self._count(id_, leaf)
            least += min(self.counts[leaf] for leaf in request.leaves)
        if least > api.ALLOCATION_RESULTS_MAX:
            raise AllocationError(
                f"claim {id_}: number of requested devices {least} exceeds the claim limit of {api.ALLOCATION_RESULTS_MAX}"
            )
        if plan.constraint_error is not None:
            raise AllocationError(f"claim {id_}{plan.constraint_error}")

    def _count(self, id_: ClaimID, leaf: Leaf) -> int:
        if leaf.error is not None:
            raise AllocationError(f"claim {id_}{leaf.error}")
        if not leaf.all_devices:
            return leaf.count
        assert leaf.signature is not None
        devices, _, problem = self.view.all_devices(leaf.signature)
        if isinstance(problem, PoolView):
            state = "being updated" if not problem.complete else "invalid"
            raise AllocationError(
                f"claim {id_}, request {leaf.name}: asks for all devices, "
                f"but resource pool {problem.id} is currently {state}"
            )
        if problem is not None:
            raise AllocationError(problem.sentence(id_, leaf.name, all_devices=True))
        return len(devices)

    def _candidates(self, leaf: Leaf) -> tuple[Sequence[DeviceEntry], Mapping[DeviceEntry, SelectorFailure]]:
        assert leaf.signature is not None
        if leaf.all_devices:
            return self.view.all_devices(leaf.signature).devices, {}
        return self.view.candidates(leaf.signature)

    def _blocked(self, leaf: Leaf) -> Sequence[DeviceEntry]:
        assert leaf.signature is not None
        return self.view.all_devices(leaf.signature).blocked

    def _results(self, search: Search) -> tuple[api.AllocationResult, ...]:
        results = []
        for position, (claim, plan) in enumerate(zip(self.claims, self.plans, strict=True)):
            choices = [
                choice
                if choice.share_id is None
                else choice._replace(share_id=self.new_share_id(claim, choice, number))
                for number, choice in enumerate(search.draft.choices[position])
            ]
            results.append(
                build(
                    plan,
                    claim.metadata.name,
                    choices,
                    search.chosen[position],
                    self.view.node.metadata.name,
                    self.inventory.features.device_binding_and_status,
                )
            )
        return tuple(results)


def place(
    inventory: Inventory,
    claims: Sequence[api.ResourceClaim],
    nodes: Mapping[str, Node],
    policy: Policy = FIRST_FIT,
    *,
    new_share_id: NewShareID = share_id,
) -> tuple[Node, Allocated] | None:
    """The first node on which the claims fit, with their allocation; None if there is none.

    Only nodes that may have enough free devices are checked, the fullest first.
    """
    for name in inventory.nodes_worth_trying(claims):
        node = nodes.get(name)
        if node is not None:
            answer = allocate(inventory, node, claims, policy, new_share_id=new_share_id, with_reasons=False)
            if isinstance(answer, Allocated):
                return node, answer
    return None
