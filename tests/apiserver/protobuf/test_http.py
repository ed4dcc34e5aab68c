"""Protobuf bodies over HTTP: read where the table has the kind, refused with a hint or a reason elsewhere."""

from __future__ import annotations

from typing import Any

from apiserver.live import LiveServer
from apiserver.protobuf.encoding import META, enveloped, new

PROTOBUF = "application/vnd.kubernetes.protobuf"
# As Kubernetes' components send them.
HEADERS = {"Content-Type": PROTOBUF, "Accept": f"{PROTOBUF},application/json"}
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def _config_map(name: str, data: dict[str, str], *, version: str = "") -> bytes:
    config_map: Any = new("core.v1.ConfigMap")
    config_map.f1.f1, config_map.f1.f6 = name, version
    config_map.f2.update(data)
    return enveloped("v1", "ConfigMap", config_map.SerializeToString())


async def test_objects_are_created_replaced_and_deleted(server: LiveServer) -> None:
    created = await server.post(CONFIG_MAPS, _config_map("a", {"k": "1"}), headers=HEADERS)
    assert (created.status, created.headers["Content-Type"]) == (201, "application/json")
    version = created.json["metadata"]["resourceVersion"]
    replaced = await server.put(f"{CONFIG_MAPS}/a", _config_map("a", {"k": "2"}, version=version), headers=HEADERS)
    assert (replaced.status, replaced.json["data"]) == (200, {"k": "2"})
    stale = await server.put(f"{CONFIG_MAPS}/a", _config_map("a", {"k": "3"}, version=version), headers=HEADERS)
    assert stale.status == 409
    options: Any = new(f"{META}.DeleteOptions")
    options.f2.f1 = "another uid"
    raw = enveloped("v1", "DeleteOptions", options.SerializeToString())
    assert (await server.delete(f"{CONFIG_MAPS}/a", raw, headers=HEADERS)).status == 409
    raw = enveloped("v1", "DeleteOptions", b"")
    assert (await server.delete(f"{CONFIG_MAPS}/a", raw, headers=HEADERS)).status == 200
    assert (await server.get(f"{CONFIG_MAPS}/a")).status == 404


async def test_field_managers_own_the_same_as_with_json(server: LiveServer) -> None:
    await server.post(CONFIG_MAPS, _config_map("a", {"k": "1"}), headers=HEADERS)
    await server.post(CONFIG_MAPS, {"metadata": {"name": "b"}, "data": {"k": "1"}})
    (ours,), (theirs,) = [
        (await server.get(f"{CONFIG_MAPS}/{name}")).json["metadata"]["managedFields"] for name in ("a", "b")
    ]
    assert ours["fieldsV1"] == theirs["fieldsV1"]


async def test_malformed_bodies_get_400(server: LiveServer) -> None:
    for body in (b"k8s\0", b"{}", b"k8s\0\xff", enveloped("v1", "ConfigMap", b"\x0a\x7f")):
        answer = await server.post(CONFIG_MAPS, body, headers=HEADERS)
        assert (answer.status, answer.json["reason"]) == (400, "BadRequest")


async def test_another_kind_than_the_path_s_gets_400(server: LiveServer) -> None:
    answer = await server.post(CONFIG_MAPS, enveloped("v1", "Secret", b""), headers=HEADERS)
    assert answer.status == 400
    assert 'Secret in version "v1" cannot be handled as a ConfigMap' in answer.json["message"]


async def test_kinds_outside_the_table_get_415_and_a_hint(server: LiveServer) -> None:
    answer = await server.post(CONFIG_MAPS, enveloped("example.com/v1", "Widget", b""), headers=HEADERS)
    assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")
    assert "--kube-api-content-type=application/json" in answer.json["message"]


async def test_components_that_prefer_protobuf_are_answered_in_json(server: LiveServer) -> None:
    for accepted in (f"{PROTOBUF},application/json", f"{PROTOBUF}, */*"):
        answer = await server.get("/api/v1/nodes", headers={"Accept": accepted})
        assert (answer.status, answer.headers["Content-Type"]) == (200, "application/json")
    assert (await server.get("/api/v1/nodes", headers={"Accept": PROTOBUF})).status == 406
