"""Why the devices of the whole cluster do not satisfy the requests of a pod.

Adds up the allocator's survey of every node, per request and per node, so that a few lines describe
the whole cluster and the nearest node can be found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nsmallest
from itertools import islice

import msgspec

from allot.core.advice.explain.remedies.nodes import selector_text
from allot.core.advice.explain.report import Holder, Removed, RequestReport
from allot.core.advice.explain.unreached import Unreached, usable_unreached
from allot.core.advice.lint.expressions import read_expression
from allot.core.advice.what_if import WhatIfCluster, full_name
from allot.core.allocation import AllocationError, Unallocatable, allocate
from allot.core.allocation.devices import DeviceID
from allot.core.allocation.plan import Leaf
from allot.core.allocation.reasons import Rejections, Survey
from allot.core.allocation.signature import Signature
from allot.core.explain import DeviceReason, Obstacle, RequestReason
from allot.core.lifecycle.times import seconds_of
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import ClaimFit, NodeInfo, Variant
from allot.core.selectors import nodes_named

SHOWN_MAX = 3
_HOLDERS_MAX = 5
# Sorts after every time.
_NEVER = "~"
# A device with one of these obstacles does not count as a device of the class on a node.
OUTSIDE = (Obstacle.NOT_IN_CLASS, Obstacle.NOT_ON_NODE)
# Obstacles caused by what others hold.
TAKEN = (Obstacle.IN_USE, Obstacle.COUNTER, Obstacle.CAPACITY, Obstacle.COMPATIBILITY_GROUP)


class Tally(msgspec.Struct):
    """Devices with the same obstacle."""

    reason: DeviceReason
    count: int = 0
    devices: list[str] = msgspec.field(default_factory=list)
    # In order, without repetition.
    nodes: dict[str, None] = msgspec.field(default_factory=dict)
    claims: dict[str, int] = msgspec.field(default_factory=dict)


class NodeDevices(msgspec.Struct, frozen=True):
    """What one node has for a request."""

    in_class: int
    free: int
    # Obstacles of its devices, with how many devices have each.
    obstacles: tuple[tuple[Obstacle, str, int], ...]

    def count(self, *obstacles: Obstacle) -> int:
        """How many devices have one of these obstacles."""
        return sum(number for obstacle, _, number in self.obstacles if obstacle in obstacles)


class Signed(msgspec.Struct):
    """What was found for requests of one signature."""

    published: int = 0
    in_class: int = 0
    free: int = 0
    tallies: dict[tuple[Obstacle, str], Tally] = msgspec.field(default_factory=dict)
    nodes: dict[str, NodeDevices] = msgspec.field(default_factory=dict)

    def of(self, *obstacles: Obstacle) -> list[Tally]:
        """The tallies of some obstacles, the most frequent first."""
        found = [tally for (obstacle, _), tally in self.tallies.items() if obstacle in obstacles]
        return sorted(found, key=lambda tally: -tally.count)

    def count(self, *obstacles: Obstacle) -> int:
        """How many devices have one of these obstacles."""
        return sum(tally.count for tally in self.of(*obstacles))

    def most_free(self) -> tuple[str, int]:
        """The node with most free devices."""
        best = max(self.nodes.items(), key=lambda item: item[1].free, default=None)
        return (best[0], best[1].free) if best is not None and best[1].free else ("", 0)


class Wanted(msgspec.Struct, frozen=True):
    """One request, or alternative of one, that needs devices."""

    claim: api.ResourceClaim
    leaf: Leaf
    found: Signed

    @property
    def claim_name(self) -> str:
        """Namespace and name."""
        return full_name(self.claim)

    @property
    def class_name(self) -> str:
        """The requested class."""
        return self.leaf.request.device_class_name


class DeviceSurvey:
    """All requests of a pod that need devices, and what was found for them."""

    def __init__(self, what_if: WhatIfCluster, fit: ClaimFit, nodes: Iterable[NodeInfo]) -> None:
        self.what_if = what_if
        self.fit = fit
        self.variant: Variant | None = None
        self.wanted: list[Wanted] = []
        self._signed: dict[Signature, Signed] = {}
        nodes = list(nodes)
        for node in nodes:
            variant = fit.lacking(node)
            if isinstance(variant, Variant) and variant.claims:
                self.variant = variant
                break
        if self.variant is None:
            return
        for claim, plan in zip(self.variant.claims, self.variant.plans, strict=True):
            for request in plan.requests:
                for leaf in request.leaves:
                    if leaf.signature is not None:
                        self.wanted.append(Wanted(claim, leaf, self._survey(leaf.signature, nodes)))

    def _survey(self, signature: Signature, nodes: Sequence[NodeInfo]) -> Signed:
        found = self._signed.get(signature)
        if found is not None:
            return found
        found = self._signed[signature] = Signed()
        inventory = self.what_if.claims.inventory
        rejections = Rejections(signature)
        seen: set[str] | None = set() if inventory.has_shared_devices else None
        for info in nodes:
            try:
                survey = Survey(inventory, inventory.view(info.node), signature, rejections)
            except AllocationError:
                continue
            found.nodes[info.name] = _note(found, survey, info.name, seen)
        return found

    def on_node(self, info: NodeInfo) -> tuple[RequestReason, ...]:
        """The allocator's reasons why a node cannot satisfy the claims; empty if it can, or if the allocator fails with an error."""
        variant = self.fit.lacking(info)
        if not isinstance(variant, Variant) or not variant.claims:
            return ()
        try:
            answer = allocate(self.what_if.claims.inventory, info.node, variant.claims, plans=variant.plans)
        except AllocationError:
            return ()
        return answer.reasons if isinstance(answer, Unallocatable) else ()

    # --- for the report ---

    def reports(self, together: Mapping[str, str]) -> tuple[RequestReport, ...]:
        """Each request in numbers. together: why the free devices of a request cannot be combined, by request name."""
        return tuple(self._report(wanted, together.get(wanted.leaf.full_name, "")) for wanted in self.wanted)

    def _report(self, wanted: Wanted, together: str) -> RequestReport:
        found = wanted.found
        node, most = found.most_free()
        removed = [tally for tally in found.tallies.values() if tally.reason.obstacle not in OUTSIDE]
        outside = [tally for tally in found.tallies.values() if tally.reason.obstacle in OUTSIDE]
        shown = sorted(removed, key=lambda tally: -tally.count)
        if not found.in_class:
            shown += sorted(outside, key=lambda tally: -tally.count)
        lost = usable_unreached(self.what_if, wanted.leaf.signature) if found.published else []
        beyond = sum(len(each.entries) for each in lost)
        return RequestReport(
            claim=wanted.claim_name,
            request=wanted.leaf.full_name,
            device_class=wanted.class_name,
            needed=0 if wanted.leaf.all_devices else wanted.leaf.count,
            published=found.published + beyond,
            devices=found.in_class + beyond,
            free=found.free,
            free_nodes=sum(1 for devices in found.nodes.values() if devices.free),
            most_free_node=node,
            most_free=most,
            removed=(*map(_unreached, lost), *map(_removed, shown)),
            holders=self.holders(wanted),
            together=together if found.free else "",
        )

    def holders(self, wanted: Wanted) -> tuple[Holder, ...]:
        """Who holds what the request could use, longest first; unknown times come last, and pods that are
        only being tried do not count."""
        held: dict[str, int] = {}
        for tally in wanted.found.of(*TAKEN):
            # A device whose counters others hold is not itself held by them.
            has = tally.reason.obstacle is Obstacle.IN_USE
            for name, count in tally.claims.items():
                held[name] = held.get(name, 0) + (count if has else 0)
        held = {name: count or self._count(name) for name, count in held.items()}
        held = {name: count for name, count in held.items() if not is_in_flight(self.what_if, name)}
        first = nsmallest(_HOLDERS_MAX, held, key=lambda name: (self._since(name) or _NEVER, name))
        return tuple(self._holder(name, held[name]) for name in first)

    def _count(self, name: str) -> int:
        """How many devices a claim has."""
        claim = find_claim(self.what_if, name)
        allocation = claim.status.allocation if claim is not None else None
        return len(allocation.devices.results) if allocation is not None else 0

    def _since(self, name: str) -> str:
        claim = find_claim(self.what_if, name)
        if claim is None or claim.status.allocation is None:
            return ""
        return claim.status.allocation.allocation_timestamp or claim.metadata.creation_timestamp or ""

    def _holder(self, name: str, devices: int) -> Holder:
        claim = find_claim(self.what_if, name)
        if claim is None or claim.status.allocation is None:
            return Holder(claim=name, devices=devices)
        since = self._since(name)
        seconds = None
        if since and self.what_if.taken_at is not None:
            seconds = max(0, int(self.what_if.taken_at - seconds_of(since)))
        namespace, users = claim.metadata.namespace, claim.status.reserved_for[:SHOWN_MAX]
        return Holder(
            claim=name,
            devices=devices,
            pods=tuple(f"{namespace}/{user.name}" for user in users if not _is_gone(self.what_if, claim, user)),
            gone=tuple(f"{namespace}/{user.name}" for user in users if _is_gone(self.what_if, claim, user)),
            nodes=nodes_of(claim),
            since=since,
            seconds=seconds,
        )


