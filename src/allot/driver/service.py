"""The gRPC services of a driver: registration, DRAPlugin v1 and v1beta1, DRAResourceHealth v1 and v1alpha1.

Knows the messages. Every claim of a request gets an entry in the answer, even if it fails; the call itself succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc
import grpc.aio

from allot.driver.checkpoint import RecordedDevice
from allot.driver.configuration import base_request
from allot.driver.health import HealthBoard
from allot.driver.preparing import ClaimName, ClaimResult, Failure, Preparer
from allot.process.clock import Clock
from allot.wire import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    plugin_registration_pb2,
)

_log = logging.getLogger("allot.driver")

V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
PLUGIN_TYPE = "DRAPlugin"
# The kubelet gives up after this long; the answer must come earlier.
KUBELET_PATIENCE_S = 45.0
ANSWER_MARGIN_S = 3.0
_GRPC_NAMES = {
    V1: "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
    V1BETA1: "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin",
    HEALTH_V1: HEALTH_V1,
    HEALTH_V1ALPHA1: HEALTH_V1ALPHA1,
}
_DRA_MODULES: Mapping[str, Any] = {V1: dra_v1_pb2, V1BETA1: dra_v1beta1_pb2}
_HEALTH_MODULES: Mapping[str, Any] = {HEALTH_V1: dra_health_v1_pb2, HEALTH_V1ALPHA1: dra_health_v1alpha1_pb2}


class DraService:
    """Answers the kubelet about claims."""

    def __init__(self, preparer: Preparer, clock: Clock) -> None:
        self._preparer = preparer
        self._clock = clock

    def handlers(self, version: str) -> grpc.GenericRpcHandler:
        """The service in a version."""
        messages = _DRA_MODULES[version]

        async def prepare(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            outcomes = await self._each(request.claims, context, self._preparer.prepare)
            answer = messages.NodePrepareResourcesResponse()
            for uid, outcome in outcomes.items():
                entry = answer.claims[uid]
                if isinstance(outcome, Failure):
                    entry.error = str(outcome)
                else:
                    entry.devices.extend(_device(messages, device) for device in outcome)
            return answer

        async def unprepare(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            outcomes = await self._each(request.claims, context, self._preparer.unprepare)
            answer = messages.NodeUnprepareResourcesResponse()
            for uid, outcome in outcomes.items():
                answer.claims[uid].error = str(outcome) if isinstance(outcome, Failure) else ""
            return answer

        return grpc.method_handlers_generic_handler(
            _GRPC_NAMES[version],
            {
                "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                    prepare,
                    request_deserializer=messages.NodePrepareResourcesRequest.FromString,
                    response_serializer=messages.NodePrepareResourcesResponse.SerializeToString,
                ),
                "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                    unprepare,
                    request_deserializer=messages.NodeUnprepareResourcesRequest.FromString,
                    response_serializer=messages.NodeUnprepareResourcesResponse.SerializeToString,
                ),
            },
        )

    async def _each(
        self,
        claims: Iterable[Any],
        context: grpc.aio.ServicerContext[Any, Any],
        work: Callable[[ClaimName, float], Awaitable[ClaimResult]],
    ) -> dict[str, ClaimResult]:
        left = context.time_remaining()
        patience = min(left if left is not None else KUBELET_PATIENCE_S, KUBELET_PATIENCE_S)
        deadline = self._clock.monotonic() + max(patience - ANSWER_MARGIN_S, patience / 2)
        names = {claim.uid: ClaimName(claim.namespace, claim.name, claim.uid) for claim in claims}
        if len(names) == 1:
            return {uid: await work(name, deadline) for uid, name in names.items()}
        outcomes = await asyncio.gather(*(work(name, deadline) for name in names.values()))
        return dict(zip(names, outcomes, strict=True))


def _device(messages: Any, device: RecordedDevice) -> Any:
    fields: dict[str, Any] = {
        # The kubelet compares with the requests that pods name, and pods cannot name alternatives.
        "request_names": [base_request(device.request)],
        "pool_name": device.pool,
        "device_name": device.device,
        "cdi_device_ids": device.cdi_ids,
    }
    if device.share_id is not None and messages is dra_v1_pb2:
        fields["share_id"] = device.share_id
    return messages.Device(**fields)


def health_handlers(version: str, board: HealthBoard) -> grpc.GenericRpcHandler:
    """The health service in a version."""
    messages = _HEALTH_MODULES[version]

    async def watch(_request: Any, _context: grpc.aio.ServicerContext[Any, Any]) -> AsyncIterator[Any]:
        async for report in board.reports():
            yield messages.NodeWatchResourcesResponse(
                devices=[
                    messages.DeviceHealth(
                        device=messages.DeviceIdentifier(pool_name=each.pool, device_name=each.name),
                        health=int(each.health),
                        last_updated_time=report.seconds,
                        health_check_timeout_seconds=report.timeout_s,
                        message=each.message,
                    )
                    for each in report.devices
                ]
            )

    return grpc.method_handlers_generic_handler(
        _GRPC_NAMES[version],
        {
            "NodeWatchResources": grpc.unary_stream_rpc_method_handler(
                watch,
                request_deserializer=messages.NodeWatchResourcesRequest.FromString,
                response_serializer=messages.NodeWatchResourcesResponse.SerializeToString,
            )
        },
    )


class Registration:
    """Registers the driver with the kubelet, as often as it asks."""

    def __init__(self, driver: str, endpoint: str, versions: Iterable[str], on_registered: Callable[[], None]) -> None:
        self._info = plugin_registration_pb2.PluginInfo(
            type=PLUGIN_TYPE, name=driver, endpoint=endpoint, supported_versions=list(versions)
        )
        self._on_registered = on_registered
        # The kubelet's last registration status: None if there was none.
        self.is_registered: bool | None = None
        self.error = ""

    def handlers(self) -> grpc.GenericRpcHandler:
        """The service."""
        messages = plugin_registration_pb2

        async def get_info(_request: Any, _context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            return self._info

        async def notify(request: Any, _context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            self.is_registered, self.error = request.plugin_registered, request.error
            if request.plugin_registered:
                self._on_registered()
            else:
                _log.error("the kubelet does not register driver %s: %s", self._info.name, request.error)
            return messages.RegistrationStatusResponse()

        return grpc.method_handlers_generic_handler(
            "pluginregistration.Registration",
            {
                "GetInfo": grpc.unary_unary_rpc_method_handler(
                    get_info,
                    request_deserializer=messages.InfoRequest.FromString,
                    response_serializer=messages.PluginInfo.SerializeToString,
                ),
                "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                    notify,
                    request_deserializer=messages.RegistrationStatus.FromString,
                    response_serializer=messages.RegistrationStatusResponse.SerializeToString,
                ),
            },
        )
