"""Services get EndpointSlices and Endpoints from a real server's pods; each write is seen before the next is decided."""

from __future__ import annotations

from pathlib import Path

import pytest

from allot.client.api import PatchType
from allot.controllers import endpoints
from controllers.cluster import Cluster, Object, cluster
from waiting import until

pytestmark = pytest.mark.slow

CONTROLLERS = {
    "endpointslice-controller": endpoints.make_slices,
    "endpoint-controller": endpoints.make_endpoints,
    "endpointslicemirroring-controller": endpoints.make_mirror,
}


def pod(name: str) -> Object:
    container = {"name": "c", "image": "i", "ports": [{"name": "http", "containerPort": 8080}]}
    metadata = {"name": name, "namespace": "default", "labels": {"app": "web", "pod": name}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], "nodeName": "n1", "automountServiceAccountToken": False},
    }


def service(name: str, **spec: object) -> Object:
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def set_status(made: Cluster, name: str, ip: str, ready: str) -> None:
    status = {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": ready}],
    }
    await made.of("pods").patch(name, {"status": status}, PatchType.MERGE, "default", subresource="status")


async def ready(made: Cluster, name: str) -> dict[str, bool]:
    found = [item for item in await made.items("endpointslices") if item["metadata"]["name"].startswith(f"{name}-")]
    return {
        endpoint["addresses"][0]: endpoint["conditions"]["ready"]
        for slice_ in found
        for endpoint in slice_.get("endpoints") or ()
    }


async def test_services_find_their_pods(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(CONTROLLERS):
        await made.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await made.create("services", service("web"))
        for number in range(120):
            await made.create("pods", pod(f"p{number}"))
        for number in range(120):
            await set_status(made, f"p{number}", f"10.1.0.{number}", "True")

        async def all_there() -> bool:
            return len(await ready(made, "web")) == 120

        await until(all_there)
        slices = [item for item in await made.items("endpointslices") if item["metadata"]["name"].startswith("web-")]
        assert sorted(len(slice_["endpoints"]) for slice_ in slices) == [20, 100]
        assert slices[0]["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
        old = await made.get("endpoints", "web")
        assert old is not None and len(old["subsets"][0]["addresses"]) == 120

        await set_status(made, "p7", "10.1.0.7", "False")

        async def noticed() -> bool:
            return not (await ready(made, "web"))["10.1.0.7"]

        await until(noticed)
        for number in range(120):
            await made.of("pods").delete(f"p{number}", "default", grace_period_seconds=0)

        async def all_gone() -> bool:
            slices = [
                item for item in await made.items("endpointslices") if item["metadata"]["name"].startswith("web-")
            ]
            return len(slices) == 1 and not slices[0].get("endpoints")

        await until(all_gone)
        await made.of("services").delete("web", "default")

        async def endpoints_gone() -> bool:
            return await made.get("endpoints", "web") is None

        await until(endpoints_gone)


async def test_nothing_is_written_again_and_again(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, made.running(CONTROLLERS):
        await made.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        await made.create("services", service("web", publishNotReadyAddresses=True, trafficDistribution="PreferClose"))
        await made.create("services", service("bare", selector=None))
        subset = {"addresses": [{"ip": "192.0.2.1"}], "ports": [{"port": 80}]}
        metadata = {"name": "bare", "namespace": "default"}
        await made.create(
            "endpoints", {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]}
        )
        await made.create("pods", pod("p"))
        await set_status(made, "p", "10.1.0.1", "False")

        async def written() -> bool:
            return await ready(made, "web") == {"10.1.0.1": True} and await ready(made, "bare") == {"192.0.2.1": True}

        await until(written)
        # A change that concerns nobody is looked at, and no slice becomes another.
        before = {item["metadata"]["name"]: item for item in await made.items("endpointslices")}
        for name in ("web", "bare"):
            await made.of("services").patch(name, {"metadata": {"annotations": {"a": "b"}}}, PatchType.MERGE, "default")
        await made.create("services", service("later"))

        async def later() -> bool:
            return await ready(made, "later") == {"10.1.0.1": False}

        await until(later)
        after = {item["metadata"]["name"]: item for item in await made.items("endpointslices")}
        assert {name: after[name] for name in before} == before
