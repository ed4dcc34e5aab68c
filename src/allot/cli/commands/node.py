"""`allot node`: runs the node agent, against any Kubernetes API server."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import msgspec

from allot import __version__
from allot.autoscaler.provider import POOL_LABEL
from allot.cli.component import CannotRun, Component, ComponentOptions, read_certificates, run_component
from allot.cli.errors import Unreadable
from allot.cli.gates import gates_option
from allot.cli.output import talk
from allot.cli.up.cloud import run_cloud
from allot.client.connection import Connection
from allot.client.informers import Informers
from allot.core.features import FeatureGates
from allot.core.lifecycle.control_groups import CGROUPFS, SYSTEMD, BadGroupName, GroupName, root_name
from allot.core.lifecycle.pod_sysctls import SysctlRules, UnknownNamespace, allow_unsafe
from allot.core.network.ranges import DOMAIN
from allot.devices.catalogue import NODES_MAX, UnknownProfile
from allot.devices.driver_pods import DRIVER_NAMESPACES, DRIVER_POD
from allot.devices.node_files import NAME, NAME_LENGTH_MAX, NodeSet, hint_for, read_node_file
from allot.devices.pool_files import PoolFile, PoolSpec, read_pool_file
from allot.network.client import PodNetwork
from allot.network.resolvers import RESOLV_CONF
from allot.node.agent import AgentOptions, NodeAgent
from allot.node.cdi.registry import CdiRegistry
from allot.node.cluster_names import ClusterNames
from allot.node.control_groups import GroupOptions
from allot.node.deviceplugins.device_plugins import PLUGIN_TYPE, DevicePlugins
from allot.node.dra.claim_preparer import ClaimPreparer, Periods
from allot.node.machine import own_address, read_huge_pages, read_machine
from allot.node.pod_folders import PODS
from allot.node.pod_names import NameOptions
from allot.node.pod_resources import SOCKET, PodResources, allocatable_of
from allot.node.registration import DECLARED_FEATURES, PODS_MAX, NodeOptions
from allot.node.runtimes.cri import CriOptions, CriRuntime
from allot.node.runtimes.port import PodName, Runtime, RuntimeFailure
from allot.node.runtimes.process import ProcessRuntime
from allot.node.server import NodeServer
from allot.node.service_proxy import NoServices, ProxyOptions, ServiceProxy
from allot.node.service_variables import ApiVariables
from allot.node.serving.authorization import Authorization
from allot.node.serving.certificates import server_context
from allot.node.serving.refusals import Refusals, watch_handshakes
from allot.node.simulated_nodes import SimulatedNodes, SimulatedOptions, SimulatedSet
from allot.node.state_file import CheckpointCorrupt
from allot.process.log_files import OwnersLogs

_FOLDER = click.Path(path_type=Path, file_okay=False)
_DEFAULT_PROFILE = "n2-standard-4"
# At least a hundredth of a second: nothing is done without a pause.
_SECONDS = re.compile(r"0\.0[1-9]|0\.[1-9][0-9]?|[1-9][0-9]{0,4}(\.[0-9]{1,2})?")
_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# Clients expect a Kubernetes version from a node.
_VERSION = f"v1.37.0+allot-{__version__}"


class NodeArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The command line options of a node."""

    name: str
    root_dir: Path
    runtime: str
    endpoint: str
    node_ip: str
    address: str
    kubelet_port: int
    client_ca_file: Path | None
    labels: dict[str, str]
    taints: tuple[dict[str, str], ...]
    pods_max: int
    cdi_dirs: tuple[Path, ...]
    node_sets: tuple[NodeSet, ...]
    periods: Periods
    host_commands: bool
    masked: tuple[Path, ...]
    driver_logs: Path | None
    pod_network: Path | None
    no_pod_network: str
    cluster_dns: tuple[str, ...]
    cluster_domain: str
    served_dns: tuple[str, ...]
    resolv_conf: str
    sysctls: SysctlRules
    service_proxy: str
    cgroups_per_qos: bool
    cgroup_root: GroupName
    cgroup_driver: str
    enforced: str
    pids_max: int
    pools: PoolFile
    cloud_socket: Path | None
    time_factor: float

    def log_of_driver(self, namespace: str, pod: str) -> Path | None:
        """Where the log of a driver is, by the name of its pod."""
        folder = self.driver_logs
        is_one = DRIVER_POD in pod and namespace in DRIVER_NAMESPACES
        return folder / f"{pod}.log" if folder is not None and is_one else None


