"""One claim: as delivered by an informer, as written by the scheduler, and as decided but not yet written."""

from __future__ import annotations

import msgspec

from allot.core.allocation import ClaimID
from allot.core.model import resource_v1 as api
from allot.core.model.meta import ObjectMeta


class ClaimRecord:
    """Everything that is known about one claim."""

    __slots__ = ("_assumed", "_expected", "_informed", "_sharers", "current", "group", "id", "in_flight")

    def __init__(self, id_: ClaimID) -> None:
        self.id = id_
        self._informed: api.ResourceClaim | None = None
        self._assumed: api.ResourceClaim | None = None
        # The newer of the two.
        self.current: api.ResourceClaim | None = None
        # Decided, not written; and the pods that rely on it.
        self.in_flight: api.AllocationResult | None = None
        self._sharers: set[str] = set()
        # The group of these pods; only pods of the same group may join them.
        self.group: str | None = None
        # Reservations that are decided, by the uid of the pod.
        self._expected: dict[str, api.ResourceClaimConsumerReference] = {}

    @property
    def uid(self) -> str:
        """The uid of the claim in the API; empty if there is none (yet)."""
        return self.current.metadata.uid if self.current is not None else ""

    @property
    def informed(self) -> api.ResourceClaim | None:
        """The last state from the informer."""
        return self._informed

    @property
    def allocation(self) -> api.AllocationResult | None:
        """What the claim holds: according to the API, else in flight."""
        if self.current is not None and self.current.status.allocation is not None:
            return self.current.status.allocation
        return self.in_flight

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known about the claim."""
        return self.current is None and self.in_flight is None

    def inform(self, claim: api.ResourceClaim) -> None:
        """An informer delivered the claim."""
        self._informed = claim
        assumed = self._assumed
        if assumed is not None and (
            assumed.metadata.uid != claim.metadata.uid or not is_older(claim.metadata, assumed.metadata)
        ):
            self._assumed = None
        self._choose()

    def assume(self, claim: api.ResourceClaim) -> None:
        """The API returned the claim in response to our own write."""
        informed = self._informed
        if informed is not None and (
            informed.metadata.uid != claim.metadata.uid or not is_older(informed.metadata, claim.metadata)
        ):
            return  # the informer was faster
        self._assumed = claim
        self._choose()

    def vanish(self) -> None:
        """The claim was deleted."""
        self._informed = self._assumed = None
        self._choose()

    def vacate(self) -> api.ResourceClaim | None:
        """Treat the claim as unused, so that it can be allocated again. Returns what `restore` needs."""
        claim = self.current
        if claim is not None:
            self.current = msgspec.structs.replace(claim, status=api.ResourceClaimStatus())
        return claim

    def restore(self, claim: api.ResourceClaim | None) -> None:
        """Revert `vacate`."""
        self.current = claim

    def _choose(self) -> None:
        before = self.current
        self.current = self._assumed or self._informed
        current = self.current
        if current is None or (before is not None and before.metadata.uid != current.metadata.uid):
            # The decision was for another claim of that name.
            self.in_flight = None
            self._sharers.clear()
            self._expected.clear()
        elif current.status.allocation is not None:
            self.in_flight = None
            self._sharers.clear()
        if self._expected and current is not None:
            for consumer in current.status.reserved_for:
                for pod_uid in [uid for uid, expected in self._expected.items() if expected.uid == consumer.uid]:
                    del self._expected[pod_uid]

    def add_sharer(self, allocation: api.AllocationResult, pod_uid: str, group: str | None = None) -> None:
        """A pod relies on an allocation that is not written yet. The first pod's allocation wins."""
        if self.in_flight is None:
            self.in_flight = allocation
            self.group = group
        self._sharers.add(pod_uid)

    def remove_sharer(self, pod_uid: str) -> None:
        """A pod no longer relies on it; without pods it is dropped."""
        self._sharers.discard(pod_uid)
        if not self._sharers:
            self.in_flight = None

    def expect(self, pod_uid: str, consumer: api.ResourceClaimConsumerReference) -> None:
        """The claim is about to be reserved."""
        self._expected[pod_uid] = consumer

    def expect_no_more(self, pod_uid: str) -> None:
        """The claim is not going to be reserved after all."""
        self._expected.pop(pod_uid, None)

    def is_full(self) -> bool:
        """Whether the claim has the maximum number of users, including upcoming ones."""
        current = self.current
        return current is not None and len(current.status.reserved_for) + len(self._expected) >= api.RESERVED_FOR_MAX

    def consumers(self) -> set[str]:
        """The uids of the claim's users, including upcoming ones."""
        uids = {consumer.uid for consumer in self._expected.values()} | self._sharers
        if self.current is not None:
            uids.update(consumer.uid for consumer in self.current.status.reserved_for)
        return uids


def is_older(one: ObjectMeta, other: ObjectMeta) -> bool:
    """Whether an object is older than another version of it. Non-numeric versions count as new."""
    try:
        return int(one.resource_version) < int(other.resource_version)
    except ValueError:
        return False
