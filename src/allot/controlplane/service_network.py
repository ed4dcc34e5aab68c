"""Services on this machine: sends endpoints to the pod network, and opens the machine's sockets for LoadBalancers and NodePorts.

Only opens them: the process inside the network accepts and relays connections (`network.inside`). Without a pod
network, Services that would need one report that.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Any

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError, NotFound
from allot.client.events import EventRecorder
from allot.client.informer import Change
from allot.client.informers import Informers
from allot.controlplane.components import announce
from allot.controlplane.plane import ControlPlane
from allot.controlplane.users import controller_user
from allot.core.lifecycle.attention import LOAD_BALANCERS
from allot.core.network.load_balancers import (
    Served,
    candidates,
    moved_text,
    replacements,
    status_patch,
    wants_load_balancer,
)
from allot.core.network.routes import ServicePort, routes_of, service_key_of
from allot.network.relays import bound
from allot.network.service_client import ServiceNetwork

_log = logging.getLogger("allot.network")

Object = dict[str, Any]

_BY_SERVICE = "service network: slices by service"
_LOOPBACK = "127.0.0.1"
_KINDS = {"TCP": socket.SOCK_STREAM, "UDP": socket.SOCK_DGRAM}
_RETRY_S = 5.0
_ACCOUNT = "service-controller"


def start_services(plane: ControlPlane, network: ServiceNetwork | None, why_not: str = "") -> None:
    """Serve the Services of a control plane. network: None if there is none; why_not: the reason."""
    client = plane.client(controller_user(_ACCOUNT), LOAD_BALANCERS)
    events = EventRecorder(client, plane.clock, plane.ids, controller=LOAD_BALANCERS, instance="allot")
    serving = ServiceServing(client, plane.informers, events, network, why_not)
    if network is not None:
        network.start()
        announce(plane, "services", [LOAD_BALANCERS])
    plane.start("service-network", serving.run)


class _Outside:
    """The open sockets of the machine for a Service."""

    def __init__(self) -> None:
        self.address = ""
        # By protocol and port.
        self.served: dict[tuple[str, int], Served] = {}
        self.balanced: dict[tuple[str, int], socket.socket] = {}
        self.node_ports: dict[tuple[str, int], tuple[int, socket.socket]] = {}


class ServiceServing:
    """Follows Services and slices. network: None if there is none; why_not: the reason."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        events: EventRecorder,
        network: ServiceNetwork | None,
        why_not: str = "",
    ) -> None:
        self._client = client.resource("", "v1", "services", namespaced=True)
        self._services = informers.dynamic("", "v1", "services", namespaced=True)
        self._slices = informers.dynamic("discovery.k8s.io", "v1", "endpointslices", namespaced=True)
        self._slices.cache.add_index(_BY_SERVICE, service_key_of)
        self._events = events
        self._network = network
        self._why_not = why_not
        self._outside: dict[str, _Outside] = {}
        self._changed: dict[str, None] = {}
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        stops = [self._services.add_handler(self._service_changed), self._slices.add_handler(self._slice_changed)]
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._events.run())
                await self._services.wait_synced()
                await self._slices.wait_synced()
                while True:
                    await self._woken.wait()
                    self._woken.clear()
                    await self._look()
        finally:
            for stop in stops:
                stop()

    async def _look(self) -> None:
        keys, self._changed = tuple(self._changed), {}
        for key in keys:
            try:
                await self._sync(key)
            except ApiError as error:
                _log.warning("service %s: %s", key, error)
                asyncio.get_running_loop().call_later(_RETRY_S, self._note, key)

    def _note(self, key: str) -> None:
        self._changed[key] = None
        self._woken.set()

    def _service_changed(self, change: Change[Object]) -> None:
        self._note(change.key)

    def _slice_changed(self, change: Change[Object]) -> None:
        for slice_ in (change.old, change.new):
            for key in service_key_of(slice_) if slice_ is not None else ():
                self._note(key)

    async def _sync(self, key: str) -> None:
        service = self._services.cache.get(key)
        if self._network is None:
            if service is not None:
                self._refuse(service)
            return
        if service is None:
            self._network.update(key, None)
            self._close(key)
            return
        routes = routes_of(service, self._slices.cache.by_index(_BY_SERVICE, key))
        self._network.update(key, routes)
        await self._serve(key, service, routes.ports)

    def _refuse(self, service: Object) -> None:
        if (service.get("spec") or {}).get("type") in ("LoadBalancer", "NodePort"):
            text = f"this machine allows no pod network ({self._why_not}): this Service is not served"
            self._events.record(service, "Warning", "NoPodNetwork", "Serving", text)

    # --- the machine's side ---

    async def _serve(self, key: str, service: Object, ports: tuple[ServicePort, ...]) -> None:
        outside = self._outside.get(key)
        is_balanced = wants_load_balancer(service)
        wanted = {(each.protocol, each.port): each for each in ports if each.protocol in _KINDS}
        node_ports = {place: each.node_port for place, each in wanted.items() if each.node_port}
        if outside is None and not is_balanced and not node_ports:
            return
        if outside is None:
            outside = self._outside[key] = _Outside()
        before = {**outside.balanced}, {**outside.node_ports}
        self._open_node_ports(service, outside, node_ports)
        if is_balanced:
            self._open_balanced(service, outside, tuple(wanted))
        else:
            self._close_balanced(outside)
        if before != (outside.balanced, outside.node_ports):
            self._hand_over(key, outside, {*wanted, *before[0], *before[1]})
        await self._tell(service, outside)

    def _hand_over(self, key: str, outside: _Outside, places: set[tuple[str, int]]) -> None:
        assert self._network is not None, "asked before"
        for place in sorted(places):
            sockets = [outside.balanced[place]] if place in outside.balanced else []
            if place in outside.node_ports:
                sockets.append(outside.node_ports[place][1])
            self._network.listen((key, *place), sockets)

    def _open_node_ports(self, service: Object, outside: _Outside, wanted: dict[tuple[str, int], int]) -> None:
        for place in [place for place, (port, _) in outside.node_ports.items() if wanted.get(place) != port]:
            del outside.node_ports[place]
        for place, port in wanted.items():
            if place in outside.node_ports:
                continue
            try:
                outside.node_ports[place] = (port, bound(_LOOPBACK, port, _KINDS[place[0]]))
            except OSError as error:
                text = (
                    f"node port {port}/{place[0]} is not served: {_LOOPBACK}:{port}: {(error.strerror or '').lower()}"
                )
                self._events.record(service, "Warning", "NodePortTaken", "Serving", text)

    def _open_balanced(self, service: Object, outside: _Outside, wanted: tuple[tuple[str, int], ...]) -> None:
        for place in [place for place in outside.balanced if place not in wanted]:
            del outside.balanced[place], outside.served[place]
        missing = [place for place in wanted if place not in outside.balanced]
        if not missing:
            return
        if not outside.address:
            taken = {each.address for each in self._outside.values()}
            free = [each for each in candidates(service) if each not in taken]
            outside.address = next((each for each in free if _is_free(each, missing)), free[0])
        for place in missing:
            made, why = _bound_or_instead(outside.address, place)
            served = Served(port=place[1], protocol=place[0], at=made.getsockname()[1])
            outside.balanced[place], outside.served[place] = made, served
            if why:
                self._events.record(
                    service, "Warning", "PortReplaced", "Serving", moved_text(outside.address, served, why)
                )
        self._events.record(service, "Normal", "EnsuredLoadBalancer", "Serving", "Ensured load balancer")

    def _close_balanced(self, outside: _Outside) -> None:
        outside.balanced, outside.served, outside.address = {}, {}, ""

    def _close(self, key: str) -> None:
        outside = self._outside.pop(key, None)
        if outside is not None:
            places = {*outside.balanced, *outside.node_ports}
            self._hand_over(key, _Outside(), places)

    async def _tell(self, service: Object, outside: _Outside) -> None:
        patch = status_patch(service, outside.address, tuple(outside.served[each] for each in sorted(outside.served)))
        if patch is None:
            return
        metadata = service["metadata"]
        try:
            await self._client.patch(
                metadata["name"], patch, PatchType.MERGE, metadata["namespace"], subresource="status"
            )
        except NotFound:
            return  # it is gone, which the watch reports


def _is_free(address: str, places: list[tuple[str, int]]) -> bool:
    """Whether these ports are free; ports that need privileges do not count."""
    for protocol, port in places:
        try:
            bound(address, port, _KINDS[protocol]).close()
        except OSError as error:
            if error.errno != errno.EACCES:
                return False
    return True


def _bound_or_instead(address: str, place: tuple[str, int]) -> tuple[socket.socket, str]:
    """A socket, and why it has a different port, if so."""
    protocol, port = place
    why = ""
    for each in (port, *replacements(port)):
        try:
            return bound(address, each, _KINDS[protocol]), why
        except OSError as error:
            is_refused = error.errno == errno.EACCES
            why = why or (
                "this user may not listen on ports below 1024" if is_refused else "it is in use on this machine"
            )
    raise OSError(errno.EADDRINUSE, f"no port is free at {address}")
