"""The kubelet's PodResources service: which devices the pods of this node use, for device monitors (DCGM exporters).

Served on a socket to the agent's user (exporters run as root), with a limit on requests per second. Knows claims from `node.dra` and
devices from `node.deviceplugins`; there are no exclusive processors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import grpc
import msgspec
from google.protobuf.message import Message

from allot.client.backoff import TokenBucket
from allot.core.lifecycle.plugin_devices import Device, Holding
from allot.core.lifecycle.preparation import ClaimRecord
from allot.core.model.core_v1 import Container, Pod
from allot.node.machine import Machine
from allot.node.socket_services import serving
from allot.process.clock import Clock
from allot.wire import pod_resources_v1_pb2 as wire

SOCKET = Path("pod-resources") / "kubelet.sock"
REQUESTS_PER_SECOND = 100.0
REQUESTS_BURST = 10
# The older version has the same messages, but fewer fields.
_SERVICES = ("v1.PodResourcesLister", "v1alpha1.PodResourcesLister")


class Claims(Protocol):
    """The claims of containers."""

    def claims_of_container(self, pod: Pod, container: Container) -> tuple[ClaimRecord, ...]:
        """The recorded claims, with all their devices."""


class PluginDevices(Protocol):
    """The devices of device plugins."""

    def holdings(self, pod: Pod, container: Container) -> Mapping[str, Holding]:
        """The devices of a container, by resource."""

    def healthy(self) -> Mapping[str, Sequence[Device]]:
        """All devices that containers can get, by resource."""


class Allocatable(msgspec.Struct, frozen=True, kw_only=True):
    """What a node offers besides devices of claims."""

    cpu_ids: tuple[int, ...] = ()
    memory_bytes: int = 0


def allocatable_of(machine: Machine) -> Allocatable:
    """Everything that a machine has."""
    return Allocatable(cpu_ids=tuple(range(machine.processors)), memory_bytes=machine.memory_bytes)


# --- answers ---


def describe_pod(pod: Pod, claims: Claims, plugins: PluginDevices | None = None) -> wire.PodResources:
    """What a pod uses. Init containers that have ended use nothing; those that continue (sidecars) count."""
    containers = [each for each in pod.spec.init_containers if each.is_sidecar]
    containers += pod.spec.containers
    return wire.PodResources(
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        containers=[
            wire.ContainerResources(
                name=each.name,
                devices=_plugged(plugins.holdings(pod, each)) if plugins is not None else (),
                dynamic_resources=[_dynamic(record) for record in claims.claims_of_container(pod, each)],
            )
            for each in containers
        ],
    )


def _plugged(holdings: Mapping[str, Holding]) -> list[wire.ContainerDevices]:
    return describe_devices({resource: holding.devices for resource, holding in holdings.items()})


def describe_devices(devices: Mapping[str, Sequence[Device]]) -> list[wire.ContainerDevices]:
    """As the kubelet does: an entry for each device and each of its NUMA nodes."""
    found = []
    for resource, listed in sorted(devices.items()):
        for device in listed:
            plain = wire.ContainerDevices(resource_name=resource, device_ids=[device.id])
            if not device.numa_nodes:
                found.append(plain)
            for number in device.numa_nodes:
                topology = wire.TopologyInfo(nodes=[wire.NUMANode(ID=number)])
                found.append(wire.ContainerDevices(resource_name=resource, device_ids=[device.id], topology=topology))
    return found


def _dynamic(record: ClaimRecord) -> wire.DynamicResource:
    # The kubelet repeats the CDI names of a driver's earlier devices in later ones; here each device has its own.
    return wire.DynamicResource(
        claim_name=record.name,
        claim_namespace=record.namespace,
        claim_resources=[
            wire.ClaimResource(
                cdi_devices=[wire.CDIDevice(name=name) for name in device.cdi_ids],
                driver_name=driver,
                pool_name=device.pool,
                device_name=device.device,
                share_id=device.share_id,
            )
            for driver, part in sorted(record.drivers.items())
            for device in part.devices
        ],
    )


def describe_allocatable(
    allocatable: Allocatable, devices: Mapping[str, Sequence[Device]] = MappingProxyType({})
) -> wire.AllocatableResourcesResponse:
    """What the node has; processors and memory as one NUMA node."""
    memory = [
        wire.ContainerMemory(
            memory_type="memory",
            size=allocatable.memory_bytes,
            topology=wire.TopologyInfo(nodes=[wire.NUMANode(ID=0)]),
        )
    ]
    return wire.AllocatableResourcesResponse(
        devices=describe_devices(devices),
        cpu_ids=allocatable.cpu_ids,
        memory=memory if allocatable.memory_bytes else [],
    )


# --- the service ---


class PodResources:
    """Answers requests. pods: those of this node that have not ended."""

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod]],
        claims: Claims,
        clock: Clock,
        *,
        allocatable: Allocatable = Allocatable(),  # noqa: B008
        plugins: PluginDevices | None = None,
        per_second: float = REQUESTS_PER_SECOND,
        burst: int = REQUESTS_BURST,
    ) -> None:
        self._pods = pods
        self._claims = claims
        self._allocatable = allocatable
        self._plugins = plugins
        self._tokens = TokenBucket(clock, per_second, burst)

    @asynccontextmanager
    async def serving(self, path: Path) -> AsyncIterator[None]:
        """Serve on a socket. Replaces one that an earlier agent left."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        async with serving(path, map(self._handler, _SERVICES)):
            yield

    def _handler(self, service: str) -> grpc.GenericRpcHandler:
        methods: dict[str, tuple[Callable[[Any], Message | str], type[Message]]] = {
            "List": (self._list, wire.ListPodResourcesRequest)
        }
        if service == _SERVICES[0]:
            methods["Get"] = (self._get, wire.GetPodResourcesRequest)
            methods["GetAllocatableResources"] = (self._get_allocatable, wire.AllocatableResourcesRequest)
        return grpc.method_handlers_generic_handler(
            service, {name: self._method(answer, request) for name, (answer, request) in methods.items()}
        )

    def _method(self, answer: Callable[[Any], Message | str], request: type[Message]) -> Any:
        async def call(asked: Message, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
            if not self._tokens.try_take():
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
            found = answer(asked)
            if isinstance(found, str):
                await context.abort(grpc.StatusCode.UNKNOWN, found)
            assert isinstance(found, Message)
            return found

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _list(self, _: Any) -> Message:
        described = [describe_pod(pod, self._claims, self._plugins) for pod in self._pods()]
        return wire.ListPodResourcesResponse(pod_resources=described)

    def _get(self, asked: Any) -> Message | str:
        for pod in self._pods():
            if (pod.metadata.namespace, pod.metadata.name) == (asked.pod_namespace, asked.pod_name):
                return wire.GetPodResourcesResponse(pod_resources=describe_pod(pod, self._claims, self._plugins))
        return f"pod {asked.pod_name} in namespace {asked.pod_namespace} not found"

    def _get_allocatable(self, _: Any) -> Message:
        devices = self._plugins.healthy() if self._plugins is not None else {}
        return describe_allocatable(self._allocatable, devices)
