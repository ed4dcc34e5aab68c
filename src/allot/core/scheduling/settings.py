"""Settings of a scheduler profile: weights, strategies, disabled plugins. Plain data.

The defaults are those of kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from allot.core.allocation import FIRST_FIT, PACK
from allot.core.allocation import Policy as DevicePolicy
from allot.core.features import FeatureGates
from allot.core.scheduling.podinfo import Spread
from allot.core.selectors import NodeMatcher, matches_if_valid

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


class Policy(StrEnum):
    """What decides between nodes besides the scores of kube-scheduler."""

    DEFAULT = ""
    # Nodes whose devices are already in use come first, so that whole nodes stay free.
    PACK = "pack"
    # Nodes with many free devices come first.
    SPREAD = "spread"
    # The first node by name that fits; scores are ignored.
    FIRST_FIT = "first-fit"


class Strategy(StrEnum):
    """How NodeResourcesFit scores a node."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class ResourceWeight(msgspec.Struct, frozen=True):
    """A resource that counts in a score, and how much."""

    name: str
    weight: int = 1


class ShapePoint(msgspec.Struct, frozen=True):
    """The score (0 to 10) at a utilization (0 to 100)."""

    utilization: int
    score: int


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """How much each plugin's score of 0 to 100 counts; 0 switches the score off."""

    taint_toleration: int = 3
    node_affinity: int = 2
    node_resources_fit: int = 1
    pod_topology_spread: int = 2
    inter_pod_affinity: int = 2
    dynamic_resources: int = 2
    balanced_allocation: int = 1
    image_locality: int = 1
    # Of the policies that pack or spread devices: by default more than all others together.
    device_policy: int = 20


_CPU_AND_MEMORY = (ResourceWeight("cpu"), ResourceWeight("memory"))


class AddedAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """What all pods of a profile ask of nodes, besides what they ask for themselves. preferred: each with its weight."""

    required: NodeMatcher | None = None
    preferred: tuple[tuple[int, NodeMatcher], ...] = ()

    def allows(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node may be used at all."""
        return self.required is None or matches_if_valid(self.required, name, labels)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One profile of the scheduler."""

    weights: Weights = Weights()
    # Names of plugins whose filters are off.
    disabled_filters: frozenset[str] = frozenset()
    policy: Policy = Policy.DEFAULT
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    strategy_resources: tuple[ResourceWeight, ...] = _CPU_AND_MEMORY
    strategy_shape: tuple[ShapePoint, ...] = ()
    balanced_resources: tuple[ResourceWeight, ...] = _CPU_AND_MEMORY
    ignored_resources: frozenset[str] = frozenset()
    ignored_resource_groups: frozenset[str] = frozenset()
    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False
    # For pods of services and controllers that have no constraints of their own. The selectors are found per pod.
    default_spreads: tuple[Spread, ...] = (Spread(HOSTNAME, 3, None), Spread(ZONE, 5, None))
    # The built-in default: nodes without the labels are not left out.
    system_default_spreads: bool = True
    default_hard_spreads: tuple[Spread, ...] = ()
    added_affinity: AddedAffinity | None = None
    # Whether a group's topology constraint is checked (TopologyAwareWorkloadScheduling).
    topology_placements: bool = False
    # Whether pods of lower priority may be evicted.
    preempts: bool = True
    # Whether a controller creates groups for pods that name none, so that they wait for it.
    awaits_groups: bool = False


DEFAULT_SETTINGS = Settings()


def under(gates: FeatureGates, settings: Settings) -> Settings:
    """Settings with what feature gates add to them."""
    in_domains = "TopologyAwareWorkloadScheduling" in gates
    return settings if settings.topology_placements == in_domains else replace(settings, topology_placements=in_domains)


def device_policy(settings: Iterable[Settings]) -> DevicePolicy:
    """How devices are chosen: one way for all profiles. Nodes are chosen by each profile's own policy."""
    return PACK if any(each.policy is Policy.PACK for each in settings) else FIRST_FIT
