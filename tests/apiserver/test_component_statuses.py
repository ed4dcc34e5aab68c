"""ComponentStatus: what runs, found out when asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from allot.apiserver.handlers.component_statuses import ComponentStatuses
from allot.core.lifecycle.attention import announcement
from allot.process.clock import SystemClock
from allot.store.memory import MemoryStore
from apiserver.live import LiveServer, live_server
from waiting import until

PATH = "/api/v1/componentstatuses"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@pytest_asyncio.fixture
async def server(tmp_path_factory: Any) -> AsyncIterator[LiveServer]:
    async with live_server(tmp_path_factory.mktemp("components"), MemoryStore()) as found:
        yield found


async def healthy(server: LiveServer) -> dict[str, str]:
    items = (await server.get(PATH)).json["items"]
    return {item["metadata"]["name"]: item["conditions"][0]["status"] for item in items}


async def test_components_are_healthy_while_they_announce_themselves(server: LiveServer) -> None:
    assert await healthy(server) == {"controller-manager": "False", "scheduler": "False"}
    one = (await server.get(f"{PATH}/scheduler")).json
    assert one["kind"] == "ComponentStatus"
    assert one["conditions"] == [
        {
            "type": "Healthy",
            "status": "False",
            "message": "neither allot's scheduler nor a kube-scheduler holds its Lease",
        }
    ]
    now = SystemClock().now()
    lease = announcement("allot-scheduler-1", ["default-scheduler"], "me", 60, now)
    assert (await server.post(LEASES, lease)).status == 201

    async def is_seen() -> bool:
        return await healthy(server) == {"controller-manager": "False", "scheduler": "True"}

    await until(is_seen)
    rows = (await server.get(PATH, headers=TABLE)).json["rows"]
    assert [row["cells"][:3] for row in rows][1] == ["scheduler", "Healthy", "ok"]
    row = (await server.get(f"{PATH}/scheduler", headers=TABLE)).json["rows"][0]
    assert row["cells"] == ["scheduler", "Healthy", "ok", ""]


async def test_those_that_do_not_exist_or_are_not_selected_are_not_there(server: LiveServer) -> None:
    missing = await server.get(f"{PATH}/etcd-0")
    assert missing.status == 404
    assert missing.json["message"] == 'componentstatus "etcd-0" not found'
    assert (await server.get(f"{PATH}?fieldSelector=metadata.name%3Dscheduler")).json["items"][0]["metadata"] == {
        "name": "scheduler"
    }
    assert (await server.get(f"{PATH}?labelSelector=a%3Db")).json["items"] == []
    assert (await server.post(PATH, {"metadata": {"name": "x"}})).status == 405


async def test_a_store_of_its_own_is_asked() -> None:
    problems: list[str | None] = ["etcd does not answer", None]

    async def check() -> str | None:
        return problems.pop(0)

    statuses = ComponentStatuses(lambda _: True, {"etcd-0": check})
    assert (await statuses._status("etcd-0"))["conditions"][0]["message"] == "etcd does not answer"
    assert (await statuses._status("etcd-0"))["conditions"][0]["status"] == "True"
