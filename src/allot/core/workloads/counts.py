"""Numbers of pods, absolute or in percent."""

from __future__ import annotations

import re

from allot.core.model.meta import IntOrString

_PERCENT = re.compile(r"([0-9]{1,9})%")


def scaled(value: IntOrString | None, total: int, *, round_up: bool, default: int = 0) -> int:
    """A number, or a percentage of a total. Anything else counts as 0, as it cannot be stored."""
    if value is None:
        return default
    if isinstance(value, int):
        return value
    found = _PERCENT.fullmatch(value)
    if found is None:
        return 0
    hundredths = int(found[1]) * total
    return -(-hundredths // 100) if round_up else hundredths // 100


def is_percent(value: IntOrString | None) -> bool:
    """Whether a number is given in percent."""
    return isinstance(value, str)
