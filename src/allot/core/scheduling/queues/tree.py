"""The tree of queues at work: what each holds and asks for, sums over subtrees, and fair shares that are computed when asked.

Only resources that some queue names are counted, so that without queues there is nothing to count. A charge goes to a queue
and all its ancestors. Fair shares depend on quotas, on what is asked for and on what there is, not on what is held: placing
pods does not change them, and a queue that gets less than it asks for may ask for more without changing anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from allot.core.scheduling.queues.amounts import Amounts
from allot.core.scheduling.queues.fair_share import USAGE_FACTOR, share_out
from allot.core.scheduling.queues.model import UNRESTRICTED, Queue, QueueShares, Share

# Deeper than any organisation; a tree that is deeper is taken for a mistake.
DEPTH_MAX = 16


class QueueTree:
    """Queues by name."""

    def __init__(self, factor: Fraction = USAGE_FACTOR) -> None:
        self._factor = factor
        self._queues: dict[str, Queue] = {}
        self._nodes: dict[str, QueueShares] = {}
        self._top: list[QueueShares] = []
        self._problems: dict[str, str] = {}
        # Of the queues themselves, without what is below them, so that the tree can be recreated.
        self._own: dict[str, dict[str, Share]] = {}
        self._there: dict[str, int] = {}
        self._resources: tuple[str, ...] = ()
        self._is_shaped = True
        self._is_shared_out = True
        # Goes up whenever shares may have changed in a way that concerns more than one queue.
        self.epoch = 0
        # Goes up whenever queues have come, gone or changed.
        self.shape = 0
        # How often shares were recomputed, for tests of work.
        self.divisions = 0

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __contains__(self, name: str) -> bool:
        return name in self._queues

    # --- queues ---

    def put(self, queue: Queue) -> None:
        """A queue was created or changed."""
        if self._queues.get(queue.name) != queue:
            self._queues[queue.name] = queue
            self._is_shaped = False

    def delete(self, name: str) -> None:
        """A queue is gone; its charges are kept in case it comes back."""
        if self._queues.pop(name, None) is not None:
            self._is_shaped = False

    def set_total(self, there: Amounts) -> None:
        """What the cluster has."""
        if there != self._there:
            self._there = dict(there)
            self._is_shared_out = False

    @property
    def resources(self) -> tuple[str, ...]:
        """What is counted, in order."""
        self._shape()
        return self._resources

    @property
    def total(self) -> Amounts:
        """What the cluster has."""
        return self._there

    def _shape(self) -> None:
        """Rebuild the tree after queues have changed."""
        if self._is_shaped:
            return
        self._is_shaped, self._is_shared_out = True, False
        self.shape += 1
        self._resources = tuple(sorted({name for queue in self._queues.values() for name in queue.quotas}))
        self._nodes = {name: QueueShares(queue) for name, queue in self._queues.items()}
        self._problems = {}
        self._top = []
        for node in sorted(self._nodes.values(), key=lambda node: node.age):
            problem = self._problem(node.queue)
            if problem:
                self._problems[node.name] = problem
            elif node.queue.parent:
                node.parent = self._nodes[node.queue.parent]
                node.parent.children.append(node)
            else:
                self._top.append(node)
            quotas = node.queue.quotas
            for resource in self._resources:
                quota = quotas.get(resource, UNRESTRICTED)
                node.shares[resource] = Share(deserved=quota.deserved, limit=quota.limit, weight=quota.weight)
        for name, own in self._own.items():
            self._add(name, own)

    def _problem(self, queue: Queue) -> str:
        """What is wrong with a queue's place."""
        seen = {queue.name}
        name = queue.name
        while self._queues[name].parent:
            child, name = name, self._queues[name].parent
            if name not in self._queues:
                return (
                    f'its parent "{name}" does not exist'
                    if child == queue.name
                    else f'"{name}" above it does not exist'
                )
            if name in seen:
                return "it is its own ancestor"
            seen.add(name)
            if len(seen) > DEPTH_MAX:
                return f"it is more than {DEPTH_MAX} levels deep"
        return ""

    # --- what is held and asked for ---

    def request(self, name: str, amounts: Amounts, sign: int = 1) -> None:
        """A queue's pods ask for this much more (or less), held or not."""
        own = self._own_of(name)
        for resource, amount in amounts.items():
            own.setdefault(resource, Share()).request += amount * sign
        for queue in self._path(name):
            queue.version += 1
            for resource, amount in amounts.items():
                share = queue.shares.get(resource)
                if share is not None and amount:
                    # A queue that wants more than it gets may want still more: no share depends on it.
                    if sign < 0 or share.fair_share >= share.requestable:
                        self._is_shared_out = False
                    share.request += amount * sign

    def hold(self, name: str, amounts: Amounts, sign: int = 1, *, firmly: bool = False) -> None:
        """A queue's pods hold this much more (or less) of what they ask for. firmly: they cannot be preempted."""
        own = self._own_of(name)
        for resource in amounts:
            own.setdefault(resource, Share())
        _hold(own, amounts, sign, firmly=firmly)
        for queue in self._path(name):
            queue.version += 1
            _hold(queue.shares, amounts, sign, firmly=firmly)

    def _own_of(self, name: str) -> dict[str, Share]:
        own = self._own.get(name)
        if own is None:
            own = self._own[name] = {}
        return own

    def _path(self, name: str) -> Iterable[QueueShares]:
        """The queue and those above it; nothing while the tree must be rebuilt, as that computes the sums too."""
        node = self._nodes.get(name) if self._is_shaped else None
        return node.path() if node is not None else ()

    def _add(self, name: str, own: Mapping[str, Share]) -> None:
        """What a queue holds and asks for by itself, when the tree is recreated."""
        for queue in self._path(name):
            for resource, part in own.items():
                share = queue.shares.get(resource)
                if share is not None:
                    share.request += part.request
                    share.allocated += part.allocated
                    share.allocated_firmly += part.allocated_firmly

    # --- questions ---

    def find(self, name: str) -> QueueShares | None:
        """As `get`, but its fair shares may be old."""
        return self._nodes.get(name)

    def get(self, name: str) -> QueueShares | None:
        """A queue at work, with its fair shares up to date; None if there is none of this name."""
        self._refresh()
        return self._nodes.get(name)

    def all(self) -> Mapping[str, QueueShares]:
        """All queues at work by name, with their fair shares up to date."""
        self._refresh()
        return self._nodes

    def top(self) -> Iterable[QueueShares]:
        """Those without a parent, older first."""
        self._refresh()
        return self._top

    def refusal(self, name: str) -> str:
        """Why a queue takes no jobs; empty if it does."""
        self._shape()
        node = self._nodes.get(name)
        if node is None:
            return f'queue "{name}" does not exist'
        if name in self._problems:
            return f'queue "{name}": {self._problems[name]}'
        if node.children:
            below = ", ".join(child.name for child in node.children[:3]) + (", …" if len(node.children) > 3 else "")
            return f'queue "{name}" has queues below it ({below}): jobs go to these'
        closed = next((queue for queue in node.path() if queue.queue.closed), None)
        return f'queue "{closed.name}" takes no new jobs: {closed.queue.closed}' if closed is not None else ""

    def min_runtime_s(self, victim: QueueShares, taker: QueueShares | None) -> float:
        """How long the pods of a queue may run before they can be evicted: the nearest value above. taker: the queue that wants it
        back; the value counts from the level below their common ancestor. None: its own queue."""
        path = list(victim.path())
        if taker is not None:
            above = {queue.name for queue in taker.path()}
            apart = [queue for queue in path if queue.name not in above]
            path = path[len(apart) - 1 :] if apart else path
        for queue in path:
            value = queue.queue.preempt_min_runtime_s if taker is None else queue.queue.reclaim_min_runtime_s
            if value is not None:
                return value
        return 0.0

    def _refresh(self) -> None:
        self._shape()
        if self._is_shared_out:
            return
        self._is_shared_out = True
        self.divisions += 1
        self.epoch += 1
        share_out(self._top, self._there, self._factor)


def _hold(shares: Mapping[str, Share], amounts: Amounts, sign: int, *, firmly: bool) -> None:
    for resource, amount in amounts.items():
        share = shares.get(resource)
        if share is not None:
            share.allocated += amount * sign
            if firmly:
                share.allocated_firmly += amount * sign
