"""Custom resources in versions that a webhook converts, on a real server."""

from __future__ import annotations

from typing import Any

from apiserver.live import Answer, LiveServer
from apiserver.webhook_server import Webhook
from waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Object = dict[str, Any]


def path(version: str, name: str = "") -> str:
    return f"/apis/example.com/{version}/namespaces/default/pairs" + (f"/{name}" if name else "")


def definition(webhook: Webhook, storage: str = "v1") -> Object:
    texts = {
        "v1": {"hostPort": {"type": "string"}},
        "v2": {"host": {"type": "string"}, "port": {"type": "string", "maxLength": 5}},
    }
    versions = [
        {
            "name": name,
            "served": True,
            "storage": name == storage,
            "schema": {
                "openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": properties}, "status": {"type": "object"}},
                }
            },
            "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": f".spec.{field}"} for field in properties],
        }
        for name, properties in texts.items()
    ]
    client = {"url": f"https://127.0.0.1:{webhook.port}/convert", "caBundle": webhook.bundle}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pairs.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "pairs", "kind": "Pair"},
            "versions": versions,
            "conversion": conversion,
        },
    }


def pair(version: str, name: str = "p", **spec: str) -> Object:
    return {"apiVersion": f"example.com/{version}", "kind": "Pair", "metadata": {"name": name}, "spec": spec}


def convert(request: Object) -> Object:
    """hostPort in v1, host and port in v2."""
    found = []
    for object_ in request["objects"]:
        spec = object_.get("spec") or {}
        if request["desiredAPIVersion"] == "example.com/v2":
            host, _, port = spec.get("hostPort", ":").partition(":")
            spec = {"host": host, "port": port}
        else:
            spec = {"hostPort": f"{spec.get('host', '')}:{spec.get('port', '')}"}
        found.append({**object_, "apiVersion": request["desiredAPIVersion"], "spec": spec})
    return {"result": {"status": "Success"}, "convertedObjects": found}


async def defined(server: LiveServer, webhook: Webhook) -> None:
    webhook.decide = convert
    answer = await server.post(DEFINITIONS, definition(webhook))
    assert answer.status == 201, answer.json
    await served(server)


async def served(server: LiveServer) -> None:
    async def answers() -> bool:
        return (await server.get(path("v1"))).status == 200 and (await server.get(path("v2"))).status == 200

    await until(answers, "both versions are served")


def spec_of(answer: Answer) -> Object:
    assert answer.status in (200, 201), answer.json
    found: Object = answer.json["spec"]
    return found


async def test_objects_are_written_and_read_in_every_version(server: LiveServer, webhook: Webhook) -> None:
    await defined(server, webhook)
    assert spec_of(await server.post(path("v2"), pair("v2", host="a", port="1"))) == {"host": "a", "port": "1"}
    assert spec_of(await server.get(path("v1", "p"))) == {"hostPort": "a:1"}
    made = await server.get(path("v2", "p"))
    assert made.json["metadata"]["uid"] == (await server.get(path("v1", "p"))).json["metadata"]["uid"]
    changed = {**made.json, "spec": {"host": "a", "port": "2"}}
    assert spec_of(await server.put(path("v2", "p"), changed)) == {"host": "a", "port": "2"}
    assert spec_of(await server.patch(path("v2", "p"), {"spec": {"host": "b"}})) == {"host": "b", "port": "2"}
    found = await server.get(path("v1", "p"))
    assert spec_of(found) == {"hostPort": "b:2"}
    # Who owns what is told in the version in which it was written.
    assert [entry["apiVersion"] for entry in found.json["metadata"]["managedFields"]] == ["example.com/v2"]
    written = await server.patch(path("v1", "p"), {"spec": {"hostPort": "b:3"}})
    entries = {each["apiVersion"]: each["fieldsV1"]["f:spec"] for each in written.json["metadata"]["managedFields"]}
    assert entries == {"example.com/v1": {"f:hostPort": {}}, "example.com/v2": {".": {}, "f:host": {}}}
    applied = pair("v2", "q", host="c", port="3")
    answer = await server.request(
        "PATCH",
        path("v2", "q") + "?fieldManager=me",
        applied,
        headers={"Content-Type": "application/apply-patch+yaml"},
    )
    assert spec_of(answer) == {"host": "c", "port": "3"}
    assert answer.json["metadata"]["managedFields"][0]["apiVersion"] == "example.com/v2"
    assert (await server.delete(path("v2", "q"))).status == 200


async def test_validation_is_that_of_the_version_that_was_written(server: LiveServer, webhook: Webhook) -> None:
    await defined(server, webhook)
    refused = await server.post(path("v2"), pair("v2", host="a", port="123456"))
    assert refused.status == 422
    assert "spec.port" in refused.json["message"]
    assert (await server.post(path("v1"), pair("v1", hostPort="a:123456"))).status == 201


async def test_a_list_of_objects_of_several_stored_versions_is_one_question(
    server: LiveServer, webhook: Webhook
) -> None:
    await defined(server, webhook)
    assert (await server.post(path("v1"), pair("v1", "old", hostPort="a:1"))).status == 201
    made = (await server.get(f"{DEFINITIONS}/pairs.example.com")).json
    made["spec"]["versions"][0]["storage"], made["spec"]["versions"][1]["storage"] = False, True
    assert (await server.put(f"{DEFINITIONS}/pairs.example.com", made)).status == 200

    async def stores_v2() -> bool:
        name = f"n{len(webhook.asked)}"
        await server.post(path("v2"), pair("v2", name, host="b", port="2"))
        entry = await server.live.server.context.store.get(f"/registry/example.com/pairs/default/{name}")
        return entry is not None and entry.object["apiVersion"] == "example.com/v2"

    await until(stores_v2, "new objects are stored as v2")
    webhook.asked.clear()
    listed = (await server.get(path("v2"))).json
    assert {each["apiVersion"] for each in listed["items"]} == {"example.com/v2"}
    assert listed["items"][-1]["spec"] == {"host": "a", "port": "1"}
    assert len(webhook.asked) == 1
    listed = (await server.get(path("v1"))).json
    assert {each["spec"]["hostPort"] for each in listed["items"]} == {"a:1", "b:2"}
    # A write of an older object brings it into the storage version, also if nothing changes.
    old = (await server.get(path("v2", "old"))).json
    assert (await server.put(path("v2", "old"), old)).status == 200
    entry = await server.live.server.context.store.get("/registry/example.com/pairs/default/old")
    assert entry is not None and entry.object["spec"] == {"host": "a", "port": "1"}


