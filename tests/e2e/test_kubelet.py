"""A kubelet's life with the rights of its node: joins, publishes devices, runs a pod with a claim, and may no more."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from e2e.connections import Connection, session_of
from e2e.servers import ServerProcess
from waiting import until

pytestmark = pytest.mark.slow

_numbers = count(1)
_WATCH = (
    "allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=20&watch=true"
)
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
_CLAIM_SPEC = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}


class Kubelet:
    """Requests of a node, and of the administrator who prepares what it finds."""

    def __init__(self, admin: Connection, name: str) -> None:
        self.admin = admin
        self.name = name
        self.namespace = f"{name}-pods"
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.claims = f"/apis/resource.k8s.io/v1/namespaces/{self.namespace}/resourceclaims"
        self._identity = {"Impersonate-User": f"system:node:{name}", "Impersonate-Group": "system:nodes"}

    async def status(self, method: str, path: str, body: Any = None, **headers: str) -> int:
        """The status of an answer to the node."""
        return (await self.admin.send(method, path, body, **self._identity, **headers))[0]

    async def watches(self, path: str, selector: str = "") -> int:
        """The status of a watch of the node that told everything."""
        chosen = f"&fieldSelector={selector}" if selector else ""
        status, bookmark = await self.admin.initial_events_end(f"{path}?{_WATCH}{chosen}", **self._identity)
        assert status != 200 or bookmark is not None
        return status

    async def prepare(self, path: str, body: Any) -> Any:
        """Something that the administrator creates."""
        status, made = await self.admin.send("POST", path, body)
        assert status == 201, made
        return made

    async def eventually(self, expected: int, method: str, path: str, body: Any = None) -> None:
        """Rights follow from pods, which the server learns about a moment after they are written."""

        async def look() -> bool:
            return await self.status(method, path, body) == expected

        await until(look, f"status {expected} for {method} {path}")


async def test_a_node_joins_and_stays_in_its_place(any_server: ServerProcess) -> None:
    async with session_of(any_server) as session:
        node = Kubelet(Connection(session, any_server.url), f"kubelet-{next(_numbers)}")
        own = f"/api/v1/nodes/{node.name}"
        assert await node.status("GET", own) == 404
        assert await node.status("POST", "/api/v1/nodes", {"metadata": {"name": node.name}}) == 201
        assert await node.status("POST", "/api/v1/nodes", {"metadata": {"name": "other"}}) == 403
        assert await node.status("GET", own) == 200
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        assert await node.status("PATCH", f"{own}/status", ready, **_STRATEGIC) == 200
        label = {"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}
        assert await node.status("PATCH", own, label, **_STRATEGIC) == 403
        lease = {"metadata": {"name": node.name}, "spec": {"holderIdentity": node.name, "leaseDurationSeconds": 40}}
        assert await node.status("GET", f"{_LEASES}/{node.name}") == 404
        assert await node.status("POST", _LEASES, lease) == 201
        assert await node.status("PUT", f"{_LEASES}/{node.name}", lease) == 422
        _, current = await node.admin.send("GET", f"{_LEASES}/{node.name}")
        assert await node.status("PUT", f"{_LEASES}/{node.name}", current) == 200
        assert await node.status("PUT", f"{_LEASES}/other", {**lease, "metadata": {"name": "other"}}) == 403
        csi_nodes = "/apis/storage.k8s.io/v1/csinodes"
        assert await node.status("POST", csi_nodes, {"metadata": {"name": node.name}, "spec": {"drivers": []}}) == 201
        assert await node.watches("/api/v1/nodes", f"metadata.name={node.name}") == 200
        assert await node.watches("/api/v1/pods", f"spec.nodeName={node.name}") == 200
        assert await node.watches("/api/v1/services", "spec.clusterIP!=None") == 200
        assert await node.watches("/apis/node.k8s.io/v1/runtimeclasses") == 200
        assert await node.watches("/apis/storage.k8s.io/v1/csidrivers") == 200
        assert await node.watches("/api/v1/secrets") == 403


async def test_a_driver_publishes_only_devices_of_its_node(any_server: ServerProcess) -> None:
    async with session_of(any_server) as session:
        node = Kubelet(Connection(session, any_server.url), f"kubelet-{next(_numbers)}")
        pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}

        def devices(of: str) -> dict[str, Any]:
            spec = {"driver": "d.example.com", "nodeName": of, "pool": pool, "devices": [{"name": "gpu-0"}]}
            return {"metadata": {"name": node.name}, "spec": spec}

        assert await node.status("POST", _SLICES, devices("other")) == 403
        assert await node.status("POST", _SLICES, devices(node.name)) == 201
        assert await node.watches(_SLICES, f"spec.nodeName={node.name}") == 200
        assert await node.watches(_SLICES) == 403
        assert await node.status("DELETE", _SLICES) == 403
        assert await node.status("DELETE", f"{_SLICES}?fieldSelector=spec.nodeName={node.name}") == 200


async def test_a_node_sees_what_its_pods_need(any_server: ServerProcess) -> None:
    async with session_of(any_server) as session:
        node = Kubelet(Connection(session, any_server.url), f"kubelet-{next(_numbers)}")
        await node.prepare("/api/v1/namespaces", {"metadata": {"name": node.namespace}})
        await node.prepare("/api/v1/nodes", {"metadata": {"name": node.name}})
        core = f"/api/v1/namespaces/{node.namespace}"
        for name in ("used", "unused"):
            await node.prepare(node.claims, {"metadata": {"name": name}, "spec": _CLAIM_SPEC})
            await node.prepare(f"{core}/configmaps", {"metadata": {"name": name}})
            await node.prepare(f"{core}/secrets", {"metadata": {"name": name}})
        container = {
            "name": "main",
            "image": "busybox:1",
            "resources": {"claims": [{"name": "gpu"}]},
            "envFrom": [{"configMapRef": {"name": "used"}}, {"secretRef": {"name": "used"}}],
        }
        claims = [{"name": "gpu", "resourceClaimName": "used"}]
        spec = {"nodeName": node.name, "containers": [container], "resourceClaims": claims}
        pod = await node.prepare(node.pods, {"metadata": {"name": "p"}, "spec": spec})
        await node.eventually(200, "GET", f"{node.claims}/used")
        for path in (f"{core}/configmaps", f"{core}/secrets", node.claims):
            await node.eventually(200, "GET", f"{path}/used")
            assert await node.status("GET", f"{path}/unused") == 403, path
        assert await node.status("GET", f"{node.pods}/p") == 200
        running = {"status": {"phase": "Running"}}
        assert await node.status("PATCH", f"{node.pods}/p/status", running, **_STRATEGIC) == 200
        about = {"kind": "Pod", "apiVersion": "v1", "name": "p", "namespace": node.namespace}
        event = {"metadata": {"name": "p.1"}, "involvedObject": about, "reason": "Started", "type": "Normal"}
        assert await node.status("POST", f"{core}/events", event) == 201
        assert await node.status("PATCH", f"{core}/events/p.1", {"count": 2}, **_STRATEGIC) == 200
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["metadata"]["uid"]}
        token = f"{core}/serviceaccounts/default/token"
        assert await node.status("POST", token, {"spec": {"boundObjectRef": bound}}) == 201
        assert await node.status("POST", token, {"spec": {}}) == 403
        assert await node.status("DELETE", f"{node.pods}/p", {"gracePeriodSeconds": 0}) == 200
        await node.eventually(403, "GET", f"{node.claims}/used")
