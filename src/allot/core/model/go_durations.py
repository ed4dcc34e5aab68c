"""Durations in Go's format, which custom resources store as text: `1h30m`, `-1s`."""

from __future__ import annotations

import re
from collections.abc import Mapping

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)")
_SECONDS: Mapping[str, float] = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def go_seconds(duration: str | None) -> float | None:
    """The duration in seconds; None if absent or invalid."""
    text = duration or ""
    unsigned = text.removeprefix("-")
    parts = _DURATION.findall(unsigned)
    if not parts or "".join(number + unit for number, unit in parts) != unsigned:
        return 0.0 if text == "0" else None
    total: float = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return -total if text != unsigned else total