async def test_watches_tell_objects_in_their_version(server: LiveServer, webhook: Webhook) -> None:
    await defined(server, webhook)
    assert (await server.post(path("v1"), pair("v1", hostPort="a:1"))).status == 201
    async with server.watch(path("v2") + "?watch=1") as events:
        first = await anext(events)
        assert (first["type"], first["object"]["spec"]) == ("ADDED", {"host": "a", "port": "1"})
        assert (await server.patch(path("v1", "p"), {"spec": {"hostPort": "b:2"}})).status == 200
        assert (await anext(events))["object"]["spec"] == {"host": "b", "port": "2"}
        webhook.decide = lambda _: {"result": {"status": "Failed", "message": "out of order"}}
        assert (await server.patch(path("v1", "p"), {"spec": {"hostPort": "c:3"}})).status == 200
        failed = await anext(events)
        assert (failed["type"], failed["object"]["code"]) == ("ERROR", 500)
        assert failed["object"]["message"].endswith("out of order")


async def test_objects_are_selected_by_the_fields_of_the_version_of_the_request(
    server: LiveServer, webhook: Webhook
) -> None:
    await defined(server, webhook)
    for name, host, port in (("p", "a", "1"), ("q", "a", "2"), ("r", "b", "1")):
        assert (await server.post(path("v2"), pair("v2", name, host=host, port=port))).status == 201

    async def names(query: str) -> list[str]:
        answer = await server.get(query)
        assert answer.status == 200, answer.json
        return [each["metadata"]["name"] for each in answer.json["items"]]

    assert await names(f"{path('v2')}?fieldSelector=spec.host=a") == ["p", "q"]
    assert await names(f"{path('v2')}?fieldSelector=spec.host=a,spec.port=2&limit=1") == ["q"]
    assert await names(f"{path('v2')}?fieldSelector=metadata.name=p,spec.host=b") == []
    assert await names(f"{path('v1')}?fieldSelector=spec.hostPort=b:1") == ["r"]
    first = (await server.get(f"{path('v2')}?fieldSelector=spec.port=1&limit=1")).json
    rest = f"{path('v2')}?fieldSelector=spec.port=1&limit=1&continue={first['metadata']['continue']}"
    assert ([each["metadata"]["name"] for each in first["items"]], await names(rest)) == (["p"], ["r"])
    async with server.watch(f"{path('v2')}?watch=1&fieldSelector=spec.host=b") as events:
        told = [await anext(events)]
        for name, text in (("p", "c:1"), ("p", "b:1"), ("r", "a:1")):
            assert (await server.patch(path("v1", name), {"spec": {"hostPort": text}})).status == 200
        told += [await anext(events), await anext(events)]
        assert [(each["type"], each["object"]["metadata"]["name"], each["object"]["spec"]) for each in told] == [
            ("ADDED", "r", {"host": "b", "port": "1"}),
            ("ADDED", "p", {"host": "b", "port": "1"}),
            ("DELETED", "r", {"host": "b", "port": "1"}),
        ]


async def test_a_webhook_that_fails_is_named_and_its_storage_version_still_served(
    server: LiveServer, webhook: Webhook
) -> None:
    await defined(server, webhook)
    assert (await server.post(path("v1"), pair("v1", hostPort="a:1"))).status == 201
    webhook.decide = lambda _: {"result": {"status": "Failed", "message": "out of order"}}
    failed = await server.get(path("v2", "p"))
    assert failed.status == 500
    assert "conversion webhook for example.com/v1, Kind=Pair failed: out of order" in failed.json["message"]
    assert (await server.get(path("v2"))).status == 500
    assert (await server.post(path("v2"), pair("v2", "q", host="a", port="1"))).status == 500
    assert spec_of(await server.get(path("v1", "p"))) == {"hostPort": "a:1"}
    # The definition can go, and takes its objects along.
    assert (await server.delete(f"{DEFINITIONS}/pairs.example.com")).status == 200

    async def is_gone() -> bool:
        return (await server.get(f"{DEFINITIONS}/pairs.example.com")).status == 404

    await until(is_gone, "the definition is gone")


async def test_admission_sees_the_version_that_it_asks_for(server: LiveServer, webhook: Webhook) -> None:
    await defined(server, webhook)
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v2"], "operations": ["CREATE"], "resources": ["pairs"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "ports"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "object.spec.port != '13'", "message": "not that one"}],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "ports"},
        "spec": {"policyName": "ports", "validationActions": ["Deny"]},
    }
    group = "/apis/admissionregistration.k8s.io/v1"
    assert (await server.post(f"{group}/validatingadmissionpolicies", policy)).status == 201
    assert (await server.post(f"{group}/validatingadmissionpolicybindings", binding)).status == 201
    refused = await server.post(path("v1"), pair("v1", hostPort="a:13"))
    assert (refused.status, refused.json["message"].rpartition(": ")[2]) == (422, "not that one")
    assert (await server.post(path("v1"), pair("v1", hostPort="a:12"))).status == 201
