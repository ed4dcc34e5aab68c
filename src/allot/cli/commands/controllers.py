"""`allot controllers`: runs the controllers, against any Kubernetes API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from allot.apiserver.access.request_signing import Authority, RequestSigner, read_authority
from allot.apiserver.access.secret_files import SecretFileError
from allot.apiserver.access.service_account_tokens import legacy_claims
from allot.apiserver.access.token_key import TokenKey
from allot.cli.component import Component, component_options, options_of, run_component
from allot.cli.controller_options import controllers_option, hpa_sync_period_option, signing_duration_option
from allot.cli.durations import duration_option
from allot.cli.errors import Unreadable
from allot.cli.output import talk
from allot.client.announcement import Announcement
from allot.client.connection import Connection
from allot.client.informers import Informers
from allot.controllers.metrics import ControllerMetrics
from allot.controllers.nodelifecycle import NodeLifecycle
from allot.controllers.podgc import PodGarbageCollector
from allot.controllers.runner import Runnable, Services
from allot.controllers.table import CONTROLLERS, Row, announced_names, select
from allot.controllers.upstream_detection import has_controller_manager, server_version
from allot.controllers.upstream_detection import is_allot_version as is_ours
from allot.core.features import FeatureGates
from allot.core.lifecycle.nodes import NodeSettings
from allot.core.lifecycle.podgc import TERMINATED_MAX
from allot.process.supervise import supervise

_FILE = click.Path(path_type=Path, dir_okay=False)
_DEFAULTS = NodeSettings()


class ControllerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command line options of controllers."""

    controllers: tuple[str, ...]
    beside: str
    root_ca_file: Path | None
    key_file: Path | None
    signing_cert_file: Path | None
    signing_key_file: Path | None
    signing_duration: float
    node_monitor_period: float
    node_monitor_grace_period: float
    node_startup_grace_period: float
    terminated_pod_gc_threshold: int
    volume_folder: Path | None
    hpa_sync_period: float


@click.command()
@controllers_option
@click.option(
    "--beside-kube-controller-manager",
    "beside",
    type=click.Choice(("auto", "yes", "no")),
    default="auto",
    show_default=True,
    help="Whether '*' omits what kube-controller-manager does. auto: on servers other than allot's, and if it holds its Lease.",
)
@click.option(
    "--root-ca-file",
    type=_FILE,
    help="The certificates that pods use to verify the API server.  [default: those of the kubeconfig]",
)
@click.option(
    "--service-account-private-key-file",
    "key_file",
    type=_FILE,
    help="The key that signs tokens in Secrets: the API server's sa.key. Without it, Secrets get no tokens.",
)
@click.option(
    "--cluster-signing-cert-file",
    "signing_cert_file",
    type=_FILE,
    help="The certificate of the authority that signs approved certificate requests: the API server's ca.crt. Without it, none are "
    "signed.",
)
@click.option("--cluster-signing-key-file", "signing_key_file", type=_FILE, help="The key of that authority.")
@signing_duration_option
@duration_option("--node-monitor-period", default=f"{_DEFAULTS.period_s:g}s", help_="How often nodes are checked.")
@duration_option(
    "--node-monitor-grace-period", default=f"{_DEFAULTS.grace_s:g}s", help_="How long a node may be silent."
)
@duration_option(
    "--node-startup-grace-period", default=f"{_DEFAULTS.startup_grace_s:g}s", help_="How long a new node may be silent."
)
@click.option(
    "--terminated-pod-gc-threshold",
    type=click.IntRange(0),
    default=TERMINATED_MAX,
    show_default=True,
    help="How many finished pods to keep; 0 keeps all.",
)
@click.option(
    "--volume-folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to create directories for PersistentVolumeClaims whose class has the provisioner allot.dev/folder, on the node of "
    "their pod. Without it, none are created.",
)
@hpa_sync_period_option
@component_options(lease_name="allot-controllers", port=10257)
def controllers(**arguments: Any) -> None:
    """Run the controllers: workloads, claims of pods, volumes, Services, garbage collection, namespaces, nodes, ServiceAccounts,
    quotas.

    They use only the API and work on allot's API server and on any other. Names are kube-controller-manager's. On a
    cluster with a kube-controller-manager, only controllers that it lacks are started, unless you name them. SIGTERM and SIGINT stop
    them and release the Lease.

    \b
    Names:
      {names}

    \b
    Examples:
      allot controllers --kubeconfig ./kubeconfig
      allot controllers --controllers='*,-node-lifecycle-controller'
      allot controllers --controllers=resourceclaim-controller --no-leader-elect
    """
    component = options_of(arguments)
    options = ControllerOptions(**arguments)
    sign = _signer(options.key_file)
    authority = _authority(options.signing_cert_file, options.signing_key_file)
    run_component("controllers", component, partial(_work, options, component.gates, sign, authority))


