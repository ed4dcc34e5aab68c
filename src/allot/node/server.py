"""What the agent serves to the API server and to scrapers: logs, exec, attach, ports, pods, health and metrics.

The paths are the kubelet's. Everything but the health of the process needs a right on the node (`serving.authorization`).
"""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

import msgspec
from prometheus_client import CollectorRegistry

from allot.core.metrics.exposition import Exposition, text_of
from allot.core.model.pods_v1 import RunnablePod
from allot.http1.heads import HttpError
from allot.http1.requests import Request, Response, Upgrade, serving
from allot.node.metrics import Measured, Summaries, resource_metrics
from allot.node.pod_scrapes import PodScrapes
from allot.node.pods import Listing, PodWorker
from allot.node.runtimes.port import Container, Runtime, RuntimeFailure, State, Streams
from allot.node.serving.authorization import Authorization
from allot.node.serving.commands import forward_ports, run_command, wanted_streams
from allot.node.serving.log_streams import log_options, stream_log
from allot.node.static_pods import LogOf, answer_for_static_pod
from allot.process.clock import Clock
from allot.process.metrics import CONTENT_TYPE, render

# The path of a request through an API server.
_THROUGH = re.compile(r"/api/v1/nodes/(?:https:)?([a-z0-9.-]+)(?::[0-9]*)?/proxy(?:/|$)", re.ASCII)

Route = Callable[[Request, tuple[str, ...]], Awaitable[Response | Upgrade]]


