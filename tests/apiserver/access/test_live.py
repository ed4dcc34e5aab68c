"""Access on a real server over HTTPS, with curl-like requests and with kubectl."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from allot.apiserver.access.certificates import ADMIN
from allot.apiserver.assembly import Settings, running
from allot.store.memory import MemoryStore
from apiserver.live import Answer, LiveServer, client_session
from waiting import WAIT_S
from waiting import until as eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


async def until(ask: Callable[[], Awaitable[Answer]], status: int) -> Answer:
    """The answer once it has the status: what nodes see follows the store within moments, not at once."""

    async def look() -> Answer | None:
        return answer if (answer := await ask()).status == status else None

    answer: Answer = await eventually(look)
    return answer


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}, "rules": list(rules)}


def rule(verbs: str, resources: str, group: str = "") -> dict[str, Any]:
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": resources.split()}


def binding(name: str, role_name: str, user: str, role_kind: str = "ClusterRole") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role_name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


async def bind(server: LiveServer, role_name: str, user: str) -> None:
    answer = await server.post(f"{RBAC}/clusterrolebindings", binding(f"{user}-{role_name}", role_name, user))
    assert answer.status == 201, answer.raw


async def kubectl(server: LiveServer, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        "kubectl",
        f"--kubeconfig={server.kubeconfig}",
        f"--cache-dir={server.directory / 'kubectl-cache'}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(60):
        output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_the_default_roles_are_there_and_rights_come_and_go_with_bindings(server: LiveServer) -> None:
    answer = await server.get(f"{RBAC}/clusterroles")
    assert {"cluster-admin", "admin", "edit", "view", "system:node"} <= {
        item["metadata"]["name"] for item in answer.json["items"]
    }
    async with server.as_user("alice") as alice:

        def pods() -> Awaitable[Answer]:
            return server.get("/api/v1/namespaces/default/pods", session=alice)

        refused = await pods()
        assert refused.status == 403
        assert refused.json["message"] == (
            'pods is forbidden: User "alice" cannot list resource "pods" in API group "" in the namespace "default"'
        )
        for _ in range(20):
            await bind(server, "view", "alice")
            assert (await pods()).status == 200
            await server.delete(f"{RBAC}/clusterrolebindings/alice-view")
            assert (await pods()).status == 403


async def test_an_admin_cannot_grant_what_they_do_not_have(server: LiveServer) -> None:
    rights = rule("create update patch get", "clusterroles clusterrolebindings", "rbac.authorization.k8s.io")
    await server.post(f"{RBAC}/clusterroles", role("granter", rights, rule("get", "pods")))
    await bind(server, "granter", "alice")
    async with server.as_user("alice") as alice:
        roles = f"{RBAC}/clusterroles"
        await until(lambda: server.post(roles, role("fine", rule("get", "pods")), session=alice), 201)
        refused = await server.post(roles, role("more", rule("get", "secrets")), session=alice)
        assert refused.status == 403
        assert refused.json["message"] == (
            'clusterroles.rbac.authorization.k8s.io "more" is forbidden: user "alice" (groups=["system:authenticated"]) is '
            'attempting to grant RBAC permissions not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
        )
        changed = role("fine", rule("get", "pods secrets"))
        assert (await server.put(f"{roles}/fine", changed, session=alice)).status == 403
        bound = await server.post(f"{RBAC}/clusterrolebindings", binding("b", "cluster-admin", "alice"), session=alice)
        assert bound.status == 403
        missing = await server.post(f"{RBAC}/clusterrolebindings", binding("b", "gone", "alice"), session=alice)
        assert (missing.status, missing.json["message"]) == (
            404,
            'clusterrole.rbac.authorization.k8s.io "gone" not found',
        )


async def test_allocating_takes_more_than_writing_the_status(server: LiveServer) -> None:
    rights = rule("get update patch", "resourceclaims resourceclaims/status", "resource.k8s.io")
    await server.post(f"{RBAC}/clusterroles", role("status-writer", rights))
    await bind(server, "status-writer", "alice")
    claim = {
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    created = await server.post(CLAIMS, claim)
    assert created.status == 201, created.raw
    allocated = created.json
    result = {"request": "r", "driver": "gpu.example.com", "pool": "p", "device": "d"}
    allocated["status"] = {"allocation": {"devices": {"results": [result]}}}
    async with server.as_user("alice") as alice:
        refused = await until(lambda: server.put(f"{CLAIMS}/c/status", allocated, session=alice), 422)
        (cause,) = refused.json["details"]["causes"]
        assert (cause["reason"], cause["field"]) == ("FieldValueForbidden", "status.allocation")
        assert 'resource="resourceclaims/binding", verb="update" permission' in cause["message"]
        binding_right = rule("update", "resourceclaims/binding", "resource.k8s.io")
        await server.put(f"{RBAC}/clusterroles/status-writer", role("status-writer", rights, binding_right))
        await until(lambda: server.put(f"{CLAIMS}/c/status", allocated, session=alice), 200)


async def test_a_bound_token_works_until_its_service_account_goes(server: LiveServer) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert (await server.post(accounts, {"metadata": {"name": "bot"}})).status == 201
    answer = await server.post(
        f"{accounts}/bot/token", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    )
    assert answer.status == 201, answer.raw
    headers = {"Authorization": f"Bearer {answer.json['status']['token']}"}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    async with server.as_nobody() as nobody:
        told = await server.post(path, review, headers=headers, session=nobody)
        assert told.status == 201
        assert told.json["status"]["userInfo"]["username"] == "system:serviceaccount:default:bot"
        assert (await server.get("/api/v1/nodes", headers=headers, session=nobody)).status == 403
        assert (await server.delete(f"{accounts}/bot")).status == 200
        assert (await server.post(path, review, headers=headers, session=nobody)).status == 401
        bad = {"Authorization": "Bearer rubbish"}
        assert (await server.get("/readyz", headers=bad, session=nobody)).status == 401


async def test_nobody_gets_403_everywhere_but_at_health_and_version(server: LiveServer) -> None:
    async with server.as_nobody() as nobody:
        for path in ("/livez", "/readyz", "/healthz", "/version"):
            assert (await server.get(path, session=nobody)).status == 200
        for path in ("/", "/api", "/apis", "/metrics", "/openapi/v3", "/api/v1/pods", "/nonsense", "/api/v1/nonsense"):
            assert (await server.get(path, session=nobody)).status == 403


async def test_a_node_sees_its_own_slices_and_no_others(server: LiveServer) -> None:
    slices = "/apis/resource.k8s.io/v1/resourceslices"

    async def make(session: aiohttp.ClientSession | None, node: str) -> Answer:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": []}
        return await server.post(slices, {"metadata": {"name": f"s-{node}"}, "spec": spec}, session=session)

    assert (await make(None, "n2")).status == 201
    async with server.as_user("system:node:n1", "system:nodes") as node:
        assert (await make(node, "n1")).status == 201
        assert (await make(node, "n3")).status == 403
        await until(lambda: server.get(f"{slices}/s-n1", session=node), 200)
        assert (await server.get(f"{slices}/s-n2", session=node)).status == 403
        assert (await server.get(slices, session=node)).status == 403
        listed = await server.get(f"{slices}?fieldSelector=spec.nodeName%3Dn1", session=node)
        assert [item["metadata"]["name"] for item in listed.json["items"]] == ["s-n1"]
        assert (await server.get("/api/v1/nodes/n2", session=node)).status == 403


async def test_a_node_may_watch_the_one_configmap_of_its_pod(server: LiveServer) -> None:
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "mine"}}]}],
        },
    }
    assert (await server.post("/api/v1/namespaces/default/pods", pod)).status == 201
    maps = "/api/v1/namespaces/default/configmaps"
    async with server.as_user("system:node:n1", "system:nodes") as node:
        await until(lambda: server.get(f"{maps}?fieldSelector=metadata.name%3Dmine", session=node), 200)
        assert (await server.get(f"{maps}?fieldSelector=metadata.name%3Dother", session=node)).status == 403
        assert (await server.get(maps, session=node)).status == 403


async def test_impersonation_needs_rights_and_then_has_those_of_the_other(server: LiveServer) -> None:
    headers = {"Impersonate-User": "bob", "Impersonate-Group": "dev"}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    told = await server.post(path, review, headers=headers)
    assert told.json["status"]["userInfo"] == {"username": "bob", "groups": ["dev", "system:authenticated"]}
    assert (await server.get("/api/v1/nodes", headers=headers)).status == 403
    async with server.as_user("alice") as alice:
        assert (await server.post(path, review, headers=headers, session=alice)).status == 403
        assert (await server.get("/version", headers={"Impersonate-Group": "g"}, session=alice)).status == 400


@pytest.mark.parametrize("header", ["Impersonate-Group", "Impersonate-Uid", "impersonate-extra-scopes"])
async def test_who_impersonates_nobody_in_particular_is_refused(server: LiveServer, header: str) -> None:
    answer = await server.get("/api/v1/namespaces", headers={header: "view"})
    assert answer.status == 400
    assert "without impersonating a user name" in answer.json["message"]


async def test_tokens_can_be_verified_with_what_the_server_publishes(server: LiveServer) -> None:
    document = (await server.get("/.well-known/openid-configuration")).json
    assert document["jwks_uri"] == f"{document['issuer']}/openid/v1/jwks"
    keys = await server.get("/openid/v1/jwks")
    assert keys.headers["Content-Type"] == "application/jwk-set+json"
    assert keys.json["keys"][0]["kid"] == server.live.access.tokens.key.key_id
    async with server.as_nobody() as nobody, server.as_user("alice") as alice:
        assert (await server.get("/openid/v1/jwks", session=nobody)).status == 403
        assert (await server.get("/openid/v1/jwks", session=alice)).status == 403


async def test_requests_are_audited_with_who_asked_as_whom(tmp_path: Path) -> None:
    settings = Settings(directory=tmp_path / "pki", port=0, audit_log=tmp_path / "audit.log")
    async with running(settings, MemoryStore()) as live, client_session(live, "admin", ADMIN) as session:
        server = LiveServer(live, tmp_path, session)
        await server.get("/api/v1/nodes", headers={"Impersonate-User": "bob", "User-Agent": "tester"})
        async with server.as_nobody() as nobody:
            await server.get("/api/v1/pods", session=nobody)
    events = [msgspec.json.decode(line) for line in (tmp_path / "audit.log").read_bytes().splitlines()]
    refused = next(event for event in events if event.get("userAgent") == "tester")
    assert refused["user"]["username"] == "kubernetes-admin"
    assert refused["impersonatedUser"]["username"] == "bob"
    assert refused["objectRef"]["resource"] == "nodes"
    assert refused["responseStatus"]["code"] == 403
    assert [event["responseStatus"]["code"] for event in events if event["requestURI"] == "/api/v1/pods"] == [403]


async def test_credentials_that_are_no_text_never_break_the_server(server: LiveServer) -> None:
    """Sent byte by byte, because clients refuse to."""
    context = ssl.create_default_context(cadata=server.ca.decode())
    context.load_cert_chain(server.directory / "pki" / "admin.crt", server.directory / "pki" / "admin.key")
    port = int(server.url.rpartition(":")[2])
    for header, statuses in (
        (b"Impersonate-User: bob\xff", (400,)),
        (b"Impersonate-User: alice\r\nImpersonate-Extra-\xff: x", (400,)),
        (b"Impersonate-User: alice\r\nImpersonate-Extra-%ff%00: x", (403, 201)),
        (b"Authorization: Bearer \xff\xfe.\xfd.\xfc", (201,)),
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        body = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
        path = b"/apis/authentication.k8s.io/v1/selfsubjectreviews"
        lines = (b"POST " + path + b" HTTP/1.1", b"Host: localhost", header, b"Content-Type: application/json")
        writer.write(b"\r\n".join((*lines, b"Connection: close", b"Content-Length: %d" % len(body), b"", body)))
        async with asyncio.timeout(WAIT_S):
            status = int((await reader.readline()).split()[1])
            await reader.read()
        writer.close()
        assert status in statuses, (header, status)


@needs_kubectl
@pytest.mark.slow
async def test_kubectl_asks_who_it_is_and_what_it_may_do(server: LiveServer) -> None:
    code, output = await kubectl(server, "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}")
    assert (code, output) == (0, "kubernetes-admin")
    assert await kubectl(server, "auth", "can-i", "create", "pods") == (0, "yes\n")
    assert (await kubectl(server, "auth", "can-i", "create", "pods", "--as=alice"))[1].startswith("no")
    code, output = await kubectl(server, "auth", "can-i", "--list", "--as=alice", "--as-group=system:authenticated")
    assert code == 0
    assert "selfsubjectaccessreviews.authorization.k8s.io" in output
    await bind(server, "view", "carol")
    async with asyncio.timeout(WAIT_S):
        while (await kubectl(server, "auth", "can-i", "list", "pods", "--as=carol"))[1] != "yes\n":
            await asyncio.sleep(0.1)
    assert (await kubectl(server, "auth", "can-i", "get", "/metrics", "--as=carol"))[1].startswith("no")


@needs_kubectl
@pytest.mark.slow
async def test_kubectl_creates_tokens_and_roles(server: LiveServer) -> None:
    assert (await kubectl(server, "create", "serviceaccount", "bot"))[0] == 0
    code, token = await kubectl(server, "create", "token", "bot", "--duration=20m")
    assert code == 0
    headers = {"Authorization": f"Bearer {token.strip()}"}
    async with server.as_nobody() as nobody:
        assert (await server.get("/api", headers=headers, session=nobody)).status == 200
    code, output = await kubectl(server, "create", "token", "bot", "--duration=1m")
    assert code == 1
    assert "may not specify a duration less than 10 minutes" in output
    assert (await kubectl(server, "create", "role", "r", "--verb=get", "--resource=pods"))[0] == 0
    assert (await kubectl(server, "create", "rolebinding", "b", "--role=r", "--serviceaccount=default:bot"))[0] == 0
    async with asyncio.timeout(WAIT_S):
        while (await kubectl(server, "auth", "can-i", "get", "pods", "--as=system:serviceaccount:default:bot"))[
            1
        ] != "yes\n":
            await asyncio.sleep(0.1)


WRONG_SHAPES: tuple[Any, ...] = (
    {"rules": 7},
    {"rules": [1]},
    {"rules": [None]},
    {"rules": [{"verbs": 7}]},
    {"rules": [{"verbs": [None], "apiGroups": [{}], "resources": ["a"]}]},
    {"rules": None, "aggregationRule": 7},
    {"aggregationRule": {"clusterRoleSelectors": [7]}},
    {"aggregationRule": {"clusterRoleSelectors": [{"matchExpressions": [{"operator": "Odd"}]}]}},
    {"roleRef": 7},
    {"roleRef": None, "subjects": [None]},
    {"roleRef": {"kind": "Odd", "name": []}, "subjects": [{"kind": 7}]},
    {"metadata": {"name": "x", "labels": []}},
)


@pytest.mark.parametrize("resource", ["clusterroles", "clusterrolebindings"])
async def test_roles_and_bindings_of_any_shape_are_answered_by_client_errors(server: LiveServer, resource: str) -> None:
    rights = rule("create", "clusterroles clusterrolebindings", "rbac.authorization.k8s.io")
    await server.post(f"{RBAC}/clusterroles", role("granter", rights))
    await bind(server, "granter", "alice")
    async with server.as_user("alice") as alice:
        for shape in WRONG_SHAPES:
            for session in (alice, None):
                answer = await server.post(f"{RBAC}/{resource}", {"metadata": {"name": "x"}, **shape}, session=session)
                assert answer.status in (201, 400, 403, 404, 422), (shape, answer.raw)
                await server.delete(f"{RBAC}/{resource}/x")
        assert (await server.get("/readyz", session=alice)).status == 200
        decided = await server.get("/api/v1/pods", session=alice)
        assert decided.status == 403
