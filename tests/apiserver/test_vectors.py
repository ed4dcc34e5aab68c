"""What a recorded kube-apiserver refuses and accepts, sent over HTTP: same code, reason and causes."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.store.memory import MemoryStore
from apiserver.live import Answer, LiveServer, live_server
from vectors import vectors_dir

pytestmark = pytest.mark.slow

_PLURALS = {
    "DeviceClass": "deviceclasses",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
    "DeviceTaintRule": "devicetaintrules",
    "ResourcePoolStatusRequest": "resourcepoolstatusrequests",
    "Pod": "pods",
    "PodGroup": "podgroups",
    "Workload": "workloads",
    "CompositePodGroup": "compositepodgroups",
    "PriorityClass": "priorityclasses",
    "ResourceQuota": "resourcequotas",
}
_CLUSTER = ("DeviceClass", "ResourceSlice", "DeviceTaintRule", "ResourcePoolStatusRequest", "PriorityClass")


def cases(name: str) -> list[dict[str, Any]]:
    folder = vectors_dir()
    if folder is None:
        pytest.skip("the vectors are not there: set ALLOT_VECTORS to their folder")
    found: list[dict[str, Any]] = json.loads((folder / "api" / name).read_text())
    return found


@pytest_asyncio.fixture
async def servers(tmp_path: Path) -> AsyncIterator[dict[bool, LiveServer]]:
    """A server with default gates and one with all of them."""
    async with (
        live_server(tmp_path / "default", MemoryStore(), DEFAULT_GATES) as stock,
        live_server(tmp_path / "all", MemoryStore(), ALL_GATES) as full,
    ):
        for server in (stock, full):
            await server.post("/api/v1/namespaces", {"metadata": {"name": "team-a"}})
            await server.post("/api/v1/namespaces/team-a/serviceaccounts", {"metadata": {"name": "default"}})
        yield {False: stock, True: full}


def collection(object_: dict[str, Any]) -> str:
    version, kind = object_["apiVersion"], object_["kind"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    namespace = object_["metadata"].get("namespace") or "default"
    place = "" if kind in _CLUSTER else f"/namespaces/{namespace}"
    return f"{root}{place}/{_PLURALS[kind]}"


async def send(server: LiveServer, case: dict[str, Any]) -> Answer:
    operation, object_ = case["operation"], case["object"]
    path = collection(object_)
    if operation == "create":
        answer = await server.post(path, object_)
        if answer.status == 201:
            await remove(server, f"{path}/{answer.json['metadata']['name']}")
        return answer
    old = case["old"]
    created = await server.post(collection(old), old)
    assert created.status == 201, (case["id"], created.json)
    one = f"{collection(old)}/{created.json['metadata']['name']}"
    try:
        return await change(server, case, one)
    finally:
        await remove(server, one)


async def change(server: LiveServer, case: dict[str, Any], one: str) -> Answer:
    operation, object_ = case["operation"], case["object"]
    if "oldStatus" in case:
        stored = (await server.get(one)).json
        answer = await server.put(f"{one}/status", {**stored, "status": case["oldStatus"]})
        assert answer.status == 200, (case["id"], answer.json)
    if operation == "status-deleting":
        await server.delete(one)
    stored = (await server.get(one)).json
    metadata = {**stored["metadata"], **object_["metadata"]}
    metadata.pop("managedFields", None)
    if operation == "update-unconditional":
        del metadata["resourceVersion"]
    sent = {**object_, "metadata": metadata}
    if operation.startswith("status"):
        sent = {**stored, "metadata": metadata, "status": object_.get("status")}
        return await server.put(f"{one}/status", sent)
    return await server.put(one, sent)


async def remove(server: LiveServer, one: str) -> None:
    await server.patch(one, {"metadata": {"finalizers": None}})
    await server.delete(one, {"gracePeriodSeconds": 0})


def difference(case: dict[str, Any], answer: Answer) -> str:
    """What is not the same; empty if nothing is."""
    body = answer.json
    if (answer.status, body.get("reason", "")) != (case["code"], case["reason"]):
        return f"{answer.status} {body.get('reason')}: {body.get('message', '')[:300]}"
    causes = (body.get("details") or {}).get("causes") or []
    given = sorted((each.get("field", ""), each["reason"]) for each in causes)
    wanted = sorted((each["field"], each["type"]) for each in case.get("errors") or [])
    if given != wanted:
        return f"causes {given} instead of {wanted}"
    exact = {
        (each["field"], each["type"], each["message"])
        for each in case.get("errors") or []
        if each.get("messageExact", True)
    }
    missing = exact - {(each.get("field", ""), each["reason"], each["message"]) for each in causes}
    if missing:
        return f"messages {sorted(missing)} are not among {causes}"
    if "message" in case and case["message"] != body["message"]:
        return f"message {body['message']!r} instead of {case['message']!r}"
    return ""


async def test_what_upstream_refuses_is_refused_in_the_same_words(servers: dict[bool, LiveServer]) -> None:
    wrong = []
    given = cases("invalid.json")
    for case in given:
        answer = await send(servers[bool(case.get("gates"))], case)
        if told := difference(case, answer):
            wrong.append(f"{case['id']} ({case['operation']}): {told}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(given)}", *wrong])


async def test_oddities_that_upstream_accepts_are_accepted_and_stored_alike(servers: dict[bool, LiveServer]) -> None:
    wrong = []
    given = cases("accepted-oddities.json")
    for case in given:
        server = servers[bool(case.get("gates"))]
        answer = await send(server, {"operation": "create", **case})
        if answer.status != 201:
            wrong.append(f"{case['id']}: {answer.status} {answer.json.get('message')}")
            continue
        now = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
        for member, value in case.get("stored", {}).items():
            given_ = json.loads(now.sub("<now>", json.dumps(answer.json.get(member, {}))))
            if given_ != value:
                wrong.append(f"{case['id']}: {member} is {answer.json.get(member)} instead of {value}")
    assert not wrong, "\n".join([f"{len(wrong)} of {len(given)}", *wrong])
