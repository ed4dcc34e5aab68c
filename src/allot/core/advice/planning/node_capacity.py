"""How many pods of each shape a node can hold at once, whatever the scheduler would choose.

The allocator decides about all their devices at once, so the answer is exact: it searches until it has found devices for
all claims together, or proved that there are none. The scheduler's own filters check other limits of the node, pod by pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from allot.core.advice.what_if import WhatIfCluster
from allot.core.allocation import AllocationError, Unallocatable, allocate
from allot.core.allocation.plan import ClaimPlan
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.scheduling import (
    FullEvaluation,
    NodeInfo,
    Placement,
    Profile,
    extended_resources,
    fits,
    local_refusal,
    looks_around,
)

T = TypeVar("T", core_v1.Pod, api.ResourceClaim)
Counts = tuple[int, ...]


class PodShape(msgspec.Struct, frozen=True, kw_only=True):
    """Equal pods, or equal sets of pods that must be on one node, as the cluster knows them."""

    pods: tuple[core_v1.Pod, ...]
    # The claims that need devices, for one such pod or set.
    claims: tuple[api.ResourceClaim, ...] = ()


class NodeCapacity:
    """Answers for nodes. undecided: whether the allocator gave up on some question, so that answers may be too high."""

    def __init__(self, what_if: WhatIfCluster, shapes: Sequence[PodShape]) -> None:
        self.undecided = False
        self._cluster = what_if.cluster
        self._claims = what_if.claims
        self._now = what_if.now
        self._shapes = shapes
        self._settings = what_if.settings
        self._known: dict[tuple[str, Counts], bool] = {}
        self._accepted: dict[tuple[str, int], bool] = {}

    def fits(self, info: NodeInfo, counts: Counts) -> bool:
        """Whether these numbers of pods of each shape fit on a node together."""
        key = (info.name, counts)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._fits(info, counts)
        return known

    def most(self, info: NodeInfo, shape: int, at_least: int, limit: int) -> int:
        """The most pods of one shape. at_least: a number known to fit."""
        count = at_least
        if count:
            self._accepted[info.name, shape] = True
        while count < limit and self.fits(info, self._only(shape, count + 1)):
            count += 1
        return count

    def _only(self, shape: int, count: int) -> Counts:
        return tuple(count if index == shape else 0 for index in range(len(self._shapes)))

    def _fits(self, info: NodeInfo, counts: Counts) -> bool:
        if not all(self._accepts(info, shape) for shape, count in enumerate(counts) if count):
            return False
        claims, plans = self._needed(info, counts)
        return (
            self._may_have_devices(info, plans)
            and self._has_enough(info, counts)
            and self._has_devices(info, claims, plans)
        )

    def _accepts(self, info: NodeInfo, shape: int) -> bool:
        """Whether each such pod fits on a node alone."""
        known = self._accepted.get((info.name, shape))
        if known is None:
            known = self._accepted[info.name, shape] = all(
                fits(self._cluster, pod, info.name, self._settings, self._now) is None
                for pod in self._shapes[shape].pods
            )
        return known

    def _has_enough(self, info: NodeInfo, counts: Counts) -> bool:
        """Whether CPU, memory, ports and other node resources suffice."""
        with self._cluster.trying() as tried:
            for pod, number in self._pods(counts):
                if self._refuses(info, pod, self._cluster.profiles.of(pod)):
                    return False
                placement = Placement(pod=_numbered(pod, number), node=info.name)
                self._cluster.assume(placement)
                tried.append(placement)
        return True

    def _pods(self, counts: Counts) -> Iterator[tuple[core_v1.Pod, int]]:
        for shape, count in zip(self._shapes, counts, strict=True):
            for number in range(count):
                for pod in shape.pods:
                    yield pod, number

    def _refuses(self, info: NodeInfo, pod: core_v1.Pod, profile: Profile) -> bool:
        if looks_around(self._cluster, profile, self._settings):
            return FullEvaluation(self._cluster, pod, profile, None, self._settings).refusal(info) is not None
        return local_refusal(self._cluster, profile, info, self._settings) is not None

    def _needed(self, info: NodeInfo, counts: Counts) -> tuple[list[api.ResourceClaim], list[ClaimPlan]]:
        """The claims of all pods together."""
        claims: list[api.ResourceClaim] = []
        plans: list[ClaimPlan] = []
        for shape, count in zip(self._shapes, counts, strict=True):
            own = [*shape.claims, *(found for pod in shape.pods for found in self._special(pod, info))]
            planned = [self._claims.inventory.plan(claim.spec) for claim in own]
            for number in range(count):
                claims += [_numbered(claim, number) for claim in own]
                plans += planned
        return claims, plans

    def _may_have_devices(self, info: NodeInfo, plans: Sequence[ClaimPlan]) -> bool:
        """A cheap check that never refuses what fits."""
        needs = self._claims.inventory.needs(plans) if plans else ()
        return all(index.count(info.name) >= needed for index, needed in needs)

    def _has_devices(self, info: NodeInfo, claims: Sequence[api.ResourceClaim], plans: Sequence[ClaimPlan]) -> bool:
        if not claims:
            return True
        try:
            answer = allocate(
                self._claims.inventory,
                info.node,
                claims,
                steps_max=self._claims.steps_max,
                with_reasons=False,
                plans=plans,
            )
        except AllocationError:
            return False
        if isinstance(answer, Unallocatable):
            self.undecided |= answer.undecided
            return answer.undecided
        return True

    def _special(self, pod: core_v1.Pod, info: NodeInfo) -> tuple[api.ResourceClaim, ...]:
        """The claim for extended resources that no device plugin on the node offers."""
        wanted = self._claims.extended.wanted(pod)
        if wanted is None:
            return ()
        names = tuple(name for name in extended_resources.names_of(wanted) if not info.allocatable_scalars.get(name))
        if not names:
            return ()
        requests, _ = extended_resources.requests_and_mappings(pod, wanted, names, self._claims.extended.class_name)
        return (extended_resources.special_claim(pod, requests),)


def _numbered(found: T, number: int) -> T:
    """The same under another name."""
    metadata = found.metadata
    metadata = replace(metadata, name=f"{metadata.name}:{number}", uid=f"{metadata.uid}:{number}")
    return replace(found, metadata=metadata)