def _is_gone(what_if: WhatIfCluster, claim: api.ResourceClaim, user: api.ResourceClaimConsumerReference) -> bool:
    """Whether a pod that a claim is reserved for no longer exists."""
    namespace = claim.metadata.namespace
    if user.resource != "pods" or not what_if.has_pods_in(namespace):
        return False
    pod = what_if.get(core_v1.Pod, user.name, namespace)
    return pod is None or user.uid not in ("", pod.metadata.uid)


def _note(found: Signed, survey: Survey, node: str, seen: set[str] | None) -> NodeDevices:
    obstacles: dict[tuple[Obstacle, str], int] = {}
    for reason in survey.in_the_way:
        key = (reason.obstacle, reason.text)
        obstacles[key] = obstacles.get(key, 0) + 1
        if seen is not None:
            if reason.device in seen:
                continue
            seen.add(reason.device)
        found.published += 1
        found.in_class += reason.obstacle not in OUTSIDE
        tally = found.tallies.get(key)
        if tally is None:
            tally = found.tallies[key] = Tally(reason)
        tally.count += 1
        tally.nodes[node] = None
        if len(tally.devices) < SHOWN_MAX:
            tally.devices.append(reason.device)
        for claim in reason.claims:
            tally.claims[claim] = tally.claims.get(claim, 0) + 1
    for entry in survey.free:
        if seen is not None:
            if str(entry.id) in seen:
                continue
            seen.add(str(entry.id))
        found.published += 1
        found.in_class += 1
        found.free += 1
    return NodeDevices(
        survey.in_class, len(survey.free), tuple((*key, count) for key, count in sorted(obstacles.items()))
    )


