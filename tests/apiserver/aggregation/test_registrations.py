"""What the server registers for its own groups, whom extension API servers trust, and the rules for APIServices."""

from __future__ import annotations

from typing import Any

import msgspec
from cryptography import x509

from apiserver.aggregation.extension_fixture import API_SERVICES, api_service
from apiserver.live import LiveServer
from waiting import until

MANAGED = "kube-aggregator.kubernetes.io/automanaged"
TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(*versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    return {
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
            "versions": [
                {"name": each, "served": True, "storage": each == versions[0], "schema": schema} for each in versions
            ],
        },
    }


async def names(server: LiveServer) -> set[str]:
    return {each["metadata"]["name"] for each in (await server.get(API_SERVICES)).json["items"]}


async def test_built_in_groups_are_registered_as_local(server: LiveServer) -> None:
    items = {each["metadata"]["name"]: each for each in (await server.get(API_SERVICES)).json["items"]}
    found = items["v1.resource.k8s.io"]
    assert found["metadata"]["labels"] == {MANAGED: "onstart"}
    assert found["spec"] == {
        "group": "resource.k8s.io",
        "version": "v1",
        "groupPriorityMinimum": 16200,
        "versionPriority": 21,
    }
    (condition,) = found["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Local")
    assert condition["message"] == "Local APIServices are always available"
    assert items["v1."]["spec"]["groupPriorityMinimum"] == 18000
    assert not any(name.endswith("apiregistration.k8s.io") for name in items)
    assert "labels" not in items["v1beta1.metrics.k8s.io"]["metadata"]


async def test_custom_resources_are_registered_as_long_as_they_are_served(server: LiveServer) -> None:
    assert (await server.post(DEFINITIONS, definition("v1", "v2"))).status == 201

    async def are(*expected: str) -> bool:
        return {each for each in await names(server) if each.endswith(".example.com")} == set(expected)

    await until(lambda: are("v1.example.com", "v2.example.com"))
    found = (await server.get(f"{API_SERVICES}/v1.example.com")).json
    assert found["metadata"]["labels"] == {MANAGED: "true"}
    assert (found["spec"]["groupPriorityMinimum"], found["spec"]["versionPriority"]) == (1000, 100)
    # Deleted or changed ones come back.
    assert (await server.delete(f"{API_SERVICES}/v1.example.com")).status == 200
    await until(lambda: are("v1.example.com", "v2.example.com"))
    assert (await server.patch(f"{API_SERVICES}/v2.example.com", {"spec": {"versionPriority": 7}})).status == 200

    async def is_restored() -> bool:
        return bool((await server.get(f"{API_SERVICES}/v2.example.com")).json["spec"]["versionPriority"] == 100)

    await until(is_restored)
    assert (await server.delete(f"{DEFINITIONS}/things.example.com")).status == 200
    await until(are)


async def test_what_somebody_else_registers_stays(server: LiveServer) -> None:
    theirs = api_service(group="example.com", version="v1")
    assert (await server.post(API_SERVICES, theirs)).status == 201
    assert (await server.post(DEFINITIONS, definition("v1", "v2"))).status == 201

    async def is_there() -> bool:
        return "v2.example.com" in await names(server)

    await until(is_there)
    assert "service" in (await server.get(f"{API_SERVICES}/v1.example.com")).json["spec"]
    # And it is not this server's: its own custom resource is not answered.
    assert (await server.get("/apis/example.com/v1/things")).status == 503
    assert (await server.get("/apis/example.com/v2/things")).status == 200


async def test_extension_servers_find_whom_to_trust(server: LiveServer) -> None:
    found = (await server.get(TRUST)).json["data"]
    certificates = server.live.access.certificates
    assert found["client-ca-file"].encode() == certificates.authority.pem
    assert found["requestheader-client-ca-file"].encode() == certificates.front_proxy_authority.pem
    assert {key: msgspec.json.decode(value) for key, value in found.items() if value.startswith("[")} == {
        "requestheader-allowed-names": ["front-proxy-client"],
        "requestheader-username-headers": ["X-Remote-User"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
    }
    assert certificates.authority.pem != certificates.front_proxy_authority.pem
    # Others add their own; what is ours comes back.
    assert (await server.patch(TRUST, {"data": {"requestheader-allowed-names": '["other"]'}})).status == 200

    async def names_of() -> Any:
        data = (await server.get(TRUST)).json.get("data") or {}
        return data.get("requestheader-allowed-names") == '["other","front-proxy-client"]'

    await until(names_of)
    assert (await server.delete(TRUST)).status == 200

    async def is_back() -> bool:
        answer = await server.get(TRUST)
        return answer.status == 200 and answer.json["data"] == found

    await until(is_back)
    assert len(x509.load_pem_x509_certificates(found["client-ca-file"].encode())) == 1


async def test_a_new_one_has_no_status_and_the_usual_port(server: LiveServer) -> None:
    made = {**api_service(), "status": {"conditions": [{"type": "Available", "status": "True"}]}}
    made["spec"]["service"] = {"namespace": "a", "name": "b"}
    answer = await server.post(f"{API_SERVICES}?dryRun=All", made)
    assert (answer.status, answer.json["spec"]["service"]["port"]) == (201, 443)
    assert not answer.json.get("status")
    made["spec"]["versionPriority"] = 0
    answer = await server.post(API_SERVICES, made)
    text = "spec.versionPriority: Invalid value: 0: must be positive and less than 1000"
    assert (answer.status, text in answer.json["message"]) == (422, True)
