"""OpenAPI of version 2 on a real server: custom resources, paths and protobuf."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from allot.wire.kubernetes.wire import Wire
from apiserver.live import LiveServer
from waiting import until

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROTOBUF = {"Accept": "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}
NAME = "com.example.v1.Widget"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "A widget.",
    "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1, "default": 2}}}},
}


def definition(schema: dict[str, Any], *versions: str) -> dict[str, Any]:
    names = {"plural": "widgets", "kind": "Widget"}
    served = [
        {"name": name, "served": True, "storage": not index, "schema": {"openAPIV3Schema": schema}}
        for index, name in enumerate(versions)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": served},
    }


async def published(server: LiveServer, name: str) -> dict[str, Any]:
    async def look() -> Any:
        return (await server.get("/openapi/v2")).json["definitions"].get(name)

    found: dict[str, Any] = await until(look, f"{name} is published")
    return found


@pytest.mark.slow
async def test_custom_resources_come_and_go_with_their_definition(server: LiveServer) -> None:
    before = await server.get("/openapi/v2")
    etag = {"If-None-Match": before.headers["ETag"]}
    assert (await server.get("/openapi/v2", headers=etag)).status == 304
    assert (await server.post(DEFINITIONS, definition(SCHEMA, "v1", "v2"))).status == 201
    found = await published(server, NAME)
    assert found["description"] == "A widget."
    assert found["properties"]["spec"] == {
        "type": "object",
        "properties": {"size": {"type": "integer", "minimum": 1}},
    }
    metadata = found["properties"]["metadata"]
    assert metadata["$ref"] == "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    kind = {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert found["x-kubernetes-group-version-kind"] == [kind]
    document = (await server.get("/openapi/v2", headers=etag)).json
    assert f"{NAME}List" in document["definitions"] and "com.example.v2.Widget" in document["definitions"]
    operations = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets"]
    assert operations["post"]["x-kubernetes-group-version-kind"] == kind
    assert operations["post"]["parameters"][0]["schema"] == {"$ref": f"#/definitions/{NAME}"}
    assert "get" in document["paths"]["/apis/example.com/v1/widgets"]
    # By this clients choose the kind of patch.
    one = document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]
    strategic = "application/strategic-merge-patch+json"
    assert strategic not in one["patch"]["consumes"]
    assert strategic in document["paths"]["/api/v1/nodes/{name}"]["patch"]["consumes"]
    schema = (await server.get("/openapi/v3/apis/example.com/v1")).json
    one = schema["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]
    assert strategic not in one["patch"]["requestBody"]["content"]
    # Every reference leads somewhere.
    text = msgspec.json.encode(document).decode()
    for part in text.split('"$ref":"#/definitions/')[1:]:
        assert part.split('"', 1)[0] in document["definitions"]
    stopped = [{"op": "replace", "path": "/spec/versions/1/served", "value": False}]
    assert (await server.patch(f"{DEFINITIONS}/widgets.example.com", stopped, "json-patch+json")).status == 200

    async def is_gone() -> bool:
        return "com.example.v2.Widget" not in (await server.get("/openapi/v2")).json["definitions"]

    await until(is_gone, "v2 is published no longer")
    assert (await server.delete(f"{DEFINITIONS}/widgets.example.com")).status == 200

    async def all_gone() -> bool:
        return (await server.get("/openapi/v2")).raw == before.raw

    await until(all_gone, "the document is as before")


async def test_what_keeps_unknown_fields_has_no_properties(server: LiveServer) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": {"type": "string"}}}
    assert (await server.post(DEFINITIONS, definition(schema, "v1"))).status == 201
    found = await published(server, NAME)
    assert set(found) == {"type", "x-kubernetes-group-version-kind"}


def parts(wire: Wire, start: int, end: int, number: int) -> list[tuple[int, int]]:
    """Where the fields of a number are."""
    return [(first, last) for field, _, first, last in wire.fields(start, end) if field == number]


def texts(wire: Wire, places: list[tuple[int, int]]) -> set[str]:
    """The names of named messages."""
    return {wire.text(*parts(wire, *place, 1)[0]) for place in places}


@pytest.mark.slow
async def test_protobuf_has_what_json_has(server: LiveServer) -> None:
    assert (await server.post(DEFINITIONS, definition(SCHEMA, "v1"))).status == 201
    await published(server, NAME)
    document = (await server.get("/openapi/v2")).json
    answer = await server.get("/openapi/v2", headers=PROTOBUF)
    assert answer.headers["Content-Type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    wire = Wire(answer.raw)
    whole = (0, len(answer.raw))
    assert wire.text(*parts(wire, *whole, 1)[0]) == "2.0"
    (definitions,), (paths,) = parts(wire, *whole, 9), parts(wire, *whole, 8)
    named = parts(wire, *definitions, 1)
    assert texts(wire, named) == set(document["definitions"])
    assert texts(wire, parts(wire, *paths, 2)) == set(document["paths"])
    (widget,) = [place for place in named if texts(wire, [place]) == {NAME}]
    (schema,) = parts(wire, *widget, 2)
    assert wire.text(*parts(wire, *schema, 4)[0]) == "A widget."
    (properties,) = parts(wire, *schema, 25)
    assert texts(wire, parts(wire, *properties, 1)) == {"apiVersion", "kind", "metadata", "spec"}
    (extension,) = parts(wire, *schema, 31)
    assert wire.text(*parts(wire, *extension, 1)[0]) == "x-kubernetes-group-version-kind"
