"""A cluster as one process group: the control plane in this process, nodes and drivers in children, one log of all of them.

Children are started again when they end; all of them end with this process. How everything is doing is kept on file for
`allot status` (`allot.cli.instance`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from functools import partial
from pathlib import Path

import msgspec

from allot.cli.banner import announce
from allot.cli.instance import Instance, InstanceState, Part, began_at
from allot.cli.node_sets import Nodes, keep_nodes
from allot.cli.output import talk
from allot.cli.serving import ADMIN_KUBECONFIG, ServerOptions, make_data_dir, serving
from allot.controlplane.component_logs import COMPONENTS, ComponentLogs, component_of_task
from allot.controlplane.components import start_controllers, start_scheduler
from allot.controlplane.own_node import IMAGE, OwnNode
from allot.controlplane.own_node import NAME as OWN_NODE_NAME
from allot.controlplane.plane import ControlPlane
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice
from allot.node.static_pods import PartState, StaticPod
from allot.process.children import Child
from allot.process.clock import Clock, SystemClock
from allot.process.interpreter import settle
from allot.process.signals import stop_on_signals

_api_log = logging.getLogger("allot.apiserver")

_OWN_NODE = "control-plane node"
# Nodes that are not ready by then are told of, and the cluster is announced without them.
_NODES_WAIT_S = 60.0
_POLL_S = 0.02


class UpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What `allot up` was asked for."""

    server: ServerOptions
    controllers: tuple[str, ...]
    nodes: Nodes
    in_background: bool = False


async def run_cluster(options: UpOptions) -> None:
    """Until a signal comes."""
    folder = options.server.data_dir
    make_data_dir(folder)
    instance = Instance(folder)
    with instance.held():
        keep_nodes(folder, options.nodes)
        stop = asyncio.Event()
        stop_on_signals(stop)
        clock = SystemClock()
        shows = (lambda _: None) if options.in_background else talk
        logs = ComponentLogs(folder / "log", clock, shows)
        logs.install()
        async with serving(options.server) as plane:
            cluster = _Cluster(options, instance, plane, logs, clock)
            async with asyncio.TaskGroup() as tasks:
                starting = tasks.create_task(cluster.start())
                await stop.wait()
                starting.cancel()
            talk("stopping")


class _Cluster:
    def __init__(
        self, options: UpOptions, instance: Instance, plane: ControlPlane, logs: ComponentLogs, clock: Clock
    ) -> None:
        self._options = options
        self._instance = instance
        self._plane = plane
        self._logs = logs
        self._clock = clock
        self._children: list[Child] = []
        self._own_node: OwnNode | None = None
        own = options.server.data_dir / ADMIN_KUBECONFIG
        self._kubeconfig = own
        self._state = InstanceState(
            pid=os.getpid(),
            began=began_at(os.getpid()),
            since=clock.seconds(),
            url=plane.server.url,
            kubeconfig=str((options.server.kubeconfig or own).absolute()),
            log=str(logs.one_log.absolute()),
        )

    async def start(self) -> None:
        """Everything; returns when it is ready and announced."""
        access, url = self._plane.server.access, self._plane.server.url
        for path in {self._kubeconfig, self._options.server.kubeconfig or self._kubeconfig}:
            access.write_admin_kubeconfig(path, url)
        _api_log.info("serving %s, objects in %s", url, _store_of(self._options.server))
        start_controllers(self._plane, self._options.controllers)
        start_scheduler(self._plane)
        if not self._options.nodes.are_none:
            self._start_own_node()
            self._start_nodes()
        self._write_state()
        await self._wait_for_nodes()
        self._state = msgspec.structs.replace(self._state, ready=True)
        self._write_state()
        announce(self._state, in_background=False)
        settle()

    # --- nodes ---

    def _start_own_node(self) -> None:
        pods = [
            StaticPod(
                name=name,
                image=IMAGE,
                command=("allot", "up"),
                labels={"component": name, "tier": "control-plane"},
                log=self._logs.path(name),
                state=partial(self._component_state, name),
            )
            for name in COMPONENTS
        ]
        self._own_node = OwnNode(self._plane, self._options.server.data_dir / "nodes" / OWN_NODE_NAME, pods)
        self._plane.start(_OWN_NODE, self._own_node.run)

    def _start_nodes(self) -> None:
        folder = self._options.server.data_dir
        for each in self._options.nodes.simulated:
            name = each.names[0] if each.count == 1 else each.names[0].removesuffix("-0")
            command = self._node_command(folder / "nodes" / name)
            command += ["--runtime", "simulated", "--profile", each.profile, "--count", str(each.count), "--name", name]
            self._start_child(f"nodes-{name}", command)

    def _node_command(self, root: Path) -> list[str]:
        common = ["--kubeconfig", str(self._kubeconfig.absolute()), "--root-dir", str(root), "--port", "0"]
        return [sys.executable, "-m", "allot", "node", *common, "--address", "127.0.0.1", "--node-ip", "127.0.0.1"]

    def _start_child(self, name: str, command: list[str]) -> None:
        child = Child(name, command, self._clock, partial(self._logs.hear, name), changed=self._write_state)
        self._children.append(child)
        self._plane.start(name, child.run)

    async def _wait_for_nodes(self) -> None:
        all_of_them, with_devices = set(self._options.nodes.names), set(self._options.nodes.names_with_devices)
        nodes, slices = self._plane.informers.typed(Node), self._plane.informers.typed(ResourceSlice)
        if self._own_node is not None:
            await self._own_node.is_ready.wait()
        until = self._clock.monotonic() + _NODES_WAIT_S
        while self._clock.monotonic() < until:
            missing = all_of_them - {each.metadata.name for each in nodes.cache if _is_ready(each)}
            missing |= with_devices - {each.spec.node_name or "" for each in slices.cache}
            if not missing:
                return
            await self._clock.sleep(_POLL_S)
        talk(f"not ready yet: {len(missing)} nodes such as {min(missing)}; the log says why")

    # --- how it is ---

    def _parts(self) -> tuple[Part, ...]:
        own = [(name, self._component_state(name), self._state.pid) for name in COMPONENTS]
        children = [(child.name, _state_of(child), child.pid) for child in self._children]
        return tuple(
            Part(
                name=name,
                state="running" if state.is_running else "restarting",
                restarts=state.restarts,
                pid=pid,
                since=state.started_at,
            )
            for name, state, pid in (*own, *children)
        )

    def _component_state(self, component: str) -> PartState:
        """Of a part that runs in this process."""
        runs = [runs for task, runs in self._plane.runs.items() if self._component_of(task) == component]
        return PartState(
            started_at=max((each.started_at for each in runs), default=self._state.since),
            restarts=sum(each.restarts for each in runs),
        )

    def _component_of(self, task: str) -> str:
        if any(child.name == task for child in self._children) or task == _OWN_NODE:
            return ""
        return component_of_task(task)

    def _write_state(self) -> None:
        self._state = msgspec.structs.replace(self._state, parts=self._parts())
        self._instance.write(self._state)


def _state_of(child: Child) -> PartState:
    return PartState(started_at=child.started_at, restarts=child.restarts, is_running=bool(child.pid))


def _store_of(options: ServerOptions) -> str:
    if options.memory:
        return "memory"
    return ", ".join(options.etcd_servers) or str(options.data_dir)


def _is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
