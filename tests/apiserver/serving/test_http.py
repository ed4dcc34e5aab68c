"""HTTP: formats, discovery, limits, and everything that a client can get wrong."""

from __future__ import annotations

import asyncio
import random
import ssl
from typing import Any

import msgspec
import pytest
import yaml

from apiserver.live import LiveServer
from waiting import WAIT_S

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


# --- formats ---


async def test_yaml_goes_in_and_out(server: LiveServer) -> None:
    body = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {when: 2020-01-01, flag: 'yes'}\n"
    answer = await server.post(MAPS, body, headers={"Content-Type": "application/yaml"})
    assert answer.status == 201, answer.json
    answer = await server.get(f"{MAPS}/a", headers={"Accept": "application/yaml"})
    assert answer.headers["Content-Type"] == "application/yaml"
    assert yaml.safe_load(answer.raw)["data"] == {"when": "2020-01-01", "flag": "yes"}


async def test_tables_are_for_people(server: LiveServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    table = (await server.get(MAPS, headers={"Accept": TABLE})).json
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    row = table["rows"][0]
    assert row["cells"][:2] == ["a", 1]
    assert row["object"]["kind"] == "PartialObjectMetadata"
    whole = (await server.get(f"{MAPS}/a?includeObject=Object", headers={"Accept": TABLE})).json
    assert whole["rows"][0]["object"]["data"] == {"k": "v"}
    none = (await server.get(f"{MAPS}/a?includeObject=None", headers={"Accept": TABLE})).json
    assert none["rows"][0]["object"] is None
    assert (await server.get(f"{MAPS}?includeObject=Some", headers={"Accept": TABLE})).status == 400


async def test_metadata_can_be_had_alone(server: LiveServer) -> None:
    await server.post(MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    answer = (await server.get(f"{MAPS}/a", headers={"Accept": accept})).json
    assert (answer["kind"], sorted(answer)) == ("PartialObjectMetadata", ["apiVersion", "kind", "metadata"])
    accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
    answer = (await server.get(MAPS, headers={"Accept": accept})).json
    assert answer["kind"] == "PartialObjectMetadataList"
    assert all("data" not in item for item in answer["items"])


async def test_pretty_and_gzip(server: LiveServer) -> None:
    plain = (await server.get("/version")).raw
    pretty = (await server.get("/version?pretty=true")).raw
    assert b"\n" not in plain
    assert pretty.startswith(b'{\n  "')
    answer = await server.get("/openapi/v3/api/v1", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"


async def test_protobuf_is_refused_with_a_hint_when_it_cannot_be_read(server: LiveServer) -> None:
    headers = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    for body in (b"k8s\0", b"k8s\0\xff\xff\xff", b"\0\1\2"):
        assert (await server.post(MAPS, body, headers=headers)).status in (400, 415)
    unknown_kind = b"k8s\0" + b"\x0a\x0d" + b"\x0a\x02v1" + b"\x12\x07Unknown" + b"\x12\x00"
    answer = await server.post(MAPS, unknown_kind, headers=headers)
    assert (answer.status, answer.json["reason"]) == (415, "UnsupportedMediaType")
    assert "--kube-api-content-type=application/json" in answer.json["message"]
    answer = await server.get(MAPS, headers={"Accept": "application/vnd.kubernetes.protobuf"})
    assert (answer.status, answer.json["reason"]) == (406, "NotAcceptable")
    answer = await server.get(MAPS, headers={"Accept": "application/vnd.kubernetes.protobuf,application/json"})
    assert answer.status == 200


async def test_protobuf_of_typed_clients_is_read(server: LiveServer) -> None:
    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    metadata = field(1, b"a") + field(8, b"") + field(11, field(1, b"app") + field(2, b"x"))
    data = field(2, field(1, b"k") + field(2, b"v"))
    unknown = field(1, field(1, b"v1") + field(2, b"ConfigMap")) + field(2, field(1, metadata) + data) + field(3, b"")
    answer = await server.post(
        MAPS, b"k8s\0" + unknown, headers={"Content-Type": "application/vnd.kubernetes.protobuf"}
    )
    assert answer.status == 201, answer.json
    assert answer.json["data"] == {"k": "v"}
    assert answer.json["metadata"]["labels"] == {"app": "x"}


@pytest.mark.slow
async def test_others_are_served_while_a_large_yaml_is_read_and_written(server: LiveServer) -> None:
    lines = "".join(f"  key-{number}: value\n" for number in range(40_000))
    body = f"metadata:\n  name: large\ndata:\n{lines}".encode()
    headers = {"Content-Type": "application/yaml", "Accept": "application/yaml"}
    created = asyncio.ensure_future(server.post(MAPS, body, headers=headers))
    meanwhile = 0
    while not created.done():
        assert (await server.get("/livez")).status == 200
        meanwhile += 1
    answer = await created
    assert answer.status == 201
    assert yaml.load(answer.raw, Loader=yaml.CSafeLoader)["data"]["key-39999"] == "value"
    assert meanwhile > 5


# --- discovery ---


async def test_discovery_in_both_forms_tells_the_same(server: LiveServer) -> None:
    groups = {each["name"] for each in (await server.get("/apis")).json["groups"]}
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
    answer = await server.get("/apis", headers={"Accept": accept})
    assert "as=APIGroupDiscoveryList" in answer.headers["Content-Type"]
    assert {each["metadata"]["name"] for each in answer.json["items"]} == groups
    core = (await server.get("/api/v1")).json["resources"]
    aggregated = (await server.get("/api", headers={"Accept": accept})).json["items"][0]["versions"][0]["resources"]
    assert {each["name"] for each in core if "/" not in each["name"]} == {each["resource"] for each in aggregated}
    beta = accept.replace("v=v2", "v=v2beta1")
    answer = await server.get("/apis", headers={"Accept": beta})
    assert answer.json["apiVersion"] == "apidiscovery.k8s.io/v2beta1"
    resource = (await server.get("/apis/resource.k8s.io")).json
    assert [each["version"] for each in resource["versions"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]


@pytest.mark.slow
async def test_openapi_describes_every_kind(server: LiveServer) -> None:
    index = (await server.get("/openapi/v3")).json["paths"]
    assert "apis/resource.k8s.io/v1" in index
    address = index["apis/resource.k8s.io/v1"]["serverRelativeURL"]
    answer = await server.get(address)
    schemas = answer.json["components"]["schemas"]
    claim = schemas["io.k8s.api.resource.v1.ResourceClaim"]
    assert claim["x-kubernetes-group-version-kind"][0]["kind"] == "ResourceClaim"
    assert "parameters" not in answer.json["paths"]["/apis/resource.k8s.io/v1/deviceclasses"]
    text = answer.raw.decode()
    for part in text.split('"$ref":"#/components/schemas/')[1:]:
        assert part.split('"', 1)[0] in schemas
    assert (await server.get(address, headers={"If-None-Match": answer.headers["ETag"]})).status == 304
    swagger = (await server.get("/openapi/v2")).json
    assert "io.k8s.api.core.v1.Pod" in swagger["definitions"]


@pytest.mark.parametrize("path", ["/", "/version", "/api/v1/nodes"])
async def test_a_time_limit_that_is_none_is_refused_everywhere(server: LiveServer, path: str) -> None:
    refused = await server.get(f"{path}?timeout=soon")
    assert refused.status == 400
    assert refused.json["message"] == ('invalid timeout specified in the request URL - time: invalid duration "soon"')
    assert (await server.get(f"{path}?timeout=3m")).status == 200


async def test_health_version_and_metrics(server: LiveServer) -> None:
    for path in ("/livez", "/readyz", "/healthz"):
        assert (await server.get(path)).raw == b"ok"
    assert b"readyz check passed" in (await server.get("/readyz?verbose")).raw
    assert (await server.get("/livez/ping")).raw == b"ok"
    assert (await server.get("/livez/nothing")).status == 404
    assert (await server.get("/version")).json["gitVersion"] == "v1.37.0+allot"
    assert b'apiserver_request_total{code="200"' in (await server.get("/metrics")).raw


CHECKS = (
    "ping", "log", "store", "poststarthook/generic-apiserver-start-informers", "poststarthook/crd-informer-synced",
    "poststarthook/start-apiextensions-informers", "poststarthook/start-apiextensions-controllers",
    "poststarthook/start-system-namespaces-controller", "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes", "poststarthook/bootstrap-controller",
    "poststarthook/start-cluster-authentication-info-controller", "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-registration-controller", "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller", "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
)  # fmt: skip


async def test_each_health_check_has_a_name_and_a_path_and_can_be_left_out(server: LiveServer) -> None:
    ready = (*CHECKS, "informer-sync", "store-writable")
    for path, names in (("livez", CHECKS), ("healthz", CHECKS), ("readyz", ready)):
        lines = (await server.get(f"/{path}?verbose")).raw.decode().splitlines()
        assert lines == [*(f"[+]{name} ok" for name in names), f"{path} check passed"]
        for name in names:
            assert (await server.get(f"/{path}/{name}")).raw == b"ok"
    assert (await server.get("/livez/poststarthook")).status == 404
    assert (await server.get("/livez/store-writable")).status == 404
    told = (await server.get("/livez?verbose&exclude=log&exclude=nope&exclude=ping")).raw.decode().splitlines()
    assert told[:3] == ["[+]ping excluded: ok", "[+]log excluded: ok", "[+]store ok"]
    assert told[-2:] == ['warn: some health checks cannot be excluded: no matches for "nope"', "livez check passed"]
    assert (await server.get("/livez?exclude=log")).raw == b"ok"


async def test_what_clients_make_up_is_not_counted_by_name(server: LiveServer) -> None:
    """Each name would be kept for good, and need not even be that of somebody who may do anything."""
    for path in (PODS, f"{PODS}/p/madeup", "/api/v1/madeups", "/version"):
        await server.request("MADEUP", path)
        await server.get(path)
    metrics = (await server.get("/metrics")).raw.decode()
    assert "madeup" not in metrics.lower()
    assert 'verb="other"' in metrics


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/api/v1/unknowns", 404),
        ("GET", "/apis/none.example.com/v1/things", 404),
        ("GET", "/apis/apps/v9/deployments", 404),
        ("GET", "/nothing/here", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/api/v1/namespaces/default/pods/p/bogus", 404),
        ("POST", "/version", 405),
        ("PUT", PODS, 405),
        ("POST", f"{PODS}/p", 405),
        ("PATCH", PODS, 405),
        ("OPTIONS", PODS, 405),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", 405),
        ("GET", "/api/v1/namespaces/default/pods/p/binding", 405),
        ("GET", "/api/v1/namespaces/..%2f..%2fsecrets", 400),
        ("GET", "/api/v1/namespaces/default%2Fpods/x", 400),
        ("GET", "/api/v1/namespaces/%00/pods", 400),
    ],
)
async def test_paths_that_lead_nowhere(server: LiveServer, method: str, path: str, status: int) -> None:
    from yarl import URL

    async with server.session.request(method, URL(server.url + path, encoded=True)) as response:
        body = msgspec.json.decode(await response.read())
    assert response.status == status, body
    assert (body["kind"], body["code"]) == ("Status", status)
    if status == 404 and path != "/api/v1/namespaces/default/pods/p/bogus":
        assert body["message"] == "the server could not find the requested resource"


# --- bad input ---


async def test_a_refusal_tells_bytes_that_are_no_characters_as_go_does(server: LiveServer) -> None:
    answer = await server.get(f"{MAPS}?timeout=1s%FF")
    assert answer.status == 400
    assert answer.json["message"].endswith('invalid duration "1s\ufffd"')


async def test_huge_bodies_are_refused(server: LiveServer) -> None:
    body = {"metadata": {"name": "a"}, "data": {"k": "x" * (3 * 1024 * 1024)}}
    answer = await server.post(MAPS, body)
    assert (answer.status, answer.json["reason"]) == (413, "RequestEntityTooLarge")
    assert answer.json["message"] == "Request entity too large: limit is 3145728"


async def test_clients_that_ask_before_they_send_are_told_to_go_on(server: LiveServer) -> None:
    body = msgspec.json.encode({"metadata": {"name": "a"}})
    headers = {"Content-Type": "application/json"}
    async with server.session.post(server.url + MAPS, data=body, headers=headers, expect100=True) as response:
        assert response.status == 201


@pytest.mark.parametrize("depth", [200, 2_000, 100_000])
async def test_deep_nesting_is_refused(server: LiveServer, depth: int) -> None:
    for opening, closing in ((b'{"a":', b"}"), (b"[", b"]")):
        body = b'{"metadata":{"name":"a"},"data":' + opening * depth + b"1" + closing * depth + b"}"
        for method, path, kind in (
            ("POST", MAPS, "application/json"),
            ("POST", MAPS, "application/yaml"),
            ("PATCH", f"{MAPS}/kube-root-ca.crt", "application/merge-patch+json"),
            ("PATCH", f"{MAPS}/kube-root-ca.crt", "application/strategic-merge-patch+json"),
            ("PATCH", f"{MAPS}/x?fieldManager=m", "application/apply-patch+yaml"),
        ):
            answer = await server.request(method, path, body, headers={"Content-Type": kind})
            assert 400 <= answer.status < 500, (method, kind, answer.raw[:300])


async def test_yaml_bombs_are_refused(server: LiveServer) -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    bodies = {
        "\n".join(lines): "excessive aliasing",
        "a: &a [*a]": "contains itself",
        "a: &a {b: *a}": "contains itself",
    }
    for body, problem in bodies.items():
        answer = await server.post(MAPS, body.encode(), headers={"Content-Type": "application/yaml"})
        assert answer.status == 400
        assert problem in answer.json["message"]
    shared = b"metadata: {name: a}\ndata: {x: &x text, z: *x}"
    answer = await server.post(MAPS, shared, headers={"Content-Type": "application/yaml"})
    assert answer.json["data"] == {"x": "text", "z": "text"}


BODIES = [
    b"",
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"12",
    b"\xff\xfe\x00",
    b'{"metadata":null}',
    b'{"metadata":[]}',
    b'{"metadata":{"name":5}}',
    b'{"metadata":{"name":null,"generateName":{}}}',
    b'{"metadata":{"name":"a","labels":[]}}',
    b'{"metadata":{"name":"a","labels":{"a":1}}}',
    b'{"metadata":{"name":"a","ownerReferences":"x"}}',
    b'{"metadata":{"name":"a","finalizers":{}}}',
    b'{"metadata":{"name":"a","managedFields":"x"}}',
    b'{"metadata":{"name":"a","managedFields":[{"fieldsV1":"x"}]}}',
    b'{"metadata":{"name":"a","creationTimestamp":"yesterday"}}',
    b'{"metadata":{"name":"a","generation":1e400}}',
    b'{"metadata":{"name":"a","generation":99999999999999999999999999}}',
    b'{"kind":5,"apiVersion":[],"metadata":{"name":"a"}}',
    b'{"metadata":{"name":"\\ud800"}}',
    b'{"metadata":{"name":"' + b"a" * 100_000 + b'"}}',
    b'{"metadata":{"name":"a"},"spec":null,"status":5}',
    b'{"metadata":{"name":"a"},"spec":[]}',
    b'{"metadata":{"name":"a"},"spec":{"containers":{}}}',
    b'{"metadata":{"name":"a"},"spec":{"containers":[null,5,"x",{}]}}',
    b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":[]}}}]}}',
    b'{"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":"x"}]}]}}',
    b'{"metadata":{"name":"a"},"spec":{"devices":{"requests":[{"name":"x","exactly":{"count":-1}}]}}}',
    b'{"metadata":{"name":"a"},"spec":{"rules":[{}],"template":5}}',
    b'{"metadata":{"name":"a"},"rules":"x","roleRef":[],"subjects":{}}',
    b'{"metadata":{"name":"a"},"data":{"k":{"deep":[]}}}',
]


@pytest.mark.slow
async def test_bad_bodies_never_break_the_server(server: LiveServer) -> None:
    """Every kind gets every bad body: an answer of the 400s or a success, never a 500."""
    wrong = []
    for row in list(server.live.server.context.registry):
        resource = row.resource
        if "create" not in resource.verbs:
            continue
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        place = "/namespaces/default" if resource.namespaced else ""
        path = f"{root}{place}/{resource.plural}"
        answers = await asyncio.gather(*(server.post(f"{path}?dryRun=All", body) for body in BODIES))
        for body, answer in zip(BODIES, answers, strict=True):
            if answer.status >= 500:
                wrong.append((path, body[:100], answer.status, answer.raw[:200]))
    assert not wrong, "\n".join(map(str, wrong[:20])) + f"\n{len(wrong)}"


@pytest.mark.slow
async def test_bad_patches_never_break_the_server(server: LiveServer) -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    assert (await server.post(PODS, pod)).status == 201
    kinds = ("json-patch+json", "merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
    bodies = [
        *BODIES,
        b'[{"op":"add","path":"/metadata/labels/-","value":1}]',
        b'[{"op":"copy","from":"","path":"/metadata/labels"}]',
        b'[{"op":"replace","path":"","value":null}]',
        b'[{"op":"remove","path":"/metadata"}]',
        b'[{"op":"remove","path":"/metadata/name"}]',
        b'{"$patch":"delete"}',
        b'{"metadata":{"$patch":"replace"}}',
        b'{"spec":{"containers":[{"$patch":"delete"}]}}',
        b'{"spec":{"$setElementOrder/containers":[{"name":"z"}],"containers":[{"image":"q"}]}}',
        b'{"spec":{"$retainKeys":5}}',
        b'{"metadata":{"$deleteFromPrimitiveList/finalizers":5}}',
    ]
    wrong = []
    for suffix in ("", "/status", "/ephemeralcontainers", "/resize"):
        for kind in kinds:
            for body in bodies:
                answer = await server.patch(f"{PODS}/p{suffix}?fieldManager=m&dryRun=All", body, kind)
                if answer.status >= 500:
                    wrong.append((suffix, kind, body[:100], answer.status, answer.raw[:200]))
    assert not wrong, "\n".join(map(str, wrong[:20]))


@pytest.mark.slow
async def test_random_requests_never_break_the_server(server: LiveServer) -> None:
    from yarl import URL

    chance = random.Random(20261115)
    alphabet = "abc/%2F..?&=,:;*'\"\\ \tpods default v1 api apis watch true limit continue \x7f\u00e9"
    paths = [
        "/api/v1",
        "/apis",
        MAPS,
        PODS,
        "/openapi/v3",
        "/livez",
        "/metrics",
        "/apis/resource.k8s.io/v1/resourceslices",
    ]
    names = ["watch", "limit", "continue", "resourceVersion", "labelSelector", "fieldSelector", "timeout", "timeoutSeconds",
             "dryRun", "fieldManager", "fieldValidation", "pretty", "resourceVersionMatch", "sendInitialEvents", "force"]  # fmt: skip

    def noise(length: int) -> str:
        return "".join(chance.choice(alphabet) for _ in range(chance.randrange(length)))

    wrong = []
    for _ in range(400):
        query = "&".join(f"{chance.choice(names)}={noise(12)}" for _ in range(chance.randrange(4)))
        path = chance.choice(paths) + chance.choice(["", "/", "/" + noise(10)])
        address = URL.build(
            scheme="https", host="127.0.0.1", port=server.live.port, path=path if path.startswith("/") else "/"
        )
        url = URL(str(address) + "?timeoutSeconds=1&" + query.replace("#", "").replace(" ", "+"), encoded=False)
        method = chance.choice(["GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "X"])
        headers = {chance.choice(["Accept", "Content-Type", "Authorization", "Impersonate-User", "Accept-Encoding"]):
                   noise(30).encode("ascii", "ignore").decode().replace("\t", "").replace("\x7f", "")}  # fmt: skip
        body = chance.randbytes(chance.randrange(60)) if method not in ("GET", "HEAD") else None
        async with (
            asyncio.timeout(WAIT_S),
            server.session.request(method, url, data=body, headers=headers) as response,
        ):
            raw = await response.read()
        if response.status >= 500 and response.status != 504:
            wrong.append((method, str(url), headers, response.status, raw[:200]))
    assert not wrong, "\n".join(map(str, wrong[:10]))
    assert (await server.get("/readyz")).status == 200


async def raw(server: LiveServer, data: bytes, *, wait: float = 5.0) -> bytes:
    context = ssl.create_default_context(cadata=server.ca.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.live.port, ssl=context)
    try:
        writer.write(data)
        await writer.drain()
        async with asyncio.timeout(wait):
            return await reader.read(65536)
    finally:
        writer.close()


async def test_what_is_not_http_does_not_hurt(server: LiveServer) -> None:
    chance = random.Random(1)
    for data in (
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET " + b"/" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        chance.randbytes(200) + b"\r\n\r\n",
    ):
        answer = await raw(server, data)
        assert b" 500 " not in answer.split(b"\r\n")[0], answer[:200]
    assert (await server.get("/readyz")).status == 200


@pytest.mark.slow
async def test_idle_and_slow_clients_do_not_stop_others(server: LiveServer) -> None:
    writers: list[Any] = []
    for number in range(1000):
        _, writer = await asyncio.open_connection("127.0.0.1", server.live.port)
        if number % 2:
            writer.write(b"\x16\x03\x01")
        writers.append(writer)
    try:
        async with asyncio.timeout(WAIT_S):
            assert (await server.get("/readyz")).status == 200
            assert (await server.post(MAPS, {"metadata": {"name": "a"}})).status == 201
    finally:
        for writer in writers:
            writer.close()


@pytest.mark.slow
async def test_requests_without_credential_or_right_are_refused_everywhere(server: LiveServer) -> None:
    open_to_all = ("/livez", "/readyz", "/healthz", "/version")
    paths = (await server.get("/")).json["paths"]
    for row in list(server.live.server.context.registry):
        resource = row.resource
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        place = "/namespaces/default" if resource.namespaced else ""
        paths += [f"{root}{place}/{resource.plural}", f"{root}{place}/{resource.plural}/x"]
        paths += [f"{root}{place}/{resource.plural}/x/{part}" for part in resource.subresources]
    async with server.as_nobody() as nobody, server.as_user("jane") as jane:
        for path in dict.fromkeys(paths):
            if path in open_to_all:
                continue
            answer = await server.get(path, session=nobody)
            assert answer.status == 403, path
            if (path.startswith("/api") and path.count("/") >= 3 and not path.startswith("/apis/")) or path.count(
                "/"
            ) > 4:
                answer = await server.get(path, session=jane)
                assert answer.status == 403, path
