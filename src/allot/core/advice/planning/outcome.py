"""The answer of `allot plan`: how many copies fit into a cluster, what blocks the next one, and what remains free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from allot.core.advice.planning.copies import Manifest
from allot.core.advice.planning.filling import Blocked, Filled, blocked_by, filled
from allot.core.advice.planning.maximum import Maximum, maximum_of
from allot.core.advice.planning.queues import QueueResult, by_right
from allot.core.advice.planning.quotas import QuotaLimit, quota_limit
from allot.core.advice.planning.reach import reach_of
from allot.core.advice.usage.devices import DeviceUsage, class_usage
from allot.core.advice.what_if import WhatIfCluster
from allot.core.lifecycle.claim_owners import is_done
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import Placement, Unit, put_into_force


class NodeShare(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many pods a node would get."""

    node: str
    pods: int


class Stranded(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod of a drained node that does not fit elsewhere."""

    pod: str
    blocked: Blocked


class ClassChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Devices of a class that the copies use: what is free before and after."""

    name: str
    free_before: int
    free_after: int
    fragmentation_before: float
    fragmentation_after: float


class PlanResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """scheduled: copies that the scheduler would place now; maximum: the upper limit; blocked: why not one more."""

    nodes: int
    scheduled: int
    pods_per_copy: int
    maximum: Maximum
    blocked: Blocked | None = None
    placement: tuple[NodeShare, ...] = ()
    classes: tuple[ClassChange, ...] = ()
    moved: int = 0
    stranded: tuple[Stranded, ...] = ()
    # Pods of the cluster without a node; nothing is reserved for them.
    waiting: int = 0
    # The quota that allows the fewest copies, whether or not devices suffice.
    quota: QuotaLimit | None = None
    # How many copies their queue starts if others give back what they borrowed; None without a queue.
    queue: QueueResult | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_blocked_by_quota(self) -> bool:
        """Whether one more copy would be refused before the scheduler sees it."""
        return self.quota is not None and self.quota.copies <= self.scheduled


def outcome_of(
    what_if: WhatIfCluster,
    manifest: Manifest,
    limit: int,
    displaced: Sequence[core_v1.Pod] = (),
    advance: Callable[[], None] = lambda: None,
) -> PlanResult:
    """How many copies fit, up to a limit, after displaced pods have been placed."""
    with what_if.cluster.trying() as moved:
        stranded = _move(what_if, displaced, moved)
        classes = _classes(what_if, manifest)
        reach = reach_of(what_if, manifest.copy(0))
        before = class_usage(what_if, classes, reach)
        quota = quota_limit(what_if, manifest.copy(0))
        allowed = limit if quota.limit is None else min(limit, quota.limit.copies)
        with filled(what_if, manifest, allowed, advance) as found:
            after = class_usage(what_if, classes, reach)
        if quota.limit is not None and found.blocked is None and found.copies == quota.limit.copies < limit:
            found = msgspec.structs.replace(found, blocked=Blocked(message=quota.limit.message))
        return PlanResult(
            nodes=len(what_if.cluster.nodes),
            scheduled=found.copies,
            pods_per_copy=len(manifest.members),
            maximum=_as_far_as_read(what_if, maximum_of(what_if, manifest, found, allowed)),
            blocked=found.blocked,
            placement=_shares(found),
            classes=tuple(_change(row, after[name]) for name, row in before.items()),
            moved=len(moved),
            stranded=stranded,
            waiting=_waiting(what_if) - len(displaced),
            quota=quota.limit,
            queue=by_right(what_if, manifest, allowed),
            notes=quota.notes,
        )


def _as_far_as_read(what_if: WhatIfCluster, maximum: Maximum) -> Maximum:
    """Without permission to read other namespaces, the answer is only a bound."""
    unread = [name for type_, name in ((core_v1.Pod, "pods"), (api.ResourceClaim, "claims")) if type_ in what_if.unread]
    if not unread:
        return maximum
    reason = f"{' and '.join(unread)} of other namespaces could not be read, so what they hold counts as free"
    return Maximum(copies=maximum.copies, is_exact=False, reason=reason)


def _waiting(what_if: WhatIfCluster) -> int:
    return sum(not pod.spec.node_name and not is_done(pod) for pod in what_if.all(core_v1.Pod))


def _move(what_if: WhatIfCluster, displaced: Sequence[core_v1.Pod], moved: list[Placement]) -> tuple[Stranded, ...]:
    """Place the pods of drained nodes one by one; returns those that fit nowhere."""
    stranded = []
    for pod in displaced:
        outcome = what_if.machine.consider(Unit(pods=(pod,)), what_if.now)
        if outcome.failure is not None:
            name = f"{pod.metadata.namespace}/{pod.metadata.name}"
            stranded.append(Stranded(pod=name, blocked=blocked_by(what_if.cluster, pod, outcome.failure)))
        else:
            (found,) = outcome.placements
            put_into_force(what_if.cluster, what_if.claims, found)
            moved.append(found)
    return tuple(stranded)


def _shares(found: Filled) -> tuple[NodeShare, ...]:
    counts: dict[str, int] = {}
    for placement in found.placements:
        counts[placement.node] = counts.get(placement.node, 0) + 1
    return tuple(NodeShare(node=node, pods=count) for node, count in sorted(counts.items()))


def _classes(what_if: WhatIfCluster, manifest: Manifest) -> set[str]:
    found: set[str] = set()
    for claim in manifest.copy(0).claims:
        for request in claim.spec.devices.requests:
            alternatives: Iterable[api.ExactDeviceRequest | api.DeviceSubRequest] = request.first_available
            if request.exactly is not None:
                alternatives = (request.exactly,)
            found.update(asked.device_class_name for asked in alternatives)
    for pod in manifest.members:
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            names = (what_if.claims.extended.class_name(resource) for resource in container.resources.requests)
            found.update(name for name in names if name is not None)
    return found


def _change(before: DeviceUsage, after: DeviceUsage) -> ClassChange:
    return ClassChange(
        name=before.name,
        free_before=before.free,
        free_after=after.free,
        fragmentation_before=before.fragmentation.share,
        fragmentation_after=after.fragmentation.share,
    )
