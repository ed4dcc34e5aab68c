"""From the recommended to the applied number of replicas: stabilization windows, rate limits, minimum and maximum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

JSON = Mapping[str, Any]

DOWNSCALE_WINDOW_S = 300.0
_FACTOR, _MINIMUM = 2, 4
_WITHIN = ("DesiredWithinRange", "the desired count is within the acceptable range")
_UP_RATE = ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate")
_DOWN_RATE = ("ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate")
_TOO_MANY = ("TooManyReplicas", "the desired replica count is more than the maximum replica count")
_TOO_FEW = ("TooFewReplicas", "the desired replica count is less than the minimum replica count")
_READY = ("ReadyForNewScale", "recommended size matches current size")
_DOWN_STABILIZED = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
)
_UP_STABILIZED = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)

_Reason = tuple[str, str]


class Bounds(msgspec.Struct, frozen=True):
    """The smallest and the largest number of replicas."""

    least: int
    most: int


class Normalized(msgspec.Struct, frozen=True):
    """What to do now, why it differs from the recommendation (`able`), and whether it is limited and why."""

    replicas: int
    able: _Reason
    limited: bool
    limit: _Reason


class History:
    """Past recommendations and changes of one autoscaler. Kept in memory only: a restarted controller waits before it scales
    down.
    """

    def __init__(self, current: int, now: float) -> None:
        self._recommendations = [(now, current)]
        self._ups: list[tuple[float, int]] = []
        self._downs: list[tuple[float, int]] = []

    def normalize(self, behavior: JSON | None, current: int, desired: int, bounds: Bounds, now: float) -> Normalized:
        """The number of replicas for a recommendation, which is remembered."""
        if behavior is None:
            stable = max([desired, *self._since(now - DOWNSCALE_WINDOW_S, inclusive=True)])
            self._remember(desired, now, DOWNSCALE_WINDOW_S)
            able = _READY if stable == desired else _DOWN_STABILIZED
            replicas, limit = _limited_by_rules(current, stable, bounds)
        else:
            stable = self._stabilized(behavior, current, desired, now)
            if stable == desired:
                able = _READY
            else:
                able = _UP_STABILIZED if desired >= current else _DOWN_STABILIZED
            replicas, limit = self._limited_by_rates(behavior, current, stable, bounds, now)
        return Normalized(replicas, able, replicas != stable, limit)

    def scaled(self, behavior: JSON | None, before: int, after: int, now: float) -> None:
        """Record a change of the number of replicas. Not needed without rates."""
        if behavior is None:
            return
        if after > before:
            self._ups = [*_recent(self._ups, now - _longest(behavior["scaleUp"])), (now, after - before)]
        else:
            self._downs = [*_recent(self._downs, now - _longest(behavior["scaleDown"])), (now, before - after)]

    # --- recommendations ---

    def _since(self, cutoff: float, *, inclusive: bool) -> list[int]:
        return [count for at, count in self._recommendations if at > cutoff or (inclusive and at == cutoff)]

    def _remember(self, desired: int, now: float, window_s: float) -> None:
        kept = [(at, count) for at, count in self._recommendations if at >= now - window_s]
        self._recommendations = [*kept, (now, desired)]

    def _stabilized(self, behavior: JSON, current: int, desired: int, now: float) -> int:
        up_s = behavior["scaleUp"].get("stabilizationWindowSeconds") or 0
        down = behavior["scaleDown"].get("stabilizationWindowSeconds")
        down_s = DOWNSCALE_WINDOW_S if down is None else float(down)
        up = min([desired, *self._since(now - up_s, inclusive=False)])
        lowest = max([desired, *self._since(now - down_s, inclusive=False)])
        self._remember(desired, now, max(up_s, down_s))
        return min(max(current, up), lowest)

    # --- rates ---

    def _limited_by_rates(
        self, behavior: JSON, current: int, desired: int, bounds: Bounds, now: float
    ) -> tuple[int, _Reason]:
        if desired > current:
            limit = max(self._limit(behavior["scaleUp"], current, now, _up, max, min), current)
            most, reason = (limit, _UP_RATE) if bounds.most > limit else (bounds.most, _TOO_MANY)
            return (most, reason) if desired > most else (desired, _WITHIN)
        if desired < current:
            limit = min(self._limit(behavior["scaleDown"], current, now, _down, min, max), current)
            least, reason = (limit, _DOWN_RATE) if bounds.least < limit else (bounds.least, _TOO_FEW)
            return (least, reason) if desired < least else (desired, _WITHIN)
        return desired, _WITHIN

    def _limit(
        self,
        rules: JSON,
        current: int,
        now: float,
        change: Callable[[int, JSON], int],
        largest: Callable[[Iterable[int]], int],
        smallest: Callable[[Iterable[int]], int],
    ) -> int:
        """How far the rules of one direction let the number change."""
        select = rules.get("selectPolicy", "Max")
        if select == "Disabled":
            return current
        found = []
        for policy in rules.get("policies") or ():
            cutoff = now - policy["periodSeconds"]
            added = sum(count for at, count in self._ups if at > cutoff)
            removed = sum(count for at, count in self._downs if at > cutoff)
            found.append(change(current - added + removed, policy))
        return (smallest if select == "Min" else largest)(found)


def _up(start: int, policy: JSON) -> int:
    if policy["type"] == "Pods":
        return start + int(policy["value"])
    return math.ceil(start * (1 + int(policy["value"]) / 100))


def _down(start: int, policy: JSON) -> int:
    if policy["type"] == "Pods":
        return start - int(policy["value"])
    return int(start * (1 - int(policy["value"]) / 100))


def _limited_by_rules(current: int, desired: int, bounds: Bounds) -> tuple[int, _Reason]:
    limit = max(_FACTOR * current, _MINIMUM)
    most, reason = (limit, _UP_RATE) if bounds.most > limit else (bounds.most, _TOO_MANY)
    if desired < bounds.least:
        return bounds.least, _TOO_FEW
    return (most, reason) if desired > most else (desired, _WITHIN)


def _longest(rules: JSON) -> float:
    return max((float(policy["periodSeconds"]) for policy in rules.get("policies") or ()), default=0.0)


def _recent(events: Iterable[tuple[float, int]], cutoff: float) -> list[tuple[float, int]]:
    return [event for event in events if event[0] >= cutoff]
