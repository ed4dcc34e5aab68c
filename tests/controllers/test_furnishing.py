"""Service accounts, tokens, certificates, quotas and aggregated roles on a real API server."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from allot.client.api import PatchType
from allot.controllers import clusterroleaggregation, resourcequota, serviceaccounts
from controllers.tidy_cluster import Cluster, cluster

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Object = dict[str, Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tidy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """One server for all tests; each has a namespace of its own."""
    makes = (
        serviceaccounts.make_accounts,
        serviceaccounts.make_root_ca,
        serviceaccounts.make_tokens,
        resourcequota.make,
        clusterroleaggregation.make,
    )
    async with cluster(tmp_path_factory.mktemp("furnished"), *makes) as made:
        yield made


async def test_the_default_account_and_the_certificates_come_back_as_they_were(tidy: Cluster) -> None:
    await tidy.create("v1", "Namespace", "furnished")

    async def account() -> Object | None:
        return await tidy.get("v1", "ServiceAccount", "default", "furnished")

    async def certificates() -> Object | None:
        found = await tidy.get("v1", "ConfigMap", "kube-root-ca.crt", "furnished")
        return found if found is not None and found.get("data") == {"ca.crt": tidy.server.ca.decode()} else None

    first = (await tidy.eventually(account))["metadata"]["uid"]
    assert "kubernetes.io/description" in (await tidy.eventually(certificates))["metadata"]["annotations"]
    await tidy.delete("v1", "ServiceAccount", "default", "furnished")
    await tidy.delete("v1", "ConfigMap", "kube-root-ca.crt", "furnished")
    assert (await tidy.eventually(account))["metadata"]["uid"] != first
    await tidy.eventually(certificates)
    maps = tidy.client.resource("", "v1", "configmaps", namespaced=True)
    await maps.patch("kube-root-ca.crt", {"data": {"ca.crt": "x", "y": "z"}}, PatchType.MERGE, "furnished")
    await tidy.eventually(certificates)


async def test_a_secret_gets_a_token_that_works_and_goes_with_its_account(tidy: Cluster) -> None:
    await tidy.create("v1", "Namespace", "tokens")
    account = await tidy.create("v1", "ServiceAccount", "robot", "tokens")
    metadata = {"annotations": {"kubernetes.io/service-account.name": "robot"}}
    kind = "kubernetes.io/service-account-token"
    await tidy.create("v1", "Secret", "robot-token", "tokens", metadata=metadata, type=kind)

    async def token() -> str | None:
        secret = await tidy.get("v1", "Secret", "robot-token", "tokens")
        data = (secret or {}).get("data") or {}
        return base64.b64decode(data["token"]).decode() if data.get("token") else None

    bearer = {"Authorization": f"Bearer {await tidy.eventually(token)}"}
    secret = await tidy.get("v1", "Secret", "robot-token", "tokens")
    assert secret is not None
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == account["metadata"]["uid"]
    assert base64.b64decode(secret["data"]["namespace"]) == b"tokens"
    assert base64.b64decode(secret["data"]["ca.crt"]) == tidy.server.ca
    async with tidy.server.as_nobody() as nobody:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        answer = await tidy.server.request("POST", path, review, headers=bearer, session=nobody)
        assert answer.json["status"]["userInfo"]["username"] == "system:serviceaccount:tokens:robot"
    await tidy.delete("v1", "ServiceAccount", "robot", "tokens")
    await tidy.gone("v1", "Secret", "robot-token", "tokens")


async def test_the_secret_of_an_account_that_never_was_is_removed(tidy: Cluster) -> None:
    metadata = {"annotations": {"kubernetes.io/service-account.name": "nobody"}}
    kind = "kubernetes.io/service-account-token"
    await tidy.create("v1", "Secret", "lost", "default", metadata=metadata, type=kind)
    await tidy.gone("v1", "Secret", "lost", "default")


async def test_a_quota_counts_what_is_there_and_forgets_what_goes(tidy: Cluster) -> None:
    await tidy.create("v1", "Namespace", "counted")
    await tidy.create("v1", "ConfigMap", "before", "counted")
    await tidy.create("resource.k8s.io/v1", "DeviceClass", "gpu", spec={})
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 3}}]}}
    await tidy.create("resource.k8s.io/v1", "ResourceClaim", "train", "counted", spec=spec)
    pod = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}}]}
    await tidy.create("v1", "Pod", "worker", "counted", spec=pod)
    hard = {
        "pods": "5",
        "requests.cpu": "1",
        "count/configmaps": "10",
        "count/resourceclaims.resource.k8s.io": "4",
        "gpu.deviceclass.resource.k8s.io/devices": "8",
    }
    await tidy.create("v1", "ResourceQuota", "q", "counted", spec={"hard": hard})

    async def used() -> Object:
        quota = await tidy.get("v1", "ResourceQuota", "q", "counted")
        assert quota is not None
        return (quota.get("status") or {}).get("used") or {}

    async def counts(**wanted: str) -> None:
        async def are_right() -> bool:
            found = await used()
            return all(found.get(_NAMES[name]) == value for name, value in wanted.items())

        await tidy.eventually(are_right)

    await counts(pods="1", cpu="250m", claims="1", devices="3")
    maps = int((await used())["count/configmaps"])
    await tidy.delete("v1", "ConfigMap", "before", "counted")
    await counts(maps=str(maps - 1))
    await tidy.delete("resource.k8s.io/v1", "ResourceClaim", "train", "counted")
    await counts(claims="0", devices="0")
    pods = tidy.client.resource("", "v1", "pods", namespaced=True)
    await pods.patch("worker", {"status": {"phase": "Succeeded"}}, PatchType.MERGE, "counted", subresource="status")
    await counts(pods="0", cpu="0")


_NAMES = {
    "pods": "pods",
    "cpu": "requests.cpu",
    "maps": "count/configmaps",
    "claims": "count/resourceclaims.resource.k8s.io",
    "devices": "gpu.deviceclass.resource.k8s.io/devices",
}


async def test_aggregated_roles_carry_the_rules_of_those_they_select(tidy: Cluster) -> None:
    kind = ("rbac.authorization.k8s.io/v1", "ClusterRole")
    selectors = [{"matchLabels": {"example.com/part": "true"}}]
    await tidy.create(*kind, "whole", aggregationRule={"clusterRoleSelectors": selectors}, rules=[])
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["get"]}
    await tidy.create(*kind, "part", metadata={"labels": {"example.com/part": "true"}}, rules=[rule])

    async def rules() -> bool:
        found = await tidy.get(*kind, "whole")
        return found is not None and found.get("rules") == [rule]

    await tidy.eventually(rules)
    view = await tidy.get(*kind, "view")
    assert view is not None and view["rules"]
    await tidy.delete(*kind, "part")

    async def none() -> bool:
        found = await tidy.get(*kind, "whole")
        return found is not None and not found.get("rules")

    await tidy.eventually(none)
