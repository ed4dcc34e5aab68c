"""The requests that real components were recorded to send: each gets the recorded status and an answer of its kind."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from e2e.connections import Connection, session_of
from e2e.servers import ServerProcess

pytestmark = pytest.mark.slow

_RECORDED = Path(__file__).parents[3] / "shared" / "reference" / "transcripts" / "requests.txt"
_NAMESPACE = "replay"
_METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
_LIST_KINDS = {"/api/v1/nodes": "NodeList", "/api/v1/pods": "PodList"}
# A server that is still starting answered 500. Ours listens only when it is ready.
_NOT_REPEATABLE = {("/readyz", 500)}
_SCHEDULER = {"Impersonate-User": "system:kube-scheduler"}
# The scheduler's right to these comes with the gate GenericWorkload, which was on where this was recorded.
_NEEDS_A_GATE = "/podgroups"


class Recorded(NamedTuple):
    """One line of the recording."""

    agent: str
    verb: str
    path: str
    status: int


def _recorded() -> list[Recorded]:
    found: list[Recorded] = []
    agent = ""
    for line in _RECORDED.read_text().splitlines():
        if line.startswith("## "):
            agent = line[3:]
        elif match := re.fullmatch(r"(\w+) +(\S+) → (\d+) +×\d+", line):
            found.append(Recorded(agent, match[1], match[2], int(match[3])))
    return found


def _path(line: Recorded, name: str) -> str:
    """The path with its gaps filled in."""
    path = line.path.replace("{ns}", _NAMESPACE).replace("{name}", name)
    path = path.replace("timeoutSeconds=…", "timeoutSeconds=20").replace("timeout=…", "timeout=20s")
    return path.replace("resourceVersion=…", "resourceVersion=0").replace("spec.nodeName=lab-node", "spec.nodeName=n")


_CLAIM_SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
_POD_SPEC = {"containers": [{"name": "main", "image": "busybox:1"}]}


def _allocation(device: str) -> dict[str, Any]:
    return {"devices": {"results": [{"request": "gpu", "driver": "d.example.com", "pool": "p", "device": device}]}}


def _body(resource: str, name: str) -> dict[str, Any]:
    """A sensible new object."""
    about = {"name": "x", "namespace": _NAMESPACE, "kind": "Pod", "apiVersion": "v1"}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    specific: dict[str, dict[str, Any]] = {
        "pods": {"spec": _POD_SPEC},
        "leases": {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 40}},
        "resourceclaims": {"spec": _CLAIM_SPEC},
        "resourceclaimtemplates": {"spec": {"spec": _CLAIM_SPEC}},
        "resourceslices": {"spec": {"driver": "d.example.com", "nodeName": "n", "pool": pool}},
        "deviceclasses": {"spec": {}},
        "csinodes": {"spec": {"drivers": []}},
        "clusterroles": {"rules": []},
        "events": {"involvedObject": about, "reason": "Tested", "message": "m", "type": "Normal"},
        "events.k8s.io": {
            "regarding": about,
            "reason": "Tested",
            "note": "m",
            "type": "Normal",
            "action": "Testing",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.com/tester",
            "reportingInstance": "tester-1",
        },
    }
    return {"metadata": {"name": name}, **specific.get(resource, {})}


def _parts(path: str) -> tuple[str, str, str, str]:
    """Of a resource path: where its collection is, resource, name, subresource."""
    path = path.partition("?")[0]
    match = re.fullmatch(
        r"(/api/v1|/apis/[^/]+/[^/]+)(/namespaces/[^/]+(?=/))?/([^/]+)(?:/([^/]+))?(?:/([^/]+))?", path
    )
    if match is None:
        return "", "", "", ""
    root, within, resource, name, subresource = match.groups()
    group = root.split("/")[2] if root.startswith("/apis") else ""
    plural = "events.k8s.io" if group == "events.k8s.io" and resource == "events" else resource
    return f"{root}{within or ''}/{resource}", plural, name or "", subresource or ""


class Replay(Connection):
    """Sends recorded requests."""

    async def repeat(self, number: int, line: Recorded) -> str | None:
        """What is wrong with the answer to a line, if anything is."""
        name = "kubernetes" if "servicecidrs/kubernetes" in line.path else f"r{number}"
        path = _path(line, name)
        collection, resource, has_name, subresource = _parts(path)
        as_scheduler = line.agent == "kube-scheduler" and _NEEDS_A_GATE not in path
        headers = dict(_SCHEDULER) if as_scheduler else {}
        if line.verb == "watch":
            status, answer = await self.initial_events_end(path, **headers)
            good = answer is not None and answer["kind"] and answer["metadata"]["resourceVersion"]
            return None if status == line.status and good else f"{line}: {status} {answer}"
        current = None
        if has_name and line.status != 404:
            current = await self._ensure(collection, resource, name)
        body, kind = self._content(line, resource, name, subresource, current)
        if kind:
            headers["Content-Type"] = kind
        method = _METHODS.get(line.verb, "GET")
        status, answer = await self.send(method, path, body, **headers)
        good = _shape_fits(line, path, answer, name)
        return None if status == line.status and good else f"{line}: {status} {answer}"

    async def _ensure(self, collection: str, resource: str, name: str) -> dict[str, Any]:
        status, found = await self.send("GET", f"{collection}/{name}")
        if status == 404:
            status, found = await self.send("POST", collection, _body(resource, name))
        assert status in (200, 201), (collection, name, found)
        result: dict[str, Any] = found
        return result

    def _content(
        self, line: Recorded, resource: str, name: str, subresource: str, current: dict[str, Any] | None
    ) -> tuple[Any, str]:
        """Body and content type of a request."""
        if line.verb == "create":
            if subresource == "binding":
                return {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}, ""
            return _body(resource, name), ""
        if line.verb == "update":
            assert current is not None
            if subresource == "status":
                # A device of its own: what others hold cannot be had.
                return {**current, "status": {"allocation": _allocation(current["metadata"]["name"])}}, ""
            return current, ""
        if line.verb == "patch":
            assert current is not None
            if "force=true" in line.path:
                identity = {"apiVersion": current["apiVersion"], "kind": current["kind"], "metadata": {"name": name}}
                part: dict[str, Any] = {"status": {}} if subresource else {}
                return {**identity, **part}, "application/apply-patch+yaml"
            part = {"status": {}} if subresource else {"metadata": {"annotations": {"a": "b"}}}
            return part, "application/strategic-merge-patch+json"
        return None, ""


def _shape_fits(line: Recorded, path: str, answer: Any, name: str) -> bool:
    """Whether an answer is of the kind that a client expects."""
    if path in ("/healthz", "/readyz"):
        return bool(answer == "ok")
    if line.status == 404:
        return (answer["kind"], answer["reason"], answer["code"]) == ("Status", "NotFound", 404)
    if path in ("/api", "/apis", "/apis/events.k8s.io/v1"):
        return answer["kind"] in ("APIVersions", "APIGroupList", "APIResourceList")
    if path.startswith("/openapi/v3"):
        return "apis/resource.k8s.io/v1" in answer["paths"]
    if line.verb == "list":
        return answer["kind"] == _LIST_KINDS[path.partition("?")[0]] and isinstance(answer["items"], list)
    if line.verb == "deletecollection":
        return str(answer["kind"]).endswith("List") or answer["kind"] == "Status"
    if path.endswith("/binding"):
        return (answer["kind"], answer["status"]) == ("Status", "Success")
    if line.verb == "delete" and answer["kind"] == "Status":
        return answer["status"] == "Success"
    return answer["metadata"]["name"] == name and bool(answer["metadata"]["uid"])


@pytest_asyncio.fixture
async def replay(any_server: ServerProcess) -> AsyncIterator[Replay]:
    """The administrator's connection, and the namespace and node that the recorded objects belong to."""
    async with session_of(any_server) as session:
        sender = Replay(session, any_server.url)
        await sender.send("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        await sender.send("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        yield sender


@pytest.mark.skipif(not _RECORDED.exists(), reason=f"{_RECORDED.name} is not beside the repository")
async def test_recorded_requests_get_the_recorded_answers(replay: Replay) -> None:
    lines = _recorded()
    assert len(lines) > 100
    wrong: list[str | None] = []
    for number, line in enumerate(lines):
        if (line.path, line.status) not in _NOT_REPEATABLE:
            wrong.append(await replay.repeat(number, line))
    assert list(filter(None, wrong)) == []


@pytest.mark.skipif(not _RECORDED.exists(), reason=f"{_RECORDED.name} is not beside the repository")
async def test_all_recorded_watches_at_once(replay: Replay) -> None:
    lines = [line for line in _recorded() if line.verb == "watch"]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(replay.repeat(number, line)) for number, line in enumerate(lines)]
    assert [task.result() for task in tasks if task.result()] == []
