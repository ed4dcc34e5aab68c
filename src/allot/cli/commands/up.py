"""`allot up`: runs a cluster on this machine, with simulated nodes, this machine as a node, or none."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from allot.cli.controller_options import controllers_option, hpa_sync_period_option, signing_duration_option
from allot.cli.gates import ALLOT
from allot.cli.output import write_table
from allot.cli.server_options import make_data_dir, options_of, server_options
from allot.cli.up.banner import announce
from allot.cli.up.detaching import IN_BACKGROUND, start_in_background
from allot.devices.catalogue import DEFAULT_PROFILE, NODES_MAX, find_profile, profile_names

if TYPE_CHECKING:
    from allot.cli.up.node_sets import Nodes

_ARGUMENTS = "allot.cli.commands.up.arguments"


class _CountsBelongToNodes(click.Command):
    """`--node SPEC --count N` means `--node SPEC=N`: the count applies to the preceding node."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_ARGUMENTS] = tuple(args)
        rest: list[str] = []
        given = iter(args)
        for argument in given:
            name, equals, value = argument.partition("=")
            if name != "--count":
                rest.append(argument)
                continue
            count = value if equals else next(given, "")
            if rest[-2:-1] != ["--node"] and not (rest and rest[-1].startswith("--node=")):
                raise click.UsageError("--count must come after its --node.", ctx)
            if not count.isdecimal():
                raise click.UsageError(f"--count: {count!r} is not a number of nodes from 1 to {NODES_MAX}.", ctx)
            rest[-1] = f"{rest[-1]}={count}"
        return super().parse_args(ctx, rest)


