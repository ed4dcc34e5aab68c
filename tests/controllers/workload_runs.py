"""Runs of workload controllers on a real API server whose watches lag, with a kubelet and a user that play dice, and with
controllers that are killed between any two writes, or without hearing of the last one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from prometheus_client import CollectorRegistry

from allot.client.api import Client, PatchType
from allot.client.errors import ApiError
from allot.client.informers import Informers
from allot.client.transport import JSON, REQUEST_TIMEOUT_S, Response, Transport, WatchEvent
from allot.controllers.metrics import ControllerMetrics
from allot.controllers.runner import Runnable, Services
from allot.controlplane.clients import client_of
from allot.controlplane.users import CONTROLLERS, controller_user
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from controllers.cluster import Cluster

Object = dict[str, Any]
Make = Callable[[Services], Runnable]

NODES = ("node-1", "node-2", "node-3")
_LAGS_S = (0.0, 0.0, 0.0, 0.001, 0.004, 0.015)
_PAUSES_S = (0.0, 0.002, 0.01, 0.03)
# One in so many writes is the last of a process.
_WRITES_PER_LIFE = 6


class Lagging:
    """A transport that sees one namespace only, tells watch events late, and asks before each write."""

    def __init__(
        self, inner: Transport, namespace: str, dice: random.Random, before_write: Callable[[], Awaitable[bool]]
    ) -> None:
        self._inner = inner
        self._namespace = namespace
        self._dice = dice
        self._before_write = before_write

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
    ) -> Response:
        """One request. before_write says whether it is sent and its answer never comes."""
        is_last = method != "GET" and "/events" not in path and await self._before_write()
        answer = await self._inner.request(method, self._within(path), query, body, content_type, headers, timeout)
        if is_last:
            await asyncio.Event().wait()
        return answer

    @asynccontextmanager
    async def _late(
        self, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str] | None, timeout: float
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._inner.stream(self._within(path), query, headers, timeout, None) as events:

            async def told() -> AsyncIterator[WatchEvent]:
                async for event in events:
                    await asyncio.sleep(self._dice.choice(_LAGS_S))
                    yield event

            yield told()

    def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,  # noqa: ARG002
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """A watch."""
        return self._late(path, query, headers, timeout)

    async def close(self) -> None:
        """Let go."""

    def _within(self, path: str) -> str:
        """Lists and watches of everything become those of the namespace."""
        root, _, plural = path.rpartition("/")
        if "/namespaces/" in path or plural == "nodes" or root not in ("/api/v1", "/apis/apps/v1", "/apis/policy/v1"):
            return path
        return f"{root}/namespaces/{self._namespace}/{plural}"


class Run:
    """One seed in one namespace."""

    def __init__(self, made: Cluster, namespace: str, seed: int, makes: Mapping[str, Make]) -> None:
        self.made = made
        self.namespace = namespace
        self.dice = random.Random(seed)
        self._makes = makes
        self.deaths = 0
        self._is_mortal = True
        self._died = asyncio.Event()

    # --- the controllers ---

    async def live(self) -> None:
        """Life after life, each with everything in memory its own, until cancelled."""
        while True:
            self._died = asyncio.Event()
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(runnable.run()) for runnable in self._begin()]
                try:
                    await self._died.wait()
                    self.deaths += 1
                finally:
                    for task in running:
                        task.cancel()

    def survive(self) -> None:
        """From now on nobody dies."""
        self._is_mortal = False

    def _begin(self) -> Sequence[Runnable]:
        clock, ids = SystemClock(), SystemIds()
        metrics = ControllerMetrics(CollectorRegistry())
        informers = Informers(self._client(CONTROLLERS), clock, ids)
        found: list[Runnable] = [informers]
        for account, make in self._makes.items():
            services = Services(
                client=self._client(controller_user(account)),
                informers=informers,
                clock=clock,
                ids=ids,
                metrics=metrics,
            )
            found.append(make(services))
        return found

    def _client(self, user: Any) -> Client:
        return Client(Lagging(client_of(self.made.server, user).transport, self.namespace, self.dice, self._write))

    async def _write(self) -> bool:
        if not self._is_mortal or self.dice.randrange(_WRITES_PER_LIFE):
            return self._died.is_set()
        is_sent = self.dice.random() < 0.5
        self._died.set()
        if not is_sent:
            await asyncio.Event().wait()
        return True

    # --- the rest of the world ---

    async def pods(self) -> Sequence[Object]:
        """All pods of the namespace, as the server has them."""
        return await self.made.items("pods", self.namespace)

    async def tend(self, pod: Object, *, breaks: bool) -> None:
        """What a scheduler and a kubelet would do next for a pod, perhaps."""
        metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        name, pods = metadata["name"], self.made.of("pods")
        if metadata.get("deletionTimestamp"):
            await pods.delete(name, self.namespace, uid=metadata["uid"], grace_period_seconds=0)
        elif not spec.get("nodeName"):
            node = wanted_node(pod) or self.dice.choice(NODES)
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
            await pods.create(binding, self.namespace, name=name, subresource="binding")
        elif status.get("phase") == "Pending":
            await self._report(pod, "Running", is_ready=True)
        elif breaks and status.get("phase") == "Running" and self.dice.random() < 0.05:
            if self.dice.random() < 0.5:
                await self._report(pod, "Failed", is_ready=False)
            else:
                await self._report(pod, "Running", is_ready=not is_ready(pod))
        elif not breaks and status.get("phase") == "Running" and not is_ready(pod):
            await self._report(pod, "Running", is_ready=True)

    async def _report(self, pod: Object, phase: str, *, is_ready: bool) -> None:
        condition = {
            "type": "Ready",
            "status": "True" if is_ready else "False",
            "lastTransitionTime": SystemClock().now(),
        }
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"phase": phase, "conditions": [condition]}}
        name = pod["metadata"]["name"]
        await self.made.of("pods").patch(name, patch, PatchType.STRATEGIC, self.namespace, subresource="status")

    async def turn(self, check: Callable[[Sequence[Object]], None], *, breaks: bool) -> Sequence[Object]:
        """Some pods go a step further; what there is was checked before."""
        pods = await self.pods()
        check(pods)
        for pod in pods:
            if not breaks or self.dice.random() < 0.5:
                try:
                    await self.tend(pod, breaks=breaks)
                except ApiError:
                    # Somebody else was first.
                    continue
        await asyncio.sleep(self.dice.choice(_PAUSES_S))
        return pods


def wanted_node(pod: Object) -> str:
    """The node that a pod of a DaemonSet is for."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    for term in terms:
        for field in term.get("matchFields") or ():
            return str(field["values"][0])
    return ""


def is_ready(pod: Object) -> bool:
    """Whether a pod serves."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def is_active(pod: Object) -> bool:
    """Whether a pod counts."""
    return not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") not in ("Failed", "Succeeded")


def controller_uid(object_: Object) -> str:
    """Who controls an object."""
    owners = object_["metadata"].get("ownerReferences") or ()
    return next((str(owner["uid"]) for owner in owners if owner.get("controller")), "")


def template(image: str = "app:1", **spec: Any) -> Object:
    """A template of pods."""
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": image}], **spec}}


def workload(kind: str, **spec: Any) -> Object:
    """A workload `x`."""
    selector = {"matchLabels": {"app": "x"}}
    whole = {"selector": selector, "template": template(), **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x"}, "spec": whole}


async def add_nodes(made: Cluster) -> None:
    """Nodes that nobody looks after."""
    for name in NODES:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await made.create("nodes", node)
        await made.of("nodes").patch(name, {"spec": {"taints": None}}, PatchType.MERGE)
