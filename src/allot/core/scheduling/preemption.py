"""Preemption: which pods would have to go so that a pod gets a node, and what is said if that does not help."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from allot.core.model import core_v1
from allot.core.scheduling.attempt import Failure, counted
from allot.core.scheduling.cluster import Cluster
from allot.core.scheduling.plan import Victim
from allot.core.scheduling.status import Status, Verdict

NAME = "DefaultPreemption"
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_NO_VICTIMS = "No preemption victims found for incoming pod"


class Preempted(msgspec.Struct, frozen=True, kw_only=True):
    """What preemption found."""

    # The end of the pod's message.
    message: str = ""
    node: str = ""
    victims: tuple[Victim, ...] = ()


def preempt(cluster: Cluster, pod: core_v1.Pod, failure: Failure) -> Preempted:
    """Victims for a pod that no node would take, if there are any."""
    if pod.spec.preemption_policy == "Never":
        return Preempted(message="preemption: not eligible due to preemptionPolicy=Never.")
    statuses = _statuses(cluster, failure)
    total = sum(statuses.values())
    counts: dict[str, int] = {}
    for status, count in statuses.items():
        text = _NO_VICTIMS if status.verdict is Verdict.UNSCHEDULABLE else _NOT_HELPFUL
        counts[text] = counts.get(text, 0) + count
    said = ", ".join(sorted(f"{count} {text}" for text, count in counts.items()))
    return Preempted(message=f"preemption: 0/{total} nodes are available: {said}.")


def _statuses(cluster: Cluster, failure: Failure) -> Mapping[Status, int]:
    if failure.status is not None:
        return {failure.status: len(cluster.nodes)}
    return failure.histogram or counted(failure.refusals.values())
