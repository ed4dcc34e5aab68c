"""Options of controllers, in the form of kube-controller-manager."""

from __future__ import annotations

import click

from allot.cli.durations import duration_option
from allot.cli.errors import Unreadable
from allot.core.features import ALL_GATES
from allot.core.lifecycle.signing_requests import SIGNING_DURATION_S
from allot.core.workloads.autoscaling.decision import SYNC_PERIOD_S


def _patterns(_context: click.Context, _parameter: click.Parameter, value: str) -> tuple[str, ...]:
    patterns = tuple(filter(None, (part.strip() for part in value.split(","))))
    if patterns == ("*",):
        return patterns
    # Imported when names are given: it is all controllers.
    from allot.controllers.table import UnknownController, select

    try:
        select(patterns, ALL_GATES)
    except UnknownController as error:
        raise Unreadable(str(error)) from None
    return patterns


controllers_option = click.option(
    "--controllers",
    default="*",
    show_default=True,
    metavar="LIST",
    callback=_patterns,
    help="The controllers to run: '*' for all, NAME to add one, -NAME to omit one; comma-separated.",
)

hpa_sync_period_option = duration_option(
    "--horizontal-pod-autoscaler-sync-period",
    "hpa_sync_period",
    default=f"{SYNC_PERIOD_S:g}s",
    least_s=1.0,
    help_="How often each HorizontalPodAutoscaler is evaluated; at least 1s.",
)

signing_duration_option = duration_option(
    "--cluster-signing-duration",
    "signing_duration",
    default=f"{SIGNING_DURATION_S / 3600:g}h",
    least_s=600.0,
    help_="The longest time for which certificates are signed; at least 10m. Requests may ask for less.",
)
