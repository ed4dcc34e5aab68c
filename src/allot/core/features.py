"""Feature gates of Kubernetes 1.37 that concern device allocation: names, stages, defaults.

One table for the API server (which fields are kept), validation and the allocator. Which gate is on is data that is
passed in; nothing here is global state.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Stage(StrEnum):
    """Maturity of a feature."""

    ALPHA = "alpha"
    BETA = "beta"
    GA = "GA"


class Gate(msgspec.Struct, frozen=True):
    """One feature gate."""

    name: str
    stage: Stage
    default: bool
    locked: bool = False


_GATES = (
    Gate("DynamicResourceAllocation", Stage.GA, True, locked=True),
    Gate("DRAAdminAccess", Stage.GA, True, locked=True),
    Gate("DRAPrioritizedList", Stage.GA, True, locked=True),
    Gate("DRAResourceClaimDeviceStatus", Stage.GA, True, locked=True),
    Gate("DRAExtendedResource", Stage.GA, True, locked=True),
    Gate("NodeDeclaredFeatures", Stage.GA, True, locked=True),
    Gate("DRADeviceTaints", Stage.GA, True),
    Gate("DRADeviceTaintRules", Stage.GA, True),
    Gate("DRAConsumableCapacity", Stage.BETA, True),
    Gate("DRAPartitionableDevices", Stage.BETA, True),
    Gate("DRADeviceBindingConditions", Stage.BETA, True),
    Gate("DRAResourceClaimGranularStatusAuthorization", Stage.BETA, True),
    Gate("DRASchedulerFilterTimeout", Stage.BETA, True),
    Gate("ResourceHealthStatus", Stage.BETA, True),
    Gate("ResourceHealthStatusMessage", Stage.BETA, True),
    Gate("DeclarativeValidationBeta", Stage.BETA, True),
    # Listed as on by default upstream, but off unless the minimum compatibility version is 1.37: off in a stock server.
    Gate("DRAFractionalCapacityRange", Stage.BETA, False),
    Gate("DRAWorkloadResourceClaims", Stage.BETA, False),
    Gate("GenericWorkload", Stage.BETA, False),
    # Removed in Kubernetes 1.32: claims that a driver's controller allocates.
    Gate("DRAControlPlaneController", Stage.ALPHA, False),
    Gate("DRADerivedAttributes", Stage.ALPHA, False),
    Gate("DRADeviceCompatibilityGroups", Stage.ALPHA, False),
    Gate("DRAListTypeAttributes", Stage.ALPHA, False),
    Gate("DRANodeAllocatableResources", Stage.ALPHA, False),
    Gate("DRAOptionalNodeOperations", Stage.ALPHA, False),
    Gate("DRAPartitionableDevicesType", Stage.ALPHA, False),
    Gate("DRAResourcePoolStatus", Stage.ALPHA, False),
    Gate("TopologyAwareWorkloadScheduling", Stage.ALPHA, False),
    Gate("CompositePodGroup", Stage.ALPHA, False),
    Gate("PodGroupPreemptionPolicy", Stage.ALPHA, False),
    Gate("WorkloadWithJob", Stage.ALPHA, False),
)

GATES = {gate.name: gate for gate in _GATES}


class UnknownGate(ValueError):
    """A feature gate that does not exist."""


class FeatureGates(msgspec.Struct, frozen=True):
    """Which gates are on."""

    on: frozenset[str]

    def __contains__(self, gate: str) -> bool:
        assert gate in GATES, f"unknown feature gate {gate!r}"
        return gate in self.on

    def changed(self, enable: Iterable[str] = (), disable: Iterable[str] = ()) -> FeatureGates:
        """These gates with some changed; an unknown or locked gate raises UnknownGate."""
        enable, disable = frozenset(enable), frozenset(disable)
        for name in sorted(enable | disable):
            if name not in GATES:
                raise UnknownGate(f"unknown feature gate {name!r}: expected one of {', '.join(sorted(GATES))}")
        for name in sorted(disable):
            if GATES[name].locked:
                raise UnknownGate(f"feature gate {name!r} is locked on and cannot be disabled")
        return FeatureGates((self.on | enable) - disable)


DEFAULT_GATES = FeatureGates(frozenset(gate.name for gate in _GATES if gate.default))
ALL_GATES = FeatureGates(frozenset(GATES))
# What `allot up` turns on beyond that: pod groups and related features. Jobs stay as they are (WorkloadWithJob is off).
ALLOT_GATES = DEFAULT_GATES.changed(
    (
        "GenericWorkload",
        "DRAWorkloadResourceClaims",
        "TopologyAwareWorkloadScheduling",
        "CompositePodGroup",
        "PodGroupPreemptionPolicy",
    )
)
