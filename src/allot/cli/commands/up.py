"""`allot up`: everything that a cluster's control plane needs, in one process."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from allot.cli.controller_names import controllers_option
from allot.cli.serving import options_of, serve, server_options
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane


@click.command(short_help="Start a control plane.")
@server_options
@controllers_option
def up(controllers: tuple[str, ...], **arguments: Any) -> None:
    """Start a control plane in one process: API server, controllers and scheduler, with a kubeconfig to use it.

    \b
    Examples:
      allot up --data-dir ./data --kubeconfig ./kubeconfig
      allot up --controllers='*,-node-lifecycle-controller'    nodes that nobody reports for stay ready
    """
    serve(options_of(arguments), partial(_start, controllers))


def _start(controllers: tuple[str, ...], plane: ControlPlane) -> None:
    start_controllers(plane, controllers)
    start_scheduler(plane)
