"""The cost of preparing and unpreparing claims in the node agent.

    python benchmarks/claims.py [--quick]

A ClaimPreparer with its state file on this disk, an API server in memory in the same process, and a driver in another process that
answers at once: what is measured is the agent, not a driver. One cycle is prepare and unprepare of one pod with one claim; at
once: so many pods at a time. Numbers depend on the machine, above all on how fast its disk confirms writes.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
import uvloop

from allot.apiserver.assembly import Running, Settings, running
from allot.controlplane.clients import client_of
from allot.controlplane.users import ADMINISTRATOR
from allot.core.model.pods_v1 import decode_runnable
from allot.node.dra.claim_preparer import ClaimPreparer
from allot.process.clock import SystemClock
from allot.process.ids import SystemIds
from allot.store.memory import MemoryStore
from allot.wire import dra_v1_pb2, plugin_registration_pb2

COUNT = 100 if "--quick" in sys.argv else 1000
DRIVER = "gpu.example.com"
NODE = "node-1"


# --- the driver ---


async def drive(root: Path) -> None:
    """Serve until killed."""
    endpoint = root / "dra.sock"

    async def prepare(request: Any, _: Any) -> Any:
        answers = {
            claim.uid: dra_v1_pb2.NodePrepareResourceResponse(
                devices=[
                    dra_v1_pb2.Device(pool_name=NODE, device_name="gpu-0", cdi_device_ids=[f"{DRIVER}/gpu={claim.uid}"])
                ]
            )
            for claim in request.claims
        }
        return dra_v1_pb2.NodePrepareResourcesResponse(claims=answers)

    async def unprepare(request: Any, _: Any) -> Any:
        answers = {claim.uid: dra_v1_pb2.NodeUnprepareResourceResponse() for claim in request.claims}
        return dra_v1_pb2.NodeUnprepareResourcesResponse(claims=answers)

    async def info(_: Any, __: Any) -> Any:
        return plugin_registration_pb2.PluginInfo(
            type="DRAPlugin", name=DRIVER, endpoint=str(endpoint), supported_versions=["v1.DRAPlugin"]
        )

    async def notify(_: Any, __: Any) -> Any:
        return plugin_registration_pb2.RegistrationStatusResponse()

    services: dict[Path, tuple[str, dict[str, tuple[Any, Any]]]] = {
        endpoint: (
            "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin",
            {
                "NodePrepareResources": (prepare, dra_v1_pb2.NodePrepareResourcesRequest),
                "NodeUnprepareResources": (unprepare, dra_v1_pb2.NodeUnprepareResourcesRequest),
            },
        ),
        root / "plugins_registry" / "gpu.sock": (
            "pluginregistration.Registration",
            {
                "GetInfo": (info, plugin_registration_pb2.InfoRequest),
                "NotifyRegistrationStatus": (notify, plugin_registration_pb2.RegistrationStatus),
            },
        ),
    }
    servers = []
    for path, (service, methods) in services.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        handlers: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                call, request_deserializer=type_.FromString, response_serializer=lambda each: each.SerializeToString()
            )
            for name, (call, type_) in methods.items()
        }
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        servers.append(server)
    await asyncio.gather(*(server.wait_for_termination() for server in servers))


# --- the agent ---


async def make_pods(server: Running, count: int) -> list[dict[str, Any]]:
    """Pods with a claim each, as the scheduler leaves them."""
    client = client_of(server, ADMINISTRATOR)
    pods = client.resource("", "v1", "pods", namespaced=True)
    claims = client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
    made = []
    for number in range(count):
        metadata = {"name": f"p{number}", "namespace": "default"}
        container = {"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {
            "nodeName": NODE,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": metadata["name"]}],
        }
        pod = await pods.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        claim = await claims.create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": metadata,
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
            }
        )
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": f"gpu-{number}"}
        consumer = {"resource": "pods", "name": metadata["name"], "uid": pod["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [consumer]}
        await claims.update_status({**claim, "status": status})
        made.append(pod)
    return made


async def measure(preparer: ClaimPreparer, pods: list[dict[str, Any]], at_once: int) -> None:
    """All pods, so many at a time."""
    waiting = iter(pods)
    took: list[float] = []

    async def work() -> None:
        for pod in waiting:
            started = time.perf_counter()
            await preparer.prepare(decode_runnable(pod))
            took.append(time.perf_counter() - started)
            await preparer.unprepare(decode_runnable(pod))

    wall, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*(work() for _ in range(at_once)))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    took.sort()
    print(
        f"{at_once:>3} at once  {len(pods) / wall:>6.0f} cycles/s  {processor / len(pods) * 1e6:>6.0f} µs processor per cycle  "
        f"prepare p50 {took[len(took) // 2] * 1e3:.1f} ms, p99 {took[int(len(took) * 0.99)] * 1e3:.1f} ms"
    )


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="dra") as folder:
        root = Path(folder)
        with subprocess.Popen([sys.executable, __file__, "--drive", folder]) as driver:
            try:
                async with running(Settings(directory=root / "pki", port=0), MemoryStore()) as server:
                    client = client_of(server, ADMINISTRATOR)
                    preparer = ClaimPreparer(client, NODE, root, SystemClock(), SystemIds(), active_pods=lambda: None)
                    pods = await make_pods(server, COUNT)
                    async with asyncio.TaskGroup() as tasks:
                        task = tasks.create_task(preparer.run())
                        while not preparer.plugins.is_usable(DRIVER):
                            await asyncio.sleep(0.05)
                        for at_once in (1, 8, 32):
                            await measure(preparer, pods, at_once)
                        task.cancel()
            finally:
                driver.kill()


if __name__ == "__main__":
    if "--drive" in sys.argv:
        uvloop.run(drive(Path(sys.argv[-1])))
    else:
        uvloop.run(main())
