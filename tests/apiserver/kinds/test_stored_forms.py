"""Objects that a kube-apiserver has stored: protobuf, and versions in which it stores and we do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc.aio
import msgspec
import pytest

from allot.apiserver.kinds.stored_forms import NotUnderstood, read_stored
from allot.store.etcd import EtcdStore
from allot.store.etcd_client import EtcdOptions
from allot.wire import etcd_pb2 as pb
from apiserver.live import live_server
from apiserver.protobuf.encoding import enveloped, new
from etcd_server import EtcdServer

PREFIX = "/registry-stored-forms"
GIZMOS = "/apis/example.com/v1/namespaces/default/gizmos"
DEFINITION: dict[str, Any] = {
    "kind": "CustomResourceDefinition",
    "apiVersion": "apiextensions.k8s.io/v1beta1",
    "metadata": {"name": "gizmos.example.com", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "group": "example.com",
        "version": "v1",
        "names": {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo", "listKind": "GizmoList"},
        "scope": "Namespaced",
        "validation": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }
        },
        "versions": [{"name": "v1", "served": True, "storage": True}],
        "conversion": {"strategy": "None"},
        "preserveUnknownFields": False,
    },
}
GIZMO = {
    "apiVersion": "example.com/v1",
    "kind": "Gizmo",
    "metadata": {"name": "g", "namespace": "default", "uid": "u-2", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"size": 3},
}


def config_map(data: dict[str, str]) -> bytes:
    """As kube-apiserver stores it by default."""
    message: Any = new("core.v1.ConfigMap")
    message.f1.f1, message.f1.f3, message.f1.f5 = "old", "default", "u-3"
    message.f1.f8.f1 = 1767225600
    for key, value in data.items():
        message.f2[key] = value
    return enveloped("v1", "ConfigMap", message.SerializeToString())


async def put(address: str, key: str, value: bytes) -> None:
    async with grpc.aio.insecure_channel(address.removeprefix("http://")) as channel:
        call = channel.unary_unary("/etcdserverpb.KV/Put", pb.PutRequest.SerializeToString, pb.PutResponse.FromString)
        await call(pb.PutRequest(key=(PREFIX + key).encode(), value=value))


@pytest.mark.slow
async def test_labels_can_be_put_on_what_a_kube_apiserver_has_stored(etcd_server: EtcdServer, tmp_path: Path) -> None:
    address = etcd_server.address
    folder = "/apiextensions.k8s.io/customresourcedefinitions"
    await put(address, f"{folder}/gizmos.example.com", msgspec.json.encode(DEFINITION))
    unpruned = msgspec.json.encode(DEFINITION).replace(b"gizmo", b"widget").replace(b"Gizmo", b"Widget")
    await put(address, f"{folder}/widgets.example.com", unpruned.replace(b',"preserveUnknownFields":false', b""))
    await put(address, "/example.com/gizmos/default/g", msgspec.json.encode(GIZMO))
    widget = {**GIZMO, "kind": "Widget", "spec": {"size": 3, "colour": "red"}}
    await put(address, "/example.com/widgets/default/g", msgspec.json.encode(widget))
    both = {
        **DEFINITION,
        "metadata": {**DEFINITION["metadata"], "name": "things.example.com"},
        "spec": {
            **DEFINITION["spec"],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [
                {"name": "v1", "served": True, "storage": False},
                {"name": "v2", "served": True, "storage": True},
            ],
        },
        "status": {"storedVersions": ["v1", "v2"]},
    }
    await put(address, f"{folder}/things.example.com", msgspec.json.encode(both))
    await put(address, "/example.com/things/default/g", msgspec.json.encode({**GIZMO, "kind": "Thing"}))
    await put(address, "/configmaps/default/old", config_map({"a": "1"}))
    store = EtcdStore(EtcdOptions(servers=(address,), prefix=PREFIX), read_stored)
    labels = {"metadata": {"labels": {"seen": "yes"}}}
    async with live_server(tmp_path, store) as server:
        gizmo = await server.patch(f"{GIZMOS}/g", labels)
        assert gizmo.status == 200 and gizmo.json["spec"] == {"size": 3}
        # Whoever wrote no preserveUnknownFields as v1beta1 wanted them kept.
        widget = (await server.patch(f"{GIZMOS.replace('gizmos', 'widgets')}/g", labels)).json
        assert widget["spec"] == {"size": 3, "colour": "red"}
        definition = (
            await server.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gizmos.example.com")
        ).json
        assert definition["apiVersion"] == "apiextensions.k8s.io/v1"
        assert definition["spec"]["versions"][0]["schema"] == DEFINITION["spec"]["validation"]
        maps = "/api/v1/namespaces/default/configmaps"
        (listed,) = (await server.get(f"{maps}?fieldSelector=metadata.name=old")).json["items"]
        assert listed["data"] == {"a": "1"} and listed["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
        changed = await server.patch(f"{maps}/old", {"data": {"b": "2"}})
        assert changed.status == 200 and changed.json["data"] == {"a": "1", "b": "2"}


def test_an_older_version_is_read_as_the_one_that_is_stored_here() -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}},
    }
    read = read_stored(msgspec.json.encode(claim))
    assert read["apiVersion"] == "resource.k8s.io/v1"
    assert read["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (b'{"apiVersion": "apps/v1beta9", "kind": "Deployment"}', "stored as 'apps/v1beta9', which is unknown"),
        (b'{"kind": "Pod"}', "it has no apiVersion"),
        (b"k8s\0\n\x04\n\x02v1", "Object 'Kind' is missing"),
        (b"k8s:enc:aescbc:v1:key1:...", "malformed"),
    ],
)
def test_what_would_lose_something_is_not_read(stored: bytes, expected: str) -> None:
    with pytest.raises(NotUnderstood, match=expected):
        read_stored(stored)
