"""Lists: selectors, pages, revisions."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote

import pytest

from apiserver.live import LiveServer

MAPS = "/api/v1/namespaces/kube-node-lease/configmaps"
PODS = "/api/v1/namespaces/default/pods"


async def fill(server: LiveServer, count: int) -> list[dict[str, Any]]:
    made = []
    for number in range(count):
        labels = {"parity": "even" if number % 2 == 0 else "odd", "number": str(number)}
        body = {"metadata": {"name": f"m{number:02}", "labels": labels}}
        made.append((await server.post(MAPS, body)).json)
    return made


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json["items"] if item["metadata"]["name"] != "kube-root-ca.crt"]


async def test_a_list_is_in_order_of_names_and_leaves_types_to_the_list(any_server: LiveServer) -> None:
    await fill(any_server, 3)
    answer = await any_server.get(MAPS)
    assert (answer.json["kind"], answer.json["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(answer) == ["m00", "m01", "m02"]
    assert all("kind" not in item and "apiVersion" not in item for item in answer.json["items"])
    assert answer.json["metadata"]["resourceVersion"].isdigit()


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("parity=even", ["m00", "m02"]),
        ("parity!=even", ["m01", "m03"]),
        ("number in (1,2)", ["m01", "m02"]),
        ("parity,number notin (0)", ["m01", "m02", "m03"]),
        ("!parity", []),
    ],
)
async def test_labels_select(server: LiveServer, selector: str, found: list[str]) -> None:
    await fill(server, 4)
    assert names(await server.get(f"{MAPS}?labelSelector={quote(selector)}")) == found


async def test_fields_select(server: LiveServer) -> None:
    await fill(server, 3)
    assert names(await server.get(f"{MAPS}?fieldSelector=metadata.name=m01")) == ["m01"]
    assert names(await server.get(f"{MAPS}?fieldSelector=metadata.name!=m01")) == ["m00", "m02"]
    every = await server.get("/api/v1/configmaps?fieldSelector=metadata.namespace=kube-node-lease,metadata.name=m02")
    assert names(every) == ["m02"]


async def test_pods_are_selected_by_node_and_phase(server: LiveServer) -> None:
    for name, node in (("a", "n1"), ("b", "")):
        pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        if node:
            pod["spec"]["nodeName"] = node  # type: ignore[index]
        assert (await server.post(PODS, pod)).status == 201
    assert names(await server.get("/api/v1/pods?fieldSelector=spec.nodeName=n1")) == ["a"]
    assert names(await server.get("/api/v1/pods?fieldSelector=spec.nodeName=,status.phase=Pending")) == ["b"]


async def test_slices_are_selected_by_their_pool_in_every_version(server: LiveServer) -> None:
    group = "/apis/resource.k8s.io"
    for name in ("a", "b"):
        pool = {"name": f"pool-{name}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [{"name": "d"}]}
        assert (
            await server.post(f"{group}/v1/resourceslices", {"metadata": {"name": name}, "spec": spec})
        ).status == 201
    for version in ("v1", "v1beta2", "v1beta1"):
        path = f"{group}/{version}/resourceslices?fieldSelector=spec.pool.name"
        assert names(await server.get(f"{path}=pool-a")) == ["a"]
        assert names(await server.get(f"{path}!=pool-a,spec.driver=d.example.com")) == ["b"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (f"{PODS}?fieldSelector=spec.bogus=x", "field label not supported: spec.bogus"),
        (
            f"{MAPS}?fieldSelector=data.x=y",
            '"data.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        (
            "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.pool=x",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.pool",
        ),
        (f"{MAPS}?fieldSelector=name", "invalid selector: 'name'; can't understand 'name'"),
        (f"{MAPS}?labelSelector=a%3D%3D%3Db", "unable to parse requirement"),
        (f"{MAPS}?limit=many", "invalid syntax"),
        (f"{MAPS}?continue=!!!", "invalid continue token"),
        (f"{MAPS}?resourceVersion=abc", "invalid resource version"),
    ],
)
async def test_what_cannot_be_understood_is_refused(server: LiveServer, path: str, message: str) -> None:
    answer = await server.get(path)
    assert answer.status == 400, answer.json
    assert message in answer.json["message"]


async def test_pages_show_one_revision(any_server: LiveServer) -> None:
    await fill(any_server, 5)
    first = await any_server.get(f"{MAPS}?limit=2&labelSelector=")
    assert len(first.json["items"]) == 2
    assert first.json["metadata"]["remainingItemCount"] == 4
    await any_server.delete(f"{MAPS}/m03")
    await any_server.post(MAPS, {"metadata": {"name": "m99"}})
    found, token = names(first), first.json["metadata"]["continue"]
    while token:
        page = await any_server.get(f"{MAPS}?limit=2&continue={token}")
        assert page.json["metadata"]["resourceVersion"] == first.json["metadata"]["resourceVersion"]
        found += names(page)
        token = page.json["metadata"].get("continue", "")
    assert found == ["m00", "m01", "m02", "m03", "m04"]


async def test_pages_of_a_selection_are_full(any_server: LiveServer) -> None:
    await fill(any_server, 7)
    first = await any_server.get(f"{MAPS}?limit=2&labelSelector=parity%3Deven")
    assert names(first) == ["m00", "m02"]
    assert "remainingItemCount" not in first.json["metadata"]
    second = await any_server.get(
        f"{MAPS}?limit=2&labelSelector=parity%3Deven&continue={first.json['metadata']['continue']}"
    )
    assert names(second) == ["m04", "m06"]


async def test_revisions_that_do_not_exist_yet_are_told_apart(server: LiveServer) -> None:
    answer = await server.get(f"{MAPS}?resourceVersion=999999&resourceVersionMatch=NotOlderThan")
    assert (answer.status, answer.json["reason"]) == (504, "Timeout")
    assert answer.json["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    answer = await server.get(f"{MAPS}?resourceVersionMatch=Exact")
    assert answer.status == 422
    assert "resourceVersionMatch is forbidden unless resourceVersion is provided" in answer.json["message"]


async def test_an_old_revision_can_be_asked_for_exactly(any_server: LiveServer) -> None:
    made = await fill(any_server, 3)
    version = made[1]["metadata"]["resourceVersion"]
    answer = await any_server.get(f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert names(answer) == ["m00", "m01"]
    assert answer.json["metadata"]["resourceVersion"] == version


async def test_what_was_compacted_has_expired(any_server: LiveServer) -> None:
    made = await fill(any_server, 3)
    first = await any_server.get(f"{MAPS}?limit=1")
    await any_server.delete(f"{MAPS}/m02")
    store = any_server.live.server.context.store
    await store.compact(await store.revision())
    version = made[0]["metadata"]["resourceVersion"]
    answer = await any_server.get(f"{MAPS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert (answer.status, answer.json["reason"]) == (410, "Expired")
    answer = await any_server.get(f"{MAPS}?limit=1&continue={first.json['metadata']['continue']}")
    assert (answer.status, answer.json["reason"]) == (410, "Expired")
    rest = await any_server.get(f"{MAPS}?continue={answer.json['metadata']['continue']}")
    assert names(rest)[-1] == "m01"


async def test_tokens_are_kubernetes_own(server: LiveServer) -> None:
    await fill(server, 2)
    token = (await server.get(f"{MAPS}?limit=1")).json["metadata"]["continue"]
    told = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    assert (told["v"], sorted(told)) == ("meta.k8s.io/v1", ["rv", "start", "v"])


async def test_tokens_cannot_leave_their_folder(server: LiveServer) -> None:
    raw = json.dumps({"v": "meta.k8s.io/v1", "rv": 5, "start": "../../secrets/"}).encode()
    token = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    assert (await server.get(f"{MAPS}?limit=1&continue={token}")).status == 400
