"""Whoever writes an object that nobody will act on is told so, and who is missing; whoever runs is known by a lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from allot.apiserver.kinds.table import builtin_resources
from allot.client.announcement import Announcement
from allot.client.api import Client
from allot.controllers.table import CONTROLLERS, announced_names, select
from allot.core.features import ALL_GATES, DEFAULT_GATES
from allot.core.lifecycle.attention import KINDS, SCHEDULER, UNREAD, announced, silence
from allot.installation.definitions import objects
from allot.process.clock import SystemClock
from allot.store.memory import MemoryStore
from apiserver.live import LiveServer, live_server
from client.conftest import http_transport

Object = dict[str, Any]

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
DEPLOYMENT = {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}}
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
INGRESS = {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[LiveServer]:
    async with live_server(tmp_path, MemoryStore()) as live:
        yield live


async def warned(server: LiveServer, path: str, object_: Object, name: str, method: str = "POST") -> str:
    body = {**object_, "metadata": {"name": name}}
    answer = await server.request(method, path if method == "POST" else f"{path}/{name}", body)
    assert answer.status in (200, 201), answer.raw
    return answer.headers.get("Warning", "")


async def lease(server: LiveServer, name: str, holder: str = "somebody") -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": SystemClock().now_micro()}
    answer = await server.put(
        f"{LEASES}/{name}", {"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}
    )
    assert answer.status in (200, 201), answer.raw


async def until_silent(server: LiveServer, path: str, object_: Object) -> None:
    """The server hears of a lease by a watch."""
    async with asyncio.timeout(30):
        number = 0
        while await warned(server, path, object_, f"again-{number}"):
            number += 1
            await asyncio.sleep(0.02)


def test_every_kind_in_the_table_is_served_and_every_controller_has_a_name() -> None:
    served = {(resource.group, resource.kind) for resource in builtin_resources()}
    custom = {
        (each["spec"]["group"], each["spec"]["names"]["kind"])
        for each in objects()
        if each["kind"] == "CustomResourceDefinition"
    }
    assert KINDS.keys() <= served | custom
    assert UNREAD.keys() <= custom
    ours = {row.name for row in CONTROLLERS}
    for needs in KINDS.values():
        assert needs.lacking or set(needs.controllers) <= ours


def test_all_controllers_of_a_cluster_leave_no_kind_of_theirs_alone() -> None:
    running = announced_names(select(["*"], ALL_GATES), Path("/volumes"), signs=True)
    for (_, kind), needs in KINDS.items():
        assert bool(silence(kind, needs, running.__contains__, ALL_GATES)) == bool(needs.lacking)


def test_a_controller_that_is_turned_off_is_missed_and_named() -> None:
    running = announced_names(select(["*", "-replicaset-controller"], DEFAULT_GATES), None, signs=False)
    told = silence("Deployment", KINDS["apps", "Deployment"], running.__contains__, DEFAULT_GATES)
    assert told == (
        "nothing acts on this Deployment: replicaset-controller does not run, neither here nor in a kube-controller-manager"
    )


@pytest.mark.parametrize(
    ("spec", "runs"),
    [
        ({"holderIdentity": "x", "renewTime": "2027-01-15T08:00:00.000000Z", "leaseDurationSeconds": 15}, True),
        ({"holderIdentity": "", "renewTime": "2027-01-15T08:00:00.000000Z"}, False),
        ({"holderIdentity": "x", "renewTime": "2027-01-15T07:00:00.000000Z", "leaseDurationSeconds": 15}, False),
        ({"holderIdentity": "x", "renewTime": "soon"}, True),
        ({}, False),
        (None, False),
    ],
)
def test_a_lease_counts_while_it_is_held_and_renewed(spec: Object | None, runs: bool) -> None:
    names, duration_s = announced({"metadata": {"name": "kube-scheduler"}, "spec": spec}, 1_800_000_000.0)
    assert (SCHEDULER in names) == runs == (duration_s > 0)


async def test_a_server_alone_says_that_nothing_acts(server: LiveServer) -> None:
    told = await warned(server, DEPLOYMENTS, DEPLOYMENT, "web")
    assert "nothing acts on this Deployment: deployment-controller and replicaset-controller do not run" in told
    scale = await server.patch(f"{DEPLOYMENTS}/web/scale", {"spec": {"replicas": 3}})
    assert "nothing acts on this Deployment" in scale.headers["Warning"]
    status = await server.patch(f"{DEPLOYMENTS}/web/status", {"status": {"replicas": 1}})
    assert (status.status, "Warning" in status.headers) == (200, False)
    assert "no ingress controller" in await warned(
        server, "/apis/networking.k8s.io/v1/namespaces/default/ingresses", INGRESS, "web"
    )
    assert "nothing schedules this Pod" in await warned(server, PODS, {"spec": TEMPLATE["spec"]}, "bare")
    assert not await warned(server, PODS, {"spec": {"nodeName": "n", **TEMPLATE["spec"]}}, "bound")
    await server.post("/api/v1/namespaces", {"metadata": {"name": "gone"}})
    gone = await server.request("DELETE", "/api/v1/namespaces/gone")
    assert "nothing empties this Namespace" in gone.headers["Warning"]


async def test_whoever_runs_is_believed_until_the_lease_is_given_back(server: LiveServer) -> None:
    client, clock = Client(http_transport(server)), SystemClock()
    try:
        names = ("deployment-controller", "replicaset-controller")
        announcement = Announcement(client, clock, "controllers", names, "me")
        running = asyncio.create_task(announcement.run())
        await until_silent(server, DEPLOYMENTS, DEPLOYMENT)
        jobs = {"spec": {"template": {"spec": {"restartPolicy": "Never", **TEMPLATE["spec"]}}}}
        assert "job-controller does not run" in await warned(
            server, "/apis/batch/v1/namespaces/default/jobs", jobs, "train"
        )
        running.cancel()
        await asyncio.wait([running])
        async with asyncio.timeout(30):
            while "nothing acts" not in await warned(server, DEPLOYMENTS, DEPLOYMENT, "again-0", "PUT"):
                await asyncio.sleep(0.02)
    finally:
        await client.close()


async def test_a_kube_controller_manager_and_a_kube_scheduler_count(server: LiveServer) -> None:
    await lease(server, "kube-controller-manager")
    await lease(server, "kube-scheduler")
    await until_silent(server, PODS, {"spec": TEMPLATE["spec"]})
    controllers = "/api/v1/namespaces/default/replicationcontrollers"
    assert not await warned(server, controllers, {"spec": {"selector": {"a": "b"}, "template": TEMPLATE}}, "old")
    assert not await warned(server, DEPLOYMENTS, DEPLOYMENT, "web")
    # What it does not have is still missing.
    policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
    assert "enforces no NetworkPolicies" in await warned(server, policies, {"spec": {"podSelector": {}}}, "p")


async def test_a_volume_claim_of_a_class_that_nobody_provisions_is_told(server: LiveServer) -> None:
    await lease(server, "kube-controller-manager")
    claims, classes = "/api/v1/namespaces/default/persistentvolumeclaims", "/apis/storage.k8s.io/v1/storageclasses"
    await until_silent(server, claims, CLAIM)

    def of_class(name: str) -> Object:
        return {"spec": {**CLAIM["spec"], "storageClassName": name}}

    assert 'storage class \\"fast\\" does not exist' in await warned(server, claims, of_class("fast"), "a")
    await server.post(classes, {"metadata": {"name": "fast"}, "provisioner": "disk.example.com"})
    assert 'there is no CSIDriver \\"disk.example.com\\"' in await warned(server, claims, of_class("fast"), "b")
    await server.post("/apis/storage.k8s.io/v1/csidrivers", {"metadata": {"name": "disk.example.com"}, "spec": {}})
    assert not await warned(server, claims, of_class("fast"), "c")
    await server.post(classes, {"metadata": {"name": "local"}, "provisioner": "allot.dev/folder"})
    assert "folder-provisioner-controller does not run" in await warned(server, claims, of_class("local"), "d")
    await server.post(classes, {"metadata": {"name": "own"}, "provisioner": "kubernetes.io/no-provisioner"})
    assert not await warned(server, claims, of_class("own"), "e")


async def test_a_way_of_routing_that_nothing_here_has_is_told(server: LiveServer) -> None:
    services = "/api/v1/namespaces/default/services"
    ports = [{"name": "a", "port": 80, "protocol": "SCTP"}]
    assert "allot routes no SCTP to Services, such as port 80" in await warned(
        server, services, {"spec": {"ports": ports}}, "a"
    )
    local = {"spec": {"ports": [{"port": 80}], "internalTrafficPolicy": "Local"}}
    assert not await warned(server, services, local, "b"), "nodes with a container runtime do that"
    await lease(server, "cloud-controller-manager")
    async with asyncio.timeout(30):
        while "nothing acts on spec.internalTrafficPolicy" not in await warned(server, services, local, "b", "PUT"):
            await asyncio.sleep(0.02)


async def test_a_dropped_field_is_named_with_its_gate(server: LiveServer) -> None:
    job = {"spec": {"scheduling": {}, "template": {"spec": {"restartPolicy": "Never", **TEMPLATE["spec"]}}}}
    job["spec"]["scheduling"] = {"schedulingPolicy": {"basic": {}}}
    told = await warned(server, "/apis/batch/v1/namespaces/default/jobs", job, "train")
    assert "spec.scheduling: dropped: it needs feature gate WorkloadWithJob, which is disabled" in told
    pod = {"spec": {**TEMPLATE["spec"], "volumes": [{"name": "v", "emptyDir": {"mode": 448}}]}}
    told = await warned(server, PODS, pod, "p")
    assert "spec.volumes[0].emptyDir.mode: dropped: it needs feature gate EmptyDirVolumeMode" in told
