"""A pod network that runs: its namespace, the process inside, and pods in it that run real programs."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from allot.network.client import PodNetwork
from allot.network.namespace import ClusterNetwork
from allot.node.runtimes.port import ContainerSpec, HostPort, PodName, Sandbox, SandboxSpec
from allot.node.runtimes.process import ProcessRuntime
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds

PATH = os.pathsep.join((str(Path(sys.executable).parent), "/usr/local/bin:/usr/bin:/bin"))
# Answers every connection with its host name.
SERVER = """
import socket, sys
listening = socket.create_server(("", int(sys.argv[1])))
while True:
    connection, _ = listening.accept()
    connection.sendall(socket.gethostname().encode())
    connection.close()
"""


class Pods:
    """Pods in a network."""

    def __init__(self, folder: Path, network: PodNetwork) -> None:
        self.network = network
        self.runtime = ProcessRuntime(
            folder / "runtime", SystemClock(), SystemIds(), environment={"PATH": PATH}, network=network
        )
        self.containers: dict[str, str] = {}

    async def start(self, name: str, *command: str, host_network: bool = False, host_port: int = 0) -> Sandbox:
        """A pod with one container. host_port: that leads to its port 80."""
        pod = PodName(uid=f"uid-{name}", namespace="default", name=name)
        ports = (HostPort(container_port=80, host_port=host_port),) if host_port else ()
        spec = SandboxSpec(pod=pod, hostname=name, host_network=host_network, host_ports=ports)
        sandbox = await self.runtime.run_sandbox(spec)
        made = await self.runtime.create_container(sandbox.id, ContainerSpec(pod=pod, name="c", command=command))
        await self.runtime.start_container(made)
        self.containers[name] = made
        return sandbox

    async def serve(self, name: str, port: int, host_port: int = 0) -> Sandbox:
        """A pod that answers with its name."""
        return await self.start(name, sys.executable, "-c", SERVER, str(port), host_port=host_port)

    async def said(self, name: str, *command: str) -> str:
        """What a program in a pod says."""
        code, said = await self.runtime.exec_sync(self.containers[name], command, 30.0)
        return f"{said.decode()}{code if code else ''}"

    async def close(self) -> None:
        for sandbox in (await self.runtime.list())[0]:
            await self.runtime.stop_sandbox(sandbox.id)
            await self.runtime.remove_sandbox(sandbox.id)
        await self.runtime.close()


class Running:
    """The namespace and its inner process, which can be killed."""

    def __init__(self, kept: ClusterNetwork, client: PodNetwork) -> None:
        self._kept = kept
        self.client = client
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(*self._kept.command, pass_fds=self._kept.handles)

    async def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def running_network(folder: Path) -> AsyncIterator[Running]:
    """NetworkRefused where the kernel allows none."""
    kept = await ClusterNetwork.make(folder / "network.sock")
    running = Running(kept, PodNetwork(folder / "network.sock"))
    try:
        await running.start()
        yield running
    finally:
        await running.client.close()
        await running.kill()
        kept.close()


async def answer(connection: socket.socket) -> str:
    """Everything that somebody says."""
    reader, writer = await asyncio.open_connection(sock=connection)
    try:
        async with asyncio.timeout(30):
            return (await reader.read()).decode()
    finally:
        writer.close()


async def asked(network: PodNetwork, address: str, port: int) -> str:
    """What somebody answers who has just been started."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await answer(await network.dial(address, port))
            except OSError as error:
                if "refused" not in str(error):
                    raise
                await asyncio.sleep(0.05)
