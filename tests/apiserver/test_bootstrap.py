"""What a server makes at its start, on an empty store and on one from before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.store.sqlite import SqliteStore
from apiserver.live import LiveServer, live_server

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CLAIMS = f"{RBAC}/clusterroles/system:controller:resource-claim-controller"
CLAIM_BINDING = f"{RBAC}/clusterrolebindings/system:controller:resource-claim-controller"
UNCHANGING = {"rbac.authorization.kubernetes.io/autoupdate": "false"}
TEMPLATES = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates"], "verbs": ["get"]}


async def changed(server: LiveServer, path: str, **fields: Any) -> dict[str, Any]:
    answer = await server.patch(path, fields)
    assert answer.status == 200, answer.json
    found: dict[str, Any] = answer.json
    return found


@pytest.mark.slow
async def test_a_store_of_an_older_version_gets_what_default_roles_lack(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.db"
    async with live_server(tmp_path, SqliteStore(path)) as server:
        # As an older version left it: a rule, a subject, a role and the marks are not there yet.
        complete = (await server.get(CLAIMS)).json
        await changed(server, CLAIMS, rules=[TEMPLATES])
        await changed(server, CLAIM_BINDING, subjects=[{"kind": "User", "name": "mine"}], metadata={"labels": None})
        await server.delete(f"{RBAC}/clusterroles/system:monitoring")
        await changed(server, f"{RBAC}/clusterroles/system:discovery", rules=[], metadata={"annotations": UNCHANGING})
        elsewhere = (await server.get(f"{RBAC}/clusterrolebindings/system:discovery")).json
        await server.delete(f"{RBAC}/clusterrolebindings/system:discovery")
        elsewhere = {
            **elsewhere,
            "metadata": {"name": "system:discovery"},
            "roleRef": {**elsewhere["roleRef"], "name": "system:monitoring"},
        }
        assert (await server.post(f"{RBAC}/clusterrolebindings", elsewhere)).status == 201
        untouched = (await server.get(f"{RBAC}/clusterroles/cluster-admin")).json
    async with live_server(tmp_path, SqliteStore(path)) as server:
        rules = (await server.get(CLAIMS)).json["rules"]
        assert rules[0] == TEMPLATES
        allowed = {(verb, resource) for each in rules for verb in each["verbs"] for resource in each["resources"]}
        for each in complete["rules"]:
            assert {(verb, resource) for verb in each["verbs"] for resource in each["resources"]} <= allowed
        bound = (await server.get(CLAIM_BINDING)).json
        assert [each["name"] for each in bound["subjects"]] == ["mine", "resource-claim-controller"]
        assert bound["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}
        assert (await server.get(f"{RBAC}/clusterroles/system:monitoring")).status == 200
        assert not (await server.get(f"{RBAC}/clusterroles/system:discovery")).json["rules"]
        assert "clusterroles system:discovery lacks what this version gives it" in caplog.text
        made_anew = (await server.get(f"{RBAC}/clusterrolebindings/system:discovery")).json
        assert made_anew["roleRef"]["name"] == "system:discovery"
        assert (await server.get(f"{RBAC}/clusterroles/cluster-admin")).json == untouched


@pytest.mark.slow
async def test_more_feature_gates_bring_their_rights_to_a_store_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    role = f"{RBAC}/clusterroles/system:controller:podgroup-protection-controller"
    aggregated = f"{RBAC}/clusterroles/system:aggregate-to-edit"
    async with live_server(tmp_path, SqliteStore(path), gates=DEFAULT_GATES) as server:
        assert (await server.get(role)).status == 404
        assert "podgroups" not in str((await server.get(aggregated)).json["rules"])
    async with live_server(tmp_path, SqliteStore(path), gates=ALL_GATES) as server:
        assert (await server.get(role)).status == 200
        assert "podgroups" in str((await server.get(aggregated)).json["rules"])
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "system:serviceaccount:kube-system:podgroup-protection-controller",
                "resourceAttributes": {"verb": "update", "group": "scheduling.k8s.io", "resource": "podgroups"},
            },
        }
        answer = await server.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        assert answer.json["status"]["allowed"]


@pytest.mark.slow
async def test_a_second_start_of_the_same_version_changes_no_role(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    kinds = ("clusterroles", "clusterrolebindings", "roles", "rolebindings")
    async with live_server(tmp_path, SqliteStore(path)) as server:
        before = [(await server.get(f"{RBAC}/{kind}")).json["items"] for kind in kinds]
    async with live_server(tmp_path, SqliteStore(path)) as server:
        assert [(await server.get(f"{RBAC}/{kind}")).json["items"] for kind in kinds] == before


@pytest.mark.slow
async def test_the_servers_own_service_leads_to_where_it_listens_now(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    for _ in range(2):
        # Each time at another port of the loopback.
        async with live_server(tmp_path, SqliteStore(path)) as server:
            ports = [{"name": "https", "port": server.live.port, "protocol": "TCP"}]
            endpoints = (await server.get("/api/v1/namespaces/default/endpoints/kubernetes")).json
            assert endpoints["subsets"] == [{"addresses": [{"ip": "127.0.0.1"}], "ports": ports}]
            slice_ = (await server.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes")).json
            assert slice_["endpoints"] == [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]
            assert (slice_["ports"], slice_["addressType"]) == (ports, "IPv4")
            # Nobody else may lead there.
            other = {**endpoints, "metadata": {"name": "other"}}
            assert (await server.post("/api/v1/namespaces/default/endpoints", other)).status == 422
