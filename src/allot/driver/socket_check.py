"""Checks a driver's own sockets as the kubelet would."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import grpc.aio

from allot.wire import dra_v1_pb2, plugin_registration_pb2

_TIMEOUT_S = 3.0


async def check_sockets(registration: Path, service: Path, driver: str) -> str:
    """What is wrong with the sockets; empty if they answer."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            async with grpc.aio.insecure_channel(f"unix:{registration}") as channel:
                info = await channel.unary_unary(
                    "/pluginregistration.Registration/GetInfo",
                    request_serializer=plugin_registration_pb2.InfoRequest.SerializeToString,
                    response_deserializer=plugin_registration_pb2.PluginInfo.FromString,
                )(plugin_registration_pb2.InfoRequest())
            if info.name != driver:
                return f"registration socket {registration}: answers for {info.name!r}"
            async with grpc.aio.insecure_channel(f"unix:{service}") as channel:
                await channel.unary_unary(
                    "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
                    request_serializer=dra_v1_pb2.NodePrepareResourcesRequest.SerializeToString,
                    response_deserializer=dra_v1_pb2.NodePrepareResourcesResponse.FromString,
                )(dra_v1_pb2.NodePrepareResourcesRequest())
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:g} s"
    except grpc.aio.AioRpcError as error:
        return f"{error.code().name}: {error.details()}"
    return ""
