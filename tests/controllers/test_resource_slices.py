"""ResourceSlices of nodes that are gone, and questions about pools, beside a real API server."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from allot.controllers import resourcepoolstatus, resourceslicecleanup
from allot.core.features import DEFAULT_GATES
from allot.process.clock import ManualClock
from controllers.cluster import Object, allocate, claim, cluster
from waiting import until


def slice_of(node: str, *, count: int = 1, **metadata: Any) -> Object:
    """A slice with two devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{node}", **metadata},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": count},
            "devices": [{"name": "gpu-0"}, {"name": "gpu-1"}],
        },
    }


@pytest.mark.slow
async def test_slices_of_a_node_that_is_gone_go_after_a_while_unless_they_have_an_owner(tmp_path: Path) -> None:
    clock = ManualClock(time.time())
    async with (
        cluster(tmp_path) as made,
        made.running({"generic-garbage-collector": resourceslicecleanup.make}, clock=clock),
    ):
        node = await made.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
        owner = {"apiVersion": "v1", "kind": "Node", "name": "node-2", "uid": node["metadata"]["uid"]}
        await made.create("resourceslices", slice_of("node-1"))
        await made.create("resourceslices", slice_of("node-2", ownerReferences=[owner]))
        await made.create("resourceslices", slice_of("node-3"))

        async def left() -> list[str]:
            clock.advance(10)
            return [item["metadata"]["name"] for item in await made.items("resourceslices")]

        async def has_lost_one() -> bool:
            return await left() == ["slice-node-1", "slice-node-2"]

        await until(has_lost_one)
        await made.of("nodes").delete("node-1")

        async def has_lost_two() -> bool:
            return await left() == ["slice-node-2"]

        await until(has_lost_two)
        notes = await until(lambda: made.events("NodeNotFound"))
        assert "deleted: there has been no node 'node-3' for 300 s, and the slice has no owner" in notes


async def test_a_question_about_pools_is_answered_once_and_cleared_away(tmp_path: Path) -> None:
    gates = DEFAULT_GATES.changed(enable=("DRAResourcePoolStatus",))
    clock = ManualClock(time.time())
    async with (
        cluster(tmp_path, gates) as made,
        made.running({"resourcepoolstatusrequest-controller": resourcepoolstatus.make}, clock=clock),
    ):
        for node in ("node-1", "node-2"):
            await made.create("resourceslices", slice_of(node))
        await made.create("resourceclaims", claim("held"))
        await allocate(made, "held")
        request = {
            "apiVersion": "resource.k8s.io/v1alpha3",
            "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": "question"},
            "spec": {"driver": "gpu.example.com"},
        }
        await made.create("resourcepoolstatusrequests", request)

        async def answer() -> Any:
            found = await made.get("resourcepoolstatusrequests", "question")
            return (found or {}).get("status")

        status = await until(answer)
        assert status["poolCount"] == 2
        counts = [
            (pool["poolName"], pool["totalDevices"], pool["allocatedDevices"], pool["availableDevices"])
            for pool in status["pools"]
        ]
        assert counts == [("node-1", 2, 1, 1), ("node-2", 2, 0, 2)]
        assert [(one["type"], one["reason"], one["message"]) for one in status["conditions"]] == [
            ("Complete", "CalculationComplete", "Calculated status for 2 pools")
        ]
        assert 'resourcepoolstatusrequest_controller_requests_processed_total{driver_name="gpu.example.com"} 1.0' in (
            made.metrics()
        )

        async def is_gone() -> bool:
            clock.advance(600)
            return await made.get("resourcepoolstatusrequests", "question") is None

        await until(is_gone)
