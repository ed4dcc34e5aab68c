"""`allot apiserver`: the API server alone."""

from __future__ import annotations

from typing import Any

import click

from allot.cli.serving import options_of, serve, server_options


@click.command(short_help="Run the API server.")
@server_options
def apiserver(**arguments: Any) -> None:
    """Run a Kubernetes API server that kubectl and every Kubernetes client can use.

    Objects are kept in one SQLite file below the data directory, or in etcd, or in memory. At first start a certificate
    authority is made; the administrator's kubeconfig is written at every start. SIGTERM and SIGINT stop the server.

    \b
    Examples:
      allot apiserver                                     on 127.0.0.1:6443
      allot apiserver --data-dir ./data --port 0 --kubeconfig ./kubeconfig
      allot apiserver --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379 --etcd-cafile ca.crt ...
    """
    serve(options_of(arguments))
