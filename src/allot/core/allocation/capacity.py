"""Consumable capacity: how much of a device one request takes, and whether it still fits.

Amounts are nano units (`Quantity.nano`) for comparing, quantities for reporting. Two kinds of "no" are kept apart as
upstream does: a device that cannot serve the request is skipped, a request that cannot be computed at all is an
error, which ends the attempt (`CapacityError`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allot.core.model.resource_v1 import CapacityRequestPolicyRange, DeviceCapacity
from allot.core.quantity import INT64_MAX, INT64_MIN, Quantity

_MILLI = 10**6  # nano units
_ONE = 10**9

Consumption = dict[str, Quantity]


class CapacityError(Exception):
    """A capacity request that cannot be computed."""


def consumption(
    requested: Mapping[str, Quantity], capacity: Mapping[str, DeviceCapacity], fractional: bool
) -> Consumption | None:
    """What a request takes of each published capacity; None if the device does not have or does not allow it.

    Names are compared literally: a request for `mem` does not find `gpu.example.com/mem`, as upstream.
    """
    for name in requested:
        if name not in capacity:
            return None
    taken: Consumption = {}
    # Every amount is computed before any is judged: whether the attempt ends in an error must not depend on the order.
    for name, published in capacity.items():
        amount = _amount(requested.get(name), published, name, fractional)
        if amount.nano < 0:
            raise CapacityError(f'capacity "{name}": capacity value is negative')
        taken[name] = amount
    for name, published in capacity.items():
        if _violates_policy(taken[name], published, fractional):
            return None
    return taken


class NotAllowed(NamedTuple):
    """An amount that a device's request policy does not allow. nearest: the largest amount that it does."""

    name: str
    asked: Quantity
    allowed: str
    nearest: Quantity


def not_allowed(
    requested: Mapping[str, Quantity], capacity: Mapping[str, DeviceCapacity], fractional: bool
) -> NotAllowed | None:
    """Which of the requested amounts a device does not allow, after `consumption` found that there is one."""
    for name, asked in requested.items():
        published = capacity[name]
        policy = published.request_policy
        if policy is None or not _violates_policy(_amount(asked, published, name, fractional), published, fractional):
            continue
        range_ = policy.valid_range
        if range_ is None:
            largest = policy.valid_values[-1]
            return NotAllowed(name, asked, _alternatives([str(value) for value in policy.valid_values]), largest)
        # Amounts are rounded up, so only the maximum can be in the way.
        assert range_.max is not None
        nano = range_.max.nano
        if range_.min is not None and range_.step is not None and range_.step.nano > 0:
            nano -= (nano - range_.min.nano) % range_.step.nano
        steps = f" in steps of {range_.step}" if range_.step is not None else ""
        least = f"{range_.min} to " if range_.min is not None else "up to "
        return NotAllowed(name, asked, f"{least}{range_.max}{steps}", Quantity.from_nano(nano, range_.max.format))
    return None


def _alternatives(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


def fits(taken: Mapping[str, Quantity], capacity: Mapping[str, DeviceCapacity], *consumed: Mapping[str, int]) -> bool:
    """Whether the amounts still fit beside what is consumed already."""
    for name, amount in taken.items():
        total = amount.nano
        for already in consumed:
            total += already.get(name, 0)
        if total > capacity[name].value.nano:
            return False
    return True


def _amount(requested: Quantity | None, published: DeviceCapacity, name: str, fractional: bool) -> Quantity:
    policy = published.request_policy
    if requested is None:
        if policy is not None and policy.default is not None:
            return policy.default
        return published.value
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _round_up_to_range(requested, policy.valid_range, name, fractional)
    for valid in policy.valid_values:
        if requested.nano <= valid.nano:
            return valid
    return requested


def _round_up_to_range(
    requested: Quantity, range_: CapacityRequestPolicyRange, name: str, fractional: bool
) -> Quantity:
    minimum, step = range_.min, range_.step
    assert minimum is not None
    if requested.nano < minimum.nano:
        return minimum
    if step is None:
        return requested
    if _in_milli_units(range_, fractional):
        unit, passes = _MILLI, "the milli-value range"
        if not _is_milli(requested):
            raise _not_representable(name, f"request {requested} is not a representable milli value")
    else:
        unit, passes = _ONE, "MaxInt64"
        if requested.nano > INT64_MAX * _ONE:
            raise _not_representable(name, f"request {requested} exceeds MaxInt64")
    least, stride = _in_units(minimum, unit), _in_units(step, unit)
    if stride <= 0:
        return requested
    strides = -((least - _in_units(requested, unit)) // stride)
    if least >= 0 and strides > (INT64_MAX - least) // stride:
        raise _not_representable(name, f"rounding request {requested} up to the next step passes {passes}")
    return Quantity.from_nano((least + stride * strides) * unit, step.format)


def _violates_policy(amount: Quantity, published: DeviceCapacity, fractional: bool) -> bool:
    policy = published.request_policy
    if policy is None:
        return False
    # A default is accepted even outside its own policy.
    if policy.default is not None and amount == policy.default:
        return False
    range_ = policy.valid_range
    if range_ is not None:
        if range_.max is not None and amount.nano > range_.max.nano:
            return True
        if range_.step is None or range_.min is None:
            return False
        unit = _ONE
        if _in_milli_units(range_, fractional):
            unit = _MILLI
            if not _is_milli(amount):
                return True
        stride = _in_units(range_.step, unit)
        return stride > 0 and (_in_units(amount, unit) - _in_units(range_.min, unit)) % stride != 0
    if policy.valid_values:
        return all(amount.nano != valid.nano for valid in policy.valid_values)
    return False


def _in_milli_units(range_: CapacityRequestPolicyRange, fractional: bool) -> bool:
    """Milli units are used when the feature is on, all bounds are exact in them and the step is at least 1m."""
    if not fractional:
        return False
    bounds = (range_.min, range_.max, range_.step)
    return all(_is_milli(bound) for bound in bounds if bound is not None) and (
        range_.step is None or range_.step.nano >= _MILLI
    )


def _is_milli(amount: Quantity) -> bool:
    milli, rest = divmod(amount.nano, _MILLI)
    return not rest and INT64_MIN <= milli <= INT64_MAX


def _in_units(amount: Quantity, unit: int) -> int:
    # Away from zero, as Quantity.Value and MilliValue round.
    nano = amount.nano
    return -(-nano // unit) if nano >= 0 else -((-nano + unit - 1) // unit)


def _not_representable(name: str, why: str) -> CapacityError:
    return CapacityError(
        f'capacity "{name}": capacity request cannot be represented in the device\'s range arithmetic: {why}'
    )
