"""`allot up`: everything that a cluster's control plane needs, in one process."""

from __future__ import annotations

from typing import Any

import click

from allot.cli.serving import options_of, serve, server_options
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane


@click.command(short_help="Start a control plane.")
@server_options
def up(**arguments: Any) -> None:
    """Start a control plane in one process: API server, controllers and scheduler, with a kubeconfig to use it.

    \b
    Example:
      allot up --data-dir ./data --kubeconfig ./kubeconfig
    """
    serve(options_of(arguments), _start)


def _start(plane: ControlPlane) -> None:
    start_controllers(plane)
    start_scheduler(plane)
