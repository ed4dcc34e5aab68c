"""Where a driver tells how it is: /healthz asks its own sockets as the kubelet would, /metrics counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
from aiohttp import web
from prometheus_client import CollectorRegistry

from allot.process.metrics import CONTENT_TYPE, render
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


@asynccontextmanager
async def endpoint(
    address: str, port: int, registry: CollectorRegistry, registration: Path, service: Path, driver: str
) -> AsyncIterator[str]:
    """Serves; the address, empty if the port is -1."""
    if port < 0:
        yield ""
        return

    async def health(_request: web.Request) -> web.Response:
        problem = await check_sockets(registration, service, driver)
        return web.Response(text=problem or "ok", status=503 if problem else 200)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=render(registry), headers={"Content-Type": CONTENT_TYPE})

    application = web.Application()
    for path in ("/healthz", "/livez", "/readyz"):
        application.router.add_get(path, health)
    application.router.add_get("/metrics", metrics)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, address, port).start()
        host, bound = runner.addresses[0][:2]
        yield f"http://[{host}]:{bound}" if ":" in host else f"http://{host}:{bound}"
    finally:
        await runner.cleanup()