def _removed(tally: Tally) -> Removed:
    reason = tally.reason
    return Removed(
        obstacle=reason.obstacle.value,
        count=tally.count,
        text=reason.text,
        expression=reason.expression,
        actual=reason.actual,
        needed=reason.needed,
        devices=tuple(tally.devices),
        nodes=tuple(islice(tally.nodes, SHOWN_MAX)),
        node_count=len(tally.nodes),
    )


def _unreached(lost: Unreached) -> Removed:
    return Removed(
        obstacle=Obstacle.NOT_ON_NODE.value,
        count=len(lost.entries),
        text=f"are only for nodes with {selector_text(lost.selector)}, which no node has",
        devices=tuple(str(each.id) for each in lost.entries[:SHOWN_MAX]),
    )


def nodes_of(claim: api.ResourceClaim) -> tuple[str, ...]:
    """The nodes that an allocation names."""
    allocation = claim.status.allocation
    return tuple(sorted(nodes_named(allocation.node_selector))) if allocation is not None else ()


def find_claim(what_if: WhatIfCluster, name: str) -> api.ResourceClaim | None:
    """A claim by `namespace/name`."""
    namespace, _, short = name.partition("/")
    return what_if.get(api.ResourceClaim, short, namespace)


def is_in_flight(what_if: WhatIfCluster, name: str) -> bool:
    """Whether a claim (`namespace/name`) has its devices only because a decision is being tried."""
    namespace, _, short = name.partition("/")
    return what_if.claims.in_flight(namespace, short)


def users_of(what_if: WhatIfCluster, claim: api.ResourceClaim) -> list[core_v1.Pod]:
    """The pods that use a claim."""
    namespace = claim.metadata.namespace
    found = [
        what_if.get(core_v1.Pod, user.name, namespace) for user in claim.status.reserved_for if user.resource == "pods"
    ]
    return [pod for pod in found if pod is not None]


def device_id(text: str) -> DeviceID:
    """The id of a device from its text."""
    driver, _, rest = text.partition("/")
    pool, _, device = rest.rpartition("/")
    return DeviceID(driver, pool, device)


def taint_rule_text(id_: DeviceID) -> str:
    """The rule that keeps pods from a device, with its values."""
    which = f"driver: {id_.driver}, pool: {id_.pool}, device: {id_.device}"
    return f"a DeviceTaintRule (deviceSelector: {{{which}}}, taint: {{key: unhealthy, effect: NoExecute}})"


def expected_drivers(class_: api.DeviceClass | None) -> list[str]:
    """The drivers whose devices a class selects, as far as its selectors name them."""
    found: list[str] = []
    for selector in class_.spec.selectors if class_ is not None else ():
        reading = read_expression(selector.cel.expression) if selector.cel is not None else None
        found += reading.drivers if reading is not None else ()
    return found
