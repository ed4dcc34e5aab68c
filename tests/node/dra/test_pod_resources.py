"""PodResources: who watches devices finds out which pods use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from allot.core.model.pods_v1 import decode_runnable
from allot.node.pod_resources import Allocatable, PodResources
from allot.process.clock import ManualClock, SystemClock
from allot.wire import pod_resources_v1_pb2 as wire
from node.dra.node import node, registered
from waiting import WAIT_S

V1 = "v1.PodResourcesLister"


async def ask(path: Path, method: str, request: Any, answer: Any, service: str = V1) -> Any:
    """One call, as a client elsewhere makes it."""
    async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
        send: Any = channel.unary_unary(f"/{service}/{method}", type(request).SerializeToString, answer.FromString)
        return await send(request, timeout=WAIT_S)


async def test_devices_of_claims_are_told_by_container(tmp_path: Path) -> None:
    async with node(tmp_path) as here, here.running() as preparer:
        driver = await here.driver()
        await registered(preparer)
        pod = await here.pod("p", "a")
        uid = await here.uid_of("a")
        driver.devices[uid] = [
            {"request_names": ["req"], "pool_name": "node-1", "device_name": "gpu-0", "share_id": "s"},
            {"request_names": ["other"], "pool_name": "node-1", "device_name": "gpu-1"},
        ]
        uses = {"resources": {"claims": [{"name": "a", "request": "req"}]}}
        pod["spec"]["containers"] = [{"name": "c", "image": "x", **uses}, {"name": "plain", "image": "x"}]
        pod["spec"]["initContainers"] = [
            {"name": "init", "image": "x", **uses},
            {"name": "sidecar", "image": "x", "restartPolicy": "Always", **uses},
        ]
        await preparer.prepare(decode_runnable(pod))
        path = here.root / "pod-resources" / "kubelet.sock"
        # What an agent that was killed has left does not matter.
        path.parent.mkdir()
        path.touch()
        service = PodResources(
            lambda: [decode_runnable(pod)],
            preparer,
            SystemClock(),
            allocatable=Allocatable(cpu_ids=(0, 1), memory_bytes=4096),
        )
        async with service.serving(path):
            listed = await ask(path, "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
            (found,) = listed.pod_resources
            assert (found.namespace, found.name) == ("default", "p")
            assert [each.name for each in found.containers] == ["sidecar", "c", "plain"]
            (dynamic,) = found.containers[1].dynamic_resources
            assert (dynamic.claim_namespace, dynamic.claim_name) == ("default", "a")
            # Every device of the claim, whichever request the container names.
            assert [
                (
                    each.driver_name,
                    each.pool_name,
                    each.device_name,
                    each.share_id,
                    [one.name for one in each.cdi_devices],
                )
                for each in dynamic.claim_resources
            ] == [
                ("gpu.example.com", "node-1", "gpu-0", "s", [f"gpu.example.com/claim={uid}-0"]),
                ("gpu.example.com", "node-1", "gpu-1", "", [f"gpu.example.com/claim={uid}-1"]),
            ]
            assert not dynamic.claim_resources[1].HasField("share_id")
            assert not found.containers[2].dynamic_resources

            request = wire.GetPodResourcesRequest(pod_name="p", pod_namespace="default")
            got = await ask(path, "Get", request, wire.GetPodResourcesResponse)
            assert got.pod_resources == found
            request = wire.GetPodResourcesRequest(pod_name="q", pod_namespace="default")
            with pytest.raises(grpc.aio.AioRpcError, match="pod q in namespace default not found"):
                await ask(path, "Get", request, wire.GetPodResourcesResponse)

            allocatable = await ask(
                path, "GetAllocatableResources", wire.AllocatableResourcesRequest(), wire.AllocatableResourcesResponse
            )
            assert (list(allocatable.cpu_ids), allocatable.memory[0].size) == ([0, 1], 4096)

            request = wire.ListPodResourcesRequest()
            old = await ask(path, "List", request, wire.ListPodResourcesResponse, "v1alpha1.PodResourcesLister")
            assert old == listed
        assert not path.exists()


async def test_a_pod_that_is_not_prepared_has_no_devices(tmp_path: Path) -> None:
    async with node(tmp_path) as here:
        pod = await here.pod("p", "a")
        path = here.root / "kubelet.sock"
        async with PodResources(lambda: [decode_runnable(pod)], here.preparer(), SystemClock()).serving(path):
            listed = await ask(path, "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
            assert not listed.pod_resources[0].containers[0].dynamic_resources


async def test_who_asks_too_often_is_refused(tmp_path: Path) -> None:
    clock = ManualClock()
    async with node(tmp_path) as here:
        path = here.root / "kubelet.sock"
        async with PodResources(list, here.preparer(), clock, burst=3).serving(path):
            for _ in range(3):
                await ask(path, "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
            with pytest.raises(grpc.aio.AioRpcError, match="rejected by rate limit"):
                await ask(path, "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
            clock.advance(0.02)
            await ask(path, "List", wire.ListPodResourcesRequest(), wire.ListPodResourcesResponse)
