"""The node `allot-control-plane`, which shows the control plane components of this process.

It has the usual control plane taint; pods that tolerate it are only placeholders (`guests`). It has a lease and a status, and serves the logs of its
pods to the API server, as an agent would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from allot import __version__
from allot.client.events import EventRecorder
from allot.controlplane.guests import Guests
from allot.controlplane.plane import ControlPlane
from allot.controlplane.users import node_user
from allot.http1.heads import HttpError
from allot.http1.requests import Request, Response, Upgrade, serving
from allot.node.machine import read_machine
from allot.node.metrics import measured_here, resource_metrics
from allot.node.registration import NodeOptions, Registration
from allot.node.runtimes.port import RuntimeStatus
from allot.node.serving.authorization import Authorization
from allot.node.serving.certificates import server_context
from allot.node.serving.refusals import Refusals
from allot.node.static_pods import NodeFacts, StaticPod, StaticPods, answer_for_static_pod
from allot.process.clock import Clock
from allot.process.metrics import CONTENT_TYPE

NAME = "allot-control-plane"
ADDRESS = "127.0.0.1"
IMAGE = f"allot:v{__version__}"
VERSION = f"v1.37.0+allot-{__version__}"
_ROLE = "node-role.kubernetes.io/control-plane"


class OwnNode:
    """Runs beside the other components."""

    def __init__(
        self, plane: ControlPlane, folder: Path, make_pods: Callable[[NodeFacts], Sequence[StaticPod]]
    ) -> None:
        """folder: for its certificate. make_pods: the components' pods, once the node is known."""
        self._plane = plane
        self._folder = folder
        self._make_pods = make_pods
        self._pods: StaticPods | None = None
        # Set as soon as the node is in the API.
        self.is_ready = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        plane, clock = self._plane, self._plane.clock
        client = plane.client(node_user(NAME), "kubelet")
        authority = plane.server.access.certificates.authority.pem
        context = server_context(self._folder / "pki", NAME, ADDRESS, authority, clock.seconds())
        answers = _Answers(Authorization(client, clock, NAME, Refusals(clock)), clock)
        async with serving(answers.handle, clock, ADDRESS, 0, context) as port:
            options = NodeOptions(
                name=NAME,
                address=ADDRESS,
                version=VERSION,
                labels={_ROLE: "", "node.kubernetes.io/exclude-from-external-load-balancers": ""},
                taints=({"key": _ROLE, "effect": "NoSchedule"},),
            )
            # A node may not set its own role; the control plane installer does.
            administrator = plane.client(user_agent="kubelet")
            node = Registration(administrator, clock, options, read_machine(self._folder), lambda: port)
            status = RuntimeStatus(name="allot", version=__version__)
            await node.register(status)
            facts = NodeFacts(name=NAME, uid=node.uid, address=ADDRESS)
            selector = f"spec.nodeName={NAME}"
            seen = plane.informers.dynamic("", "v1", "pods", namespaced=True, field_selector=selector)
            self._pods = answers.pods = StaticPods(client, seen, clock)
            for pod in self._make_pods(facts):
                answers.pods.add(pod)
            self.is_ready.set()

            async def look() -> RuntimeStatus:
                return status

            events = EventRecorder(client, clock, plane.ids, controller="kubelet", instance=NAME)
            guests = Guests(client, seen, events, clock, ADDRESS)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(events.run())
                tasks.create_task(guests.run())
                tasks.create_task(node.keep_lease())
                tasks.create_task(node.keep_status(look))
                tasks.create_task(answers.pods.run())

    def changed(self) -> None:
        """Report that components have started or ended."""
        if self._pods is not None:
            self._pods.changed()


class _Answers:
    """What the node serves."""

    def __init__(self, authorization: Authorization, clock: Clock) -> None:
        self._authorization = authorization
        self._clock = clock
        self.pods: StaticPods | None = None

    async def handle(self, request: Request) -> Response | Upgrade:
        await self._authorization.check(request)
        first, *rest = request.path.strip("/").split("/")
        if first == "healthz" and not rest:
            return Response(b"ok")
        if (first, *rest) == ("metrics", "resource"):
            measured = measured_here((), (), self._clock.seconds())
            return Response(resource_metrics(measured).encode(), CONTENT_TYPE)
        log_of = self.pods.log_of if self.pods is not None else lambda _namespace, _name: None
        answer = answer_for_static_pod(request, first, rest, log_of, self._clock)
        if answer is None:
            raise HttpError(404, "404 page not found")
        return answer
