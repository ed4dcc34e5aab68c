"""One unit that waits, and heaps of such units. Parts of the queue; only it changes them."""

from __future__ import annotations

from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Any

from allot.core.model.core_v1 import Pod
from allot.core.model.scheduling_v1 import PodGroup
from allot.core.scheduling.groups.forest import Tree
from allot.core.scheduling.plan import Unit
from allot.core.scheduling.queueing.gates import Closed

# Entries of a heap that are out of date are left in it until they come up; when they are most of it, it is recreated.
_STALE_MIN = 1000


class Place(StrEnum):
    """Where a unit is. The values are the labels of kube-scheduler's metric of pending pods."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    GATED = "gated"
    # Being decided, or all its pods are being written.
    NOWHERE = ""


class Member:
    """A pod of a unit."""

    __slots__ = ("attempts", "claims", "pod", "since", "tried_first_at")

    def __init__(self, pod: Pod, claims: tuple[str, ...], now: float) -> None:
        self.pod = pod
        # namespace/name of those that have a name already.
        self.claims = claims
        self.since = now
        self.attempts = 0
        # None until the first attempt.
        self.tried_first_at: float | None = None


class Waiting:
    """A single pod, or the pods of a group."""

    __slots__ = (
        "deadline",
        "errors",
        "failed_try",
        "gate",
        "gate_is_told",
        "group",
        "group_name",
        "held",
        "key",
        "lacking",
        "members",
        "place",
        "plugins",
        "ready_at",
        "refusals",
        "since",
        "token",
        "tree",
        "tries",
        "writing",
    )

    def __init__(self, key: str, group_name: str, now: float) -> None:
        self.key = key
        # Empty for a single pod. The group itself may be unknown yet.
        self.group_name = group_name
        self.group: PodGroup | None = None
        # If it is a group of groups.
        self.tree: Tree | None = None
        # Pods that want a node, and those whose placements are being written.
        self.members: dict[str, Member] = {}
        self.writing: dict[str, Member] = {}
        self.place = Place.NOWHERE
        # How often it was tried, and which of these tries failed last: a group's pods fail one by one, but it fails once.
        self.tries = 0
        self.failed_try = 0
        # How often it was refused, and how often it failed in a row.
        self.refusals = 0
        self.errors = 0
        # Which plugins refused which pod the last time.
        self.plugins: dict[str, frozenset[str]] = {}
        self.since = now
        self.ready_at = 0.0
        # When its group's waiting time is over; None if it may wait forever.
        self.deadline: float | None = None
        # Those of the members that have scheduling gates; and others that are to be asked whether they have what they need, as something
        # has changed or they lacked something the last time.
        self.held: dict[str, None] = {}
        self.lacking: dict[str, None] = {}
        self.gate: Closed | None = None
        self.gate_is_told = False
        # What an entry of a heap must carry to be valid.
        self.token = 0

    def add(self, key: str, member: Member) -> None:
        """A pod wants a node, or has changed."""
        self.members[key] = member
        self.held.pop(key, None)
        self.lacking.pop(key, None)
        spec = member.pod.spec
        if spec.scheduling_gates:
            self.held[key] = None
        elif spec.resource_claims:
            self.lacking[key] = None

    def remove(self, key: str) -> Member | None:
        """A pod no longer wants a node; None if it did not."""
        self.held.pop(key, None)
        self.lacking.pop(key, None)
        return self.members.pop(key, None)

    def ask_all(self) -> None:
        """Recheck what members need, for all of them."""
        self.lacking = {
            key: None
            for key, member in self.members.items()
            if member.pod.spec.resource_claims and key not in self.held
        }

    @property
    def priority(self) -> int:
        """That of the group, or the highest of its pods."""
        if self.group is not None and self.group.spec.priority is not None:
            return self.group.spec.priority
        if self.tree is not None and self.tree.group.spec.priority is not None:
            return self.tree.group.spec.priority
        return max([member.pod.spec.priority or 0 for member in self.members.values()], default=0)

    def unordered(self) -> Unit:
        """The same pods, unordered: sorting takes time."""
        return Unit(pods=tuple([member.pod for member in self.members.values()]), group=self.group, tree=self.tree)

    def unit(self) -> Unit:
        """What is decided together, in the order of trying: by priority, then age. It depends on the pods alone, not on when they
        were seen or how often they were tried, so that the same pods are always tried in the same order."""
        if len(self.members) == 1:
            (member,) = self.members.values()
            return Unit(pods=(member.pod,), group=self.group, tree=self.tree)
        order = sorted(
            self.members.values(),
            key=lambda member: (
                -(member.pod.spec.priority or 0),
                member.pod.metadata.creation_timestamp or "",
                member.pod.metadata.name,
            ),
        )
        return Unit(pods=tuple(member.pod for member in order), group=self.group, tree=self.tree)


class Heap:
    """Units by a sort key; one that has moved on since (another token) is passed over."""

    __slots__ = ("_entries", "_stale")

    def __init__(self) -> None:
        self._entries: list[tuple[tuple[Any, ...], int, Waiting]] = []
        self._stale = 0

    def push(self, order: tuple[Any, ...], waiting: Waiting) -> None:
        """Add a unit; its token is unique, so that units themselves are never compared."""
        heappush(self._entries, (order, waiting.token, waiting))

    def first(self) -> Waiting | None:
        """The first unit, which stays."""
        entries = self._entries
        while entries:
            _, token, waiting = entries[0]
            if waiting.token == token:
                return waiting
            heappop(entries)
            self._stale = max(0, self._stale - 1)
        return None

    def discard(self) -> None:
        """Somewhere in here, an entry has become out of date."""
        self._stale += 1
        if self._stale > _STALE_MIN and self._stale * 2 > len(self._entries):
            self._entries = [entry for entry in self._entries if entry[2].token == entry[1]]
            heapify(self._entries)
            self._stale = 0
