"""Demands of units and supplies of nodes as sums: CPU, memory, pod slots, devices.

Never decides whether something fits; the machine does. It shows what cannot fit, the minimum share of a node that a pod needs,
and so the minimum cost.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

from allot.core.autoscaling.templates import Template
from allot.core.model import resource_v1 as api
from allot.core.scheduling import Claims, Cluster, NodeInfo, Unit


class Amounts(msgspec.Struct, frozen=True):
    """Thousandths of processors, bytes, pods, whole devices. devices: None for a node whose devices can be shared or
    divided, so that their number is meaningless."""

    cpu: int = 0
    memory: int = 0
    pods: int = 0
    devices: int | None = 0

    def exceeds(self, there: Amounts) -> bool:
        """Whether the supply cannot provide this demand."""
        return (
            self.cpu > there.cpu
            or self.memory > there.memory
            or self.pods > there.pods
            or (there.devices is not None and (self.devices or 0) > there.devices)
        )

    def share_of(self, there: Amounts) -> Fraction:
        """The largest share of any supplied resource in this demand; more than one if the supply lacks it."""
        parts = [
            _part(self.cpu, there.cpu),
            _part(self.memory, there.memory),
            _part(self.pods, there.pods),
        ]
        if there.devices is not None:
            parts.append(_part(self.devices or 0, there.devices))
        return max(parts)

    def less(self, other: Amounts) -> Amounts:
        """The difference."""
        devices = None if self.devices is None else self.devices - (other.devices or 0)
        return Amounts(self.cpu - other.cpu, self.memory - other.memory, self.pods - other.pods, devices)

    def plus(self, other: Amounts) -> Amounts:
        """The sum."""
        return Amounts(
            self.cpu + other.cpu,
            self.memory + other.memory,
            self.pods + other.pods,
            (self.devices or 0) + (other.devices or 0),
        )


_TOO_MUCH = Fraction(10**9)


def _part(wanted: int, there: int) -> Fraction:
    if wanted <= 0:
        return Fraction(0)
    return Fraction(wanted, there) if there > 0 else _TOO_MUCH


def demand(cluster: Cluster, claims: Claims, unit: Unit) -> Amounts:
    """The minimum demand of a unit, wherever it is placed."""
    total = Amounts()
    for pod in unit.pods:
        profile = cluster.profile(pod)
        found = (claims.claim(*id_) for id_ in claims.claims_of(pod))
        devices = sum(least_devices(claim) for claim in found if claim is not None and claim.metadata.owner_references)
        total = total.plus(Amounts(profile.cpu, profile.memory, 1, devices))
    return total


def least_devices(claim: api.ResourceClaim) -> int:
    """The minimum number of devices for a claim; none if it is allocated."""
    if claim.status.allocation is not None:
        return 0
    least = 0
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            one = request.exactly
            least += 0 if one.admin_access else one.count or 1 if one.allocation_mode != api.ALL else 1
        else:
            counts = [alternative.count or 1 for alternative in request.first_available or ()]
            least += min(counts, default=0)
    return least


def supply(template: Template) -> Amounts:
    """The resources of a new node for pods."""
    info = NodeInfo(template.node)
    devices: int | None = 0
    for slice_ in template.slices:
        for device in slice_.spec.devices or ():
            if device.consumes_counters or device.allow_multiple_allocations:
                devices = None
            elif devices is not None:
                devices += 1
    return Amounts(info.allocatable_cpu, info.allocatable_memory, info.allocatable_pods, devices)
