"""Which devices the pods of a manifest can reach: on nodes that their selectors, affinity and tolerations allow."""

from __future__ import annotations

from collections.abc import Iterator

from allot.core.advice.planning.copies import Copy
from allot.core.advice.usage.reach import Reach
from allot.core.advice.what_if import WhatIfCluster
from allot.core.model import resource_v1 as api
from allot.core.scheduling import static_refusal


def reach_of(what_if: WhatIfCluster, copy: Copy) -> Reach:
    """What at least one of a copy's pods can reach."""
    profiles = [what_if.cluster.profiles.of(pod) for pod in copy.pods]
    nodes = [
        info.node
        for info in what_if.cluster.nodes.values()
        if any(static_refusal(profile, info, what_if.settings) is None for profile in profiles)
    ]
    return Reach(nodes, tuple(_tolerations(copy)))


def _tolerations(copy: Copy) -> Iterator[api.DeviceToleration]:
    for claim in copy.claims:
        for request in claim.spec.devices.requests:
            for asked in (*((request.exactly,) if request.exactly is not None else ()), *request.first_available):
                yield from asked.tolerations
