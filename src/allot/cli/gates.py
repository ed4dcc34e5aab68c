"""Feature gates on the command line, in the form that Kubernetes' components take them."""

from __future__ import annotations

import click

from allot.cli.errors import Unreadable
from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates, UnknownGate


def parse_gates(_context: click.Context, _parameter: click.Parameter, value: str) -> FeatureGates:
    """`default`, `all`, or changes to them such as `DRAListTypeAttributes=true`; a click callback."""
    gates = DEFAULT_GATES
    enable: list[str] = []
    disable: list[str] = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        name, equals, state = part.partition("=")
        if name in ("all", "default") and not equals:
            gates = ALL_GATES if name == "all" else DEFAULT_GATES
        elif equals and state.lower() in ("true", "false"):
            (enable if state.lower() == "true" else disable).append(name)
        else:
            raise Unreadable(f"feature gate {part!r}: expected NAME=true, NAME=false, all or default")
    try:
        return gates.changed(enable, disable)
    except UnknownGate as error:
        raise Unreadable(str(error)) from None


def gates_text(gates: FeatureGates) -> str:
    """The same gates for another command line."""
    changed = sorted(gates.on ^ DEFAULT_GATES.on)
    return ",".join(["default", *(f"{name}={'true' if name in gates.on else 'false'}" for name in changed)])
