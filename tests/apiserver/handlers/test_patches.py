"""The four kinds of patches."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.live import LiveServer
from waiting import until

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
MAPS = "/api/v1/namespaces/default/configmaps"
APPLY = "apply-patch+yaml"


def deployment() -> dict[str, Any]:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}]},
    }
    return {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template}}


def images(object_: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["image"] for each in object_["spec"]["template"]["spec"]["containers"]}


async def test_a_strategic_patch_merges_lists_by_key(server: LiveServer) -> None:
    assert (await server.post(DEPLOYMENTS, deployment())).status == 201
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}}}
    answer = await server.patch(f"{DEPLOYMENTS}/d", patch, "strategic-merge-patch+json")
    assert answer.status == 200
    assert images(answer.json) == {"a": "a:1", "b": "b:2"}


async def test_a_merge_patch_replaces_lists(server: LiveServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "b", "image": "b:2"}]}}}}
    answer = await server.patch(f"{DEPLOYMENTS}/d", patch)
    assert images(answer.json) == {"b": "b:2"}


async def test_a_json_patch_does_what_it_says(server: LiveServer) -> None:
    await server.post(DEPLOYMENTS, deployment())
    path = "/spec/template/spec/containers/0/image"
    operations = [{"op": "test", "path": path, "value": "a:1"}, {"op": "replace", "path": path, "value": "a:2"}]
    answer = await server.patch(f"{DEPLOYMENTS}/d", operations, "json-patch+json")
    assert images(answer.json)["a"] == "a:2"
    answer = await server.patch(f"{DEPLOYMENTS}/d", operations, "json-patch+json")
    assert answer.status == 422


async def test_a_patch_of_an_old_state_conflicts(server: LiveServer) -> None:
    created = (await server.post(MAPS, {"metadata": {"name": "a"}})).json
    await server.patch(f"{MAPS}/a", {"data": {"k": "1"}})
    patch = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "data": {"k": "2"}}
    assert (await server.patch(f"{MAPS}/a", patch)).status == 409


async def test_a_patch_that_changes_nothing_uses_no_revision(server: LiveServer) -> None:
    created = (await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})).json
    answer = await server.patch(f"{MAPS}/a", {"data": {"k": "1"}})
    assert answer.json["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_names_cannot_be_patched(server: LiveServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    answer = await server.patch(f"{MAPS}/a", {"metadata": {"name": "b"}})
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert (await server.patch(f"{MAPS}/none", {"data": {}})).status == 404


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("json", {"data": {}}, 415),
        ("x-unknown", {"data": {}}, 415),
        ("json-patch+json", {"op": "add"}, 400),
        ("json-patch+json", [{"op": "explode", "path": "/x"}], 422),
        ("json-patch+json", [{"op": "remove", "path": "/no/such/path"}], 422),
        ("merge-patch+json", ["x"], 400),
        ("strategic-merge-patch+json", "x", 400),
        ("strategic-merge-patch+json", {"$patch": "bogus"}, 422),
        ("merge-patch+json", {"data": {"k": 1}}, 422),
    ],
)
async def test_patches_that_do_not_fit_are_refused(server: LiveServer, kind: str, body: Any, status: int) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}})
    answer = await server.patch(f"{MAPS}/a", body, kind)
    assert answer.status == status, answer.json


# --- apply ---


async def test_an_apply_creates_and_owns(any_server: LiveServer) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}}
    answer = await any_server.patch(f"{MAPS}/a?fieldManager=me", body, APPLY)
    assert answer.status == 201
    (entry,) = answer.json["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]) == ("me", "Apply", {"f:data": {"f:a": {}}})
    again = await any_server.patch(f"{MAPS}/a?fieldManager=me", body, APPLY)
    assert again.status == 200
    assert again.json["metadata"]["resourceVersion"] == answer.json["metadata"]["resourceVersion"]


async def test_what_an_apply_owns_is_told_in_the_order_of_names(server: LiveServer) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "1", "a": "2"}}
    answer = await server.patch(f"{MAPS}/a?fieldManager=me", body, APPLY)
    assert '"fieldsV1":{"f:data":{"f:a":{},"f:b":{}}}' in answer.raw.decode()


async def test_an_apply_may_look_like_json_and_be_yaml(server: LiveServer) -> None:
    body = b'{apiVersion: v1, "kind": "ConfigMap", "metadata": {"name": "a",}, "data": {"a": "1",},}'
    answer = await server.patch(f"{MAPS}/a?fieldManager=me", body, APPLY)
    assert (answer.status, answer.json.get("data")) == (201, {"a": "1"}), answer.json
    broken = await server.patch(f"{MAPS}/a?fieldManager=me", b'{"data": {"a": "1"', APPLY)
    assert broken.status == 400 and "error converting YAML to JSON" in broken.json["message"]
    deep = await server.patch(f"{MAPS}/a?fieldManager=me", b'{"a":' * 5000, APPLY)
    assert deep.status == 400


async def test_an_apply_removes_what_it_no_longer_names(server: LiveServer) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1", "b": "2"}}
    await server.patch(f"{MAPS}/a?fieldManager=me", body, APPLY)
    await server.patch(f"{MAPS}/a?fieldManager=other", {"data": {"c": "3"}})
    answer = await server.patch(f"{MAPS}/a?fieldManager=me", {**body, "data": {"a": "1"}}, APPLY)
    assert answer.json["data"] == {"a": "1", "c": "3"}


async def test_an_apply_does_not_take_what_is_others_unless_forced(server: LiveServer) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}}
    await server.patch(f"{MAPS}/a?fieldManager=first", body, APPLY)
    taking = {**body, "data": {"a": "2"}}
    answer = await server.patch(f"{MAPS}/a?fieldManager=second", taking, APPLY)
    assert (answer.status, answer.json["reason"]) == (409, "Conflict")
    assert answer.json["message"] == 'Apply failed with 1 conflict: conflict with "first": .data.a'
    assert answer.json["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".data.a"}
    ]
    answer = await server.patch(f"{MAPS}/a?fieldManager=second&force=true", taking, APPLY)
    assert answer.json["data"] == {"a": "2"}


async def test_an_apply_has_rules(server: LiveServer) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1"}}
    answer = await server.patch(f"{MAPS}/a", body, APPLY)
    assert answer.status == 422
    assert "fieldManager: Required value: is required for apply patch" in answer.json["message"]
    answer = await server.patch(f"{MAPS}/a?fieldManager=me&force=true", {"data": {"b": "2"}})
    assert "force: Forbidden: may not be specified for non-apply patch" in answer.json["message"]
    managed = {**body, "metadata": {"name": "a", "managedFields": [{}]}}
    answer = await server.patch(f"{MAPS}/a?fieldManager=me", managed, APPLY)
    assert answer.json["message"] == "metadata.managedFields must be nil"


async def test_apply_takes_yaml(server: LiveServer) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  on: 'yes'\n"
    answer = await server.patch(f"{MAPS}/a?fieldManager=me", body, APPLY)
    # Kubernetes reads YAML 1.1, where the key is a boolean.
    assert (answer.status, answer.json["data"]) == (201, {"true": "yes"})


async def test_status_is_applied_by_itself(server: LiveServer) -> None:
    pods = "/api/v1/namespaces/default/pods"
    await server.post(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}})
    body = {"apiVersion": "v1", "kind": "Pod", "status": {"message": "hello"}}
    answer = await server.patch(f"{pods}/p/status?fieldManager=me", body, APPLY)
    assert answer.status == 200
    assert answer.json["status"]["message"] == "hello"
    mine = [entry for entry in answer.json["metadata"]["managedFields"] if entry["manager"] == "me"]
    assert [(entry["subresource"], entry["operation"]) for entry in mine] == [("status", "Apply")]


OPEN_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"foo": {"type": "string"}},
        },
        "closed": {"type": "object", "properties": {"foo": {"type": "string"}}},
    },
}


async def test_a_strict_apply_tells_unknown_fields_and_duplicate_keys_in_kubernetes_words(server: LiveServer) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "opens.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "opens", "kind": "Open"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN_SCHEMA}}],
        },
    }
    assert (await server.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)).status == 201

    async def is_served() -> bool:
        return (await server.get("/apis/example.com/v1/opens")).status == 200

    await until(is_served)
    path = "/apis/example.com/v1/opens/o?fieldManager=m&fieldValidation=Strict"
    head = "\napiVersion: example.com/v1\nkind: Open\nmetadata:\n  name: o\n"
    typed = "failed to create typed patch object (/o; example.com/v1, Kind=Open): "
    twice = "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line "
    for body, told in (
        (f"{head}odd: 1", f"{typed}.odd: field not declared in schema"),
        (f"{head}closed:\n  odd: 1", f"{typed}.closed.odd: field not declared in schema"),
        (f"{head}  odd: 1", f"{typed}.metadata.odd: field not declared in schema"),
        (f"{head}spec:\n  odd: 1\n  foo: a\n  foo: b", f'{twice}9: key "foo" already set in map'),
        (f"{head}odd: 1\nspec:\n  foo: a\n  foo: b", f"{typed}.odd: field not declared in schema"),
    ):
        refused = await server.patch(path, body.encode(), APPLY)
        assert (refused.status, refused.json["message"]) == (400, told)
    body = f"{head}spec:\n  odd: 1\n  foo: a\n  foo: b"
    warned = await server.patch(path.replace("Strict", "Warn"), body.encode(), APPLY)
    assert warned.status == 201
    assert 'key \\"foo\\" already set in map' in warned.headers["Warning"]
    posted = await server.post(
        "/apis/example.com/v1/opens?fieldValidation=Strict",
        (body.replace("name: o", "name: other") + "\nunknown: 1").encode(),
        headers={"Content-Type": "application/yaml"},
    )
    told = 'strict decoding error: yaml: unmarshal errors:\n  line 9: key "foo" already set in map, unknown field "unknown"'
    assert posted.json["message"] == f'Open in version "v1" cannot be handled as a Open: {told}'
