"""Which pods are deleted first if there are too many. The order is Kubernetes' (`ActivePodsWithRanks`); devices do not matter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cmp_to_key

import msgspec

from allot.core.lifecycle.times import seconds_of
from allot.core.model.core_v1 import Pod
from allot.core.workloads.pod_states import condition_of, is_active

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_INT32_MAX = 2**31 - 1


class _Rank(msgspec.Struct, frozen=True):
    """The sort key of one pod."""

    pod: Pod
    # Everything up to the first criterion that is not a plain comparison of values.
    head: tuple[int, int, int, int, int]
    ready_at: float | None
    restarts: tuple[int, int]
    created_at: float | None


def first_to_delete(pods: Sequence[Pod], related: Iterable[Pod], count: int, now_s: float) -> tuple[Pod, ...]:
    """The given number of active pods, least needed first.

    related: all pods of all replica sets of the same owner; pods on nodes with many of them go first.
    """
    if count >= len(pods):
        # All of them, so the order does not matter.
        return tuple(pods)
    on_node = Counter(pod.spec.node_name for pod in related if is_active(pod))
    ranks = [_rank(pod, on_node[pod.spec.node_name]) for pod in pods]
    ranks.sort(key=cmp_to_key(lambda one, other: _compare(one, other, now_s)))
    return tuple(rank.pod for rank in ranks[:count])


def by_stage(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """The pods of a job, least advanced first: deletion costs and neighbors do not matter (Kubernetes' `ActivePods`). An unknown
    time counts as the latest.
    """

    def stage(pod: Pod) -> tuple[int, int, bool, float, int, int, float, str]:
        ready = condition_of(pod, "Ready")
        is_ready = ready is not None and ready.status == "True"
        since = ready.last_transition_time if ready is not None and is_ready else None
        created = pod.metadata.creation_timestamp
        restarts, sidecar_restarts = _restarts(pod)
        return (
            1 if pod.spec.node_name else 0,
            _PHASES.get(pod.status.phase, 0),
            is_ready,
            -(seconds_of(since) if since is not None else math.inf) if is_ready else 0.0,
            -restarts,
            -sidecar_restarts,
            -(seconds_of(created) if created is not None else math.inf),
            pod.metadata.uid,
        )

    return tuple(sorted(pods, key=stage))


def deletion_cost(pod: Pod) -> int:
    """The deletion cost of a pod; 0 if missing or invalid."""
    text = pod.metadata.annotations.get(DELETION_COST, "")
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or (len(digits) > 1 and digits[0] == "0") or text == "-0":
        return 0
    cost = int(text) if len(digits) <= len(str(_INT32_MAX)) else _INT32_MAX + 1
    return cost if -_INT32_MAX - 1 <= cost <= _INT32_MAX else 0


def _rank(pod: Pod, neighbours: int) -> _Rank:
    ready = condition_of(pod, "Ready")
    is_ready = ready is not None and ready.status == "True"
    since = ready.last_transition_time if ready is not None and is_ready else None
    created = pod.metadata.creation_timestamp
    return _Rank(
        pod,
        (
            1 if pod.spec.node_name else 0,
            _PHASES.get(pod.status.phase, 0),
            1 if is_ready else 0,
            deletion_cost(pod),
            -neighbours,
        ),
        seconds_of(since) if since is not None else None,
        _restarts(pod),
        seconds_of(created) if created is not None else None,
    )


def _restarts(pod: Pod) -> tuple[int, int]:
    """The most restarts of a container, and of a sidecar."""
    sidecars = {one.name for one in pod.spec.init_containers if one.restart_policy == "Always"}
    regular = max((one.restart_count for one in pod.status.container_statuses), default=0)
    beside = max((one.restart_count for one in pod.status.init_container_statuses if one.name in sidecars), default=0)
    return regular, beside


def _compare(one: _Rank, other: _Rank, now_s: float) -> int:
    if one.head != other.head:
        return -1 if one.head < other.head else 1
    if one.head[2] and one.ready_at != other.ready_at:
        return _younger_first(one.ready_at, other.ready_at, one, other, now_s)
    if one.restarts != other.restarts:
        return -1 if one.restarts > other.restarts else 1
    if one.created_at != other.created_at:
        return _younger_first(one.created_at, other.created_at, one, other, now_s)
    return _by_uid(one, other)


def _younger_first(mine: float | None, others: float | None, one: _Rank, other: _Rank, now_s: float) -> int:
    """A missing time counts as youngest. Ages are compared by magnitude, so that pods of about the same age go in random order
    (by uid).
    """
    if mine is None or others is None:
        return -1 if mine is None else 1
    difference = _magnitude(now_s - mine) - _magnitude(now_s - others)
    return difference or _by_uid(one, other)


def _magnitude(age_s: float) -> int:
    nanoseconds = int(age_s * 1e9)
    return -1 if nanoseconds <= 0 else int(math.log2(nanoseconds))


def _by_uid(one: _Rank, other: _Rank) -> int:
    mine, others = one.pod.metadata, other.pod.metadata
    return -1 if (mine.uid, mine.name) < (others.uid, others.name) else 1
