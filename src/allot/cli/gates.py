"""Feature gates on the command line, in the form of Kubernetes' components."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from allot.cli.errors import Unreadable
from allot.core.features import ALL_GATES, ALLOT_GATES, DEFAULT_GATES, FeatureGates, UnknownGate

Function = TypeVar("Function", bound=Callable[..., Any])
ALLOT = "allot"
_NAMED = {"default": DEFAULT_GATES, ALLOT: ALLOT_GATES, "all": ALL_GATES}


def parse_gates(_context: click.Context, parameter: click.Parameter | None, value: str) -> FeatureGates:
    """`default` (upstream's), `allot`, `all`, or changes such as `DRAListTypeAttributes=true`; a click callback. Changes alone
    apply to the command's default: `allot` for some commands, else `default`."""
    gates = ALLOT_GATES if parameter is not None and parameter.default == ALLOT else DEFAULT_GATES
    enable: list[str] = []
    disable: list[str] = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, equals, state = part.partition("=")
        if name in _NAMED and not equals:
            gates = _NAMED[name]
        elif equals and state.lower() in ("true", "false"):
            (enable if state.lower() == "true" else disable).append(name)
        else:
            raise Unreadable(f"feature gate {part!r}: expected NAME=true, NAME=false, default, allot or all")
    try:
        return gates.changed(enable, disable)
    except UnknownGate as error:
        raise Unreadable(str(error)) from None


def gates_option(default: str = "default") -> Callable[[Function], Function]:
    """--feature-gates of a command that runs a part of a cluster."""
    return click.option(
        "--feature-gates",
        "gates",
        default=default,
        show_default=True,
        metavar="GATES",
        callback=parse_gates,
        help="'default' (Kubernetes'), 'allot' (adds pod groups), 'all', or changes: NAME=true,NAME=false.",
    )


def gates_text(gates: FeatureGates) -> str:
    """The same gates for another command line."""
    changed = sorted(gates.on ^ DEFAULT_GATES.on)
    return ",".join(["default", *(f"{name}={'true' if name in gates.on else 'false'}" for name in changed)])
