"""Small requests that would cost much: they are refused, or bounded, and others are served meanwhile."""

from __future__ import annotations

import base64
import gzip
from typing import Any
from urllib.parse import quote

import pytest

from security.servers import Both, Server

pytestmark = pytest.mark.slow

YAML, JSON_PATCH = "application/yaml", "application/json-patch+json"
MAPS = "/api/v1/namespaces/default/configmaps"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def lives(server: Server) -> bool:
    return server.send("GET", "/readyz").status == 200


def laughs(levels: int) -> bytes:
    """Every line means the one before nine times."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(["apiVersion: v1", "kind: ConfigMap", "metadata: {name: laughs}", *lines]).encode()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (laughs(9), 400),
        (b"a: &a [*a]", 400),
        (b"a: &a {<<: *a}", 400),
        (b"- " * 50_000, 400),
        (b"[" * 50_000, 400),
        (b"{a: " * 20_000, 400),
        (b"!!python/object/apply:os.system [id]", 400),
        (b"!!python/name:os.system ''", 400),
        (b"a: !<tag:yaml.org,2002:python/object:os> {}", 400),
        (b"%TAG ! tag:x,2000:\n---\n!a b", 400),
        (b"a: \x00", 400),
        (b"&" + b"a" * 100_000 + b" b", 400),
    ],
)
def test_yaml_does_not_grow_and_makes_no_objects(both: Both, body: bytes, status: int) -> None:
    assert both.allot.send("POST", f"{MAPS}?dryRun=All", body, kind=YAML).status == status
    assert lives(both.allot)


def test_numbers_of_a_million_digits_are_no_work(both: Both) -> None:
    for digits in (b"9" * 1_000_000, b"1e999999999", b"-" + b"9" * 5_000, b"0." + b"1" * 1_000_000):
        body = b'{"metadata":{"name":"n","generation":%s}}' % digits
        assert both.allot.send("POST", f"{MAPS}?dryRun=All", body).status in (201, 400)
    assert lives(both.allot)


def test_a_compressed_body_is_not_unpacked(both: Both) -> None:
    bomb = gzip.compress(b"a" * 50_000_000)
    headers = {"Content-Encoding": "gzip"}
    assert both.allot.send("POST", MAPS, bomb, headers=headers).status == 415


@pytest.mark.parametrize("size", [3 * 1024 * 1024 + 1, 30 * 1024 * 1024])
def test_a_body_is_as_long_as_it_may_be(both: Both, size: int) -> None:
    head = f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    # Before it is sent: kube-apiserver reads first.
    assert both.allot.raw(head.encode(), both.allot.user("administrator", "system:masters"))[9:12] == b"413"


def operations(count: int) -> list[dict[str, Any]]:
    return [{"op": "add", "path": "/data/a", "value": "x"}] * count


def doubling(count: int) -> list[dict[str, Any]]:
    """Each step copies what all steps before have made."""
    first: list[dict[str, Any]] = [{"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 100}}]
    return first + [{"op": "copy", "from": "/metadata", "path": f"/metadata/{n}"} for n in range(count)]


def test_a_patch_has_so_many_operations_and_copies_so_much(both: Both, namespace: str) -> None:
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    both.create(maps, {"metadata": {"name": "m"}, "data": {"a": "b"}})
    assert both.send("PATCH", f"{maps}/m", operations(10_000), kind=JSON_PATCH).status == 200
    assert both.send("PATCH", f"{maps}/m", operations(10_001), kind=JSON_PATCH).status == 413
    assert both.allot.send("PATCH", f"{maps}/m", doubling(60), kind=JSON_PATCH).status in (400, 413, 422)
    assert lives(both.allot)


def selecting(expression: str) -> dict[str, Any]:
    return {"metadata": {"name": "bomb"}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}


@pytest.mark.parametrize(
    "expression",
    [
        # Cost: loops in loops over what has no bound.
        "device.attributes['a.example.com'].b.string.matches('(a+)+$') && "
        + " && ".join(["device.attributes['a.example.com'].c.string.matches('(a|aa)+$')"] * 400),
        "[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, "
        "[1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, a+b+c+d+e+f+g > 0)))))))",
        # Depth and length.
        "(" * 2_000 + "true" + ")" * 2_000,
        "true" + " && true" * 3_000,
        # No expression at all.
        "",
        "__import__('os').system('id')",
        "device.__class__",
        "'a'.matches('(')",
        "device.attributes",
        "1/0",
        "\x00",
    ],
)
def test_an_expression_is_bounded_before_it_runs(both: Both, expression: str) -> None:
    assert both.send("POST", f"{CLASSES}?dryRun=All", selecting(expression)).status == 422
    assert lives(both.allot)


def crd(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": "bombs.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "bombs", "singular": "bomb", "kind": "Bomb", "listKind": "BombList"},
            "versions": [version | more],
        },
    }


@pytest.mark.parametrize(
    "properties",
    [
        # A rule over lists of lists without bounds.
        {
            "a": {
                "type": "array",
                "items": {"type": "array", "items": {"type": "string"}},
                "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x.all(z, y.all(w, z != w))))"}],
            }
        },
        {"a": {"type": "string", "pattern": "("}},
        {"a": {"type": "string", "default": 7}},
        {"a": {"$ref": "#/properties/spec"}},
        {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self.matches('(')"}]}},
    ],
)
def test_a_definition_is_bounded_before_it_is_stored(both: Both, properties: dict[str, Any]) -> None:
    assert both.send("POST", f"{CRDS}?dryRun=All", crd(properties)).status == 422


def test_a_pattern_that_would_never_end_ends(both: Both) -> None:
    server = both.allot
    server.create(CRDS, crd({"a": {"type": "string", "pattern": "^(a+)+$"}}))
    path = "/apis/example.com/v1/namespaces/default/bombs"
    object_ = {
        "apiVersion": "example.com/v1",
        "kind": "Bomb",
        "metadata": {"name": "b"},
        "spec": {"a": "a" * 5000 + "!"},
    }
    for _ in range(600):
        answer = server.send("POST", path, object_)
        if answer.status != 404:
            break
    assert answer.status == 422
    assert server.send("DELETE", f"{CRDS}/bombs.example.com").status == 200


@pytest.mark.parametrize(
    "selector", ["a=b," * 5_000 + "a=b", "a in (" + "b," * 20_000 + "b)", "(" * 10_000, "!" * 10_000]
)
def test_selectors_cost_no_more_than_their_length(both: Both, selector: str) -> None:
    answer = both.allot.send("GET", f"{MAPS}?labelSelector={quote(selector)}")
    assert answer.status in (200, 400, 431)


def test_a_secret_of_odd_bytes_is_no_more_than_its_bytes(both: Both, namespace: str) -> None:
    secrets = f"/api/v1/namespaces/{namespace}/secrets"
    too_much = base64.b64encode(b"a" * (1024 * 1024 + 1)).decode()
    assert both.send("POST", secrets, {"metadata": {"name": "s"}, "data": {"a": too_much}}).status == 422
    assert both.send("POST", secrets, {"metadata": {"name": "s"}, "data": {"a": "!"}}).status == 400
    assert both.send("POST", secrets, {"metadata": {"name": "s"}, "data": {"../a": ""}}).status == 422
