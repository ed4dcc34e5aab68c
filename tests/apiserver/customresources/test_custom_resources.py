"""Custom resources on a real server: from the definition to the objects and back to nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from apiserver.live import LiveServer
from waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "x-kubernetes-validations": [
                {"rule": "self.size <= self.limit", "message": "size must not exceed limit"},
                {
                    "rule": "self.color == oldSelf.color",
                    "messageExpression": "'was ' + oldSelf.color",
                    "fieldPath": ".color",
                },
            ],
            "properties": {
                "size": {"type": "integer", "minimum": 1},
                "limit": {"type": "integer", "default": 10},
                "replicas": {"type": "integer"},
                "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "port": {"x-kubernetes-int-or-string": True},
                "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "replicas": {"type": "integer"}}},
    },
}


def definition(**changes: Any) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": SCHEMA},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
        "selectableFields": [{"jsonPath": ".spec.color"}],
    }
    spec = {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
        "versions": [version],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": spec | changes,
    }


def widget(name: str = "w", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1, **spec}}


async def established(server: LiveServer, name: str = "widgets.example.com") -> dict[str, Any]:
    async def look() -> dict[str, Any] | None:
        found = (await server.get(f"{DEFINITIONS}/{name}")).json
        conditions = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions", ())}
        return dict(found) if conditions.get("Established") == "True" else None

    found: dict[str, Any] = await until(look, f"{name} is established")
    return found


async def define(server: LiveServer, **changes: Any) -> dict[str, Any]:
    answer = await server.post(DEFINITIONS, definition(**changes))
    assert answer.status == 201, answer.json
    return await established(server)


async def test_a_definition_is_established_and_discovered(any_server: LiveServer) -> None:
    made = await define(any_server)
    assert made["status"]["acceptedNames"] == {
        "kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "shortNames": ["wd"], "singular": "widget",
    }  # fmt: skip
    assert made["status"]["storedVersions"] == ["v1"]
    listed = (await any_server.get("/apis/example.com/v1")).json["resources"]
    assert [one["name"] for one in listed] == ["widgets", "widgets/scale", "widgets/status"]
    assert listed[0]["shortNames"] == ["wd"]
    document = (await any_server.get("/openapi/v3/apis/example.com/v1")).json
    assert "com.example.v1.Widget" in document["components"]["schemas"]


async def test_objects_get_defaults_and_lose_unknown_fields(server: LiveServer) -> None:
    await define(server)
    made = await server.post(WIDGETS, widget(odd=1, anything={"x": 1}, port="http"))
    assert made.status == 201, made.json
    assert made.json["spec"] == {"anything": {"x": 1}, "color": "red", "limit": 10, "port": "http", "size": 1}
    assert made.json["metadata"]["generation"] == 1
    assert "unknown field" in made.headers["Warning"]
    strict = await server.post(f"{WIDGETS}?fieldValidation=Strict", widget("x", odd=1))
    assert strict.status == 400
    assert 'strict decoding error: unknown field "spec.odd"' in strict.json["message"]


@pytest.mark.parametrize(
    ("spec", "reason", "field", "message"),
    [
        ({"size": "x"}, "FieldValueTypeInvalid", "spec.size", 'Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": 0}, "FieldValueInvalid", "spec.size", "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"color": "blue"}, "FieldValueNotSupported", "spec.color", 'Unsupported value: "blue": supported values: "green", "red"'),
        ({"tags": ["a", "b", "a"]}, "FieldValueDuplicate", "spec.tags[2]", 'Duplicate value: "a"'),
        ({"size": 11}, "FieldValueInvalid", "spec", "Invalid value: size must not exceed limit"),
        ({"port": True}, "FieldValueTypeInvalid", "spec.port", 'Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean"'),
    ],
)  # fmt: skip
async def test_objects_that_do_not_fit_are_refused(
    server: LiveServer, spec: dict[str, Any], reason: str, field: str, message: str
) -> None:
    await define(server)
    answer = await server.post(WIDGETS, widget(**spec))
    assert answer.status == 422, answer.json
    assert answer.json["details"]["causes"] == [{"reason": reason, "message": message, "field": field}]
    assert answer.json["message"] == f'Widget.example.com "w" is invalid: {field}: {message}'


async def test_a_missing_field_is_required(server: LiveServer) -> None:
    await define(server)
    answer = await server.post(WIDGETS, {**widget(), "spec": {}})
    assert answer.json["details"]["causes"] == [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.size"}
    ]


async def test_rules_about_changes_see_the_old_object(server: LiveServer) -> None:
    await define(server)
    await server.post(WIDGETS, widget())
    changed = await server.patch(f"{WIDGETS}/w", {"spec": {"color": "green"}})
    assert changed.status == 422
    assert changed.json["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "message": "Invalid value: was red", "field": "spec.color"}
    ]
    changed = await server.patch(f"{WIDGETS}/w", {"spec": {"size": 2}})
    assert (changed.status, changed.json["metadata"]["generation"]) == (200, 2)


async def test_the_status_is_a_part_of_its_own(server: LiveServer) -> None:
    await define(server)
    made = await server.post(WIDGETS, {**widget(), "status": {"phase": "Done"}})
    assert "status" not in made.json
    wrote = await server.patch(f"{WIDGETS}/w/status", {"spec": {"size": 5}, "status": {"phase": "Busy"}})
    assert wrote.status == 200, wrote.json
    assert (wrote.json["spec"]["size"], wrote.json["status"]) == (1, {"phase": "Busy"})
    assert wrote.json["metadata"]["generation"] == 1
    again = await server.patch(f"{WIDGETS}/w", {"status": {"phase": "Lost"}, "spec": {"size": 3}})
    assert again.json["status"] == {"phase": "Busy"}


async def test_scale_reads_and_writes_where_the_definition_says(server: LiveServer) -> None:
    await define(server)
    await server.post(WIDGETS, widget(replicas=2))
    scale = await server.get(f"{WIDGETS}/w/scale")
    assert scale.json["spec"] == {"replicas": 2}
    changed = await server.patch(f"{WIDGETS}/w/scale", {"spec": {"replicas": 4}})
    assert changed.status == 200, changed.json
    assert (await server.get(f"{WIDGETS}/w")).json["spec"]["replicas"] == 4


async def test_columns_and_selectable_fields_come_from_the_definition(server: LiveServer) -> None:
    await define(server)
    await server.post(WIDGETS, widget("a", size=3))
    await server.post(WIDGETS, widget("b", color="green"))
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = (await server.get(WIDGETS, headers=headers)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
    assert [row["cells"] for row in table["rows"]] == [["a", 3], ["b", 1]]
    chosen = (await server.get(f"{WIDGETS}?fieldSelector=spec.color%3Dgreen")).json
    assert [item["metadata"]["name"] for item in chosen["items"]] == ["b"]


async def test_versions_show_the_same_objects(server: LiveServer) -> None:
    old = {
        "name": "v1beta1",
        "served": True,
        "storage": False,
        "schema": {"openAPIV3Schema": SCHEMA},
        "deprecated": True,
    }
    await define(server, versions=[definition()["spec"]["versions"][0], old])
    await server.post(WIDGETS, widget())
    found = await server.get("/apis/example.com/v1beta1/namespaces/default/widgets/w")
    assert found.json["apiVersion"] == "example.com/v1beta1"
    assert "example.com/v1beta1 Widget is deprecated" in found.headers["Warning"]
    made = await server.post(
        "/apis/example.com/v1beta1/namespaces/default/widgets", {**widget("x"), "apiVersion": "example.com/v1beta1"}
    )
    assert made.json["apiVersion"] == "example.com/v1beta1"
    assert (await server.get(f"{WIDGETS}/x")).json["apiVersion"] == "example.com/v1"


async def test_server_side_apply_owns_fields_of_custom_resources(server: LiveServer) -> None:
    await define(server)
    path = f"{WIDGETS}/w?fieldManager=me"
    applied = await server.patch(path, widget(tags=["a"]), "apply-patch+yaml")
    assert applied.status == 201, applied.json
    again = await server.patch(f"{WIDGETS}/w?fieldManager=you", widget(tags=["b"]), "apply-patch+yaml")
    assert again.json["spec"]["tags"] == ["a", "b"]


async def test_a_changed_definition_counts_for_the_next_object(server: LiveServer) -> None:
    await define(server)
    made = await server.post(WIDGETS, widget())
    assert made.status == 201
    change = [
        {
            "op": "add",
            "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/extra",
            "value": {"type": "string", "default": "new"},
        }
    ]
    assert (await server.patch(f"{DEFINITIONS}/widgets.example.com", change, "json-patch+json")).status == 200

    async def extra() -> Any:
        return (await server.get(f"{WIDGETS}/w")).json["spec"].get("extra")

    assert await until(extra) == "new"


async def test_deleting_a_definition_deletes_its_objects(any_server: LiveServer) -> None:
    server = any_server
    await define(server)
    await server.post(WIDGETS, widget("a"))
    await server.post(WIDGETS, {**widget("b"), "metadata": {"name": "b", "finalizers": ["example.com/wait"]}})
    gone = await server.delete(f"{DEFINITIONS}/widgets.example.com")
    assert gone.status == 200
    assert "customresourcecleanup.apiextensions.k8s.io" in gone.json["metadata"]["finalizers"]

    async def one_left() -> list[Any] | None:
        items = (await server.get(WIDGETS)).json["items"]
        return items if len(items) == 1 and items[0]["metadata"].get("deletionTimestamp") else None

    (left,) = await until(one_left)
    assert left["metadata"]["name"] == "b"
    refused = await server.post(WIDGETS, widget("c"))
    assert refused.status == 405
    await server.patch(f"{WIDGETS}/b", {"metadata": {"finalizers": None}})

    async def is_gone() -> bool:
        return (await server.get(f"{DEFINITIONS}/widgets.example.com")).status == 404

    await until(is_gone)
    assert (await server.get(WIDGETS)).status == 404
    await define(server)
    assert (await server.get(WIDGETS)).json["items"] == []


async def test_names_that_are_taken_are_not_accepted(server: LiveServer) -> None:
    await define(server)
    other = definition(names={"plural": "gadgets", "kind": "Widget", "listKind": "GadgetList", "singular": "gadget"})
    other["metadata"]["name"] = "gadgets.example.com"
    await server.post(DEFINITIONS, other)

    async def conditions() -> Any:
        return (await server.get(f"{DEFINITIONS}/gadgets.example.com")).json["status"].get("conditions")

    accepted = {one["type"]: one for one in await until(conditions)}
    assert accepted["NamesAccepted"]["reason"] == "KindConflict"
    assert accepted["NamesAccepted"]["message"] == '"Widget" is already in use'
    assert accepted["Established"]["status"] == "False"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"group": "x"}, 'spec.group: Invalid value: "x": should be a domain with at least one dot'),
        ({"scope": "Galaxy"}, 'spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced"'),
        ({"versions": []}, "must have exactly one version marked as storage version"),
        ({"names": {"plural": "widgets"}}, "spec.names.kind: Required value"),
    ],
)
async def test_bad_definitions_are_refused(server: LiveServer, change: dict[str, Any], told: str) -> None:
    answer = await server.post(DEFINITIONS, definition(**change))
    assert answer.status == 422, answer.json
    assert told in answer.json["message"]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({}, "schema.openAPIV3Schema.type: Required value: must not be empty at the root"),
        ({"type": "object", "properties": {"a": {}}}, "properties[a].type: Required value: must not be empty for specified object fields"),
        ({"type": "object", "properties": {"a": {"type": "array"}}}, "properties[a].items: Required value: must be specified"),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}, "must be a valid regular expression"),
        ({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}, "properties[a].default: Invalid value"),
        ({"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}}, "anyOf[0].type: Forbidden: must be empty to be structural"),
        ({"type": "object", "x-kubernetes-validations": [{"rule": "self.x"}]}, "compilation failed"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-validations": [{"rule": "self.a"}]}, "cel expression must evaluate to a bool"),
        ({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"}}}, "x-kubernetes-list-map-keys: Required value"),
    ],
)  # fmt: skip
async def test_schemas_that_are_not_structural_are_refused(
    server: LiveServer, schema: dict[str, Any], told: str
) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    answer = await server.post(DEFINITIONS, definition(versions=[version]))
    assert answer.status == 422, answer.json
    assert told in answer.json["message"]


async def test_cluster_scoped_kinds_have_no_namespace(server: LiveServer) -> None:
    await define(server, scope="Cluster")
    made = await server.post("/apis/example.com/v1/widgets", widget())
    assert made.status == 201, made.json
    assert "namespace" not in made.json["metadata"]
    assert (await server.get(WIDGETS)).status == 404


@pytest.mark.slow
async def test_others_are_served_while_rules_take_their_time(server: LiveServer) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {"tags": {"type": "array", "maxItems": 300, "items": {"type": "string", "maxLength": 9}}},
                "x-kubernetes-validations": [{"rule": "self.tags.all(a, self.tags.all(b, a <= b || a > b))"}],
            }
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    await define(server, versions=[version])
    # Without limits it could take longer than anybody would wait.
    del schema["properties"]["spec"]["properties"]["tags"]["maxItems"]
    refused = await server.post(DEFINITIONS, definition(versions=[version]))
    assert refused.status == 422
    assert "estimated rule cost exceeds budget" in refused.json["message"]
    tags = [f"tag-{number}" for number in range(200)]
    created = asyncio.ensure_future(server.post(WIDGETS, widget(tags=tags)))
    meanwhile = 0
    while not created.done():
        assert (await server.get("/livez")).status == 200
        meanwhile += 1
    assert (await created).status == 201
    assert meanwhile > 5
