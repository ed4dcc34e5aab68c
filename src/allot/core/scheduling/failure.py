"""Everything known about why a pod got no node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from allot.core.scheduling.devices.device_fit import DeviceFit
from allot.core.scheduling.status import Status


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod got no node."""

    # No node was evaluated (PreFilter), or the attempt as a whole failed.
    status: Status | None = None
    # Whether it failed before any node was evaluated.
    early: bool = False
    # What each node said.
    refusals: Mapping[str, Status] = {}
    # How many nodes said the same.
    histogram: Mapping[Status, int] = {}
    fit: DeviceFit | None = None


def counted(statuses: Iterable[Status]) -> dict[Status, int]:
    """How many nodes said the same."""
    counts: dict[Status, int] = {}
    for status in statuses:
        counts[status] = counts.get(status, 0) + 1
    return counts
