"""The parts of a decision: placements to write, or refusals to report, and what to clean up."""

from __future__ import annotations

import msgspec

from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.scheduling_v1 import CompositePodGroup, PodGroup
from allot.core.scheduling.groups.forest import Tree
from allot.core.scheduling.status import Verdict


class ClaimStep(msgspec.Struct, frozen=True, kw_only=True):
    """What is written to one existing claim before its pod is bound."""

    # As the decision saw it: its uid and resourceVersion guard the write.
    claim: api.ResourceClaim
    # To be stored; None if the claim has an allocation already.
    allocation: api.AllocationResult | None = None
    # To be added to reservedFor; None if it is there already.
    consumer: api.ResourceClaimConsumerReference | None = None


class NewClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim that stands for a pod's extended resources, to be created, allocated and reserved."""

    claim: api.ResourceClaim
    allocation: api.AllocationResult
    mappings: tuple[core_v1.ContainerExtendedResourceRequest, ...]


class VolumeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A volume claim that waited for its pod gets this volume, or one is made for it (None)."""

    claim: core_v1.PersistentVolumeClaim
    volume: core_v1.PersistentVolume | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A pod on a node with its volumes and devices."""

    pod: core_v1.Pod
    node: str
    volumes: tuple[VolumeStep, ...] = ()
    claims: tuple[ClaimStep, ...] = ()
    extended: NewClaim | None = None
    # For pod.status.nodeAllocatableResourceClaimStatuses.
    node_allocatable: tuple[core_v1.NodeAllocatableResourceClaimStatus, ...] = ()


class Deallocate(msgspec.Struct, frozen=True, kw_only=True):
    """Take the allocation from a claim that its pod cannot use where it is."""

    claim: api.ResourceClaim


class DeleteClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Remove the finalizer of a claim that the scheduler made itself, and delete it."""

    claim: api.ResourceClaim


class Unreserve(msgspec.Struct, frozen=True, kw_only=True):
    """Take a PodGroup out of a claim's reservedFor."""

    claim: api.ResourceClaim
    uid: str


CleanUp = Deallocate | DeleteClaim | Unreserve


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """A pod to be evicted, and what that frees."""

    pod: core_v1.Pod
    violates_budget: bool = False
    # For the event: "holds device gpu-0 of claim default/c".
    gives: str = ""
    # Why it is evicted, if not for a pod of higher priority; for the event and the condition.
    why: str = ""
    # Its preemptor, if that is not the pod whose refusal names it: "podgroup UID on node cluster".
    by: str = ""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod was not placed, and what can be done about it."""

    pod: core_v1.Pod
    verdict: Verdict
    # The condition's and event's text as kube-scheduler writes it.
    message: str
    # A machine-readable reason, if it is not just lack of room.
    reason: str = ""
    # Our additional explanation, in a sentence or two; empty if none.
    explanation: str = ""
    # Plugins that refused it: the pod waits for the events relevant to these.
    plugins: frozenset[str] = frozenset()
    clean_ups: tuple[CleanUp, ...] = ()
    # Preemption: where the pod is to go once the victims are gone.
    nominated_node: str = ""
    victims: tuple[Victim, ...] = ()


class GroupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The new state of a PodGroup's condition PodGroupInitiallyScheduled."""

    group: PodGroup | CompositePodGroup
    status: str
    reason: str
    message: str = ""
    # Our addition to upstream's words; empty if none.
    explanation: str = ""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """For every pod of a unit either a placement or a refusal; or, for a group with too few pods, their eviction."""

    placements: tuple[Placement, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    group: GroupOutcome | None = None
    # For a tree: the results of the groups below.
    groups_below: tuple[GroupOutcome, ...] = ()
    # The remaining pods of a group of which no pod is tried.
    given_up: tuple[Victim, ...] = ()
    # Work done, for benchmarks and tests: nodes visited, search steps of the allocator.
    nodes_evaluated: int = 0
    search_steps: int = 0

    @property
    def victims(self) -> tuple[Victim, ...]:
        """All pods to be evicted."""
        return (*(victim for refusal in self.refusals for victim in refusal.victims), *self.given_up)


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that are decided together: one pod, or those of a PodGroup that wait, or of a tree of groups, in the order in which they are
    tried."""

    pods: tuple[core_v1.Pod, ...]
    group: PodGroup | None = None
    tree: Tree | None = None

    @property
    def is_lone(self) -> bool:
        """Whether it is a single pod without a group."""
        return self.group is None and self.tree is None
