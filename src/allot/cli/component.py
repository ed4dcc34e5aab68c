"""Runs a component against an API server in the foreground: connection, leader election, health and metrics, signals.

Shared by the commands that run one control plane component as a process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from prometheus_client import CollectorRegistry

from allot.cli.durations import duration_option
from allot.cli.errors import EXIT_UNREACHABLE, CommandError, Unreadable
from allot.cli.gates import gates_option
from allot.cli.output import talk
from allot.client.api import Client
from allot.client.connection import Connection
from allot.client.errors import ApiError
from allot.client.http import HttpTransport
from allot.client.kubeconfig import KubeconfigError, connection_from_environment
from allot.client.leader import ElectionTimes, LeaderElector
from allot.core.features import FeatureGates
from allot.http1.health import Check, runs, serving_health
from allot.process.clock import Clock, SystemClock
from allot.process.ids import Ids, SystemIds
from allot.process.interpreter import tune
from allot.process.signals import stop_on_signals
from allot.process.supervise import until
from allot.reading.errors import NotReached

# How long the server may take to appear, when both are started together.
_SERVER_WAIT_S = 30.0
_PAUSE_S = 1.0

Function = TypeVar("Function", bound=Callable[..., Any])


class CannotRun(CommandError):
    """The component cannot start or continue."""

    exit_code = EXIT_UNREACHABLE


class ComponentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Command line options of every component."""

    kubeconfig: Path | None
    context: str
    gates: FeatureGates
    leader_elect: bool
    lease_name: str
    lease_namespace: str
    lease_duration: float
    renew_deadline: float
    retry_period: float
    bind_address: str
    port: int


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """What a component works with."""

    client: Client
    connection: Connection
    clock: Clock
    ids: Ids
    registry: CollectorRegistry
    # Which process of several this is.
    identity: str
    # The lease of the leader; None without leader election.
    elector: LeaderElector | None = None


def component_options(lease_name: str, port: int) -> Callable[[Function], Function]:
    """The options of a command that runs a component."""
    options = (
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            help="How to reach the API server.  [default: as in kubectl: $KUBECONFIG, ~/.kube/config, or in the cluster]",
        ),
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig."),
        gates_option(),
        click.option(
            "--leader-elect/--no-leader-elect",
            default=True,
            show_default=True,
            help="Elect a leader through a Lease, so that only one of several processes works.",
        ),
        click.option(
            "--leader-elect-resource-name",
            "lease_name",
            default=lease_name,
            show_default=True,
            metavar="NAME",
            help="The name of that Lease.",
        ),
        click.option(
            "--leader-elect-resource-namespace",
            "lease_namespace",
            default="kube-system",
            show_default=True,
            metavar="NAMESPACE",
            help="The namespace of that Lease.",
        ),
        duration_option(
            "--leader-elect-lease-duration",
            "lease_duration",
            default="15s",
            help_="How long others wait for a Lease that is not renewed.",
        ),
        duration_option(
            "--leader-elect-renew-deadline",
            "renew_deadline",
            default="10s",
            help_="How long the leader tries to renew the Lease before it gives up.",
        ),
        duration_option(
            "--leader-elect-retry-period",
            "retry_period",
            default="2s",
            help_="The pause between attempts.",
        ),
        click.option(
            "--bind-address", default="127.0.0.1", show_default=True, help="The address to serve health and metrics on."
        ),
        click.option(
            "--port",
            type=click.IntRange(-1, 65535),
            default=port,
            show_default=True,
            help="The port for /healthz, /livez, /readyz and /metrics (HTTP); 0 takes a free one, -1 disables them.",
        ),
    )

    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def options_of(arguments: dict[str, Any]) -> ComponentOptions:
    """Takes the options of a component out of click's arguments."""
    return ComponentOptions(**{name: arguments.pop(name) for name in ComponentOptions.__struct_fields__})


def read_certificates(path: Path) -> bytes:
    """Certificates of an authority, as PEM. Unreadable if there are none."""
    try:
        found = path.read_bytes()
        ssl.create_default_context(cadata=found.decode())
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise Unreadable(f"{path}: expected certificates as PEM") from None
    except OSError as error:
        raise Unreadable(f"{path}: {(error.strerror or str(error)).lower()}") from None
    return found


