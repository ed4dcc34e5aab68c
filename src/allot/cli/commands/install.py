"""`allot install`: installs parts of allot on any cluster, from the templates of the Helm chart."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib.resources import as_file
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from allot.cli.durations import duration_option
from allot.cli.errors import Refused, Unreadable
from allot.cli.installing import Target, on_cluster, target_options, with_options
from allot.cli.output import OutputFormat, talk, write, write_value
from allot.cli.snapshots import connection_of
from allot.controllers.upstream_detection import why_unguarded
from allot.core.advice.application_order import order_of
from allot.installation import definitions
from allot.installation.applying import DRIVERS, PARTS, Cluster, namespace_object
from allot.installation.chart_rendering import BadValues, Rendered, chart_folder, merged, render, set_value
from allot.process.clock import SystemClock
from allot.reading.documents import parse_documents
from allot.reading.errors import NoCluster
from allot.reading.manifests import read_file
from allot.reading.snapshots import SnapshotSource

Object = dict[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])

_ISOLATIONS = ("nodes", "guard", "none")


def _values_options(function: Function) -> Function:
    """Options that determine what is rendered."""
    options = (
        click.option(
            "--image",
            default="",
            metavar="REPOSITORY[:TAG]",
            help="The image with allot, by the name that your nodes use.  [default: allot with the tag of this version]",
        ),
        click.option(
            "--values",
            "value_files",
            multiple=True,
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Values of the chart (YAML); repeatable, later ones take precedence.",
        ),
        click.option(
            "--set",
            "settings",
            multiple=True,
            metavar="KEY=VALUE",
            help="A value of the chart, such as scheduler.replicas=1; repeatable.",
        ),
    )
    return with_options(function, options)


def _part_options(function: Function) -> Function:
    """Options of every command that installs a part."""
    options = (
        target_options,
        _values_options,
        click.option("--dry-run", is_flag=True, help="Write the manifests to stdout instead; needs no cluster."),
        click.option("--wait/--no-wait", "waits", default=True, show_default=True, help="Wait until everything runs."),
        duration_option("--timeout", default="5m", help_="How long to wait."),
        click.option("--force-conflicts", is_flag=True, help="Take over fields that others have set."),
    )
    return with_options(function, options)


@click.group(invoke_without_command=True)
@click.option("--dry-run", is_flag=True, help="Write the manifests of all parts to stdout; needs no cluster.")
@click.pass_context
def install(context: click.Context, dry_run: bool) -> None:
    """Install parts of allot on a cluster: drivers, a scheduler beside kube-scheduler, the guard, queues, the dashboard.

    Manifests come from the templates of the Helm chart; to use Helm instead, run `allot install chart`. The command never
    changes objects of other owners. `allot up` includes all parts.

    \b
    Examples:
      allot install drivers gpu --image registry.example/allot:0.1.0
      allot install scheduler --dry-run | kubectl diff -f -
      allot install guard
      allot install scheduler --isolation guard
      allot install --dry-run > everything.yaml
    """
    if context.invoked_subcommand is not None:
        if dry_run:
            raise click.UsageError("--dry-run must come after the part: allot install PART --dry-run.")
        return
    if not dry_run:
        click.echo(context.get_help())
        return
    every = {name: {"enabled": True} for name in PARTS if name != "drivers"}
    values: Object = {**every, "drivers": {name: {"enabled": True} for name in DRIVERS}}
    values["autoscaler"]["address"] = "provider.example:8086"
    _print(_rendered(values, Target(), (), (), ""), Target())


@install.command(short_help="Install drivers, each as a DaemonSet.")
@click.argument("names", nargs=-1, required=True, metavar="DRIVER...", type=click.Choice(tuple(DRIVERS)))
@click.option(
    "--simulate",
    "profile",
    default="",
    metavar="PROFILE",
    help="Simulate the devices of this machine type on every node, to try things out: h100x8, t4, mi300xx8, ct6e-standard-4t.",
)
@_part_options
def drivers(names: tuple[str, ...], profile: str, **options: Any) -> None:
    """Run drivers on all nodes: {drivers}.

    Drivers of an earlier installation that are not named are removed. Do not run two drivers, or a driver and a device plugin, for the same cards.

    Exit code: 0 done, 1 the cluster refuses, or something does not run in time, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install drivers gpu nic --image registry.example/allot:0.1.0
      allot install drivers gpu --simulate h100x8
      allot install drivers gpu --set drivers.gpu.nodeSelector='{{nvidia.com/gpu.present: "true"}}'
    """
    chosen: Object = {"enabled": True, **({"profile": profile} if profile else {})}
    _install("drivers", {"drivers": dict.fromkeys(names, chosen)}, **options)


drivers.help = (drivers.help or "").replace("{drivers}", ", ".join(DRIVERS)).replace("{{", "{").replace("}}", "}")


@install.command(short_help="Install a scheduler beside kube-scheduler.")
@click.option(
    "--isolation",
    type=click.Choice(_ISOLATIONS),
    default=None,
    help="How to prevent double allocation: separate nodes, the guard, or not at all.  [default: nodes]",
)
@_part_options
def scheduler(isolation: str | None, **options: Any) -> None:
    """Run allot's scheduler beside kube-scheduler, for pods with its schedulerName (allot).

    By default, it has its own nodes, which a policy enforces: label and taint them with allot.dev/scheduler=allot. To share nodes with
    kube-scheduler, install the guard first and use --isolation guard.

    Exit code: 0 done, 1 the cluster refuses, or something does not run in time, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install scheduler
      allot install guard && allot install scheduler --isolation guard
      allot install scheduler --set scheduler.name=gpus --set scheduler.replicas=1
    """
    chosen: Object = {"enabled": True, "guardElsewhere": True, **({"isolation": isolation} if isolation else {})}
    _install("scheduler", {"scheduler": chosen}, **options)


@install.command(short_help="Install the guard, which prevents double allocation.")
@_part_options
def guard(**options: Any) -> None:
    """Run the guard: a webhook that refuses allocations of devices that another claim holds.

    Until it runs, allocations are refused (guard.failurePolicy: Fail).

    Exit code: 0 done, 1 the cluster refuses, or something does not run in time, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install guard
      allot install guard --set guard.failurePolicy=Ignore
    """
    _install("guard", {"guard": {"enabled": True}}, **options)


@install.command(short_help="Create an account that may only read.")
@click.option("--aggregate-to-view", is_flag=True, help="Let everybody with the role view see nodes and devices.")
@_part_options
def advice(aggregate_to_view: bool, **options: Any) -> None:
    """Create an account with only the permissions of allot explain, top, plan and snapshot.

    Exit code: 0 done, 1 the cluster refuses, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install advice
      kubectl create token -n allot-system allot-advice
    """
    _install("advice", {"advice": {"enabled": True, "aggregateToView": aggregate_to_view}}, **options)


@install.command(short_help="Install the queues and groups of other schedulers.")
@_part_options
def queues(**options: Any) -> None:
    """Define the kinds of KAI's, Volcano's and coscheduling's PodGroups and Queues, and run their controllers.

    Running schedulers read new kinds as soon as they exist.

    Exit code: 0 done, 1 the cluster refuses, or something does not run in time, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install queues
    """
    _install("queues", {"queues": {"enabled": True}}, **options)


@install.command(short_help="Install the autoscaler, which adds and removes nodes.")
@click.option("--address", default="", metavar="HOST:PORT", help="The address of the provider (external gRPC).")
@_part_options
def autoscaler(address: str, **options: Any) -> None:
    """Run the autoscaler with a provider of Cluster Autoscaler's external gRPC protocol.

    Exit code: 0 done, 1 the cluster refuses, or something does not run in time, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install autoscaler --address provider.kube-system:8086 --set autoscaler.tlsSecret=provider-client
    """
    chosen: Object = {"enabled": True, **({"address": address} if address else {})}
    _install("autoscaler", {"autoscaler": chosen}, **options)


@install.command(short_help="Install the dashboard.")
@click.option(
    "--url", default="", metavar="URL", help="The URL of your ingress for browsers.  [default: through kubectl proxy]"
)
@_part_options
def dashboard(url: str, **options: Any) -> None:
    """Run the dashboard in the cluster with a ServiceAccount that can only read.

    Open it through kubectl proxy, or through your own ingress, which talks HTTPS to the Service. The log of its pod has the link for the
    next browser; each link works once.

    Exit code: 0 done, 1 the cluster refuses, or something does not run in time, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install dashboard --image registry.example/allot:0.1.0
      allot install dashboard --url https://gpus.example.com/
      kubectl logs -n allot-system deployment/allot-dashboard
    """
    chosen: Object = {"enabled": True, "hosts": list(_api_servers(options["target"])), **({"url": url} if url else {})}
    _install("dashboard", {"dashboard": chosen}, **options)


def _api_servers(target: Target) -> Iterator[str]:
    """The API server's name in the kubeconfig: kubectl proxy sends it as the host name."""
    try:
        connection = connection_of(SnapshotSource(kubeconfig=target.kubeconfig, context=target.context))
    except NoCluster:
        # Printing manifests needs no cluster, and applying them reports errors.
        return
    host = urlsplit(connection.server).hostname
    if host:
        yield f"[{host}]" if ":" in host else host


