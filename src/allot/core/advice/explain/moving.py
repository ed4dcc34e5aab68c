"""Placed pods that would also fit elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from allot.core.advice.explain.trial import pod_subject, try_out
from allot.core.advice.what_if import Journal, WhatIfCluster
from allot.core.allocation.devices import DeviceID
from allot.core.lifecycle.claim_owners import claim_keys
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import Placement

# In a larger cluster this takes too long.
_NODES_MAX = 100


def unplaced(pod: core_v1.Pod) -> Callable[[WhatIfCluster, Journal], None]:
    """A change to a cluster: a pod loses its node, and its claims lose the devices that no other pod uses."""

    def unplace(changed: WhatIfCluster, journal: Journal) -> None:
        changed.put(replace(pod, spec=replace(pod.spec, node_name="")), journal)
        for key in claim_keys(pod):
            namespace, _, name = key.partition("/")
            claim = changed.get(api.ResourceClaim, name, namespace)
            if claim is not None and {user.uid for user in claim.status.reserved_for} <= {pod.metadata.uid}:
                changed.put(replace(claim, status=api.ResourceClaimStatus()), journal)

    return unplace


def fits_on(what_if: WhatIfCluster, pod: core_v1.Pod, node: str) -> bool:
    """Whether a placed pod would also fit on a node, with its devices."""
    with what_if.changed((), unplaced(pod)) as changed:
        found = try_out(changed, pod_subject(pod), {node})
        return found.schedulable and bool(found.placements)


def other_place(
    what_if: WhatIfCluster, pod: core_v1.Pod, without: Collection[str] = (), *, other_devices: bool = False
) -> str:
    """Another node that a placed pod would fit on; empty if there is none, or if finding out takes too long. without: nodes
    to leave free. other_devices: it must not take devices there that it has now, which several nodes may reach."""
    others = set(what_if.cluster.nodes) - {pod.spec.node_name, *without}
    if len(others) >= _NODES_MAX or not pod.spec.node_name or what_if.cluster.membership.of(pod) is not None:
        return ""
    kept = _held(what_if, pod) if other_devices else set()
    with what_if.changed((), unplaced(pod)) as changed:
        subject = pod_subject(pod)
        found = try_out(changed, subject, others)
        if not found.schedulable or not found.placements:
            return ""
        if kept & _given(found.placements[0]):
            return ""
        return found.node_of(subject)


def _held(what_if: WhatIfCluster, pod: core_v1.Pod) -> set[DeviceID]:
    """The devices of a pod's claims."""
    names = (key.partition("/") for key in claim_keys(pod))
    claims = [what_if.get(api.ResourceClaim, name, namespace) for namespace, _, name in names]
    return {each for claim in claims if claim is not None for each in _devices(claim.status.allocation)}


def _given(place: Placement) -> set[DeviceID]:
    """The devices that a pod would get."""
    return {each for step in place.claims for each in _devices(step.allocation)}


def _devices(allocation: api.AllocationResult | None) -> list[DeviceID]:
    results = allocation.devices.results if allocation is not None else ()
    return [DeviceID(each.driver, each.pool, each.device) for each in results]


class Successor(NamedTuple):
    """Where a pod would run if it were recreated, and with which devices."""

    node: str
    devices: tuple[str, ...]


def makes_way(what_if: WhatIfCluster, pod: core_v1.Pod, waiting: core_v1.Pod) -> Successor | None:
    """The successor of a placed pod that makes way for a waiting pod even if it is scheduled first; None if one of them finds no
    place then, or if finding out takes too long."""
    if len(what_if.cluster.nodes) >= _NODES_MAX or not pod.spec.node_name:
        return None
    if what_if.cluster.membership.of(pod) is not None:
        return None
    with what_if.changed((), unplaced(pod)) as changed:
        found = try_out(changed, pod_subject(pod))
        if not found.schedulable or not found.placements:
            return None
        # Another scheduler may rank nodes differently, and take the old one again.
        again = try_out(changed, pod_subject(pod), {pod.spec.node_name})
        places = [found.placements[0], *(again.placements[:1] if again.schedulable else ())]
        if not all(_leaves_room(changed, place, waiting) for place in places):
            return None
    devices = [each.device for step in places[0].claims for each in _devices(step.allocation)]
    return Successor(places[0].node, tuple(devices))


def _leaves_room(what_if: WhatIfCluster, place: Placement, waiting: core_v1.Pod) -> bool:
    """Whether a pod that waits still fits when another one has a place."""
    with what_if.changed((), _placed([place])) as after:
        return try_out(after, pod_subject(waiting)).schedulable


def fits_again(what_if: WhatIfCluster, pod: core_v1.Pod, waiting: core_v1.Pod) -> str:
    """The node that a placed pod would fit on again after it has made room for another one; empty if there is none, or if finding out
    takes too long."""
    membership = what_if.cluster.membership
    in_gang = membership.of(pod) is not None or membership.of(waiting) is not None
    if len(what_if.cluster.nodes) >= _NODES_MAX or not pod.spec.node_name or in_gang:
        return ""
    with what_if.changed((), unplaced(pod)) as without:
        first = try_out(without, pod_subject(waiting))
        if not first.schedulable or not first.placements:
            return ""
        with without.changed((), _placed(first.placements)) as then:
            subject = pod_subject(pod)
            found = try_out(then, subject)
            return found.node_of(subject) if found.schedulable and found.placements else ""


def _placed(placements: Sequence[Placement]) -> Callable[[WhatIfCluster, Journal], None]:
    """A change to a cluster: pods get their nodes and devices."""

    def place(changed: WhatIfCluster, journal: Journal) -> None:
        for each in placements:
            changed.put(replace(each.pod, spec=replace(each.pod.spec, node_name=each.node)), journal)
            for step in each.claims:
                status = step.claim.status
                users = (*status.reserved_for, *([step.consumer] if step.consumer is not None else []))
                allocation = step.allocation or status.allocation
                held = replace(status, allocation=allocation, reserved_for=users)
                changed.put(replace(step.claim, status=held), journal)

    return place
