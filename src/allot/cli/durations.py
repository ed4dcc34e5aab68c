"""Time spans on the command line, as Go writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from allot.core.cel.data.times import SECOND, parse_duration

Function = TypeVar("Function", bound=Callable[..., Any])


def duration_option(*names: str, default: str, help_: str, least_s: float = 0.0) -> Callable[[Function], Function]:
    """An option for a time span as Go writes it (1m30s), or a number of seconds; the command gets seconds."""

    def seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
        found = parse_duration(value if not value.replace(".", "", 1).isdigit() else f"{value}s")
        if found is None or found.nanoseconds < 0:
            raise click.BadParameter(f"{value!r} is not a duration such as 15s or 1m30s.", context, parameter)
        if found.nanoseconds < least_s * SECOND:
            raise click.BadParameter(f"{value!r} is less than {least_s:g}s.", context, parameter)
        return found.nanoseconds / SECOND

    return click.option(*names, default=default, show_default=True, metavar="DURATION", callback=seconds, help=help_)
