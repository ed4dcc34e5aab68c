"""A provider in a separate process: both ends of Cluster Autoscaler's external gRPC protocol.

`ExternalProvider` is the client; `service` serves any provider, such as the simulated cloud. Over mTLS, or without TLS on loopback or a Unix
socket. Every call has a deadline.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
from google.protobuf.message import DecodeError as BadMessage
from google.protobuf.message import Message

from allot.autoscaler.provider import (
    Group,
    GroupOptions,
    Instance,
    NodeName,
    Provider,
    ProviderError,
    State,
    TemplateNode,
)
from allot.core.model.codec import DecodeError, decode_served
from allot.core.model.core_v1 import Node
from allot.core.model.encoding import encode_struct
from allot.core.model.resource_v1 import ResourceSlice
from allot.process.grpc_channels import RECONNECTING
from allot.wire import external_grpc_pb2 as messages
from allot.wire.kubernetes import Malformed
from allot.wire.kubernetes.bare import NODE, SLICE, read_bare, write_bare

SERVICE = "clusterautoscaler.cloudprovider.v1.externalgrpc.CloudProvider"
CALL_TIMEOUT_S = 5.0
_MESSAGE_BYTES_MAX = 16 * 2**20
_NO_OPTIONS = GroupOptions(
    utilization_threshold=0.0, gpu_utilization_threshold=0.0, unneeded_s=0.0, unready_s=0.0, provision_s=0.0
)
_STATES = {State.UNKNOWN: 0, State.RUNNING: 1, State.CREATING: 2, State.DELETING: 3}
_STATE_OF = {number: state for state, number in _STATES.items()}
_OUT_OF_RESOURCES, _OTHER_ERROR = 1, 99
_OPTIONS = (*RECONNECTING, ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX))


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates in PEM: the other side's authority, and our own."""

    ca: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, ca: Path, certificate: Path, key: Path) -> Credentials:
        """From files; OSError."""
        return cls(ca=ca.read_bytes(), certificate=certificate.read_bytes(), key=key.read_bytes())


class ExternalProvider:
    """address: host:port or unix:/path; credentials: for mTLS, None for a plain connection."""

    def __init__(
        self, address: str, credentials: Credentials | None = None, *, timeout_s: float = CALL_TIMEOUT_S
    ) -> None:
        self._address = address
        self._timeout_s = timeout_s
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        else:
            chosen = grpc.ssl_channel_credentials(credentials.ca, credentials.key, credentials.certificate)
            self._channel = grpc.aio.secure_channel(address, chosen, options=_OPTIONS)

    async def refresh(self) -> None:
        """Called before each round."""
        await self._call("Refresh", messages.RefreshRequest(), messages.RefreshResponse)

    async def groups(self) -> Sequence[Group]:
        """All groups."""
        answer = await self._call("NodeGroups", messages.NodeGroupsRequest(), messages.NodeGroupsResponse)
        return [
            Group(id=each.id, min_size=each.minSize, max_size=each.maxSize, debug=each.debug)
            for each in answer.nodeGroups
        ]

    async def group_of(self, node: NodeName) -> str:
        """The group of a node."""
        request = messages.NodeGroupForNodeRequest(node=_node(node))
        answer = await self._call("NodeGroupForNode", request, messages.NodeGroupForNodeResponse)
        return str(answer.nodeGroup.id)

    async def target_size(self, group: str) -> int:
        """The target size of a group."""
        request = messages.NodeGroupTargetSizeRequest(id=group)
        answer = await self._call("NodeGroupTargetSize", request, messages.NodeGroupTargetSizeResponse)
        return int(answer.targetSize)

    async def increase(self, group: str, delta: int) -> None:
        """Request more nodes."""
        request = messages.NodeGroupIncreaseSizeRequest(id=group, delta=delta)
        await self._call("NodeGroupIncreaseSize", request, messages.NodeGroupIncreaseSizeResponse)

    async def decrease_target(self, group: str, delta: int) -> None:
        """Cancel requested nodes that have not registered yet."""
        request = messages.NodeGroupDecreaseTargetSizeRequest(id=group, delta=-delta)
        await self._call("NodeGroupDecreaseTargetSize", request, messages.NodeGroupDecreaseTargetSizeResponse)

    async def delete(self, group: str, nodes: Sequence[NodeName]) -> None:
        """Give nodes back."""
        request = messages.NodeGroupDeleteNodesRequest(id=group, nodes=[_node(each) for each in nodes])
        await self._call("NodeGroupDeleteNodes", request, messages.NodeGroupDeleteNodesResponse)

    async def instances(self, group: str) -> Sequence[Instance]:
        """The machines of a group."""
        request = messages.NodeGroupNodesRequest(id=group)
        answer = await self._call("NodeGroupNodes", request, messages.NodeGroupNodesResponse)
        return [
            Instance(
                id=each.id,
                state=_STATE_OF.get(each.status.instanceState, State.UNKNOWN),
                error_code=each.status.errorInfo.errorCode,
                error=each.status.errorInfo.errorMessage,
                is_out_of_resources=each.status.errorInfo.instanceErrorClass == _OUT_OF_RESOURCES,
            )
            for each in answer.instances
        ]

    async def template(self, group: str) -> TemplateNode | None:
        """The template of a node."""
        request = messages.NodeGroupTemplateNodeInfoRequest(id=group)
        try:
            answer = await self._call("NodeGroupTemplateNodeInfo", request, messages.NodeGroupTemplateNodeInfoResponse)
            if not answer.nodeBytes:
                return None
            node = decode_served(read_bare(answer.nodeBytes, NODE), Node)
            slices = tuple(decode_served(read_bare(each, SLICE), ResourceSlice) for each in answer.resourceSliceBytes)
        except ProviderError as error:
            if error.is_missing:
                return None
            raise
        except (Malformed, DecodeError) as error:
            raise ProviderError(f"template of group {group}: {error}") from error
        return TemplateNode(node=node, slices=slices or None)

    async def price(self, node: NodeName, start: float, end: float) -> float | None:
        """The price of a node between two times."""
        request = messages.PricingNodePriceRequest(node=_node(node))
        request.startTimestamp.FromNanoseconds(int(start) * 10**9)
        request.endTimestamp.FromNanoseconds(int(end) * 10**9)
        try:
            answer = await self._call("PricingNodePrice", request, messages.PricingNodePriceResponse)
        except ProviderError as error:
            if error.is_missing:
                return None
            raise
        return float(answer.price)

    async def options(self, group: str, defaults: GroupOptions) -> GroupOptions | None:
        """The options of a group. Missing ones have the global values."""
        request = messages.NodeGroupAutoscalingOptionsRequest(id=group, defaults=_options(defaults))
        try:
            answer = await self._call("NodeGroupGetOptions", request, messages.NodeGroupAutoscalingOptionsResponse)
        except ProviderError as error:
            if error.is_missing:
                return None
            raise
        if not answer.HasField("nodeGroupAutoscalingOptions"):
            return defaults
        return _options_of(answer.nodeGroupAutoscalingOptions, defaults)

    async def close(self) -> None:
        """End the connection."""
        await self._channel.close()

    async def _call(self, method: str, request: Message, answer: type[Message]) -> Any:
        send: Any = self._channel.unary_unary(f"/{SERVICE}/{method}")
        try:
            data = await send(request.SerializeToString(), timeout=self._timeout_s)
            return answer.FromString(data)
        except grpc.aio.AioRpcError as error:
            is_missing = error.code() is grpc.StatusCode.UNIMPLEMENTED
            text = f"provider at {self._address}: {method}: {error.details() or error.code().name.lower()}"
            raise ProviderError(text, is_missing=is_missing) from error
        except BadMessage as error:
            raise ProviderError(
                f"provider at {self._address}: {method}: the answer is not a {answer.__name__}"
            ) from error


