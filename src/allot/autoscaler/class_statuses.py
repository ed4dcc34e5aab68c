"""Writes what has become of ComputeClasses into their status: once for each change."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from allot.autoscaler.backoff import Backoff
from allot.autoscaler.groups import GroupState
from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, NotFound
from allot.core.advice.nearest import did_you_mean
from allot.core.autoscaling.class_status import PoolState, class_status
from allot.core.autoscaling.classes import Classes
from allot.core.model.compute_classes import GROUP, PLURAL, VERSION
from allot.process.clock import Clock, rfc3339

_log = logging.getLogger("allot.autoscaler")

Object = dict[str, Any]


class ClassStatuses:
    """machines: types of machines that are known besides those of pools, to tell which could have been meant."""

    def __init__(self, client: Client, clock: Clock, machines: Sequence[str] = ()) -> None:
        self._classes = client.resource(GROUP, VERSION, PLURAL, namespaced=False)
        self._clock = clock
        self._machines = machines

    async def write(
        self, classes: Classes, statuses: Mapping[str, Object], states: Sequence[GroupState], backoff: Backoff
    ) -> None:
        """For all classes. statuses: as they are in the cluster."""
        now = self._clock.seconds()
        pools = [state.pool for state in states if state.pool is not None]
        known = [_state(state, backoff, now) for state in states if state.pool is not None]
        for name in sorted(classes.by_name):
            problems = classes.problems(name, pools, self._machines)
            hints = {each: _hint(each.value, each.known) for each in problems}
            before = statuses.get(name, {})
            made = class_status(name, classes, known, hints, before, rfc3339(int(now)))
            if made == before:
                continue
            try:
                await self._classes.patch(name, {"status": made}, PatchType.MERGE, subresource="status")
            except NotFound:
                continue
            except ApiError as error:
                # Tried again in the next round.
                _log.warning("status of ComputeClass %s is not written: %s", name, error)


def _hint(value: str, known: Sequence[str]) -> str:
    text = did_you_mean(value, known) if value and known else ""
    return f"{text[:1].upper()}{text[1:]}" if text else ""


def _state(state: GroupState, backoff: Backoff, now: float) -> PoolState:
    assert state.pool is not None
    pause = backoff.of(state.name, now)
    return PoolState(
        pool=state.pool,
        coming=len(state.starting) + len(state.pending) + state.missing,
        error=pause.code if pause is not None else "",
        until=rfc3339(int(pause.until)) if pause is not None else "",
    )