@install.command(short_help="Install the custom resources of others that allot reads.")
@click.option("--print", "only_print", is_flag=True, help="Write the manifests to stdout instead; needs no cluster.")
@target_options
def crds(only_print: bool, target: Target) -> None:
    """Install the CustomResourceDefinitions of other schedulers' PodGroups and Queues, of ComputeDomains and ComputeClasses, and the roles to use them.

    Existing definitions are updated. `allot install queues` does the same, and also runs their controllers.

    Exit code: 0 done, 1 the cluster refuses, 2 wrong usage, 3 the cluster cannot be reached.

    \b
    Examples:
      allot install crds --context prod
      allot install crds --print | kubectl apply --server-side -f -
    """
    if only_print:
        for object_ in definitions.objects():
            write_value(object_, OutputFormat.YAML)
        return
    asyncio.run(on_cluster(target, lambda _, client: definitions.install(client, SystemClock()), talk))
    for object_ in definitions.objects():
        write(f"{object_['kind'].lower()}/{object_['metadata']['name']} installed")


@install.command(short_help="Write the Helm chart to a directory.")
@click.argument("folder", type=click.Path(path_type=Path))
def chart(folder: Path) -> None:
    """Write the Helm chart to a new directory: the templates that the other commands render themselves.

    \b
    Examples:
      allot install chart ./allot-chart
      helm install allot ./allot-chart -n allot-system --create-namespace --set guard.enabled=true
    """
    try:
        with as_file(chart_folder()) as source:
            shutil.copytree(source, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError:
        raise Refused(f"{folder}: already exists, expected a new directory") from None
    except OSError as error:
        raise Unreadable(f"{folder}: {(error.strerror or str(error)).lower()}") from None
    write(f"{folder}")


# --- what they have in common ---


def _install(
    part: str,
    values: Object,
    *,
    target: Target,
    image: str,
    value_files: Sequence[Path],
    settings: Sequence[str],
    dry_run: bool,
    waits: bool,
    timeout: float,
    force_conflicts: bool,
) -> None:
    rendered = _rendered(values, target, value_files, settings, image)
    if dry_run:
        _print(rendered, target)
        return

    async def work(cluster: Cluster, client: Any) -> None:
        if _needs_guard(rendered.objects) and (reason := await why_unguarded(client)):
            raise Refused(
                f"--isolation guard relies on a guard that checks every allocation: {reason}", "allot install guard"
            )
        await cluster.apply(rendered.objects, part, force=force_conflicts)
        if waits:
            await cluster.wait(rendered.objects, timeout)

    asyncio.run(on_cluster(target, work, talk))
    write(rendered.notes)


def _needs_guard(objects: Sequence[Object]) -> bool:
    return any(
        "--beside-kube-scheduler=guarded" in str(each.get("spec")) for each in objects if each["kind"] == "Deployment"
    )


def _rendered(
    own: Object, target: Target, value_files: Sequence[Path], settings: Sequence[str], image: str
) -> Rendered:
    """Values from the command, files and options, in this order. Unreadable."""
    values = own
    try:
        for file in value_files:
            values = merged(values, _read_values(file))
        for text in settings:
            values = set_value(values, text)
        if image:
            values = merged(values, {"image": _image(image)})
        return render(values, target.release)
    except BadValues as error:
        raise Unreadable(str(error), "allot install chart DIRECTORY writes the chart with all its values") from None


def _read_values(file: Path) -> Object:
    found = parse_documents(read_file(file), str(file))
    value = found[0].value if found else {}
    if len(found) > 1 or not isinstance(value, dict):
        raise Unreadable(f"{file}: expected one document with values of the chart")
    return value


def _image(text: str) -> Object:
    """`registry:5000/name:tag` or `name@sha256:...`."""
    name, at, digest = text.partition("@")
    if at:
        return {"repository": name, "digest": digest}
    folder, slash, last = name.rpartition("/")
    plain, _, tag = last.partition(":")
    return {"repository": f"{folder}{slash}{plain}", "tag": tag}


def _print(rendered: Rendered, target: Target) -> None:
    needs_privileges = any(each["kind"] == "DaemonSet" for each in rendered.objects)
    write_value(namespace_object(target.release, needs_privileges=needs_privileges), OutputFormat.YAML)
    for object_ in sorted(rendered.objects, key=order_of):
        write_value(object_, OutputFormat.YAML)
