"""The option that determines which nodes an autoscaler adds if several sets would fit."""

from __future__ import annotations

import click

from allot.core.advice.nearest import did_you_mean
from allot.core.autoscaling.expanders import EXPANDERS


def parse_expanders(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    """Names of expanders, in order of decision."""
    names = tuple(each.strip() for each in text.split(","))
    for name in names:
        if name not in EXPANDERS:
            raise click.BadParameter(f"{name!r} is not an expander: {did_you_mean(name, EXPANDERS)}")
    return names
