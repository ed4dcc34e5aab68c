"""`allot scheduler` and `allot controllers` in the place of Kubernetes' own, as processes with a kubeconfig.

On allot's API server always; on a real kube-apiserver where KUBEBUILDER_ASSETS names a folder with kube-apiserver and etcd.
"""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from e2e.components import Caller, Component, component, gates
from e2e.servers import ServerProcess, client_context
from e2e.test_components import DRIVER, RESOURCE, add_node, claim_spec, device_class, device_slice
from etcd_server import MISSING as NO_ETCD
from etcd_server import EtcdServer, find_etcd, free_port

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


def kube_apiserver(folder: Path, stack: ExitStack) -> tuple[Caller, Path]:
    """A real one on an etcd of its own, and a kubeconfig for its administrator."""
    binary = component("kube-apiserver")
    if find_etcd() is None:
        pytest.skip(NO_ETCD)
    etcd = EtcdServer(folder)
    etcd.start()
    stack.callback(etcd.kill)
    key = folder / "sa.key"
    key.write_bytes(
        rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    tokens, port = folder / "tokens.csv", free_port()
    tokens.write_text(f'{TOKEN},administrator,uid-1,"system:masters"\n')
    arguments = [
        *("--etcd-servers", etcd.address, "--secure-port", str(port), "--cert-dir", str(folder / "certificates")),
        *("--token-auth-file", str(tokens), "--authorization-mode=RBAC"),
        *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}"),
        *(f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.96.0.0/16"),
        *("--disable-admission-plugins=ServiceAccount", *gates(binary)),
    ]
    running = stack.enter_context(Component(binary, arguments, folder))
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    url = f"https://127.0.0.1:{port}"
    caller = Caller(url, unverified, {"Authorization": f"Bearer {TOKEN}"})
    running.wait_for("kube-apiserver answers", lambda: caller.get("/api/v1/namespaces/default"))
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": url, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": {"token": TOKEN}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return caller, kubeconfig


@pytest.fixture(scope="module", params=["allot", "kube-apiserver"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "allot":
            server = stack.enter_context(ServerProcess("sqlite", folder))
            caller, kubeconfig = Caller(server.url, client_context(server.kubeconfig)), server.kubeconfig
        else:
            caller, kubeconfig = kube_apiserver(folder, stack)
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
