"""A cluster as one process group: the control plane in this process, nodes and drivers in children, one log of all of them.

Children are started again when they end; all of them end with this process. How everything is doing is kept on file for
`allot status` (`allot.cli.instance`).
"""

from __future__ import annotations

import asyncio
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
from allot.controlplane.component_logs import COMPONENTS, CONTROLLERS, SCHEDULER, ComponentLogs
from allot.controlplane.components import SCHEDULER_NAME, start_controllers, start_scheduler
from allot.controlplane.plane import ControlPlane
from allot.core.model.core_v1 import Node
from allot.core.model.resource_v1 import ResourceSlice
from allot.process.children import Child
from allot.process.clock import Clock, SystemClock
from allot.process.interpreter import settle
from allot.process.signals import stop_on_signals

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
            await cluster.start()
            settle()
            await stop.wait()
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
        """Everything; returns when it is ready."""
        access, url = self._plane.server.access, self._plane.server.url
        for path in {self._kubeconfig, self._options.server.kubeconfig or self._kubeconfig}:
            access.write_admin_kubeconfig(path, url)
        start_controllers(self._plane, self._options.controllers)
        start_scheduler(self._plane)
        self._start_nodes()
        self._write_state()
        await self._wait_for_nodes()
        self._state = msgspec.structs.replace(self._state, ready=True)
        self._write_state()
        announce(self._state, in_background=False)

    # --- nodes ---

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
        restarts = dict.fromkeys(COMPONENTS, 0)
        for name, starts in self._plane.starts.items():
            if name not in {child.name for child in self._children} | {"informers"}:
                restarts[SCHEDULER if name == SCHEDULER_NAME else CONTROLLERS] += starts - 1
        own = [
            Part(name=name, state="running", restarts=restarts[name], pid=self._state.pid, since=self._state.since)
            for name in COMPONENTS
        ]
        children = [
            Part(
                name=child.name,
                state="running" if child.pid else "restarting",
                restarts=child.restarts,
                pid=child.pid,
                since=child.started_at,
            )
            for child in self._children
        ]
        return (*own, *children)

    def _write_state(self) -> None:
        self._state = msgspec.structs.replace(self._state, parts=self._parts())
        self._instance.write(self._state)


def _is_ready(node: Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
