"""Request policies of consumable capacity: which amounts may be requested.

Knows valid values, ranges and steps. Without the gate DRAFractionalCapacityRange (`fractional`) amounts are rounded up
to integers before they are compared with the step, as upstream does; with it thousandths count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from allot.core.model.resource_v1 import CapacityRequestPolicy, CapacityRequestPolicyRange
from allot.core.quantity import INT64_MAX, Quantity
from allot.core.validation.fields import Findings, child, forbidden, index, invalid, required
from allot.core.validation.lists import check_set
from allot.core.validation.object_meta import NEGATIVE_TEXT

VALID_VALUES_MAX = 10

_NANO_PER_ONE = 10**9
_NANO_PER_MILLI = 10**6
_ONE_POLICY = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'


def check_request_policy(capacity: Quantity, policy: CapacityRequestPolicy, path: str, *, fractional: bool) -> Findings:
    """The request policy of a capacity with that value."""
    if policy.valid_values and policy.valid_range is not None:
        return [forbidden(path, _ONE_POLICY)]
    if policy.valid_values:
        if policy.default is None:
            return [required(child(path, "default"), "required when validValues is defined")]
        where = child(path, "validValues")
        return _check_values(policy.default, capacity, policy.valid_values, where, fractional)
    if policy.valid_range is not None:
        if policy.default is None:
            return [required(child(path, "default"), "required when validRange is defined")]
        return _check_range(policy.default, capacity, policy.valid_range, child(path, "validRange"), fractional)
    return []


def _check_values(
    default: Quantity, capacity: Quantity, values: Sequence[Quantity], path: str, fractional: bool
) -> Findings:
    found: Findings = []
    for position in range(1, len(values)):
        if values[position - 1] > values[position]:
            detail = "values must be sorted in ascending order"
            found.append(invalid(index(path, position), values[position], detail))

    def check_value(value: Quantity, where: str) -> Findings:
        detail = f"option is larger than capacity value: {capacity}"
        return [invalid(where, value, detail)] if value > capacity else []

    identity: Callable[[Quantity], str] = _decimal_text if fractional else lambda value: str(value.value())
    found += check_set(values, path, check_value, identity, maximum=VALID_VALUES_MAX)
    # A list that is too long is not searched, so the default counts as missing.
    if len(values) > VALID_VALUES_MAX or default not in values:
        found.append(invalid(path, default, "default value is not valid according to the requestPolicy"))
    return found


def _decimal_text(value: Quantity) -> str:
    """The amount as a plain decimal number, which tells 1 from 1.5."""
    whole, rest = divmod(abs(value.nano), _NANO_PER_ONE)
    text = f"{whole}.{rest:09d}".rstrip("0").rstrip(".") if rest else str(whole)
    return f"-{text}" if value.nano < 0 else text


def _check_range(
    default: Quantity, capacity: Quantity, allowed: CapacityRequestPolicyRange, path: str, fractional: bool
) -> Findings:
    if allowed.min is None:
        return [required(child(path, "min"), "required when validRange is defined")]
    found = _check_bounds(default, capacity, allowed.min, allowed.max, path)
    amounts = {"default": default, "min": allowed.min, "max": allowed.max, "step": allowed.step}
    named = {name: amount for name, amount in amounts.items() if amount is not None}
    milli = fractional and any(amount.nano % _NANO_PER_ONE for amount in named.values())
    if milli:
        detail = "value cannot be represented as a milli value"
        finer = [invalid(child(path, name), amount, detail) for name, amount in named.items() if not _is_milli(amount)]
        if finer:
            return found + finer
    if allowed.step is None:
        return found
    return found + _check_step(default, capacity, allowed.min, allowed.max, allowed.step, path, named, milli)


def _is_milli(amount: Quantity) -> bool:
    return amount.nano % _NANO_PER_MILLI == 0 and abs(amount.nano // _NANO_PER_MILLI) <= INT64_MAX


def _check_bounds(
    default: Quantity, capacity: Quantity, minimum: Quantity, maximum: Quantity | None, path: str
) -> Findings:
    found: Findings = []
    if minimum > capacity:
        found.append(invalid(child(path, "min"), minimum, f"min is larger than capacity value: {capacity}"))
    if default < minimum:
        found.append(invalid(child(path, "default"), default, f"default is less than min: {minimum}"))
    if maximum is None:
        return found
    if minimum > maximum:
        found.append(invalid(child(path, "max"), minimum, f"min is larger than max: {maximum}"))
    if maximum > capacity:
        found.append(invalid(child(path, "max"), maximum, f"max is larger than capacity value: {capacity}"))
    if default > maximum:
        found.append(invalid(child(path, "default"), default, f"default is more than max: {maximum}"))
    return found


def _check_step(
    default: Quantity, capacity: Quantity, minimum: Quantity, maximum: Quantity | None, step: Quantity, path: str,
    named: dict[str, Quantity], milli: bool,
) -> Findings:  # fmt: skip
    where = child(path, "step")
    if step.sign() <= 0:
        return [invalid(where, step, "must be greater than zero")]
    found: Findings = []
    first = minimum.add(step)
    if first > capacity:
        found.append(invalid(where, step, f"one step {first} is larger than capacity value: {capacity}"))
    if not milli:
        unsafe = [finding for name, amount in named.items() for finding in _check_int64(amount, child(path, name))]
        if unsafe:
            return found + unsafe
    for amount in (default, maximum):
        if amount is not None and (_units(amount, milli) - _units(minimum, milli)) % _units(step, milli):
            detail = f"value is not a multiple of a given step ({step}) from ({minimum})"
            found.append(invalid(where, amount, detail))
    return found


def _units(amount: Quantity, milli: bool) -> int:
    return amount.milli_value() if milli else amount.value()


def _check_int64(amount: Quantity, path: str) -> Findings:
    if amount.sign() < 0:
        return [invalid(path, amount, NEGATIVE_TEXT)]
    if amount > Quantity.from_int(INT64_MAX):
        return [invalid(path, amount, f"must not be larger than {INT64_MAX}")]
    return []
