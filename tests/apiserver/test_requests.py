"""Every request that real components were seen to make is answered with the same status."""

from __future__ import annotations

import re
from typing import Any

import pytest

from apiserver.live import LiveServer
from vectors import vectors_dir

pytestmark = pytest.mark.slow

NODE = "lab-node"
NAMESPACE = "team-a"
_LINE = re.compile(r"^(\w+)\s+(\S+) → (\d+)")
_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}  # fmt: skip


def recorded() -> list[tuple[str, str, int]]:
    """Verb, path and status."""
    folder = vectors_dir()
    transcript = folder.parent / "reference" / "transcripts" / "requests.txt" if folder is not None else None
    if transcript is None or not transcript.exists():
        pytest.skip("the transcripts are not there: set ALLOT_VECTORS to the folder beside them")
    lines = transcript.read_text().splitlines()
    found = [match.groups() for line in lines if (match := _LINE.match(line))]
    return [(verb, path, int(status)) for verb, path, status in found]


def body_for(path: str, name: str) -> dict[str, Any]:
    """Something sensible to create."""
    plural = path.rstrip("/").rsplit("/", 1)[1]
    metadata = {"name": name}
    involved = {"kind": "Pod", "name": "pod1", "namespace": NAMESPACE}
    match plural:
        case "events" if "events.k8s.io" in path:
            return {
                "metadata": metadata, "regarding": involved, "reason": "Tested", "action": "Test", "type": "Normal",
                "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "test", "reportingInstance": "test-0",
            }  # fmt: skip
        case "events":
            return {"metadata": metadata, "involvedObject": involved, "reason": "Tested", "type": "Normal"}
        case "pods":
            return {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        case "deviceclasses" | "csinodes":
            return {"metadata": metadata, "spec": {} if plural == "deviceclasses" else {"drivers": []}}
        case "resourceclaims":
            requests = [{"name": "r", "exactly": {"deviceClassName": "x"}}]
            return {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
        case "resourceclaimtemplates":
            requests = [{"name": "r", "exactly": {"deviceClassName": "x"}}]
            return {"metadata": metadata, "spec": {"spec": {"devices": {"requests": requests}}}}
        case "resourceslices":
            pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": "d.example.com", "nodeName": NODE, "pool": pool, "devices": [{"name": "gpu-0"}]}
            return {"metadata": metadata, "spec": spec}
        case "leases":
            return {"metadata": metadata, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 40}}
        case "binding":
            return {"metadata": {"name": "existing"}, "target": {"kind": "Node", "name": NODE}}
    return {"metadata": metadata}


async def prepared(server: LiveServer) -> None:
    """What the requests expect to be there."""
    await server.post("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for path in (
        "/api/v1/nodes",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
        f"/api/v1/namespaces/{NAMESPACE}/pods",
        f"/api/v1/namespaces/{NAMESPACE}/configmaps",
        f"/api/v1/namespaces/{NAMESPACE}/events",
        f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
    ):
        answer = await server.post(path, body_for(path, "existing"))
        assert answer.status in (201, 409), (path, answer.json)
    await server.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})


async def ask(server: LiveServer, verb: str, path: str, status: int, number: int) -> int:
    """The status of one request, made as it was recorded."""
    target, _, query = path.partition("?")
    existing = "existing" if "clusterroles" not in target else "view"
    name = "missing" if status == 404 else "default" if target == "/api/v1/namespaces/{name}" else existing
    target = target.replace("{ns}", NAMESPACE).replace("{name}", name)
    query = query.replace("timeout=…", "timeout=10s").replace("timeoutSeconds=…", "timeoutSeconds=1")
    query = query.replace("resourceVersion=…", "resourceVersion=0")
    address = f"{target}?{query}" if query else target
    headers: dict[str, str] = {}
    body: Any = None
    if verb == "create":
        body = body_for(target, f"made-{number}")
        if target.endswith("/binding"):
            pod = {**body_for("/pods", f"bound-{number}")}
            await server.post(f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
            address = target.replace("existing", f"bound-{number}")
            body = {**body, "metadata": {"name": f"bound-{number}"}}
    elif verb == "update":
        body = (await server.get(target.removesuffix("/status"))).json
    elif verb == "patch":
        applies = "force=true" in query
        headers["Content-Type"] = f"application/{'apply-patch+yaml' if applies else 'strategic-merge-patch+json'}"
        body = {"metadata": {"labels": {"touched": str(number)}}}
        if applies:
            stored = (await server.get(target.removesuffix("/status"))).json
            body = {key: stored[key] for key in ("apiVersion", "kind")} | {
                "metadata": {"name": stored["metadata"]["name"]}
            }
    elif verb == "delete" and status == 200:
        collection, _, _ = target.rpartition("/")
        await server.post(collection, body_for(collection, f"doomed-{number}"))
        address = f"{collection}/doomed-{number}"
    answer = await server.request(_METHODS[verb], address, body, headers=headers)
    return answer.status


async def test_recorded_requests_get_the_recorded_status(server: LiveServer) -> None:
    await prepared(server)
    wrong = []
    asked = [(verb, path, status) for verb, path, status in recorded() if path != "/readyz"]
    assert len(asked) > 130
    watches = []
    for number, (verb, path, status) in enumerate(asked):
        if verb == "watch":
            watches.append((verb, path, status, number))
            continue
        given = await ask(server, verb, path, status, number)
        if given != status:
            wrong.append(f"{verb} {path}: {given} instead of {status}")
    import asyncio

    answers = await asyncio.gather(*(ask(server, *each) for each in watches))
    wrong += [f"{each[0]} {each[1]}: {given}" for each, given in zip(watches, answers, strict=True) if given != each[2]]
    assert not wrong, "\n".join(wrong)
