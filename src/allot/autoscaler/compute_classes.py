"""The ComputeClasses of the cluster: how they rank pools, and their status, written once for each change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from allot.autoscaler.backoff import Backoff
from allot.autoscaler.groups import GroupState
from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, NotFound
from allot.core.advice.nearest import did_you_mean
from allot.core.autoscaling.class_status import PoolState, class_status
from allot.core.autoscaling.classes import Classes
from allot.core.model.codec import DecodeError, decode_served, without_managed_fields
from allot.core.model.compute_classes import GROUP, PLURAL, VERSION, ComputeClass
from allot.core.scheduling import Change
from allot.process.clock import Clock, rfc3339

_log = logging.getLogger("allot.autoscaler")


class ComputeClasses:
    """machines: known machine types besides those of pools, for suggestions."""

    def __init__(self, client: Client, clock: Clock, machines: Sequence[str] = ()) -> None:
        self._resource = client.resource(GROUP, VERSION, PLURAL, namespaced=False)
        self._clock = clock
        self._machines = machines
        # Whether the server has ComputeClasses. Without them, class labels mean nothing.
        self.is_served = False
        self._by_name: dict[str, ComputeClass] = {}
        self._statuses: dict[str, dict[str, Any]] = {}

    def changed(self, change: Change) -> None:
        """For an informer, as JSON."""
        self.is_served = True
        if change.new is None:
            self._by_name.pop(change.key, None)
            self._statuses.pop(change.key, None)
            return
        try:
            self._by_name[change.key] = decode_served(without_managed_fields(change.new), ComputeClass)
            self._statuses[change.key] = change.new.get("status") or {}
        except DecodeError as error:
            _log.warning("ComputeClass %s: %s", change.key, error)

    @property
    def known(self) -> Classes | None:
        """All classes; None if the server does not have the kind."""
        return Classes(self._by_name.values()) if self.is_served else None

    def rank(self, states: Sequence[GroupState]) -> None:
        """The pools with their ranks in classes."""
        classes = self.known
        for state in states:
            if state.pool is not None and classes is not None:
                (state.pool,) = classes.ranked([state.pool])

    async def write(self, states: Sequence[GroupState], backoff: Backoff) -> None:
        """Write the changed statuses of all classes."""
        classes = self.known
        if classes is None:
            return
        now = self._clock.seconds()
        pools = [state.pool for state in states if state.pool is not None]
        pool_states = [_state(state, backoff, now) for state in states if state.pool is not None]
        for name in sorted(classes.by_name):
            problems = classes.problems(name, pools, self._machines)
            hints = {each: _hint(each.value, each.known) for each in problems}
            before = self._statuses.get(name, {})
            made = class_status(name, classes, pool_states, hints, before, rfc3339(int(now)))
            if made == before:
                continue
            try:
                await self._resource.patch(name, {"status": made}, PatchType.MERGE, subresource="status")
            except NotFound:
                continue
            except ApiError as error:
                # Retried in the next round.
                _log.warning("status of ComputeClass %s is not written: %s", name, error)


def _hint(value: str, known: Sequence[str]) -> str:
    text = did_you_mean(value, known) if value and known else ""
    return f"{text[:1].upper()}{text[1:]}"


def _state(state: GroupState, backoff: Backoff, now: float) -> PoolState:
    assert state.pool is not None
    pause = backoff.of(state.name, now)
    return PoolState(
        pool=state.pool,
        coming=len(state.starting) + len(state.pending) + state.missing,
        error=pause.code if pause is not None else "",
        until=rfc3339(int(pause.until)) if pause is not None else "",
    )