def _list_profiles(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        profiles = (find_profile(name) for name in profile_names())
        rows = [[each.name, each.cloud, str(each.cpus), f"{each.memory_gib}Gi", each.devices] for each in profiles]
        write_table(("PROFILE", "CLOUD", "CPUS", "MEMORY", "DEVICES"), rows)
        context.exit()


@click.command(cls=_CountsBelongToNodes)
@click.option(
    "--node",
    "specs",
    multiple=True,
    metavar="SPEC",
    help=f"A node: a profile (h100x8, t4, p4d.24xlarge), PROFILE=COUNT, a YAML file of profiles, 'local' for this machine, or 'none'; "
    f"repeatable.  [default: those of the last start, otherwise {DEFAULT_PROFILE}]",
)
@click.option("--count", type=click.IntRange(1, NODES_MAX), help="The number of nodes of the preceding --node.")
@click.option(
    "--devices",
    "device_files",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Devices for the nodes, described in a YAML file (see the guide for driver authors); repeatable.",
)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="SPEC",
    help="A pool of nodes that an autoscaler buys from a simulated cloud: NAME=MACHINE,min=0,max=10,price=5.07 (also initial, spot, "
    "stock, computeClass, boot, driver), or a YAML file of pools; `auto` for only the pools that ComputeClasses create; "
    "repeatable.",
)
@click.option(
    "--time-factor",
    type=click.FloatRange(0.01, 1_000_000),
    default=None,
    metavar="N",
    help="On simulated nodes and pools: by how much to speed up the cloud, the autoscaler and the waiting times of probes.  [default: "
    "from the file of pools, otherwise 1]",
)
@click.option("--detach", is_flag=True, help="Run in the background; returns when the cluster is ready.")
@click.option(IN_BACKGROUND, is_flag=True, hidden=True)
@click.option(
    "--list-profiles",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_profiles,
    help="List all profiles and exit.",
)
@click.option(
    "--runtime",
    type=click.Choice(("process", "cri")),
    default="process",
    show_default=True,
    help="With --node local: what runs containers.",
)
@click.option(
    "--container-runtime-endpoint", "endpoint", default="", metavar="SOCKET", help="With --runtime cri: its socket."
)
@click.option(
    "--host-commands",
    is_flag=True,
    help="Run the commands of pods directly on this machine, as your user and with your files, instead of in a sandbox.",
)
@click.option(
    "--etcd", is_flag=True, help="Keep objects in an etcd that allot up starts, from $ALLOT_ETCD or the PATH."
)
@click.option(
    "--merge-kubeconfig",
    "merges",
    is_flag=True,
    help="Add the context allot to $KUBECONFIG or ~/.kube/config; allot reset removes it.",
)
@click.option(
    "--dashboard-port",
    type=click.IntRange(-1, 65535),
    default=0,
    metavar="PORT",
    help="The port of the dashboard on this machine: 0 takes a free port, -1 disables it.  [default: 0]",
)
@server_options(ALLOT)
@controllers_option
@hpa_sync_period_option
@signing_duration_option
def up(
    specs: tuple[str, ...],
    count: int | None,  # noqa: ARG001 - it is part of the node before it
    device_files: tuple[Path, ...],
    pools: tuple[str, ...],
    time_factor: float | None,
    detach: bool,
    in_background: bool,
    runtime: str,
    endpoint: str,
    host_commands: bool,
    etcd: bool,
    merges: bool,
    dashboard_port: int,
    controllers: tuple[str, ...],
    hpa_sync_period: float,
    signing_duration: float,
    **arguments: Any,
) -> None:
    """Start a cluster on this machine: API server, controllers, scheduler and nodes, with a kubeconfig to use it.

    If a pod's command exists on this machine, it runs in a sandbox: it can read the machine's programs and write to its own memory. If the
    kernel allows no sandbox, pods are placeholders; the last lines say which applies.

    kubectl top and autoscalers have metrics within seconds; for placeholders, annotations such as allot.dev/gpu-utilization define them.

    \b
    Examples:
      allot up                                      one simulated node with 8 GPUs
      allot up --detach                             the same, in the background; see allot status, allot down
      allot up --node t4 --count 3 --node a3-ultragpu-8g
      allot up --devices examples/devices/fpga.yaml
      allot up --pool a100=a2-ultragpu-1g,min=1,max=2 --pool l4=g2-standard-4 --time-factor 20
      allot up --node none --data-dir ./data --kubeconfig ./kubeconfig
      allot up --controllers='*,-node-lifecycle-controller'    nodes without an agent stay ready
    """
    server = options_of(arguments)
    if server.loopback_kubelets is None:
        # Its own nodes are on this machine, whatever address the server listens on.
        server = msgspec.structs.replace(server, loopback_kubelets=True)
    if etcd and (server.memory or server.etcd_servers):
        raise click.UsageError("--etcd cannot be used together with --memory or --etcd-servers.")
    make_data_dir(server.data_dir)
    if detach:
        given = click.get_current_context().meta[_ARGUMENTS]
        state = start_in_background(server.data_dir, [each for each in given if each != "--detach"])
        announce(state, background=server.data_dir)
        return
    # Imported here, not when starting one in the background: that process reports problems with its nodes.
    from allot.cli.serving import run_server
    from allot.cli.up.etcd_child import find_etcd
    from allot.cli.up.kubeconfigs import kubeconfig_to_merge_into
    from allot.cli.up.local_node import LocalOptions
    from allot.cli.up.node_sets import with_device_files
    from allot.cli.up.running_cluster import UpOptions, run_cluster

    options = UpOptions(
        server=server,
        controllers=controllers,
        hpa_sync_period=hpa_sync_period,
        signing_duration=signing_duration,
        nodes=with_device_files(_nodes(specs, pools, time_factor, server.data_dir), device_files),
        local=LocalOptions(runtime=runtime, endpoint=endpoint),
        host_commands=host_commands,
        etcd=find_etcd() if etcd else None,
        merge_into=kubeconfig_to_merge_into() if merges else None,
        in_background=in_background,
        dashboard_port=dashboard_port,
    )
    run_server(server, partial(run_cluster, options))


def _nodes(specs: tuple[str, ...], pools: tuple[str, ...], time_factor: float | None, folder: Path) -> Nodes:
    """The nodes that the options name; without any, those of the last start."""
    from allot.cli.up.node_sets import kept_nodes, parse_specs
    from allot.devices.pool_files import parse_pools

    if not specs and not pools:
        found = kept_nodes(folder) or parse_specs((DEFAULT_PROFILE,))
    else:
        found = parse_specs(specs)
        found = msgspec.structs.replace(found, pools=parse_pools(pools, "--pool"))
    if time_factor is not None:
        if not found.are_simulated:
            raise click.UsageError("--time-factor is for simulated nodes and pools.")
        cloud = msgspec.structs.replace(found.pools.cloud, time_factor=time_factor)
        found = msgspec.structs.replace(found, pools=msgspec.structs.replace(found.pools, cloud=cloud))
    return found
