"""Placed pods that would also fit elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec.structs import replace

from allot.core.advice.explain.trial import pod_subject, try_out
from allot.core.advice.what_if import Journal, WhatIfCluster
from allot.core.lifecycle.claim_owners import claim_keys
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api

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


def other_place(what_if: WhatIfCluster, pod: core_v1.Pod, without: Collection[str] = ()) -> str:
    """Another node that a placed pod would fit on; empty if there is none, or if finding out takes too long. without: nodes
    to leave free."""
    others = set(what_if.cluster.nodes) - {pod.spec.node_name, *without}
    if len(others) >= _NODES_MAX or not pod.spec.node_name or what_if.cluster.membership.of(pod) is not None:
        return ""
    with what_if.changed((), unplaced(pod)) as changed:
        subject = pod_subject(pod)
        found = try_out(changed, subject, others)
        return found.node_of(subject) if found.schedulable and found.placements else ""
