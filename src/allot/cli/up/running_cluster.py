"""A cluster as one process group: the control plane in this process, nodes, drivers and etcd in children, with one log.

Children are restarted when they end; all of them end with this process. The state is written to a file for
`allot status` (`allot.cli.up.instance`), and shown as pods of the node `allot-control-plane`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from allot.apiserver.access.certificates import Identity
from allot.autoscaler.provider import POOL_LABEL
from allot.cli.data_dir import ADMIN_KUBECONFIG
from allot.cli.gates import gates_text
from allot.cli.output import talk
from allot.cli.server_options import ServerOptions, make_data_dir
from allot.cli.serving import serving
from allot.cli.up import etcd_child
from allot.cli.up.banner import announce
from allot.cli.up.cloud import autoscaler_arguments
from allot.cli.up.containers_left import end_containers, node_folder
from allot.cli.up.dashboard_child import NAME as DASHBOARD
from allot.cli.up.dashboard_child import DashboardChild
from allot.cli.up.driver_pods import DriverPods
from allot.cli.up.instance import Instance, InstanceState, Part
from allot.cli.up.kubeconfigs import merge_context
from allot.cli.up.local_node import LocalNode, LocalOptions
from allot.cli.up.node_readiness import condition_text, wait_for_nodes
from allot.cli.up.node_sets import Nodes, keep_nodes, kept_nodes
from allot.cli.up.pod_network import NAME as POD_NETWORK
from allot.cli.up.pod_network import MadeNetwork, make_network
from allot.client.errors import AlreadyExists, NotFound
from allot.controlplane.component_logs import COMPONENTS, ComponentLogs, component_of_task
from allot.controlplane.components import announce as announce_part
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.own_node import IMAGE, OwnNode
from allot.controlplane.own_node import NAME as OWN_NODE
from allot.controlplane.plane import ControlPlane
from allot.controlplane.service_network import start_services
from allot.controlplane.users import AUTOSCALER
from allot.core.model.core_v1 import Node
from allot.core.model.kai_words import SCHEDULER as KAI_SCHEDULER
from allot.core.model.resource_v1 import DeviceClass
from allot.core.scheduling import DIALECTS, Settings
from allot.core.workloads import folder_volumes, volume_binding
from allot.devices.class_pools import PREFIX
from allot.devices.driver_pods import driver_pod_name
from allot.installation.definitions import install
from allot.node.registration import POD_NETWORK as POD_NETWORK_CONDITION
from allot.node.registration import SANDBOXED
from allot.node.runtimes.shim import start_time
from allot.node.static_pods import NodeFacts, PartState, StaticPod
from allot.process.children import Child
from allot.process.clock import Clock, SystemClock
from allot.process.interpreter import settle
from allot.process.short_names import short_name
from allot.process.signals import stop_on_signals
from allot.scheduler.configuration import DEFAULT_SCHEDULER, Profile, SchedulerConfiguration

_api_log = logging.getLogger("allot.apiserver")

_SIMULATED = "simulated-nodes"
_LOCAL = "local-node"
_AUTOSCALER = "cluster-autoscaler"
_SOCKET_NAME_LENGTH = 20
_DRIVER_PODS = "pods of drivers"


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `allot up`. etcd: the program, if one is started; merge_into: an existing kubeconfig."""

    server: ServerOptions
    controllers: tuple[str, ...]
    hpa_sync_period: float
    signing_duration: float
    nodes: Nodes
    local: LocalOptions = LocalOptions()
    host_commands: bool = False
    etcd: Path | None = None
    merge_into: Path | None = None
    in_background: bool = False
    # Where the dashboard listens: 0 takes a free port, -1 none.
    dashboard_port: int = 0

    @property
    def folder(self) -> Path:
        """The data directory."""
        return self.server.data_dir


async def run_cluster(options: UpOptions) -> None:
    """Run until a signal arrives."""
    make_data_dir(options.folder)
    instance = Instance(options.folder)
    with instance.held():
        stop = asyncio.Event()
        stop_on_signals(stop)
        clock = SystemClock()
        screen = _Screen(is_off=options.in_background)
        logs = ComponentLogs(options.folder / "log", clock, screen.show)
        logs.install()
        try:
            await _Cluster(options, instance, logs, clock, screen).run(stop)
        finally:
            await end_containers(options.folder)