def _node(node: NodeName) -> messages.ExternalGrpcNode:
    return messages.ExternalGrpcNode(
        providerID=node.provider_id, name=node.name, labels=dict(node.labels), annotations=dict(node.annotations)
    )


_DURATIONS = {
    "unneeded_s": "scaleDownUnneededDuration",
    "unready_s": "scaleDownUnreadyDuration",
    "provision_s": "MaxNodeProvisionDuration",
}


def _options(options: GroupOptions) -> messages.NodeGroupAutoscalingOptions:
    made = messages.NodeGroupAutoscalingOptions(
        scaleDownUtilizationThreshold=options.utilization_threshold,
        scaleDownGpuUtilizationThreshold=options.gpu_utilization_threshold,
    )
    for name, field in _DURATIONS.items():
        getattr(made, field).FromNanoseconds(int(getattr(options, name) * 10**9))
    return made


def _options_of(found: Any, defaults: GroupOptions) -> GroupOptions:
    """A threshold of zero means unset: protobuf does not distinguish them."""
    durations = {
        name: getattr(found, field).ToNanoseconds() / 10**9 if found.HasField(field) else getattr(defaults, name)
        for name, field in _DURATIONS.items()
    }
    return GroupOptions(
        utilization_threshold=found.scaleDownUtilizationThreshold or defaults.utilization_threshold,
        gpu_utilization_threshold=found.scaleDownGpuUtilizationThreshold or defaults.gpu_utilization_threshold,
        **durations,
    )


# --- the other end ---


@asynccontextmanager
async def serving(provider: Provider, address: str, credentials: Credentials | None = None) -> AsyncIterator[int]:
    """Serve a provider while the context is open; yields the port. address: host:port, where port 0 means any free one, or unix:/path."""
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((service(provider),))
    if credentials is None:
        port = server.add_insecure_port(address)
    else:
        pair = [(credentials.key, credentials.certificate)]
        chosen = grpc.ssl_server_credentials(pair, root_certificates=credentials.ca, require_client_auth=True)
        port = server.add_secure_port(address, chosen)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(None)