class Served(Protocol):
    """What the server needs to know about its pods."""

    @property
    def listing(self) -> Listing:
        """The runtime's state."""

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of the pod that currently has this name."""

    def record_scrape_problem(self, pod: Mapping[str, Any], text: str) -> None:
        """Report that the metrics of a pod are not available."""

    def is_node(self, name: str) -> bool:
        """Whether a node of this name is here."""

    def pods(self, node: str = "", /) -> tuple[dict[str, Any], ...]:
        """All pods, or those of one node."""

    async def measure(self, node: str = "", /) -> Measured:
        """The usage of all nodes and containers, or of one node and its containers."""

    async def device_samples(self, node: str = "", /) -> Exposition:
        """The known usage of devices, by pod."""


class NodeServer:
    """The agent's HTTPS endpoint."""

    def __init__(
        self,
        agent: Served,
        runtime: Runtime,
        authorization: Authorization,
        registry: CollectorRegistry,
        clock: Clock,
        log_of_static: LogOf = lambda _namespace, _name: None,
    ) -> None:
        """log_of_static: finds the log of a static pod."""
        self._log_of_static = log_of_static
        self._agent = agent
        self._runtime = runtime
        self._authorization = authorization
        self._registry = registry
        self._clock = clock
        self._summaries = Summaries()
        self._scrapes = PodScrapes(runtime, self._sandbox_of, clock, agent.record_scrape_problem)
        # By the first part of the path: how many parts follow, and the handler.
        self._routes: dict[str, tuple[int, Route]] = {
            "healthz": (0, self._healthz),
            "pods": (0, self._pods),
            "metrics": (0, self._metrics),
            "containerLogs": (3, self._logs),
            "exec": (3, self._exec),
            "attach": (3, self._attach),
            "portForward": (2, self._port_forward),
        }
        self._special: dict[tuple[str, ...], Callable[[str], Awaitable[Response]]] = {
            ("metrics", "resource"): self._resource_metrics,
            ("metrics", "pods"): self._pod_metrics,
            ("stats", "summary"): self._summary,
        }

    @asynccontextmanager
    async def serving(self, host: str, port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
        """Serve until the block ends; yields the port."""
        async with serving(self._handle, self._clock, host, port, context) as number:
            yield number

    async def _handle(self, request: Request) -> Response | Upgrade:
        await self._authorization.check(request)
        first, *rest = request.path.strip("/").split("/")
        special = self._special.get((first, *rest))
        if special is not None:
            return await special(self._asked_node(request))
        answer = answer_for_static_pod(request, first, rest, self._log_of_static, self._clock)
        if answer is not None:
            return answer
        found = self._routes.get(first)
        # The path may also contain the pod's uid: /exec/namespace/name/uid/container.
        if found is not None and first != "metrics" and len(rest) == found[0] + 1 and found[0]:
            del rest[2]
        if found is None or len(rest) != found[0]:
            raise HttpError(404, "404 page not found")
        return await found[1](request, tuple(rest))

    # --- about the node ---

    def _asked_node(self, request: Request) -> str:
        """The requested node, for requests through the API server, which names it as every proxy does; empty for all."""
        found = _THROUGH.match(request.header("x-forwarded-uri"))
        name = found.group(1) if found is not None else ""
        return name if self._agent.is_node(name) else ""

    async def _healthz(self, _request: Request, _rest: tuple[str, ...]) -> Response:
        return Response(b"ok")

    async def _pods(self, request: Request, _rest: tuple[str, ...]) -> Response:
        pods = self._agent.pods(self._asked_node(request))
        listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": pods}
        return Response(msgspec.json.encode(listed), "application/json")

    async def _metrics(self, _request: Request, _rest: tuple[str, ...]) -> Response:
        return Response(render(self._registry), CONTENT_TYPE)

    async def _resource_metrics(self, node: str) -> Response:
        return Response(resource_metrics(await self._agent.measure(node)).encode(), CONTENT_TYPE)

    async def _summary(self, node: str) -> Response:
        told = self._summaries.summary(await self._agent.measure(node), node or self._authorization.node)
        return Response(msgspec.json.encode(told), "application/json")

    async def _pod_metrics(self, node: str) -> Response:
        """Metrics of pods and their devices. Kubelets have no such path."""
        told, devices = await self._scrapes.scrape(self._agent.pods()), await self._agent.device_samples(node)
        if node:
            here = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in self._agent.pods(node)}
            own = (each for each in told.samples if (each.labels["namespace"], each.labels["pod"]) in here)
            told = msgspec.structs.replace(told, samples=tuple(own))
        text = text_of((*told.samples, *devices.samples), {**told.types, **devices.types})
        return Response(text.encode(), CONTENT_TYPE)

    async def _sandbox_of(self, uid: str) -> str:
        sandboxes, _ = await self._agent.listing.of(uid)
        return next((each.id for each in reversed(sandboxes) if each.ready), "")

    # --- about pods ---

    def _worker(self, namespace: str, name: str) -> PodWorker:
        worker = self._agent.worker(namespace, name)
        if worker is None:
            raise HttpError(404, f'pod "{name}" does not exist')
        return worker

    async def _containers(self, pod: RunnablePod, name: str) -> tuple[Container, ...]:
        """All containers of this name, the newest first."""
        if pod.container(name) is None:
            raise HttpError(404, f'container "{name}" not found in pod "{pod.metadata.name}"')
        _, found = await self._agent.listing.of(pod.metadata.uid)
        same = (each for each in found if each.name == name)
        return tuple(sorted(same, key=lambda each: (each.attempt, each.created_at), reverse=True))

    async def _running(self, namespace: str, name: str, container: str, refusal: str) -> Container:
        """The container of this name, if it runs. refusal: what the kubelet says if it does not, with 500 as its status.

        kubectl itself puts "unable to upgrade connection" before it, and shows nothing of a text that is also a YAML mapping."""
        worker = self._worker(namespace, name)
        found = await self._containers(worker.pod, container)
        if not found or found[0].state != State.RUNNING:
            raise HttpError(500, refusal)
        return found[0]

    async def _logs(self, request: Request, rest: tuple[str, ...]) -> Response:
        namespace, name, container = rest
        worker = self._worker(namespace, name)
        found = await self._containers(worker.pod, container)
        begun = [each for each in found if each.state != State.CREATED]
        if request.flag("previous"):
            if len(begun) < 2:
                text = f'previous terminated container "{container}" in pod "{name}" not found'
                raise HttpError(400, text)
            chosen = begun[1]
        elif not begun:
            text = f'container "{container}" in pod "{name}" is waiting to start: {worker.waits_for(container)}'
            raise HttpError(400, text)
        else:
            chosen = begun[0]
        options = log_options(request, self._clock.seconds())
        path = worker.log_folder() / container / f"{chosen.attempt}.log"
        return stream_log(path, options, partial(self._is_running, worker.pod, chosen.id))

    async def _is_running(self, pod: RunnablePod, container_id: str) -> bool:
        _, found = await self._agent.listing.of(pod.metadata.uid)
        return any(each.id == container_id and each.state == State.RUNNING for each in found)

    async def _exec(self, request: Request, rest: tuple[str, ...]) -> Upgrade:
        namespace, pod, name = rest
        container = await self._running(namespace, pod, name, f'container not found ("{name}")')
        command = request.all("command")
        if not command:
            raise HttpError(400, "you must specify at least 1 command")
        wanted = wanted_streams(request)

        async def start() -> Streams:
            return await self._runtime.exec(container.id, command, tty=wanted.tty, stdin=wanted.stdin)

        return run_command(request, wanted, start)

    async def _attach(self, request: Request, rest: tuple[str, ...]) -> Upgrade:
        namespace, pod, name = rest
        container = await self._running(namespace, pod, name, f"container {name} not found in pod {pod}_{namespace}")
        return run_command(request, wanted_streams(request), partial(self._runtime.attach, container.id))

    async def _port_forward(self, request: Request, rest: tuple[str, ...]) -> Upgrade:
        pod = self._worker(*rest).pod

        async def connect(port: int) -> Streams:
            sandboxes, _ = await self._agent.listing.of(pod.metadata.uid)
            ready = [each for each in sandboxes if each.ready]
            if not ready:
                raise RuntimeFailure("PortForwardError", f'pod "{pod.metadata.name}" has no sandbox')
            return await self._runtime.connect(ready[-1].id, port)

        return forward_ports(request, connect)
