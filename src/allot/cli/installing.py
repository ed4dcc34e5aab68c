"""Shared by the commands that install and remove parts: the cluster, the release, and errors."""

from __future__ import annotations

import functools
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from allot.cli.errors import Refused
from allot.cli.snapshots import connection_of
from allot.client.api import Client
from allot.client.errors import ApiError, Conflict, Unauthorized, Unreachable
from allot.client.http import HttpTransport
from allot.core.validation.names import check_label
from allot.installation.applying import Cluster, InUse, NotOurs, NotReady
from allot.installation.chart_rendering import Release
from allot.installation.definitions import NotServed
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.reading.errors import NotReached
from allot.reading.live import TRIES_MAX
from allot.reading.snapshots import SnapshotSource

Function = TypeVar("Function", bound=Callable[..., Any])

_REQUEST_TIMEOUT_S = 10.0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where, and as what."""

    release: Release = Release("allot", "allot-system")
    kubeconfig: Path | None = None
    context: str = ""


def target_options(function: Function) -> Function:
    """Options that name a cluster and a release; the command gets them as one argument `target`."""

    @functools.wraps(function)
    def command(
        *arguments: Any, namespace: str, release: str, kubeconfig: Path | None, context: str, **others: Any
    ) -> Any:
        target = Target(release=Release(release, namespace), kubeconfig=kubeconfig, context=context)
        return function(*arguments, target=target, **others)

    options = (
        click.option(
            "-n",
            "--namespace",
            default="allot-system",
            show_default=True,
            metavar="NAME",
            callback=_label,
            help="The namespace to install to; created if necessary.",
        ),
        click.option(
            "--release",
            default="allot",
            show_default=True,
            metavar="NAME",
            callback=_label,
            help="The name of the release; a second installation needs another name.",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            help="How to reach the cluster.  [default: as in kubectl: $KUBECONFIG, ~/.kube/config, or in the cluster]",
        ),
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig."),
    )
    return with_options(command, options)  # type: ignore[return-value]


def with_options(function: Function, options: Sequence[Callable[[Any], Any]]) -> Function:
    """The command with options, in the order of its help."""
    decorated: Any = function
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def _label(context: click.Context, parameter: click.Parameter, text: str) -> str:
    if check_label(text, parameter.name or "") or len(text) > 40:
        raise click.BadParameter(
            f"{text!r} is not a name of at most 40 lower-case letters, digits and '-'.", context, parameter
        )
    return text


async def on_cluster(
    target: Target, work: Callable[[Cluster, Client], Awaitable[Any]], tell: Callable[[str], None]
) -> None:
    """Do something with the release on its cluster. NotReached, Refused."""
    source = SnapshotSource(kubeconfig=target.kubeconfig, context=target.context)
    connection = connection_of(source, hint="set a kubeconfig with --kubeconfig, or use --dry-run")
    clock = SystemClock()
    transport = HttpTransport(
        connection, clock, SystemIds(), environ=os.environ, user_agent="allot-install", tries_max=TRIES_MAX
    )
    client = Client(transport, timeout=_REQUEST_TIMEOUT_S, on_warning=lambda warning: tell(f"warning: {warning}"))
    try:
        await work(Cluster(client, clock, target.release, tell), client)
    except (Unreachable, Unauthorized) as error:
        raise NotReached(connection.server, error) from None
    except Conflict as error:
        raise Refused(
            f"API server {connection.server}: {error}", "--force-conflicts takes over fields that others have set"
        ) from None
    except NotOurs as error:
        raise Refused(str(error), "choose another --release, or remove the existing objects") from None
    except InUse as error:
        raise Refused(str(error), "--force removes it anyway") from None
    except (ApiError, NotServed, NotReady) as error:
        raise Refused(f"API server {connection.server}: {error}") from None
    finally:
        await client.close()
