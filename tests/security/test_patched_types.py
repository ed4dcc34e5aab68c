"""A patch cannot make an object one of another type, on any way; strategic patches do not look at types at all.

Where there is a kube-apiserver, it gives the same answers.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from security.servers import Answer, Both

pytestmark = pytest.mark.slow

JSON, MERGE, STRATEGIC = (f"application/{kind}-patch+json" for kind in ("json", "merge", "strategic-merge"))
MAPS, CLAIMS = "/api/v1/namespaces/{}/configmaps", "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
SCALE = "/apis/apps/v1/namespaces/{}/deployments/x/scale"


@pytest.fixture(scope="module")
def objects(both: Both) -> str:
    """A namespace with an object of each kind that is patched."""
    name = "patched-types"
    both.create("/api/v1/namespaces", {"metadata": {"name": name}})
    both.create(MAPS.format(name), {"metadata": {"name": "x"}})
    request = {"name": "a", "exactly": {"deviceClassName": "c"}}
    both.create(CLAIMS.format(name), {"metadata": {"name": "x"}, "spec": {"devices": {"requests": [request]}}})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    both.create(SCALE.format(name).removesuffix("/x/scale"), {"metadata": {"name": "x"}, "spec": spec})
    return name


def told(answer: Answer) -> str:
    """What an answer says, without the object that it quotes."""
    return re.sub(r'value: "\{.*\}": ', "value: (object): ", answer.message)


def answer(both: Both, path: str, patch: Any, kind: str) -> Answer:
    ours, *theirs = [server.send("PATCH", f"{path}?dryRun=All", patch, kind=kind) for server in both.every]
    for other in theirs:
        assert (ours.status, told(ours)) == (other.status, told(other))
        assert [ours.value.get(name) for name in ("apiVersion", "kind")] == [
            other.value.get(name) for name in ("apiVersion", "kind")
        ]
    return ours


TYPES: list[tuple[dict[str, Any], int, str]] = [
    ({"kind": "Secret"}, 422, "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
    ({"kind": "configmap"}, 422, 'no kind "configmap" is registered for version "v1"'),
    ({"kind": 5}, 422, "cannot unmarshal number into Go struct field .kind of type string"),
    ({"kind": None}, 200, ""),
    ({"kind": ""}, 200, ""),
    ({"apiVersion": "v2"}, 422, 'no kind "ConfigMap" is registered for version "v2"'),
    ({"apiVersion": "apps/v1", "kind": "Deployment"}, 422, "converting (v1.Deployment) to (core.ConfigMap)"),
    ({"apiVersion": "a/b/c"}, 422, "unexpected GroupVersion string: a/b/c"),
    ({"apiVersion": None}, 400, "the name of the object (x based on URL) was undeterminable: name must be provided"),
    ({"apiVersion": ["v1"]}, 422, "cannot unmarshal array into Go struct field .apiVersion of type string"),
    ({"apiVersion": "v1", "kind": "ConfigMap"}, 200, ""),
]


@pytest.mark.parametrize(("patch", "status", "text"), TYPES)
def test_a_patch_changes_no_type(both: Both, objects: str, patch: dict[str, Any], status: int, text: str) -> None:
    path = f"{MAPS.format(objects)}/x"
    merged = answer(both, path, patch, MERGE)
    assert merged.status == status
    assert text in merged.value.get("message", "")
    operations = [{"op": "replace", "path": f"/{name}", "value": value} for name, value in patch.items()]
    assert answer(both, path, operations, JSON).status == status


@pytest.mark.parametrize("patch", [{"kind": "Secret"}, {"apiVersion": "v2"}, {"kind": None}, {"apiVersion": ""}])
def test_a_strategic_patch_does_not_look_at_types(both: Both, objects: str, patch: dict[str, Any]) -> None:
    for path in (f"{MAPS.format(objects)}/x", SCALE.format(objects)):
        assert answer(both, path, patch, STRATEGIC).status == 200


def test_types_are_texts_in_strategic_patches_too(both: Both, objects: str) -> None:
    for server in both.every:
        refused = server.send("PATCH", f"{MAPS.format(objects)}/x", {"kind": 5}, kind=STRATEGIC)
        assert refused.status == 422
        assert "to string" in refused.message


def test_a_scale_stays_a_scale(both: Both, objects: str) -> None:
    path = SCALE.format(objects)
    assert answer(both, path, {"kind": "Secret"}, MERGE).status == 422
    assert answer(both, path, {"apiVersion": "apps/v1"}, MERGE).status == 422
    assert answer(both, path, {"spec": {"replicas": 2}}, MERGE).status == 200


def test_an_object_may_be_written_in_another_version_of_its_kind(both: Both, objects: str) -> None:
    path = f"{CLAIMS.format(objects)}/x"
    patch = {"apiVersion": "resource.k8s.io/v1beta2", "metadata": {"labels": {"a": "b"}}}
    patched = both.allot.send("PATCH", f"{path}?dryRun=All", patch, kind=MERGE)
    assert (patched.status, patched.value["apiVersion"]) == (200, "resource.k8s.io/v1")
    assert patched.value["metadata"]["labels"] == {"a": "b"}


def test_a_custom_resource_keeps_its_type(both: Both) -> None:
    version = {"served": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
    definition = {
        "metadata": {"name": "kept.types.example.com"},
        "spec": {
            "group": "types.example.com",
            "scope": "Cluster",
            "names": {"plural": "kept", "singular": "kept", "kind": "Kept", "listKind": "KeptList"},
            "versions": [{"name": "v1", "storage": True, **version}, {"name": "v2", "storage": False, **version}],
        },
    }
    both.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
    path = "/apis/types.example.com/v1/kept"
    object_ = {"apiVersion": "types.example.com/v1", "kind": "Kept", "metadata": {"name": "x"}}
    for server in both.every:
        server.wait_until_served(path)
        server.create(path, object_)
    patches: list[tuple[dict[str, Any], str]] = [
        ({"kind": "Other"}, 'Other.types.example.com "x" is invalid: kind: Invalid value: "Other": must be Kept'),
        ({"apiVersion": "types.example.com/v2"}, "must be types.example.com/v1"),
        (
            {"apiVersion": "v1", "kind": "Pod"},
            'Pod "x" is invalid: [kind: Invalid value: "Pod": must be Kept, apiVersion',
        ),
        ({"kind": 5}, "cannot unmarshal number"),
    ]
    for patch, text in patches:
        refused = answer(both, f"{path}/x", patch, MERGE)
        assert refused.status == 422
        assert text in refused.message
    for patch in ({"kind": None}, {"apiVersion": ""}):
        # Upstream answers the second with 500.
        assert both.allot.send("PATCH", f"{path}/x", patch, kind=MERGE).status == 422
