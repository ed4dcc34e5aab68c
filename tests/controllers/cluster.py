"""A real API server in memory with controllers beside it, in one process, and short ways to make objects and wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from allot.apiserver.assembly import Running, Settings, running
from allot.client.api import Client, PatchType, ResourceClient
from allot.client.errors import NotFound
from allot.client.informers import Informers
from allot.client.transport import JSON, REQUEST_TIMEOUT_S, Response, Transport, WatchEvent
from allot.controllers.metrics import ControllerMetrics
from allot.controllers.runner import Runnable, Services
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR, CONTROLLERS, controller_user
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.metrics.resource_usage import RESOLUTION_S
from allot.process.clock import Clock, SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore

Object = dict[str, Any]
Make = Callable[[Services], Runnable]

_PLACES = {
    "pods": ("", "v1", True),
    "nodes": ("", "v1", False),
    "namespaces": ("", "v1", False),
    "events": ("events.k8s.io", "v1", True),
    "resourceclaims": ("resource.k8s.io", "v1", True),
    "resourceclaimtemplates": ("resource.k8s.io", "v1", True),
    "resourceslices": ("resource.k8s.io", "v1", False),
    "deviceclasses": ("resource.k8s.io", "v1", False),
    "devicetaintrules": ("resource.k8s.io", "v1", False),
    "resourcepoolstatusrequests": ("resource.k8s.io", "v1alpha3", False),
    "podgroups": ("scheduling.k8s.io", "v1beta1", True),
    "workloads": ("scheduling.k8s.io", "v1beta1", True),
    "jobs": ("batch", "v1", True),
    "cronjobs": ("batch", "v1", True),
    "services": ("", "v1", True),
    "endpoints": ("", "v1", True),
    "endpointslices": ("discovery.k8s.io", "v1", True),
}


class Cluster:
    """The server, as its administrator sees it, and controllers that can be started and killed."""

    def __init__(self, server: Running, gates: FeatureGates) -> None:
        self.server = server
        self.gates = gates
        self.client = client_of(server, ADMINISTRATOR)
        self.registry = CollectorRegistry()

    def of(self, plural: str) -> ResourceClient:
        """Access to a resource."""
        group, version, namespaced = _PLACES[plural]
        return self.client.resource(group, version, plural, namespaced=namespaced)

    @asynccontextmanager
    async def running(
        self,
        makes: Mapping[str, Make],
        *,
        through: Callable[[Client], Client] | None = None,
        watching: Callable[[Client], Client] | None = None,
        clock: Clock | None = None,
    ) -> AsyncIterator[None]:
        """Controllers by the names of their service accounts, with the rights that these have. through: what becomes of their
        requests; watching: what becomes of what their caches read."""
        self.registry = CollectorRegistry()
        metrics = ControllerMetrics(self.registry)
        clock, ids = clock or SystemClock(), SystemIds()
        reader = client_of(self.server, CONTROLLERS)
        informers = Informers(watching(reader) if watching is not None else reader, clock, ids)
        async with asyncio.TaskGroup() as tasks:
            started = []
            for name, make in makes.items():
                client = client_of(self.server, controller_user(name))
                services = Services(
                    client=through(client) if through is not None else client,
                    informers=informers,
                    clock=clock,
                    ids=ids,
                    metrics=metrics,
                    gates=self.gates,
                )
                started.append(tasks.create_task(make(services).run()))
            started.append(tasks.create_task(informers.run()))
            try:
                yield
            finally:
                for task in started:
                    task.cancel()

    async def get(self, plural: str, name: str, namespace: str = "default") -> Object | None:
        """An object, if it is there."""
        resource = self.of(plural)
        try:
            return await resource.get(name, namespace if resource.is_namespaced else "")
        except NotFound:
            return None

    async def items(self, plural: str, namespace: str = "default") -> Sequence[Object]:
        """All objects, by name."""
        resource = self.of(plural)
        listed = await resource.list(namespace if resource.is_namespaced else "")
        return sorted(listed.items, key=lambda item: item["metadata"]["name"])

    async def create(self, plural: str, object_: Object) -> Object:
        """A new object."""
        return await self.of(plural).create(object_)

    async def set_phase(self, pod: str, phase: str, namespace: str = "default") -> None:
        """What a node agent would report."""
        await self.of("pods").patch(pod, {"status": {"phase": phase}}, PatchType.MERGE, namespace, subresource="status")

    async def events(self, reason: str) -> list[str]:
        """The notes of all events with a reason."""
        return [event["note"] for event in await self.items("events") if event["reason"] == reason]

    def metrics(self) -> str:
        """What the controllers have measured."""
        return generate_latest(self.registry).decode()


@asynccontextmanager
async def cluster(
    directory: Path, gates: FeatureGates = DEFAULT_GATES, *, metric_resolution_s: float = RESOLUTION_S
) -> AsyncIterator[Cluster]:
    """A server without controllers."""
    settings = Settings(directory=directory / "pki", port=0, gates=gates, metric_resolution_s=metric_resolution_s)
    async with running(settings, MemoryStore()) as server:
        yield Cluster(server, gates)


Send = Callable[[], Awaitable[Response]]


class Hooked:
    """A transport on which a function of the test decides what becomes of each request: it is given method, path, and
    how to send it."""

    def __init__(self, inner: Transport, around: Callable[[str, str, Send], Awaitable[Response]]) -> None:
        self._inner = inner
        self._around = around

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
        """One request."""

        async def send() -> Response:
            return await self._inner.request(method, path, query, body, content_type, headers, timeout)

        return await self._around(method, path, send)

    def stream(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT_S,
        duration: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """A watch."""
        return self._inner.stream(path, query, headers, timeout, duration)

    async def close(self) -> None:
        """Let go."""
        await self._inner.close()


# --- objects ---


def pod(name: str, *, claims: Sequence[Object] = (), node: str = "", group: str = "", **more: Any) -> Object:
    """A pod that claims devices."""
    container: Object = {"name": "c", "image": "registry.example/app:1"}
    if claims:
        container["resources"] = {"claims": [{"name": entry["name"]} for entry in claims]}
    spec: Object = {"containers": [container], "resourceClaims": list(claims), **more}
    if node:
        spec["nodeName"] = node
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


def from_template(entry: str, template: str) -> Object:
    """An entry of a pod with a template."""
    return {"name": entry, "resourceClaimTemplateName": template}


def by_name(entry: str, claim: str) -> Object:
    """An entry of a pod with a claim of its own making."""
    return {"name": entry, "resourceClaimName": claim}


def devices(device_class: str = "gpu") -> Object:
    """The spec of a claim for one device."""
    return {"devices": {"requests": [{"name": "req", "exactly": {"deviceClassName": device_class}}]}}


def template(name: str, **metadata: Any) -> Object:
    """A claim template."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"metadata": metadata, "spec": devices()},
    }


def claim(name: str) -> Object:
    """A claim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": devices(),
    }


async def allocate(
    cluster: Cluster, name: str, *consumers: Object, device: str = "gpu-0", kind: str = "pods", **result: Any
) -> Object:
    """What the scheduler writes: finalizer, allocation, reservations."""
    found = await cluster.get("resourceclaims", name)
    assert found is not None
    finalizers = ["resource.kubernetes.io/delete-protection"]
    found = await cluster.of("resourceclaims").update(
        {**found, "metadata": {**found["metadata"], "finalizers": finalizers}}
    )
    results = [{"request": "req", "driver": "gpu.example.com", "pool": "node-1", "device": device, **result}]
    reserved = [
        {"resource": kind, "name": consumer["metadata"]["name"], "uid": consumer["metadata"]["uid"]}
        | ({} if kind == "pods" else {"apiGroup": "scheduling.k8s.io"})
        for consumer in consumers
    ]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return await cluster.of("resourceclaims").update_status({**found, "status": status})
