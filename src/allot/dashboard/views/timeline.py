"""Device use over time: before the first sample from objects' timestamps, then from samples.

Before the first sample only devices of existing claims are known, so that part is a lower bound and marked as such.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from allot.core.lifecycle.times import seconds_of
from allot.core.model.core_v1 import Pod
from allot.core.model.resource_v1 import ResourceClaim
from allot.dashboard.views.claims import held_by

SAMPLES_MAX = 1200
PAUSE_S = 1.0
_PAST_MAX = 240


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """Cells by state, and pods that wait and run, at a time (seconds since 1970)."""

    at: float
    free: int = 0
    partly: int = 0
    in_use: int = 0
    unavailable: int = 0
    waiting: int = 0
    running: int = 0


class Timeline:
    """Samples, oldest first. If there are too many, every second one is dropped, and the sampling rate is halved."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._latest = Sample(0.0)
        self._pause_s = PAUSE_S

    def add(self, sample: Sample) -> None:
        """Add a sample, not earlier than the previous ones."""
        samples, self._latest = self._samples, sample
        if samples and (sample.at - samples[-1].at < self._pause_s or _are_same(samples[-1], sample)):
            return
        samples.append(sample)
        if len(samples) > SAMPLES_MAX:
            del samples[1:-1:2]
            self._pause_s *= 2

    def samples(self, now: float) -> list[Sample]:
        """All samples, and the current state."""
        if not self._samples:
            return []
        return [*self._samples, msgspec.structs.replace(self._latest, at=max(now, self._latest.at))]


def _are_same(one: Sample, other: Sample) -> bool:
    return msgspec.structs.replace(one, at=other.at) == other


def claim_seconds(claim: ResourceClaim) -> float | None:
    """Since when a claim has its devices, if it says so."""
    allocation = claim.status.allocation
    return _seconds(allocation.allocation_timestamp if allocation is not None else None)


def held_before(claims: Iterable[ResourceClaim]) -> list[tuple[float, int]]:
    """How many devices the existing claims held, by allocation time."""
    steps: dict[float, int] = {}
    for claim in claims:
        at = claim_seconds(claim)
        if at is not None:
            steps[at] = steps.get(at, 0) + sum(1 for _ in held_by(claim))
    total, found = 0, []
    for at in sorted(steps):
        total += steps[at]
        found.append((at, total))
    stride = max(1, len(found) // _PAST_MAX)
    return [each for place, each in enumerate(found) if place % stride == 0 or place == len(found) - 1]


def pod_marks(pods: Iterable[Pod], count: int) -> list[tuple[float, str, str]]:
    """When pods started, the newest first: time, what, which."""
    found = [
        (at, "started", f"{pod.metadata.namespace}/{pod.metadata.name}")
        for pod in pods
        if (at := _seconds(pod.status.start_time)) is not None
    ]
    return sorted(found, reverse=True)[:count]


def _seconds(time: str | None) -> float | None:
    try:
        return seconds_of(time) if time else None
    except ValueError:
        return None
