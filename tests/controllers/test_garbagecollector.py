"""The garbage collector and the namespace controller on a real API server, over HTTP."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest
import pytest_asyncio

from allot.client.errors import Conflict, NotFound
from allot.controllers import garbagecollector, namespace
from controllers.tidy_cluster import Cluster, cluster, owned_by

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tidy(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """One server for all tests; each has a namespace of its own."""
    async with cluster(tmp_path_factory.mktemp("tidy"), garbagecollector.make, namespace.make) as made:
        yield made


async def family(tidy: Cluster, name: str, *, blocks: bool | None = None) -> None:
    """A namespace with three config maps: a parent, its child and the child's child."""
    await tidy.create("v1", "Namespace", name)
    parent = await tidy.create("v1", "ConfigMap", "parent", name)
    child = await tidy.create("v1", "ConfigMap", "child", name, metadata=owned_by(parent, blocks=blocks))
    await tidy.create("v1", "ConfigMap", "grandchild", name, metadata=owned_by(child, blocks=blocks))


async def test_dependents_follow_their_owner_in_the_background(tidy: Cluster) -> None:
    await family(tidy, "background")
    await tidy.delete("v1", "ConfigMap", "parent", "background", propagation_policy="Background")
    await tidy.gone("v1", "ConfigMap", "child", "background")
    await tidy.gone("v1", "ConfigMap", "grandchild", "background")


async def test_in_the_foreground_the_owner_goes_last(tidy: Cluster) -> None:
    await family(tidy, "foreground", blocks=True)
    held = await tidy.get("v1", "ConfigMap", "grandchild", "foreground")
    assert held is not None
    maps = tidy.client.resource("", "v1", "configmaps", namespaced=True)
    held["metadata"]["finalizers"] = ["example.com/hold"]
    held = await maps.update(held)
    await tidy.delete("v1", "ConfigMap", "parent", "foreground", propagation_policy="Foreground")

    async def all_wait() -> bool:
        found = (await maps.list("foreground")).items
        return sum("deletionTimestamp" in one["metadata"] for one in found) == 3

    await tidy.eventually(all_wait)
    for _ in range(5):
        held = await tidy.get("v1", "ConfigMap", "grandchild", "foreground")
        assert held is not None
        held["metadata"].pop("finalizers")
        try:
            await maps.update(held)
            break
        except Conflict:
            continue
    await tidy.gone("v1", "ConfigMap", "parent", "foreground")
    assert await tidy.get("v1", "ConfigMap", "child", "foreground") is None


async def test_orphans_stay_and_forget_their_owner(tidy: Cluster) -> None:
    await family(tidy, "orphans")
    await tidy.delete("v1", "ConfigMap", "parent", "orphans", propagation_policy="Orphan")
    await tidy.gone("v1", "ConfigMap", "parent", "orphans")
    child = await tidy.get("v1", "ConfigMap", "child", "orphans")
    assert child is not None and "ownerReferences" not in child["metadata"]
    assert await tidy.get("v1", "ConfigMap", "grandchild", "orphans") is not None


async def test_owners_that_never_were_or_are_elsewhere_own_nothing(tidy: Cluster) -> None:
    await tidy.create("v1", "Namespace", "here")
    owner = await tidy.create("v1", "ConfigMap", "owner", "default")
    await tidy.create("v1", "ConfigMap", "astray", "here", metadata=owned_by(owner))
    owner["metadata"] |= {"name": "nobody", "uid": "00000000-0000-4000-8000-000000000000"}
    await tidy.create("v1", "ConfigMap", "lost", "here", metadata=owned_by(owner))
    await tidy.gone("v1", "ConfigMap", "astray", "here")
    await tidy.gone("v1", "ConfigMap", "lost", "here")
    events = tidy.client.resource("events.k8s.io", "v1", "events", namespaced=True)

    async def told() -> str | None:
        found = (await events.list("here")).items
        return next((one["note"] for one in found if one["reason"] == "OwnerRefInvalidNamespace"), None)

    assert 'does not exist in namespace "here"' in await tidy.eventually(told)


