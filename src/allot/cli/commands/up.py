"""`allot up`: everything that a cluster's control plane needs, in one process."""

from __future__ import annotations

from typing import Any

import click

from allot.cli.serving import options_of, serve, server_options


@click.command(short_help="Start a control plane.")
@server_options
def up(**arguments: Any) -> None:
    """Start a control plane in one process: the API server, with a kubeconfig to use it.

    \b
    Example:
      allot up --data-dir ./data --kubeconfig ./kubeconfig
    """
    serve(options_of(arguments))
