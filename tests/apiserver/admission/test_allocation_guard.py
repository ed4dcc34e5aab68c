"""The API server stores no allocation of what other claims hold."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from allot.store.sqlite import SqliteStore
from apiserver.live import Answer, LiveServer, live_server

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"


async def make_claim(server: LiveServer, name: str) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    body = {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
    answer = await server.post(CLAIMS, body)
    assert answer.status == 201, answer.raw
    made: dict[str, Any] = answer.json
    return made


def allocation(device: str, **more: Any) -> dict[str, Any]:
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device, **more}
    return {"devices": {"results": [result]}}


async def allocate(server: LiveServer, name: str, wanted: dict[str, Any] | None, query: str = "") -> Answer:
    claim = (await server.get(f"{CLAIMS}/{name}")).json
    status = {"allocation": wanted} if wanted else {}
    return await server.put(f"{CLAIMS}/{name}/status{query}", {**claim, "status": status})


async def test_the_second_allocation_of_a_device_is_a_conflict_that_names_the_holder(any_server: LiveServer) -> None:
    server = any_server
    for name in ("a", "b"):
        await make_claim(server, name)
    assert (await allocate(server, "a", allocation("gpu-0"))).status == 200
    refused = await allocate(server, "b", allocation("gpu-0"))
    assert refused.status == 409
    assert refused.json["reason"] == "Conflict"
    assert refused.json["message"] == (
        'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "b": '
        "device gpu.example.com/n1/gpu-0 is allocated to claim default/a already"
    )
    assert "status" not in (await server.get(f"{CLAIMS}/b")).json or not (await server.get(f"{CLAIMS}/b")).json[
        "status"
    ].get("allocation")
    patched = await server.patch(f"{CLAIMS}/b/status", {"status": {"allocation": allocation("gpu-0")}})
    assert patched.status == 409
    assert (await allocate(server, "b", allocation("gpu-1"))).status == 200


async def test_a_device_is_free_as_soon_as_its_claim_is_deallocated_or_deleted(server: LiveServer) -> None:
    for name in ("a", "b", "c"):
        await make_claim(server, name)
    assert (await allocate(server, "a", allocation("gpu-0"))).status == 200
    assert (await allocate(server, "a", None)).status == 200
    assert (await allocate(server, "b", allocation("gpu-0"))).status == 200
    assert (await server.delete(f"{CLAIMS}/b")).status == 200
    assert (await allocate(server, "c", allocation("gpu-0"))).status == 200


async def test_dry_runs_are_judged_and_hold_nothing(server: LiveServer) -> None:
    for name in ("a", "b"):
        await make_claim(server, name)
    assert (await allocate(server, "a", allocation("gpu-0"), "?dryRun=All")).status == 200
    assert (await allocate(server, "b", allocation("gpu-0"))).status == 200
    assert (await allocate(server, "a", allocation("gpu-0"), "?dryRun=All")).status == 409


async def test_a_write_that_fails_holds_nothing(server: LiveServer) -> None:
    for name in ("a", "b"):
        await make_claim(server, name)
    claim = (await server.get(f"{CLAIMS}/a")).json
    old = {**claim, "metadata": {**claim["metadata"], "resourceVersion": "1"}}
    refused = await server.put(f"{CLAIMS}/a/status", {**old, "status": {"allocation": allocation("gpu-0")}})
    assert refused.status == 409
    assert (await allocate(server, "b", allocation("gpu-0"))).status == 200


@pytest.mark.slow
async def test_of_many_writers_at_once_exactly_one_gets_the_device(any_server: LiveServer) -> None:
    server = any_server
    names = [f"c{number}" for number in range(16)]
    for name in names:
        await make_claim(server, name)
    for round_ in range(3):
        wanted = allocation(f"gpu-{round_}")
        codes = [answer.status for answer in await asyncio.gather(*(allocate(server, n, wanted) for n in names))]
        assert sorted(codes) == [200] + [409] * 15
        for name, code in zip(names, codes, strict=True):
            if code == 200:
                assert (await allocate(server, name, None)).status == 200


async def test_what_is_held_is_remembered_over_a_restart(tmp_path: Path) -> None:
    async with live_server(tmp_path, SqliteStore(tmp_path / "state.db")) as server:
        for name in ("a", "b"):
            await make_claim(server, name)
        assert (await allocate(server, "a", allocation("gpu-0"))).status == 200
    async with live_server(tmp_path, SqliteStore(tmp_path / "state.db")) as server:
        assert (await allocate(server, "b", allocation("gpu-0"))).status == 409
        assert (await allocate(server, "b", allocation("gpu-1"))).status == 200