def _node_sets(runtime: str, name: str, profile: str, count: int, file: Path | None) -> tuple[NodeSet, ...]:
    """The simulated nodes that the options describe."""
    if runtime != "simulated":
        if profile or count > 1 or file is not None:
            raise click.UsageError("--profile, --count and --nodes are for --runtime simulated.")
        return ()
    if file is not None:
        if profile or count > 1 or name:
            raise click.UsageError(
                "--nodes already defines the nodes; it cannot be combined with --name, --profile or --count."
            )
        return read_node_file(file).nodes
    found = NodeSet(profile=profile or _DEFAULT_PROFILE, name=name, count=count)
    try:
        found.resolved()
    except UnknownProfile as error:
        raise Unreadable(str(error), hint_for(error)) from None
    return (found,)


def _labels(_context: click.Context, _parameter: click.Parameter, text: str) -> dict[str, str]:
    found = {}
    for each in filter(None, text.split(",")):
        name, sign, value = each.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{each!r} is not a label such as zone=a.")
        found[name] = value
    return found


def _taints(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[dict[str, str], ...]:
    found = []
    for each in filter(None, text.split(",")):
        pair, _, effect = each.rpartition(":")
        key, _, value = pair.partition("=")
        if not key or effect not in _EFFECTS:
            raise click.BadParameter(f"{each!r} is not a taint such as key=value:NoSchedule.")
        found.append({"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect})
    return tuple(found)


def _addresses(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[str, ...]:
    found = tuple(filter(None, text.split(",")))
    for each in found:
        try:
            ip_address(each)
        except ValueError:
            raise click.BadParameter(f"{each!r} is not an address such as 10.96.0.10.") from None
    return found


def _sysctls(_context: click.Context, _parameter: click.Parameter, text: str) -> SysctlRules:
    try:
        return allow_unsafe(filter(None, text.split(",")))
    except UnknownNamespace as error:
        raise click.BadParameter(f"{error}.") from None


def _group_name(_context: click.Context, _parameter: click.Parameter, text: str) -> GroupName:
    try:
        return root_name(text)
    except BadGroupName as error:
        raise click.BadParameter(f"{error}.") from None


def _enforced(_context: click.Context, _parameter: click.Parameter, text: str) -> str:
    if text not in ("pods", "none", ""):
        raise click.BadParameter(f"{text!r}: expected pods or none; nothing is reserved for the system or Kubernetes.")
    return text


def _periods(_context: click.Context, _parameter: click.Parameter, text: str) -> Periods:
    known = [name.removesuffix("_s") for name in Periods.__struct_fields__]
    found = {}
    for each in filter(None, text.split(",")):
        name, _, seconds = each.partition("=")
        if name not in known or not _SECONDS.fullmatch(seconds):
            raise click.BadParameter(f"{each!r} is not a period such as call=45; there are {', '.join(known)}.")
        found[f"{name}_s"] = float(seconds)
    return Periods(**found)


@click.command()
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="How to reach the API server.  [default: as in kubectl: $KUBECONFIG, ~/.kube/config, or in the cluster]",
)
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig.")
@click.option("--name", default="", metavar="NAME", help="The node's name.  [default: the machine's host name]")
@click.option(
    "--root-dir",
    type=_FOLDER,
    default=Path("/var/lib/allot/node"),
    show_default=True,
    help="Where to keep volumes, plugins, logs and the state of containers.",
)
@click.option(
    "--runtime",
    type=click.Choice(("process", "cri", "simulated")),
    default="process",
    show_default=True,
    help="What runs containers. process: this machine, without images; cri: containerd or CRI-O; simulated: this machine if possible, "
    "placeholders otherwise.",
)
@click.option(
    "--nodes",
    "node_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --runtime simulated: a file that defines the nodes (see above).",
)
@click.option(
    "--profile",
    default="",
    metavar="PROFILE",
    help="With --runtime simulated: the machine type of the nodes, with its devices: h100x8, t4, a3-ultragpu-8g, ct6e-standard-4t.  "
    f"[default: {_DEFAULT_PROFILE}]",
)
@click.option(
    "--count",
    type=click.IntRange(1, NODES_MAX),
    default=1,
    show_default=True,
    help="With --runtime simulated: the number of nodes, named NAME-0, NAME-1 and so on.",
)
@click.option(
    "--pools",
    "pool_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --runtime simulated: the node pools of a simulated cloud; see `allot up --pool`.",
)
@click.option(
    "--cloud-socket",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="SOCKET",
    help="With --pools: the socket where the cloud serves autoscalers (Cluster Autoscaler's external gRPC protocol).",
)
@click.option(
    "--time-factor",
    type=click.FloatRange(0.01, 1_000_000),
    default=1.0,
    show_default=True,
    metavar="N",
    help="With --runtime simulated: by how much to speed up the waiting times of probes.",
)
@click.option(
    "--container-runtime-endpoint",
    "endpoint",
    default="unix:///run/containerd/containerd.sock",
    show_default=True,
    metavar="SOCKET",
    help="The socket of the CRI runtime.",
)
@click.option("--node-ip", default="", metavar="ADDRESS", help="The node's address.  [default: detected]")
@click.option(
    "--address",
    default="0.0.0.0",
    show_default=True,
    help="The address to serve logs, exec and metrics to the API server on.",
)
@click.option(
    "--port",
    "kubelet_port",
    type=click.IntRange(0, 65535),
    default=10250,
    show_default=True,
    help="The port to serve logs, exec and metrics on (HTTPS); 0 takes a free one.",
)
@click.option(
    "--client-ca-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The authority (PEM) of the client certificate of the API server, its --kubelet-client-certificate.  [default: the authority "
    "of the API server's own certificate, in the kubeconfig]",
)
@click.option(
    "--node-labels", "labels", default="", metavar="LABELS", callback=_labels, help="Labels: zone=a,disk=ssd."
)
@click.option(
    "--register-with-taints",
    "taints",
    default="",
    metavar="TAINTS",
    callback=_taints,
    help="Taints of a new node: key=value:NoSchedule.",
)
@click.option(
    "--max-pods",
    "pods_max",
    type=click.IntRange(0),
    default=PODS_MAX,
    show_default=True,
    help="The maximum number of pods.",
)
@click.option(
    "--cdi-spec-dir",
    "cdi_dirs",
    type=_FOLDER,
    multiple=True,
    default=(Path("/etc/cdi"), Path("/var/run/cdi")),
    show_default=True,
    help="The directories of CDI files; repeatable, later ones take precedence.",
)
@click.option(
    "--dra-periods",
    "periods",
    default="",
    metavar="PERIODS",
    callback=_periods,
    help="Periods and limits of calls to drivers, in seconds: call=45,registration=1,reconcile=60,wipe=30.  [default: the kubelet's]",
)
@click.option(
    "--host-commands",
    is_flag=True,
    help="With --runtime process or simulated: run containers directly on this machine, as the agent's user, instead of in a sandbox.",
)
@click.option(
    "--mask",
    "masked",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="PATH",
    help="A file or directory to hide from containers in a sandbox; repeatable. Homes, kubeconfigs and the root directory are always "
    "hidden.",
)
@click.option(
    "--pod-network",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="SOCKET",
    help="With --runtime process or simulated: the socket of the process inside the cluster's pod network; `allot up` starts one. "
    "[default: pods share the machine's network]",
)
@click.option(
    "--no-pod-network", default="", hidden=True, help="Why there is no pod network, for the node's condition."
)
@click.option(
    "--cluster-dns",
    default="",
    metavar="ADDRESSES",
    callback=_addresses,
    help="With --runtime cri: the cluster's DNS servers, for pods with dnsPolicy ClusterFirst; comma-separated.  [default: such pods "
    "use the machine's DNS servers, and an event says so]",
)
@click.option(
    "--cluster-domain",
    default=DOMAIN,
    show_default=True,
    metavar="DOMAIN",
    help="With --runtime cri: the DNS domain of the cluster.",
)
@click.option(
    "--serve-dns",
    "served_dns",
    default="",
    metavar="ADDRESS",
    callback=_addresses,
    help="With --runtime cri: serve the cluster's DNS to the pods of this node at this address of the node (port 53); they use it unless "
    "--cluster-dns gives another.",
)
@click.option(
    "--resolv-conf",
    default=str(RESOLV_CONF),
    show_default=True,
    metavar="FILE",
    help="With --runtime cri: the machine's DNS settings, for pods with dnsPolicy Default; empty: none.",
)
@click.option(
    "--allowed-unsafe-sysctls",
    "sysctls",
    default="",
    metavar="SYSCTLS",
    callback=_sysctls,
    help="Sysctls that pods may set besides the safe ones: net.core.somaxconn,kernel.msg*.",
)
@click.option(
    "--service-proxy",
    type=click.Choice(("auto", "on", "off")),
    default="auto",
    show_default=True,
    help="With --runtime cri: whether the agent routes Services, with kernel rules. auto: if it may, and nothing else such as "
    "kube-proxy does; on: always.",
)
@click.option(
    "--cgroups-per-qos",
    type=bool,
    default=True,
    show_default=True,
    metavar="BOOLEAN",
    help="With --runtime cri: whether each pod has a control group, in one of its QoS class.",
)
@click.option(
    "--cgroup-root",
    default="/",
    show_default=True,
    metavar="PATH",
    callback=_group_name,
    help="With --runtime cri: the control group that has those of all pods in kubepods; each agent on a machine needs its own.",
)
@click.option(
    "--cgroup-driver",
    type=click.Choice((CGROUPFS, SYSTEMD)),
    default=CGROUPFS,
    show_default=True,
    help="With --runtime cri: how control groups are named, if the container runtime does not say.",
)
@click.option(
    "--enforce-node-allocatable",
    "enforced",
    default="pods",
    show_default=True,
    metavar="pods|none",
    callback=_enforced,
    help="With --runtime cri: whether all pods together are limited to what the node can allocate.",
)
@click.option(
    "--pod-max-pids",
    "pids_max",
    type=click.IntRange(-1),
    default=-1,
    show_default=True,
    metavar="NUMBER",
    help="With --runtime cri: the limit of processes in a pod; -1: none.",
)
@click.option(
    "--driver-logs",
    type=_FOLDER,
    help="The directory with the logs of drivers that are shown as pods; simulated nodes write theirs there.",
)
@gates_option()
def node(
    kubeconfig: Path | None,
    context: str,
    gates: FeatureGates,
    name: str,
    profile: str,
    count: int,
    node_file: Path | None,
    pool_file: Path | None,
    **arguments: Any,
) -> None:
    """Run the agent of a node: register the node, run the pods that are bound to it, and prepare their devices.

    Containers keep running when the agent stops; the next agent with the same root directory takes them over.

    \b
    Examples:
      allot node --kubeconfig ./kubeconfig --root-dir ./node
      allot node --name gpu-1 --root-dir ./gpu-1 --port 0 --node-labels zone=a
      allot node --runtime simulated --profile h100x8 --count 1000 --name sim --root-dir ./sim
      allot node --runtime simulated --nodes nodes.yaml --root-dir ./sim

    
    A file of nodes (--nodes); only the profile is required:
      nodes:
      - name: h100
        profile: h100x8
        count: 3
        labels: {zone: a}
        taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
        drivers: {gpu: {featureGates: {DynamicMIG: true}}, cpu: {}}
    """
    _check_names(arguments)
    own_name = name or socket.gethostname().lower()
    pools = PoolFile()
    if pool_file is not None:
        if arguments["runtime"] != "simulated" or arguments["cloud_socket"] is None:
            raise click.UsageError("--pools requires --runtime simulated and --cloud-socket.")
        pools = read_pool_file(pool_file)
    no_nodes = pool_file is not None and node_file is None and not profile and count == 1 and not name
    node_sets = () if no_nodes else _node_sets(arguments["runtime"], name, profile, count, node_file)
    arguments["masked"] += (kubeconfig,) if kubeconfig is not None else ()
    options = NodeArguments(name=own_name, node_sets=node_sets, pools=pools, **arguments)
    if len(options.name) > NAME_LENGTH_MAX or not NAME.fullmatch(options.name):
        text = f"node name {options.name!r}: expected lower-case letters, digits, '-' and '.'"
        raise Unreadable(text, "choose another name with --name")
    component = ComponentOptions(
        kubeconfig=kubeconfig,
        context=context,
        gates=gates,
        leader_elect=False,
        lease_name="",
        lease_namespace="",
        lease_duration=0.0,
        renew_deadline=0.0,
        retry_period=0.0,
        bind_address="",
        port=-1,
    )
    work = _work_simulated if options.runtime == "simulated" else _work
    run_component("node", component, partial(work, options, gates))


async def _work(options: NodeArguments, gates: FeatureGates, component: Component) -> None:
    root = options.root_dir.absolute()
    _make(root)
    api = urlsplit(component.connection.server)
    address = options.node_ip or own_address(api.hostname or "127.0.0.1")
    agent_options = AgentOptions(
        node=_node_options(options, address, gates),
        root=root,
        log_folder=root / "log" / "pods",
        api_variables=_api_variables(options),
        names=_names(options) if options.runtime == "cri" else None,
        sysctls=options.sysctls,
        groups=_groups(options),
    )
    machine = read_machine(root)
    network = _network(options)
    runtime = _runtime(options, root, address, component, network)
    informers = Informers(component.client, component.clock, component.ids)
    agent: NodeAgent | None = None

    def active_pods() -> frozenset[str] | None:
        return agent.active() if agent is not None else None

    try:
        plugins = DevicePlugins(root, component.clock, active_pods=active_pods, gates=gates, metrics=component.registry)
        devices = ClaimPreparer(
            component.client,
            options.name,
            root,
            component.clock,
            component.ids,
            active_pods=active_pods,
            gates=gates,
            metrics=component.registry,
            periods=options.periods,
            handlers={PLUGIN_TYPE: plugins},
        )
    except CheckpointCorrupt as error:
        raise CannotRun(str(error), error.hint) from None
    agent = NodeAgent(
        component.client,
        informers,
        component.clock,
        component.ids,
        agent_options,
        machine,
        runtime,
        devices,
        network,
        _service_proxy(options, root, address, component, informers),
        _cluster_names(options, informers),
        plugins,
        component.registry,
    )
    talk(f"node {options.name}: {address}, runtime {options.runtime}, {root}")
    pod_resources = PodResources(
        agent.unfinished, devices, component.clock, allocatable=allocatable_of(machine), plugins=plugins
    )
    refusals = Refusals(component.clock)
    authorization = Authorization(component.client, component.clock, options.name, refusals)
    server = NodeServer(agent, runtime, authorization, component.registry, component.clock, options.log_of_driver)
    context = server_context(
        root / "pki",
        options.name,
        address,
        _authority(options.client_ca_file, component.connection),
        component.clock.seconds(),
    )
    watch_handshakes(context, refusals)
    try:
        async with server.serving(options.address, options.kubelet_port, context) as port:
            agent.port = port
            talk(f"serving https://{address}:{port}")
            async with pod_resources.serving(root / SOCKET), asyncio.TaskGroup() as tasks:
                tasks.create_task(informers.run())
                tasks.create_task(_run(agent))
    except OSError as error:
        raise _cannot_listen(error, options) from None


async def _work_simulated(options: NodeArguments, gates: FeatureGates, component: Component) -> None:
    root = options.root_dir.absolute()
    _make(root)
    address = options.node_ip or own_address(urlsplit(component.connection.server).hostname or "127.0.0.1")
    sets = tuple(_simulated_set(each, options, address, root, gates) for each in options.node_sets)
    kinds = tuple(_pool_set(pool, options, address, root, gates) for pool in options.pools.pools)
    count = sum(len(each.names) for each in sets)
    informers = Informers(component.client, component.clock, component.ids)
    nodes: SimulatedNodes | None = None
    network = _network(options)

    def cdi_of(pod: PodName) -> CdiRegistry:
        assert nodes is not None, "pods come after their nodes"
        return nodes.cdi_of(pod)

    nodes = SimulatedNodes(
        component.client,
        informers,
        component.clock,
        component.ids,
        SimulatedOptions(
            sets=sets,
            kinds=kinds,
            address=address,
            root=root,
            time_factor=options.time_factor,
            sysctls=options.sysctls,
        ),
        _process_runtime(options, root, address, component, cdi_of, network),
        gates,
        network,
        metrics=component.registry,
    )
    talk(f"{count} simulated node{'s' if count > 1 else ''}: {address}, {root}")
    name = next((name for each in sets for name in each.names), options.name)
    refusals = Refusals(component.clock)
    authorization = Authorization(component.client, component.clock, name, refusals)
    if options.driver_logs is not None:
        logging.getLogger().addHandler(OwnersLogs(options.driver_logs, component.clock))
        logging.getLogger("allot.driver").setLevel(logging.INFO)
    server = NodeServer(nodes, nodes.runtime, authorization, component.registry, component.clock, options.log_of_driver)
    context = server_context(
        root / "pki", name, address, _authority(options.client_ca_file, component.connection), component.clock.seconds()
    )
    watch_handshakes(context, refusals)
    try:
        async with server.serving(options.address, options.kubelet_port, context) as port:
            nodes.port = port
            talk(f"serving https://{address}:{port}")
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(informers.run())
                tasks.create_task(nodes.run())
                await nodes.are_ready.wait()
                talk(f"registered: {count}")
                if options.cloud_socket is not None:
                    make = partial(_pool_set, options=options, address=address, root=root, gates=gates)
                    await run_cloud(
                        options.pools,
                        nodes,
                        make,
                        component.client,
                        informers,
                        component.clock,
                        root,
                        options.cloud_socket,
                    )
    except OSError as error:
        raise _cannot_listen(error, options) from None


def _pool_set(pool: PoolSpec, options: NodeArguments, address: str, root: Path, gates: FeatureGates) -> SimulatedSet:
    """The definition of a pool's nodes; they have no names yet."""
    made = _simulated_set(pool.nodes(pool.name), options, address, root, gates)
    labels = {**made.node.labels, POOL_LABEL: pool.name}
    node = msgspec.structs.replace(made.node, labels=labels, annotations=pool.annotations)
    return msgspec.structs.replace(made, names=(), node=node)


def _simulated_set(
    given: NodeSet, options: NodeArguments, address: str, root: Path, gates: FeatureGates
) -> SimulatedSet:
    profile, drivers = given.resolved()
    node = NodeOptions(
        name="",
        address=address,
        version=_VERSION,
        labels={**profile.labels, **options.labels, **given.labels},
        taints=(*options.taints, *(msgspec.to_builtins(each) for each in given.taints)),
        pods_max=options.pods_max,
        features=_declared(gates),
    )
    machine = msgspec.structs.replace(
        read_machine(root), processors=profile.cpus, memory_bytes=profile.memory_gib * 2**30, huge_pages={}
    )
    racks = given.labels_by_node(profile)
    return SimulatedSet(names=given.names, node=node, machine=machine, drivers=drivers, labels=racks)


def _node_options(options: NodeArguments, address: str, gates: FeatureGates) -> NodeOptions:
    return NodeOptions(
        name=options.name,
        address=address,
        version=_VERSION,
        labels=options.labels,
        taints=options.taints,
        pods_max=options.pods_max,
        features=_declared(gates),
    )


def _declared(gates: FeatureGates) -> tuple[str, ...]:
    return tuple(each for each in DECLARED_FEATURES if each in gates)


def _api_variables(options: NodeArguments) -> ApiVariables:
    if options.runtime == "cri":
        return ApiVariables.ALL
    return ApiVariables.NONE if options.pod_network is None else ApiVariables.WITH_OWN_NETWORK


def _names(options: NodeArguments) -> NameOptions:
    machine = Path(options.resolv_conf) if options.resolv_conf else None
    servers = options.cluster_dns or options.served_dns
    return NameOptions(servers=servers, domain=options.cluster_domain, machine=machine)


def _check_names(arguments: Mapping[str, Any]) -> None:
    dns, served, is_own = arguments["cluster_dns"], arguments["served_dns"], arguments["cluster_domain"] != DOMAIN
    if arguments["runtime"] != "cri" and (dns or served or is_own):
        raise click.UsageError("--cluster-dns, --cluster-domain and --serve-dns are for --runtime cri.")
    if served and is_own:
        raise click.UsageError(f"--serve-dns serves {DOMAIN} only; leave out --cluster-domain.")
    if len(served) > 1 or any(":" in each for each in served):
        raise click.UsageError("--serve-dns takes one IPv4 address.")


def _groups(options: NodeArguments) -> GroupOptions | None:
    if options.runtime != "cri" or not options.cgroups_per_qos:
        return None
    return GroupOptions(
        root=options.cgroup_root,
        driver=options.cgroup_driver,
        # 0 means the same to the kubelet.
        pids_max=options.pids_max if options.pids_max > 0 else None,
        is_enforced=options.enforced == "pods",
    )


def _cluster_names(options: NodeArguments, informers: Informers) -> ClusterNames | None:
    if not options.served_dns:
        return None
    address = options.served_dns[0]
    try:
        return ClusterNames(informers, address, _names(options).machine)
    except OSError as error:
        text = f"cannot serve DNS at {address}:53: {(error.strerror or str(error)).lower()}"
        raise CannotRun(text, "choose another address of this machine with --serve-dns") from None


async def _run(agent: NodeAgent) -> None:
    try:
        await agent.run()
    except RuntimeFailure as error:
        raise CannotRun(
            str(error), "start the container runtime, or set its socket with --container-runtime-endpoint"
        ) from None


def _network(options: NodeArguments) -> PodNetwork | None:
    return PodNetwork(options.pod_network.absolute()) if options.pod_network is not None else None


def _service_proxy(
    options: NodeArguments, root: Path, address: str, component: Component, informers: Informers
) -> ServiceProxy | None:
    """The router for Services. Pods of the process runtime have a network that does this."""
    if options.runtime != "cri":
        if options.service_proxy == "on":
            raise click.UsageError("--service-proxy is for --runtime cri.")
        return None
    if options.service_proxy == "off":
        return None
    api = urlsplit(component.connection.server)
    made = ProxyOptions(
        node=options.name, address=address, api=(api.hostname or "127.0.0.1", api.port or 443), key=str(root)
    )
    try:
        return ServiceProxy(informers, component.clock, made, beside_others=options.service_proxy == "on")
    except NoServices as error:
        if options.service_proxy == "on":
            raise CannotRun(f"--service-proxy on: {error}", "omit it if another component routes Services") from None
        talk(f"note: the agent does not route Services: {error}")
        return None


def _runtime(
    options: NodeArguments, root: Path, address: str, component: Component, network: PodNetwork | None
) -> Runtime:
    if options.runtime == "cri":
        return CriRuntime(
            component.clock,
            CriOptions(
                socket=options.endpoint.removeprefix("unix://"), pods=root / PODS, page_sizes=tuple(read_huge_pages())
            ),
        )
    registry = CdiRegistry(options.cdi_dirs)
    return _process_runtime(options, root, address, component, lambda _pod: registry, network)


def _process_runtime(
    options: NodeArguments,
    root: Path,
    address: str,
    component: Component,
    cdi_of: Callable[[PodName], CdiRegistry],
    network: PodNetwork | None,
) -> ProcessRuntime:
    api = urlsplit(component.connection.server)
    return ProcessRuntime(
        root / "runtime",
        component.clock,
        component.ids,
        address=address,
        environment=_environment(api.hostname or "", api.port or 443),
        cdi_of=cdi_of,
        host_commands=options.host_commands,
        masked=(root, *options.masked),
        network=network,
        no_network=options.no_pod_network,
    )


def _authority(given: Path | None, connection: Connection) -> bytes:
    """The authority of the agent's clients: the given one, or the one of the API server's certificate."""
    if given is not None:
        return read_certificates(given)
    if connection.ca_data or connection.ca_file is None:
        if not connection.ca_data:
            talk(
                "note: neither --client-ca-file nor the kubeconfig has an authority: logs and exec accept only callers with a token, which "
                "API servers do not send"
            )
        return connection.ca_data
    return read_certificates(connection.ca_file)


def _cannot_listen(error: OSError, options: NodeArguments) -> CannotRun:
    where = f"{options.address}:{options.kubelet_port}"
    if error.errno == errno.EADDRINUSE:
        return CannotRun(f"cannot listen on {where}: the port is in use", "choose another port with --port")
    return CannotRun(f"cannot serve on {where}: {(error.strerror or str(error)).lower()}")


def _environment(host: str, port: int) -> dict[str, str]:
    """Environment that an image would set, and the API server's address: there is no service network."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    # Drivers mount programs where every image looks, which need not be where this process does.
    own = kept.get("PATH", "").split(os.pathsep)
    kept["PATH"] = os.pathsep.join([*filter(None, own), *(folder for folder in _FOLDERS if folder not in own)])
    return {**kept, "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": str(port)}


def _make(root: Path) -> None:
    try:
        root.mkdir(mode=0o755, parents=True, exist_ok=True)
    except OSError as error:
        text = f"root directory {root}: {(error.strerror or str(error)).lower()}"
        raise Unreadable(text, "choose another directory with --root-dir") from None
    if not os.access(root, os.W_OK):
        raise CannotRun(f"root directory {root}: permission denied", "choose another directory with --root-dir")