async def test_custom_resources_own_and_are_owned(tidy: Cluster) -> None:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    await tidy.create(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "widgets.example.com",
        spec={
            "group": "example.com",
            "names": {"kind": "Widget", "plural": "widgets"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    )

    async def served() -> bool:
        discovery = await tidy.client.discovery(refresh=True)
        return discovery.find_kind("example.com", "v1", "Widget") is not None

    await tidy.eventually(served)
    widget = await tidy.create("example.com/v1", "Widget", "wheel", "default")
    await tidy.create("v1", "ConfigMap", "spoke", "default", metadata=owned_by(widget))
    await tidy.create("example.com/v1", "Widget", "rim", "default", metadata=owned_by(widget))
    await tidy.delete("example.com/v1", "Widget", "wheel", "default")
    await tidy.gone("v1", "ConfigMap", "spoke", "default")
    await tidy.gone("example.com/v1", "Widget", "rim", "default")


async def test_a_namespace_goes_when_all_that_is_in_it_has_gone(tidy: Cluster) -> None:
    await tidy.create("v1", "Namespace", "going")
    await tidy.create("v1", "Secret", "s", "going")
    await tidy.create("v1", "ConfigMap", "held", "going", metadata={"finalizers": ["example.com/hold"]})
    await tidy.delete("v1", "Namespace", "going")

    async def conditions() -> dict[str, dict[str, str]] | None:
        found = await tidy.get("v1", "Namespace", "going")
        assert found is not None
        told = {one["type"]: one for one in found["status"].get("conditions", ())}
        return told or None

    told = await tidy.eventually(conditions)
    assert told["NamespaceContentRemaining"]["reason"] == "SomeResourcesRemain"
    assert told["NamespaceContentRemaining"]["message"] == (
        "Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert told["NamespaceFinalizersRemaining"]["message"] == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    )
    assert told["NamespaceDeletionDiscoveryFailure"]["status"] == "False"
    assert await tidy.get("v1", "Secret", "s", "going") is None
    held = await tidy.get("v1", "ConfigMap", "held", "going")
    assert held is not None
    held["metadata"].pop("finalizers")
    await tidy.client.resource("", "v1", "configmaps", namespaced=True).update(held)
    await tidy.gone("v1", "Namespace", "going")


async def test_a_namespace_waits_for_its_pods_before_it_touches_anything_else(tidy: Cluster) -> None:
    await tidy.create("v1", "Namespace", "busy")
    await tidy.create("v1", "ConfigMap", "used", "busy")
    account = await tidy.client.of_kind("v1", "ServiceAccount")
    await tidy.eventually(lambda: _exists(account.get("default", "busy")))
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    await tidy.create("v1", "Pod", "worker", "busy", spec=spec)
    await tidy.delete("v1", "Namespace", "busy")

    async def told() -> str | None:
        found = await tidy.get("v1", "Namespace", "busy")
        assert found is not None
        conditions = {one["type"]: one for one in found["status"].get("conditions", ())}
        return conditions["NamespaceContentRemaining"]["message"] if conditions else None

    assert await tidy.eventually(told) == "Some resources are remaining: pods. has 1 resource instances"
    assert await tidy.get("v1", "ConfigMap", "used", "busy") is not None
    await tidy.delete("v1", "Pod", "worker", "busy", grace_period_seconds=0)
    await tidy.gone("v1", "Namespace", "busy")


async def _exists(asked: Awaitable[object]) -> bool:
    try:
        await asked
        return True
    except NotFound:
        return False


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
async def test_kubectl_deletes_in_all_three_ways_and_waits_for_namespaces(tidy: Cluster, tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(tidy.server.kubeconfig), "HOME": str(tmp_path)}

    async def kubectl(*arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "kubectl", *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(60):
            output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()
        return output.decode()

    maps = tidy.client.resource("", "v1", "configmaps", namespaced=True)
    for way, left in (("foreground", 0), ("background", 0), ("orphan", 2)):
        name = f"kubectl-{way}"
        await family(tidy, name, blocks=True)
        await kubectl("-n", name, "delete", "configmap", "parent", f"--cascade={way}")

        async def as_expected(name: str = name, left: int = left) -> bool:
            found = [one for one in (await maps.list(name)).items if "child" in one["metadata"]["name"]]
            return len(found) == left

        await tidy.eventually(as_expected)
        assert f'namespace "{name}" deleted' in await kubectl("delete", "namespace", name)
        assert await tidy.get("v1", "Namespace", name) is None