controllers.help = (controllers.help or "").replace("{names}", "\n      ".join(sorted(row.name for row in CONTROLLERS)))


def _signer(path: Path | None) -> Callable[[dict[str, Any], str], str] | None:
    if path is None:
        return None
    try:
        key = TokenKey.read(path)
    except SecretFileError as error:
        raise Unreadable(str(error)) from None
    return lambda account, secret: key.sign(legacy_claims(account, secret))


def _authority(certificate: Path | None, key: Path | None) -> Callable[[], Authority] | None:
    """Reads the authority's files, each time it is called: they may be replaced."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--cluster-signing-cert-file and --cluster-signing-key-file need each other.")
    read = partial(read_authority, certificate, key)
    try:
        read()
    except SecretFileError as error:
        raise Unreadable(str(error)) from None
    return read


async def _work(
    options: ControllerOptions,
    gates: FeatureGates,
    sign: Callable[[dict[str, Any], str], str] | None,
    authority: Callable[[], Authority] | None,
    component: Component,
) -> None:
    version = await server_version(component.client)
    beside = await _is_beside(options, component, version)
    rows = select(options.controllers, gates, beside_upstream=beside)
    if beside:
        talk("a kube-controller-manager runs in this cluster: its controllers are not started")
    informers = Informers(component.client, component.clock, component.ids)
    services = Services(
        client=component.client,
        informers=informers,
        clock=component.clock,
        ids=component.ids,
        metrics=ControllerMetrics(component.registry),
        gates=gates,
        instance=component.identity,
        sign_token=sign,
        root_ca=_root_ca(options.root_ca_file, component.connection),
        sign_certificate=None if authority is None else RequestSigner(authority, component.clock).sign,
        signing_duration_s=options.signing_duration,
        volume_folder=options.volume_folder.absolute() if options.volume_folder is not None else None,
        hpa_sync_period_s=options.hpa_sync_period,
    )
    makes = {**{row.name: row.make for row in rows}, **_adjusted(options, rows)}
    running = {name: make(services) for name, make in makes.items()}
    talk(f"running: {', '.join(running) or 'no controllers'}")
    names = announced_names(rows, options.volume_folder, signs=authority is not None)
    announcement = Announcement(component.client, component.clock, "controllers", names, component.identity)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(informers.run())
        if names and is_ours(version):
            tasks.create_task(supervise("the announcement", announcement.run, component.clock))
        for name, controller in running.items():
            tasks.create_task(supervise(name, controller.run, component.clock))


def _adjusted(options: ControllerOptions, rows: Sequence[Row]) -> dict[str, Callable[[Services], Runnable]]:
    """The selected controllers that have options."""
    nodes = NodeSettings(
        period_s=options.node_monitor_period,
        grace_s=options.node_monitor_grace_period,
        startup_grace_s=options.node_startup_grace_period,
    )
    found: dict[str, Callable[[Services], Runnable]] = {
        "node-lifecycle-controller": partial(NodeLifecycle, settings=nodes),
        "pod-garbage-collector-controller": partial(
            PodGarbageCollector, terminated_max=options.terminated_pod_gc_threshold
        ),
    }
    chosen = {row.name for row in rows}
    return {name: make for name, make in found.items() if name in chosen}


async def _is_beside(options: ControllerOptions, component: Component, version: str) -> bool:
    if options.beside != "auto":
        return options.beside == "yes"
    if not is_ours(version):
        return True
    return await has_controller_manager(component.client, component.clock.seconds())


def _root_ca(path: Path | None, connection: Connection) -> str:
    source = path or connection.ca_file
    if path is None and connection.ca_data:
        return connection.ca_data.decode(errors="replace")
    if source is None:
        return ""
    try:
        return source.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"certificates {source}: {error}") from None
