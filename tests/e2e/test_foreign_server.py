"""`allot scheduler` and `allot controllers` in the place of Kubernetes' own, as processes with a kubeconfig.

On allot's API server always; on a real kube-apiserver where KUBEBUILDER_ASSETS names a folder with kube-apiserver and etcd.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from e2e.components import Caller, Component
from e2e.kube_cluster import NO_ACCOUNTS, caller_of, kube_apiserver
from e2e.servers import ServerProcess
from e2e.test_components import DRIVER, RESOURCE, add_node, claim_spec, device_class, device_slice

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NODE, CLASS = "foreign-node", "foreign-gpu"
CONTROLLERS = "resourceclaim-controller,garbage-collector-controller"
TOKEN = "administrator-token"


class Cluster:
    """An API server with our scheduler and controllers beside it, one node with one device, and a place for each test."""

    def __init__(self, caller: Caller, scheduler: Component, controllers: Component) -> None:
        self.caller = caller
        self.scheduler = scheduler
        self.controllers = controllers

    def namespace(self, name: str) -> str:
        self.caller.create("/api/v1/namespaces", {"metadata": {"name": name}})
        return f"/namespaces/{name}"

    def pod(self, place: str, name: str, **claim: str) -> str:
        container = {"name": "main", "image": "registry.example/app:v1", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {"containers": [container], "resourceClaims": [{"name": "gpu", **claim}]}
        self.caller.create(f"/api/v1{place}/pods", {"metadata": {"name": name}, "spec": spec})
        return f"/api/v1{place}/pods/{name}"

    def bound(self, pod: str) -> Any:
        def look() -> Any:
            found = self.caller.get(pod)
            return found if found and found["spec"].get("nodeName") else None

        return self.scheduler.wait_for(f"{pod} is bound", look)

    def refused(self, pod: str) -> str:
        def look() -> str | None:
            for condition in (self.caller.get(pod) or {}).get("status", {}).get("conditions") or ():
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    message: str = condition["message"]
                    return message
            return None

        return self.scheduler.wait_for(f"{pod} is refused", look)

    def claims(self, place: str) -> list[Any]:
        found: list[Any] = (self.caller.get(f"{RESOURCE}{place}/resourceclaims") or {"items": []})["items"]
        return found

    def delete(self, path: str) -> None:
        assert self.caller.send("DELETE", path, {"gracePeriodSeconds": 0})[0] in (200, 202)


@pytest.fixture(scope="module", params=["allot", "kube-apiserver"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "allot":
            server = stack.enter_context(ServerProcess("sqlite", folder))
            caller, kubeconfig = caller_of(server.kubeconfig), server.kubeconfig
        else:
            kubeconfig = stack.enter_context(kube_apiserver(folder, NO_ACCOUNTS))
            caller = caller_of(kubeconfig)
        add_node(caller, NODE)
        caller.create(f"{RESOURCE}/deviceclasses", device_class(CLASS))
        caller.create(f"{RESOURCE}/resourceslices", device_slice(NODE))
        python, common = Path(sys.executable), ["--kubeconfig", str(kubeconfig), "--no-leader-elect", "--port", "-1"]
        parts = []
        for part in (["scheduler"], ["controllers", "--controllers", CONTROLLERS]):
            logs = folder / part[0]
            logs.mkdir()
            parts.append(stack.enter_context(Component(python, ["-m", "allot", *part, *common], logs)))
        yield Cluster(caller, *parts)


def test_devices_go_from_pod_to_pod_through_templates(cluster: Cluster) -> None:
    place = cluster.namespace("templates")
    template = {"metadata": {"name": "gpu"}, "spec": {"spec": claim_spec(CLASS)}}
    cluster.caller.create(f"{RESOURCE}{place}/resourceclaimtemplates", template)
    first = cluster.pod(place, "first", resourceClaimTemplateName="gpu")
    assert cluster.bound(first)["spec"]["nodeName"] == NODE
    second = cluster.pod(place, "second", resourceClaimTemplateName="gpu")
    assert "0/1 nodes are available: 1 cannot allocate all claims." in cluster.refused(second)
    (held,) = [claim for claim in cluster.claims(place) if claim["status"].get("allocation")]
    assert held["status"]["allocation"]["devices"]["results"][0]["driver"] == DRIVER
    assert [consumer["name"] for consumer in held["status"]["reservedFor"]] == ["first"]
    assert held["metadata"]["ownerReferences"][0]["name"] == "first"
    cluster.delete(first)
    cluster.bound(second)
    cluster.delete(second)
    cluster.controllers.wait_for("all claims are gone", lambda: None if cluster.claims(place) else True)


def test_a_claim_is_shared_and_given_back_after_its_last_pod(cluster: Cluster) -> None:
    place = cluster.namespace("sharing")
    cluster.caller.create(f"{RESOURCE}{place}/resourceclaims", {"metadata": {"name": "gpu"}, "spec": claim_spec(CLASS)})
    pods = [cluster.pod(place, name, resourceClaimName="gpu") for name in ("one", "two")]
    for pod in pods:
        cluster.bound(pod)
    (claim,) = cluster.claims(place)
    assert {consumer["name"] for consumer in claim["status"]["reservedFor"]} == {"one", "two"}
    cluster.delete(pods[0])
    cluster.delete(pods[1])

    def released() -> Any:
        (claim,) = cluster.claims(place)
        return claim if not (claim.get("status") or {}).get("allocation") else None

    claim = cluster.controllers.wait_for("the claim is free", released)
    assert not (claim.get("status") or {}).get("reservedFor")


def test_a_pod_that_was_there_first_runs_as_soon_as_its_class_exists(cluster: Cluster) -> None:
    place = cluster.namespace("late")
    spec = claim_spec("late-gpu")
    cluster.caller.create(f"{RESOURCE}{place}/resourceclaims", {"metadata": {"name": "gpu"}, "spec": spec})
    pod = cluster.pod(place, "early", resourceClaimName="gpu")
    assert "device class late-gpu does not exist" in cluster.refused(pod)
    cluster.caller.create(f"{RESOURCE}/deviceclasses", device_class("late-gpu"))
    cluster.bound(pod)
    cluster.delete(pod)
