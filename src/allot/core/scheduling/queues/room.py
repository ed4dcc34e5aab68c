"""When to make room for jobs of queues, and pending evictions: nothing is evicted twice.

A look at all jobs is worth it after something was refused, placed while others wait, left or changed, or when a minimum run time or a
delay ends, and at most once a second; an idle cluster comes to rest. Evicted pods count as leaving at once, before the API shows it;
if the eviction failed, they stay.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from allot.core.model.core_v1 import Pod
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plan import Decision
from allot.core.scheduling.podinfo import pod_key
from allot.core.scheduling.queues.amounts import Amounts
from allot.core.scheduling.queues.book import QueueBook
from allot.core.scheduling.queues.decisions import QueueDecisions
from allot.core.scheduling.settings import Settings

# KAI's cycle.
EVERY_S = 1.0
_SOME_TIME = "1970-01-01T00:00:00Z"


class Room:
    """One of a machine's parts; only it calls this."""

    def __init__(self, cluster: Cluster, book: QueueBook) -> None:
        self._cluster = cluster
        self._book = book
        self.decisions = QueueDecisions(cluster, book)
        self._is_wanted = False
        self._looked_at = -EVERY_S
        # When a minimum run time or a delay ends: no event reports it. None: none does.
        self._wake_at: float | None = None
        # Evicted pods, by the key of the pod that they make room for.
        self._asked: dict[str, tuple[Pod, ...]] = {}

    def wanted(self) -> None:
        """Something has happened that may entitle a job to room."""
        self._is_wanted = True

    def due_at(self) -> float | None:
        """When to look; None if there is no reason to."""
        if self._is_wanted:
            return self._looked_at + EVERY_S
        return max(self._wake_at, self._looked_at + EVERY_S) if self._wake_at is not None else None

    def is_due(self, now: float) -> bool:
        """Whether to look now."""
        due = self.due_at()
        return due is not None and now >= due

    def make(
        self, waiting: Mapping[str, Pod], settings: Callable[[Pod], Settings], now: float, seconds: float
    ) -> Decision | None:
        """Pods that must leave, and their beneficiaries. They count as leaving from now on."""
        self._is_wanted = False
        self._looked_at = now
        self._asked.clear()
        self._book.release_all()
        self._cluster.kept.clear()
        found = self.decisions.make_room(waiting, settings, seconds)
        self._wake_at = now + found.wake_at_s - seconds if found.wake_at_s is not None else None
        self._keep(found.promised)
        for refusal in found.refusals:
            if not refusal.victims:
                continue
            self._asked[pod_key(refusal.pod)] = tuple(victim.pod for victim in refusal.victims)
            for victim in refusal.victims:
                metadata = msgspec.structs.replace(victim.pod.metadata, deletion_timestamp=_SOME_TIME)
                self._put(msgspec.structs.replace(victim.pod, metadata=metadata))
        return Decision(refusals=found.refusals) if found.refusals else None

    def _keep(self, promised: Sequence[tuple[Pod, str, Amounts]]) -> None:
        """What others leave for a pod is reserved: its node and its part of the queue."""
        for pod, node, _ in promised:
            self._cluster.kept.add(pod_key(pod))
            status = msgspec.structs.replace(pod.status, nominated_node_name=node)
            self._cluster.put_pod(msgspec.structs.replace(pod, status=status))
        self._book.reserve([(pod, cost) for pod, _, cost in promised])

    def undelayed(self, seconds: float) -> list[Pod]:
        """Pods of groups that may now preempt and were told that they may not; each once."""
        delayed = self.decisions.delayed
        return [delayed.pop(key)[0] for key, (_, until_s) in list(delayed.items()) if until_s <= seconds]

    def failed(self, pod: Pod) -> None:
        """Evictions for a pod may have failed: its victims stay until the API says otherwise."""
        for victim in self._asked.pop(pod_key(pod), ()):
            known = self._cluster.pods.get(pod_key(victim))
            if known is not None and known.pod.metadata.deletion_timestamp == _SOME_TIME:
                self._put(victim)
        self._is_wanted = True

    def _put(self, pod: Pod) -> None:
        self._cluster.put_pod(pod)
        self._book.put_pod(pod)
