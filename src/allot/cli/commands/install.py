"""`allot install`: what a cluster needs so that other schedulers' manifests work with allot's scheduler."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from allot.cli.errors import Refused
from allot.cli.output import OutputFormat, write, write_value
from allot.cli.snapshots import connection_of
from allot.client.api import Client
from allot.client.connection import Connection
from allot.client.errors import ApiError, Unauthorized, Unreachable
from allot.client.http import HttpTransport
from allot.controlplane import installation
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.reading.errors import NotReached
from allot.reading.snapshots import SnapshotSource

_REQUEST_TIMEOUT_S = 10.0


@click.group()
def install() -> None:
    """Bring what comes with allot onto a cluster.

    `allot up` has all of it.

    \b
    Examples:
      allot install crds
      allot install crds --print > crds.yaml
    """


@install.command(short_help="The custom resources of others that allot's parts read.")
@click.option("--print", "only_print", is_flag=True, help="Write the manifests to stdout instead; needs no cluster.")
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="How to reach the cluster.  [default: as kubectl: $KUBECONFIG, ~/.kube/config, or in the cluster]",
)
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig to use.")
def crds(only_print: bool, kubeconfig: Path | None, context: str) -> None:
    """Custom resource definitions of other schedulers' PodGroups and Queues, of ComputeDomains and ComputeClasses, and the rights to use them.

    What is there is brought up to date. Schedulers that run read kinds that are new to them after their next start.

    Exit code: 0 done, 1 the cluster refuses, 2 usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install crds --context prod
      allot install crds --print | kubectl apply --server-side -f -
    """
    if only_print:
        for object_ in installation.objects():
            write_value(object_, OutputFormat.YAML)
        return
    source = SnapshotSource(kubeconfig=kubeconfig, context=context)
    asyncio.run(_install(connection_of(source, hint="name a kubeconfig with --kubeconfig, or use --print")))
    for object_ in installation.objects():
        write(f"{_called(object_)} installed")


def _called(object_: dict[str, Any]) -> str:
    return f"{object_['kind'].lower()}/{object_['metadata']['name']}"


async def _install(connection: Connection) -> None:
    clock = SystemClock()
    transport = HttpTransport(connection, clock, SystemIds(), environ=os.environ, user_agent="allot-install")
    client = Client(transport, timeout=_REQUEST_TIMEOUT_S)
    try:
        await installation.install(client, clock)
    except (Unreachable, Unauthorized) as error:
        raise NotReached(connection.server, error) from None
    except (ApiError, installation.NotServed) as error:
        raise Refused(f"API server {connection.server}: {error}") from None
    finally:
        await client.close()
