"""The port between nodes (`cluster`, `filter_cache`, `decide`) and claims (`claims`, `claim_fit`).

The decision knows nothing of claims but this. `Devices` is the state, fed change by change like the cluster;
a `DeviceFit` is one pod's view of it, checked on one node after the other.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

from allot.core.allocation import ClaimID
from allot.core.model import core_v1
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.nodes.nodeinfo import NodeInfo
from allot.core.scheduling.plan import ClaimStep, CleanUp, NewClaim, Placement
from allot.core.scheduling.status import Status

Steps = tuple[tuple[ClaimStep, ...], NewClaim | None, tuple[core_v1.NodeAllocatableResourceClaimStatus, ...]]


# Claims that outlived the pods that used them.
Leftover = Sequence[ClaimID]


@runtime_checkable
class DeviceFit(Protocol):
    """Can this pod have its devices on a node? Valid until something changes."""

    @property
    def key(self) -> Hashable | None:
        """Fits with equal keys have equal answers on every node while nothing changes; None: never shared."""

    @property
    def needs_exact(self) -> bool:
        """Whether every node needs the exact check: its rank matters, or an error on it is the answer for all."""

    @property
    def nodes(self) -> Collection[str] | None:
        """The only nodes that can pass, if these are few and known (an allocated claim); None if any may."""

    @property
    def new_claims(self) -> Collection[str]:
        """The uids of claims that will get their devices with this pod; another pod may name them too."""

    def most(self, node: NodeInfo) -> int | None:
        """An upper bound on the pods like this one that can get devices on a node; None if counts cannot tell."""

    def quick(self, node: NodeInfo) -> Status | None:
        """A cheap check that never refuses a node that `exact` accepts."""

    def exact(self, node: NodeInfo) -> Status | None:
        """The answer. What was found is kept for `rank` and `steps`."""

    def rank(self, node: NodeInfo) -> int:
        """How good the chosen alternatives are; only after `exact` has accepted the node."""

    def occupancy(self, node: NodeInfo) -> tuple[int, int]:
        """Of the node's devices that could serve the pod: how many are held, how many there are. For policies."""

    def steps(self, node: NodeInfo) -> Steps:
        """What to write; only after `exact` has accepted the node."""

    def clean_ups(self, statuses: Mapping[str, Status]) -> tuple[tuple[CleanUp, ...], str]:
        """What to clear away if no node passed, and the text for it."""

    def explanation(self, nodes: Sequence[NodeInfo]) -> str:
        """Why none of these nodes, which lack only devices, fits: a sentence or two."""


class Devices(Protocol):
    """Claims, classes, slices and holders of devices, as far as the decision needs them."""

    # Work done by the allocator so far.
    search_steps: int

    def fit(self, pod: core_v1.Pod, group: PodGroup | None = None, now: float = 0.0) -> DeviceFit | Status | None:
        """None if the pod has no claims; a status if no node can help (PreFilter). now: seconds since 1970."""

    def together(self, fits: Sequence[DeviceFit], node: NodeInfo) -> Status | None:
        """Why the pods of these fits cannot all have their devices on a node; if they can, each fit keeps its own (`steps`)."""

    @property
    def is_local(self) -> bool:
        """Whether what pods get on one node makes no difference to another, nor to the node's other resources."""

    def assume(self, placement: Placement) -> None:
        """Apply the devices of a placement."""

    def forget(self, placement: Placement) -> None:
        """Revert `assume`."""

    def without(
        self, pods: Sequence[core_v1.Pod], leftovers: Leftover = (), *, anew: bool = False
    ) -> AbstractContextManager[None]:
        """What if these pods were gone, and these claims released: inside, devices that no other pod uses are free. anew: the
        claims can be allocated again."""

    def leftovers(self, departed: Mapping[str, None]) -> Leftover:
        """Claims whose users, by uid, are all among these: they will be released soon."""

    def users_of_shared_devices(self) -> Collection[str]:
        """The uids of pods that hold devices that are not local to one node."""

    def held_by(self, pod: core_v1.Pod) -> tuple[str, ...]:
        """Names of the devices that a pod's claims hold."""

    def group_clean_ups(
        self,
        group: PodGroup,
        refused: Sequence[tuple[core_v1.Pod, DeviceFit | Status | None, Mapping[str, Status]]],
        scheduled: int,
    ) -> tuple[tuple[CleanUp, ...], Status]:
        """What to clear away if a group found no place. refused: its pods, their fits and what nodes said.
        scheduled: how many of its pods run or are about to."""

    def backs(self, resource: str) -> bool:
        """Whether a device class stands behind an extended resource."""

    def totals(self, resource: str, node: NodeInfo) -> tuple[int, int]:
        """Devices behind an extended resource on a node: how many there are, how many of them are held."""
