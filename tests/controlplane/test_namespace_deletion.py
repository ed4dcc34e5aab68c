"""A namespace with one of everything that is served can be deleted: every finalizer has a controller that takes it off."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.apiserver.assembly import Settings
from allot.client.api import Client
from allot.client.errors import NotFound
from allot.controlplane.components import start_controllers
from allot.controlplane.plane import control_plane
from allot.core.features import ALL_GATES, DEFAULT_GATES, FeatureGates
from allot.store.memory import MemoryStore
from kind_manifests import NAMESPACED
from waiting import WAIT_S

Object = dict[str, Any]
pytestmark = pytest.mark.slow

# What a stock kube-apiserver has but does not serve.
_UNUSUAL = {
    "scheduling.k8s.io/v1beta1 Workload": "spec: {podGroupTemplates: [{name: t, schedulingPolicy: {basic: {}}}]}",
    "scheduling.k8s.io/v1beta1 PodGroup": "spec: {schedulingPolicy: {gang: {minCount: 2}}}",
    "scheduling.k8s.io/v1alpha3 CompositePodGroup": (
        "spec: {schedulingPolicy: {basic: {}}, workloadRef: {workloadName: x, templateName: t}}"
    ),
    "coordination.k8s.io/v1beta1 LeaseCandidate": (
        "spec: {leaseName: l, binaryVersion: 1.37.0, emulationVersion: 1.37.0, strategy: OldestEmulationVersion}"
    ),
}
# Served while their gate is on, which is off by default.
_GATED = {"resource.k8s.io/v1alpha3 PodSchedulingContext": "spec: {selectedNode: n}"}
# Made by nodes and by other objects, with proofs that a test cannot give.
_NOT_MADE = {"PodCertificateRequest", "Eviction", "EvictionRequest"}


async def _make(client: Client, kind: str, content: str, namespace: str) -> None:
    api_version, _, name = kind.partition(" ")
    body = yaml.safe_load(content.replace("NAMESPACE", namespace)) or {}
    resource = await client.of_kind(api_version, name)
    metadata = {"name": "x", "namespace": namespace}
    await resource.create({"apiVersion": api_version, "kind": name, "metadata": metadata, **body}, namespace)


@pytest.mark.parametrize("gates", [DEFAULT_GATES, ALL_GATES], ids=["default gates", "all gates"])
async def test_a_namespace_with_one_of_everything_can_be_deleted(tmp_path: Path, gates: FeatureGates) -> None:
    settings = Settings(directory=tmp_path / "pki", port=0, gates=gates)
    async with control_plane(settings, MemoryStore()) as plane:
        start_controllers(plane)
        client = plane.client()
        namespaces = client.resource("", "v1", "namespaces", namespaced=False)
        await namespaces.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "full"}})
        accounts = client.resource("", "v1", "serviceaccounts", namespaced=True)
        async with asyncio.timeout(WAIT_S):
            while not (await accounts.list("full")).items:
                await asyncio.sleep(0.02)
        made = {**NAMESPACED, **_UNUSUAL, **(_GATED if gates is ALL_GATES else {})}
        for kind, content in made.items():
            await _make(client, kind, content, "full")
        discovery = await client.discovery()
        served = {
            resource.kind
            for resource in discovery.resources
            if resource.namespaced and {"create", "list"} <= set(resource.verbs)
        }
        assert served - _NOT_MADE == {kind.partition(" ")[2] for kind in made}
        await namespaces.delete("full")
        async with asyncio.timeout(60):
            while True:
                try:
                    await namespaces.get("full")
                except NotFound:
                    break
                await asyncio.sleep(0.05)
