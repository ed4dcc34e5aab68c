"""`allot apiserver`: run only the API server."""

from __future__ import annotations

import asyncio
import logging
import sys
from functools import partial
from typing import Any

import click

from allot.cli.data_dir import ADMIN_KUBECONFIG
from allot.cli.output import talk
from allot.cli.server_options import ServerOptions, make_data_dir, options_of, server_options
from allot.cli.serving import run_server, serving
from allot.process.interpreter import settle
from allot.process.signals import stop_on_signals


@click.command()
@server_options("default")
def apiserver(**arguments: Any) -> None:
    """Run a Kubernetes API server for kubectl and every Kubernetes client.

    Objects are stored in one SQLite file below the data directory, in etcd, or in memory. The first start creates a certificate
    authority; every start writes the administrator's kubeconfig. SIGTERM and SIGINT stop the server.

    \b
    Examples:
      allot apiserver                                     on 127.0.0.1:6443
      allot apiserver --data-dir ./data --port 0 --kubeconfig ./kubeconfig
      allot apiserver --etcd-servers https://10.0.0.1:2379,https://10.0.0.2:2379 --etcd-cafile ca.crt ...
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    options = options_of(arguments)
    run_server(options, partial(_serve, options))


async def _serve(options: ServerOptions) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    make_data_dir(options.data_dir)
    async with serving(options) as plane:
        path = options.kubeconfig or options.data_dir / ADMIN_KUBECONFIG
        plane.server.access.write_admin_kubeconfig(path, plane.server.url)
        talk(f"ready: {plane.server.url}")
        talk("")
        talk(f"  export KUBECONFIG={path}")
        talk("  kubectl get namespaces")
        talk("")
        settle()
        await stop.wait()
        talk("stopping")
