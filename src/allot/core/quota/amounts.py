"""Amounts by resource name, as in requests, limits, hard and used.

Objects are JSON values that may be malformed: what is not a quantity is treated as absent, validation complains about it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from allot.core.quantity import Quantity, QuantityError

Amounts = dict[str, Quantity]


def parse_amounts(value: Any) -> Amounts:
    """Amounts from a JSON object of quantities."""
    if not isinstance(value, dict):
        return {}
    found: Amounts = {}
    for name, raw in value.items():
        amount = parse_amount(raw)
        if amount is not None:
            found[name] = amount
    return found


def parse_amount(raw: Any) -> Quantity | None:
    """A quantity from JSON text or number."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    try:
        return Quantity.parse(str(raw))
    except QuantityError:
        return None


def plus(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """The sums, of every name that occurs."""
    total = dict(left)
    for name, amount in right.items():
        before = total.get(name)
        total[name] = amount if before is None else before.add(amount)
    return total


def increase(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """By how much the left amounts are above the right ones, at least 0."""
    grown: Amounts = {}
    for name, amount in left.items():
        more = amount.sub(right[name]) if name in right else amount
        grown[name] = more if more.sign() >= 0 else Quantity.ZERO
    return grown


def largest(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """The larger amount of every name."""
    found = dict(left)
    for name, amount in right.items():
        if name not in found or amount > found[name]:
            found[name] = amount
    return found


def mask(amounts: Mapping[str, Quantity], names: Iterable[str]) -> Amounts:
    """Only the amounts of these names."""
    wanted = set(names)
    return {name: amount for name, amount in amounts.items() if name in wanted}


def nonzero(amounts: Mapping[str, Quantity]) -> Amounts:
    """Without zeros."""
    return {name: amount for name, amount in amounts.items() if amount.sign()}


def exceeded(amounts: Mapping[str, Quantity], bounds: Mapping[str, Quantity]) -> list[str]:
    """The names whose amount is above its bound, in order."""
    return sorted(name for name, amount in amounts.items() if name in bounds and amount > bounds[name])


def amounts_text(amounts: Mapping[str, Quantity]) -> str:
    """As quota messages show them: `cpu=2,pods=1`."""
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))


def as_json(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    """The JSON object, names in order."""
    return {name: str(amounts[name]) for name in sorted(amounts)}
