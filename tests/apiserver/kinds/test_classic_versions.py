"""The v1alpha3 of Kubernetes 1.31, where feature gate DRAControlPlaneController is on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from allot.apiserver.assembly import Settings
from allot.client.api import Client, ResourceClient
from allot.client.errors import Invalid, NotFound
from allot.controlplane.plane import control_plane
from allot.core.features import DEFAULT_GATES
from allot.core.model.classic import CONTROLLER, GATE
from allot.store.memory import MemoryStore

NAME = "slots.example.com"
SPEC = {"controller": NAME, "devices": {"requests": [{"name": "slot", "deviceClassName": "slots", "count": 2}]}}


@pytest_asyncio.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    gates = DEFAULT_GATES.changed((GATE,))
    async with control_plane(Settings(directory=tmp_path, port=0, gates=gates), MemoryStore()) as plane:
        yield plane.client()


def resource(client: Client, plural: str, version: str = "v1alpha3") -> ResourceClient:
    return client.resource("resource.k8s.io", version, plural, namespaced=True)


def made(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "resource.k8s.io/v1alpha3", "kind": kind, "metadata": {"name": name}, **more}


async def test_a_claim_is_one_in_all_versions(client: Client) -> None:
    claims = resource(client, "resourceclaims")
    applied = await claims.apply({**made("ResourceClaim", "c", spec=SPEC)}, "tester", "default")
    assert applied["spec"]["controller"] == NAME
    again = await claims.apply({**made("ResourceClaim", "c", spec=SPEC)}, "tester", "default")
    assert again["metadata"]["resourceVersion"] == applied["metadata"]["resourceVersion"]
    seen = await resource(client, "resourceclaims", "v1").get("c", "default")
    assert seen["metadata"]["annotations"] == {CONTROLLER: NAME}
    assert "controller" not in seen["spec"]
    result = {"request": "slot", "driver": NAME, "pool": "n1", "device": "slot-0"}
    body = {**again, "status": {"allocation": {"controller": NAME, "devices": {"results": [result]}}}}
    written = await claims.update_status(body, "default")
    assert written["status"]["allocation"]["controller"] == NAME
    assert written["status"]["deallocationRequested"] is True
    user = {"resource": "pods", "name": "p", "uid": "u"}
    written = await claims.update_status({**written, "status": {**written["status"], "reservedFor": [user]}}, "default")
    assert "deallocationRequested" not in written["status"]
    with pytest.raises(Invalid, match=r"spec\.controller: Invalid value: .*: field is immutable"):
        await claims.update({**written, "spec": {**SPEC, "controller": "other.example.com"}}, "default")


async def test_claims_of_a_template_have_its_controller(client: Client) -> None:
    templates = resource(client, "resourceclaimtemplates")
    await templates.create(made("ResourceClaimTemplate", "t", spec={"spec": SPEC}), "default")
    seen = await resource(client, "resourceclaimtemplates", "v1").get("t", "default")
    assert seen["spec"]["metadata"]["annotations"] == {CONTROLLER: NAME}
    assert (await templates.get("t", "default"))["spec"]["spec"]["controller"] == NAME


async def test_a_context_has_no_more_nodes_than_it_may(client: Client) -> None:
    contexts = resource(client, "podschedulingcontexts")
    context = await contexts.create(made("PodSchedulingContext", "p", spec={"potentialNodes": ["n1"]}), "default")
    claim = {"name": "gpu", "unsuitableNodes": ["n1"]}
    context = await contexts.update_status({**context, "status": {"resourceClaims": [claim]}}, "default")
    assert context["status"] == {"resourceClaims": [claim]}
    nodes = [f"n{number}" for number in range(129)]
    with pytest.raises(Invalid, match=r"spec\.potentialNodes: Too many: 129"):
        await contexts.update({**context, "spec": {"potentialNodes": nodes}}, "default")
    with pytest.raises(Invalid, match=r"spec\.potentialNodes\[1\]: Duplicate value"):
        await contexts.update({**context, "spec": {"potentialNodes": ["n1", "n1"]}}, "default")
    body = {**context, "status": {"resourceClaims": [{**claim, "unsuitableNodes": nodes}, claim]}}
    with pytest.raises(Invalid, match=r"unsuitableNodes: Too many(.|\n)*resourceClaims\[1\]\.name: Duplicate value"):
        await contexts.update_status(body, "default")


async def test_it_is_discovered_and_described_only_where_the_gate_is_on(client: Client, tmp_path: Path) -> None:
    async with control_plane(Settings(directory=tmp_path / "off", port=0), MemoryStore()) as plane:
        with pytest.raises(NotFound):
            await resource(plane.client(), "podschedulingcontexts").list("default")
    discovered = await client.of_kind("resource.k8s.io/v1alpha3", "PodSchedulingContext")
    assert discovered.plural == "podschedulingcontexts"
    preferred = await client.of_name("resourceclaims")
    assert preferred.api_version == "resource.k8s.io/v1"