def run_component(
    name: str, options: ComponentOptions, work: Callable[[Component], Awaitable[None]], ready: Check = runs
) -> None:
    """Run the work while leading, until a signal arrives; CommandError if it cannot run or the lease is lost. ready: the reason that
    the process is not ready."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    tune()
    try:
        connection = connection_from_environment(os.environ, kubeconfig=options.kubeconfig, context=options.context)
    except KubeconfigError as error:
        raise Unreadable(str(error)) from None
    try:
        if sys.platform == "win32":
            asyncio.run(_run(name, options, connection, work, ready))
        else:
            import uvloop

            uvloop.run(_run(name, options, connection, work, ready))
    except BaseExceptionGroup as group:
        known = group.subgroup(CommandError)
        if known is None:
            raise
        raise _first(known) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _run(
    name: str,
    options: ComponentOptions,
    connection: Connection,
    work: Callable[[Component], Awaitable[None]],
    ready: Check,
) -> None:
    clock, ids = SystemClock(), SystemIds()
    client = Client(HttpTransport(connection, clock, ids, environ=os.environ, user_agent=f"allot-{name}"))
    component = Component(
        client=client,
        connection=connection,
        clock=clock,
        ids=ids,
        registry=CollectorRegistry(),
        identity=f"{socket.gethostname()}_{ids.new_uid()}",
    )
    stop, reached = asyncio.Event(), asyncio.Event()
    stop_on_signals(stop)

    async def ready_for_work() -> str:
        return await ready() if reached.is_set() else "the API server has not answered yet"

    try:
        async with _probes(options, component, ready_for_work) as address:
            if address:
                talk(f"health and metrics: {address}")
            await until(stop, _work(name, options, component, work, reached))
    finally:
        await client.close()
    talk("stopping")


async def _work(
    name: str,
    options: ComponentOptions,
    component: Component,
    work: Callable[[Component], Awaitable[None]],
    reached: asyncio.Event,
) -> None:
    await _until_reachable(component)
    reached.set()
    if not options.leader_elect:
        await work(component)
        return
    try:
        times = ElectionTimes(
            lease_duration_s=int(options.lease_duration),
            renew_deadline_s=options.renew_deadline,
            retry_period_s=options.retry_period,
        )
    except ValueError as error:
        raise Unreadable(f"leader election: {error}") from None
    lease = f"{options.lease_namespace}/{options.lease_name}"
    elector = LeaderElector(
        component.client,
        component.clock,
        component.ids,
        namespace=options.lease_namespace,
        name=options.lease_name,
        identity=component.identity,
        times=times,
        on_new_leader=lambda leader: talk(f"lease {lease}: held by {leader or 'nobody'}"),
    )
    leading = msgspec.structs.replace(component, elector=elector)
    await elector.run(lambda: work(leading))
    raise CannotRun(f"{name}: lease {lease}: lost", "another process is the leader now; restart this one to stand by")


async def _until_reachable(component: Component) -> None:
    """Wait for the server, but not forever: a wrong address must be reported."""
    deadline = component.clock.monotonic() + _SERVER_WAIT_S
    while True:
        try:
            await component.client.request("GET", "/version")
            return
        except ApiError as error:
            if component.clock.monotonic() > deadline:
                raise NotReached(component.connection.server, error) from None
        await component.clock.sleep(_PAUSE_S)


# --- health and metrics ---


@asynccontextmanager
async def _probes(options: ComponentOptions, component: Component, ready: Check) -> AsyncIterator[str]:
    """The address of health and metrics; empty if none."""
    async with AsyncExitStack() as stack:
        served = serving_health(options.bind_address, options.port, component.registry, component.clock, ready=ready)
        try:
            address = await stack.enter_async_context(served)
        except OSError as error:
            raise _cannot_listen(error, options) from None
        yield address


def _cannot_listen(error: OSError, options: ComponentOptions) -> CommandError:
    where = f"{options.bind_address}:{options.port}"
    if error.errno == errno.EADDRINUSE:
        return CannotRun(
            f"cannot listen on {where}: the port is in use", "choose another port with --port, or -1 for none"
        )
    return CannotRun(f"cannot listen on {where}: {(error.strerror or str(error)).lower()}")