def service(provider: Provider) -> grpc.GenericRpcHandler:
    """The service of a provider."""

    async def groups(_request: Any) -> Message:
        found = await provider.groups()
        return messages.NodeGroupsResponse(nodeGroups=[_group(each) for each in found])

    async def group_of(request: Any) -> Message:
        group = await provider.group_of(_name_of(request.node))
        return messages.NodeGroupForNodeResponse(nodeGroup=messages.NodeGroup(id=group))

    async def target_size(request: Any) -> Message:
        return messages.NodeGroupTargetSizeResponse(targetSize=await provider.target_size(request.id))

    async def increase(request: Any) -> Message:
        await provider.increase(request.id, request.delta)
        return messages.NodeGroupIncreaseSizeResponse()

    async def decrease(request: Any) -> Message:
        await provider.decrease_target(request.id, -request.delta)
        return messages.NodeGroupDecreaseTargetSizeResponse()

    async def delete(request: Any) -> Message:
        await provider.delete(request.id, [_name_of(each) for each in request.nodes])
        return messages.NodeGroupDeleteNodesResponse()

    async def instances(request: Any) -> Message:
        found = await provider.instances(request.id)
        return messages.NodeGroupNodesResponse(instances=[_instance(each) for each in found])

    async def template(request: Any) -> Message:
        found = await provider.template(request.id)
        if found is None:
            raise ProviderError("no template", is_missing=True)
        slices = [write_bare(encode_struct(each), SLICE) for each in found.slices or ()]
        data = write_bare(encode_struct(found.node), NODE)
        return messages.NodeGroupTemplateNodeInfoResponse(nodeBytes=data, resourceSliceBytes=slices)

    async def price(request: Any) -> Message:
        start, end = request.startTimestamp.ToSeconds(), request.endTimestamp.ToSeconds()
        found = await provider.price(_name_of(request.node), start, end)
        if found is None:
            raise ProviderError("no prices", is_missing=True)
        return messages.PricingNodePriceResponse(price=found)

    async def options(request: Any) -> Message:
        defaults = _options_of(request.defaults, _NO_OPTIONS)
        found = await provider.options(request.id, defaults)
        if found is None:
            raise ProviderError("no options", is_missing=True)
        return messages.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=_options(found))

    async def refresh(_request: Any) -> Message:
        await provider.refresh()
        return messages.RefreshResponse()

    async def clean_up(_request: Any) -> Message:
        return messages.CleanupResponse()

    methods: Mapping[str, tuple[Callable[[Any], Awaitable[Message]], type[Message]]] = {
        "NodeGroups": (groups, messages.NodeGroupsRequest),
        "NodeGroupForNode": (group_of, messages.NodeGroupForNodeRequest),
        "NodeGroupTargetSize": (target_size, messages.NodeGroupTargetSizeRequest),
        "NodeGroupIncreaseSize": (increase, messages.NodeGroupIncreaseSizeRequest),
        "NodeGroupDecreaseTargetSize": (decrease, messages.NodeGroupDecreaseTargetSizeRequest),
        "NodeGroupDeleteNodes": (delete, messages.NodeGroupDeleteNodesRequest),
        "NodeGroupNodes": (instances, messages.NodeGroupNodesRequest),
        "NodeGroupTemplateNodeInfo": (template, messages.NodeGroupTemplateNodeInfoRequest),
        "NodeGroupGetOptions": (options, messages.NodeGroupAutoscalingOptionsRequest),
        "PricingNodePrice": (price, messages.PricingNodePriceRequest),
        "Refresh": (refresh, messages.RefreshRequest),
        "Cleanup": (clean_up, messages.CleanupRequest),
    }
    return grpc.method_handlers_generic_handler(
        SERVICE, {name: _handler(answer, request) for name, (answer, request) in methods.items()}
    )


def _handler(answer: Callable[[Any], Awaitable[Message]], request: type[Message]) -> Any:
    async def handle(asked: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await answer(asked)
        except ProviderError as error:
            code = grpc.StatusCode.UNIMPLEMENTED if error.is_missing else grpc.StatusCode.FAILED_PRECONDITION
            await context.abort(code, str(error))

    return grpc.unary_unary_rpc_method_handler(
        handle,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def _group(group: Group) -> messages.NodeGroup:
    return messages.NodeGroup(id=group.id, minSize=group.min_size, maxSize=group.max_size, debug=group.debug)


def _name_of(node: Any) -> NodeName:
    return NodeName(
        provider_id=node.providerID, name=node.name, labels=dict(node.labels), annotations=dict(node.annotations)
    )


def _instance(instance: Instance) -> messages.Instance:
    error = messages.InstanceErrorInfo()
    if instance.error_code:
        kind = _OUT_OF_RESOURCES if instance.is_out_of_resources else _OTHER_ERROR
        error = messages.InstanceErrorInfo(
            errorCode=instance.error_code, errorMessage=instance.error, instanceErrorClass=kind
        )
    status = messages.InstanceStatus(instanceState=_STATES[instance.state], errorInfo=error)  # type: ignore[arg-type]
    return messages.Instance(id=instance.id, status=status)