class _Screen:
    """What of the log is shown where the command was given: nothing that is as it should be before the cluster is ready."""

    def __init__(self, is_off: bool) -> None:
        self._is_off = is_off
        self.is_ready = False

    def show(self, component: str, line: str) -> None:
        if self.is_ready or line.startswith(("W ", "E ", "error: ", "hint: ")):
            self.say(f"[{component}] {line}")

    def say(self, text: str) -> None:
        if self._is_off:
            return
        try:
            talk(text)
        except OSError:
            # The terminal has been closed; the log continues in its files.
            self._is_off = True


class _Cluster:
    def __init__(
        self, options: UpOptions, instance: Instance, logs: ComponentLogs, clock: Clock, screen: _Screen
    ) -> None:
        self._options = options
        self._instance = instance
        self._logs = logs
        self._clock = clock
        self._screen = screen
        self._children: list[Child] = []
        self._plane: ControlPlane
        self._own_node: OwnNode | None = None
        self._driver_pods: DriverPods | None = None
        self._dashboard: DashboardChild | None = None
        self._network = MadeNetwork()
        self._sockets = ExitStack()
        self._kubeconfig = options.folder / ADMIN_KUBECONFIG
        self._state = InstanceState(
            pid=os.getpid(),
            began=start_time(os.getpid()),
            since=clock.seconds(),
            kubeconfig=str((options.server.kubeconfig or self._kubeconfig).absolute()),
            merged_into=str(options.merge_into) if options.merge_into is not None else "",
            log=str(logs.one_log.absolute()),
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Start everything, and end it when it is time to stop."""
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._run(stop))
            stopping = tasks.create_task(stop.wait())
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                self._screen.say("stopping")
            running.cancel()
            stopping.cancel()

    async def _run(self, stop: asyncio.Event) -> None:
        async with self._stored() as server, serving(server) as plane:
            self._plane = plane
            self._state = msgspec.structs.replace(self._state, url=plane.server.url)
            try:
                await self._start()
                await stop.wait()
            finally:
                await self._network.close()
                self._sockets.close()
                if self._dashboard is not None:
                    self._dashboard.close()

    @asynccontextmanager
    async def _stored(self) -> AsyncIterator[ServerOptions]:
        """The options of the server, with a running etcd if it needs its own."""
        server = self._options.server
        if self._options.etcd is None:
            yield server
            return
        folder, name = self._options.folder / "etcd", etcd_child.NAME
        hear = partial(self._logs.hear, name)
        async with etcd_child.etcd_running(self._options.etcd, folder, self._clock, hear, self._changed) as etcd:
            self._children.append(etcd.child)
            yield msgspec.structs.replace(
                server,
                etcd_servers=(etcd.url,),
                etcd_ca=etcd.ca_file,
                etcd_cert=etcd.cert_file,
                etcd_key=etcd.key_file,
            )

    async def _start(self) -> None:
        """Everything on the server; returns when it is ready and announced."""
        options, access, url = self._options, self._plane.server.access, self._plane.server.url
        for path in {self._kubeconfig, options.server.kubeconfig or self._kubeconfig}:
            access.write_admin_kubeconfig(path, url)
        if options.merge_into is not None:
            merge_context(options.folder, options.merge_into, access, url)
        _api_log.info("serving %s, objects in %s", url, _store_of(options))
        self._start_dashboard()
        await install(self._plane.client(), self._clock)
        start_controllers(
            self._plane,
            options.controllers,
            volume_folder=(options.folder / "volumes").absolute(),
            hpa_sync_period_s=options.hpa_sync_period,
            signing_duration_s=options.signing_duration,
        )
        await self._make_storage_class()
        start_scheduler(self._plane, _all_names())
        if not options.nodes.are_none:
            self._own_node = OwnNode(self._plane, node_folder(options.folder, OWN_NODE), self._static_pods)
            self._plane.start(OWN_NODE, self._own_node.run)
        await self._start_network()
        await self._start_nodes()
        self._changed()
        if self._own_node is not None:
            await self._own_node.is_ready.wait()
        await wait_for_nodes(self._plane, options.nodes, self._state.since)
        commands, network = (
            condition_text(self._plane, options.nodes, each) for each in (SANDBOXED, POD_NETWORK_CONDITION)
        )
        self._state = msgspec.structs.replace(self._state, ready=True, commands=commands, network=network)
        self._changed()
        announce(self._state, background=None)
        self._screen.is_ready = True
        settle()

    def _start_dashboard(self) -> None:
        """Its address; the process starts with the first visitor."""
        if self._options.dashboard_port < 0:
            return
        self._dashboard = DashboardChild(self._plane, self._options.folder, partial(self._new_child, DASHBOARD))
        self._dashboard.listen(self._options.dashboard_port)
        self._state = msgspec.structs.replace(self._state, dashboard_link_file=str(self._dashboard.link_file))
        self._plane.start(DASHBOARD, self._dashboard.run)

    async def _start_network(self) -> None:
        """The pod network, if there are nodes whose pods can use it."""
        options = self._options
        has_processes = options.nodes.local and options.local.runtime == "process"
        is_wanted = (options.nodes.are_simulated or has_processes) and not options.host_commands
        self._network = await make_network(options.folder, self._plane.server.url, is_wanted=is_wanted)
        if self._network.kept is not None:
            self._start_child(POD_NETWORK, self._network.kept.command, self._network.kept.handles)
            self._plane.server.dialler.pod_network = self._network.client
        if is_wanted:
            start_services(self._plane, self._network.client, self._network.why_not)

    # --- nodes ---

    async def _start_nodes(self) -> None:
        options = self._options
        gates = gates_text(options.server.gates)
        local = None
        if options.nodes.local:
            folder = node_folder(options.folder, "local")
            local = LocalNode(options.local, folder, self._kubeconfig, gates, options.nodes.local_devices)
        socket = self._cloud_socket()
        await self._forget_others(kept_nodes(options.folder) or Nodes())
        keep_nodes(options.folder, options.nodes)
        if options.nodes.are_simulated:
            command = [sys.executable, "-m", "allot", "node", "--runtime", "simulated", "--feature-gates", gates]
            if options.nodes.simulated:
                command += ["--nodes", str(options.nodes.write_simulated(options.folder))]
            if options.nodes.pools.is_used:
                command += ["--pools", str(options.nodes.write_pools(options.folder)), "--cloud-socket", str(socket)]
            command += ["--root-dir", str(node_folder(options.folder, "simulated"))]
            command += ["--time-factor", f"{options.nodes.pools.cloud.time_factor:g}"]
            command += ["--kubeconfig", str(self._kubeconfig.absolute()), "--driver-logs", str(self._logs.folder)]
            command += self._confinement()
            self._start_child(_SIMULATED, [*command, "--address", "127.0.0.1", "--node-ip", "127.0.0.1", "--port", "0"])
        if options.nodes.pools.is_used:
            self._start_autoscaler(socket, gates)
        drivers = options.nodes.drivers
        if local is not None:
            await self._make_classes(local.device_classes)
            self._start_child(_LOCAL, [*local.agent(), "--driver-logs", str(self._logs.folder), *self._confinement()])
            for kind, command in local.drivers().items():
                self._start_child(driver_pod_name(kind, local.name), command)
            drivers[local.name] = tuple(local.drivers())
        if not options.nodes.are_none:
            of_pool = options.nodes.drivers_of_pool
            self._driver_pods = DriverPods(self._plane, drivers, of_pool, self._logs.folder, self._driver_state)
            self._plane.start(_DRIVER_PODS, self._driver_pods.run)

    def _cloud_socket(self) -> Path:
        """The socket of the simulated cloud; in a private directory, with a short enough path."""
        folder = self._options.folder.absolute() / "cloud"
        folder.mkdir(mode=0o700, exist_ok=True)
        return self._sockets.enter_context(short_name(folder, _SOCKET_NAME_LENGTH)) / "cloud.sock"

    def _start_autoscaler(self, socket: Path, gates: str) -> None:
        options = self._options
        command = [sys.executable, "-m", "allot", "autoscaler", "--feature-gates", gates, "--no-leader-elect"]
        kubeconfig = options.folder.absolute() / "cloud" / "autoscaler.kubeconfig"
        server = self._plane.server
        server.access.write_kubeconfig(kubeconfig, server.url, _AUTOSCALER, Identity(AUTOSCALER.name))
        # It starts after the server; a ComputeClass written meanwhile needs no warning.
        announce_part(self._plane, "autoscaler", (_AUTOSCALER,), AUTOSCALER)
        command += ["--kubeconfig", str(kubeconfig), "--port", "-1"]
        self._start_child(_AUTOSCALER, [*command, *autoscaler_arguments(options.nodes.pools, options.folder, socket)])

    def _confinement(self) -> list[str]:
        """What agents reserve of the machine."""
        options = self._options
        masked = {options.folder.absolute(), Path(self._state.kubeconfig)}
        if options.merge_into is not None:
            masked.add(options.merge_into.absolute())
        own = [argument for each in sorted(masked) for argument in ("--mask", str(each))]
        own += self._network.arguments()
        return [*own, "--host-commands"] if options.host_commands else own

    def _start_child(self, name: str, command: Sequence[str], handles: Sequence[int] = ()) -> None:
        self._plane.start(name, self._new_child(name, command, handles).run)

    def _new_child(self, name: str, command: Sequence[str], handles: Sequence[int] = ()) -> Child:
        hear = partial(self._logs.hear, name)
        child = Child(name, command, self._clock, hear, changed=self._changed, handles=handles)
        self._children = [*(each for each in self._children if each.name != name), child]
        return child

    async def _forget_others(self, before: Nodes) -> None:
        """Nodes of the last start that are not wanted any more; their slices and pods go with them."""
        client = self._plane.client().typed(Node)
        for name in sorted(set(before.all_names) - set(self._options.nodes.all_names)):
            try:
                await client.delete(name)
            except NotFound:
                continue
        wanted = self._options.nodes.pools
        pools = {pool.name for pool in wanted.pools}
        for node in (await client.list(label_selector=POOL_LABEL)).items:
            pool = node.metadata.labels[POOL_LABEL]
            # The cloud knows best which of its on-demand pools still exist.
            if pool not in pools and not (wanted.is_used and pool.startswith(PREFIX)):
                with suppress(NotFound):
                    await client.delete(node.metadata.name)

    async def _make_classes(self, classes: Sequence[DeviceClass]) -> None:
        client = self._plane.client().typed(DeviceClass)
        for each in classes:
            try:
                await client.create(each)
            except AlreadyExists:
                continue

    async def _make_storage_class(self) -> None:
        resource = volume_binding.STORAGE_CLASSES
        client = self._plane.client().resource(resource.group, resource.version, resource.plural, namespaced=False)
        with suppress(AlreadyExists):
            await client.create(folder_volumes.storage_class())

    # --- how it is ---

    def _static_pods(self, node: NodeFacts) -> list[StaticPod]:
        states = {name: partial(self._component_state, name) for name in COMPONENTS}
        states |= {child.name: partial(_state_of, child) for child in self._children if child.name == etcd_child.NAME}
        return [
            StaticPod(
                name=name,
                node=node,
                image=IMAGE,
                command=("etcd",) if name == etcd_child.NAME else ("allot", "up"),
                labels={"component": name, "tier": "control-plane"},
                log=self._logs.path(name),
                state=state,
            )
            for name, state in states.items()
        ]

    def _driver_state(self, kind: str, node: str) -> PartState:
        """Drivers of simulated nodes run in the process of these nodes."""
        names = (driver_pod_name(kind, node), _SIMULATED)
        return _state_of(next(child for name in names for child in self._children if child.name == name))

    def _component_state(self, component: str) -> PartState:
        """Of a part that runs in this process."""
        others = {OWN_NODE, _DRIVER_PODS, DASHBOARD, *(child.name for child in self._children)}
        runs = [
            each
            for task, each in self._plane.runs.items()
            if task not in others and component_of_task(task) == component
        ]
        return PartState(
            started_at=max((each.started_at for each in runs), default=self._state.since),
            restarts=sum(each.restarts for each in runs),
        )

    def _changed(self) -> None:
        """A part has started or ended."""
        own = [(name, self._component_state(name), self._state.pid) for name in COMPONENTS if self._state.url]
        children = [(child.name, _state_of(child), child.pid) for child in self._children]
        parts = tuple(
            Part(
                name=name,
                state="running" if state.is_running else "restarting",
                restarts=state.restarts,
                pid=pid,
                since=state.started_at,
            )
            for name, state, pid in (*own, *children)
        )
        self._state = msgspec.structs.replace(self._state, parts=parts)
        self._instance.write(self._state)
        if self._own_node is not None:
            self._own_node.changed()
        if self._driver_pods is not None:
            self._driver_pods.changed()


def _state_of(child: Child) -> PartState:
    return PartState(started_at=child.started_at, restarts=child.restarts, is_running=bool(child.pid))


def _store_of(options: UpOptions) -> str:
    if options.etcd is not None:
        return "etcd"
    return "memory" if options.server.memory else ", ".join(options.server.etcd_servers) or str(options.folder)


def _all_names() -> SchedulerConfiguration:
    """The scheduler also serves the scheduler names whose pod groups it reads, so that their manifests work unchanged."""
    names = (DEFAULT_SCHEDULER, *(dialect.scheduler for dialect in DIALECTS))
    # A controller creates the groups of KAI's pods.
    grouped = Settings(awaits_groups=True)
    profiles = (
        Profile(scheduler_name=name, settings=grouped if name == KAI_SCHEDULER else Settings()) for name in names
    )
    return SchedulerConfiguration(profiles=tuple(profiles))
