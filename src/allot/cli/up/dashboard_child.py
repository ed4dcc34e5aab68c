"""The dashboard of `allot up`: an address from the start, and a process from the first visit.

The port is open from the start, but the first visitor starts the second Python process with a copy of the cluster: most clusters
of tests and demonstrations never have one. It has its own read-only user.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from allot.apiserver.access.certificates import Identity
from allot.apiserver.access.kubeconfig import write_kubeconfig
from allot.cli.server_options import CannotServe
from allot.client.api import PatchType
from allot.client.errors import AlreadyExists
from allot.controlplane.plane import ControlPlane
from allot.dashboard.links import link_of, new_token, write_link
from allot.dashboard.rights import ROLE, cluster_role, cluster_role_binding
from allot.process.children import Child

NAME = "dashboard"
LINK_FILE = "dashboard.link"
_USER = "allot-dashboard"
_ADDRESS = "127.0.0.1"


class DashboardChild:
    """folder: the data directory; start: starts the process, given its command and the descriptors that it inherits."""

    def __init__(self, plane: ControlPlane, folder: Path, start: Callable[[list[str], tuple[int, ...]], Child]) -> None:
        self._plane = plane
        self._folder = folder.absolute()
        self._start = start
        self._socket: socket.socket | None = None

    @property
    def link_file(self) -> Path:
        """Where the link for the next browser is."""
        return self._folder / LINK_FILE

    def listen(self, port: int) -> None:
        """From now on there is an address. CannotServe."""
        try:
            self._socket = socket.create_server((_ADDRESS, port), backlog=128)
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
            raise CannotServe(
                f"cannot listen on {_ADDRESS}:{port} for the dashboard: {problem}",
                "choose another port with --dashboard-port",
            ) from None
        self._socket.setblocking(False)
        base = f"http://{_ADDRESS}:{self._socket.getsockname()[1]}"
        write_link(self.link_file, link_of(base, new_token()))

    async def run(self) -> None:
        """Until cancelled."""
        assert self._socket is not None, "listening has started"
        await self._visited(self._socket)
        await self._grant()
        kubeconfig = self._folder / "dashboard.kubeconfig"
        access = self._plane.server.access
        pair = access.certificates.client("dashboard", Identity(_USER))
        write_kubeconfig(
            kubeconfig, self._plane.server.url, access.certificates.authority.pem, pair.certificate, pair.key, "allot"
        )
        handle = self._socket.fileno()
        command = [sys.executable, "-m", "allot", "dashboard", "--kubeconfig", str(kubeconfig), "--context", "allot"]
        command += ["--listen-handle", str(handle), "--link-file", str(self.link_file)]
        await self._start(command, (handle,)).run()

    async def _visited(self, listening: socket.socket) -> None:
        """Wait for the first visitor. The process accepts the connection."""
        loop, visited = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(listening, visited.set)
        try:
            await visited.wait()
        finally:
            loop.remove_reader(listening)

    async def _grant(self) -> None:
        """Let the user read what the pages show."""
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": _USER}
        for plural, object_ in (
            ("clusterroles", cluster_role()),
            ("clusterrolebindings", cluster_role_binding(subject)),
        ):
            resource = self._plane.client().resource("rbac.authorization.k8s.io", "v1", plural, namespaced=False)
            try:
                await resource.create(object_)
            except AlreadyExists:
                changed = {key: value for key, value in object_.items() if key in ("rules", "subjects")}
                await resource.patch(ROLE, changed, PatchType.MERGE)

    def close(self) -> None:
        """Stop listening."""
        self.link_file.unlink(missing_ok=True)
        if self._socket is not None:
            self._socket.close()
