"""A node sees what its own pods need, writes about itself, and nothing else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from security.servers import Both
from waiting import wait_for

pytestmark = pytest.mark.slow

NODES = "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
POD_CERTIFICATES = "/apis/certificates.k8s.io/v1/namespaces/of-nodes/podcertificaterequests"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def until(ask: Callable[[], int], status: int) -> None:
    """The graph follows the store within moments, not at once."""
    wait_for(f"status {status}", lambda: ask() == status)


class Nodes:
    """Two nodes; on the first runs a pod that uses one of each."""

    def __init__(self, both: Both) -> None:
        self.both, self.space = both, "/api/v1/namespaces/of-nodes"
        self.first, self.second = (both.user(f"system:node:{name}", "system:nodes") for name in ("first", "second"))
        both.create("/api/v1/namespaces", {"metadata": {"name": "of-nodes"}})
        if both.send("GET", "/api/v1/namespaces/kube-node-lease").status == 404:
            both.create("/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
        for name in ("first", "second"):
            both.create(NODES, {"metadata": {"name": name}})
        for name in ("used", "other"):
            both.create(f"{self.space}/secrets", {"metadata": {"name": name}})
            both.create(f"{self.space}/configmaps", {"metadata": {"name": name}})
            both.create(f"{self.space}/serviceaccounts", {"metadata": {"name": name}})
            both.create(
                f"{self.space}/persistentvolumeclaims",
                {
                    "metadata": {"name": name},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                },
            )
            request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
            both.create(
                "/apis/resource.k8s.io/v1/namespaces/of-nodes/resourceclaims",
                {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}},
            )
        both.create(f"{self.space}/pods", self.pod("uses", "first"))
        both.create(f"{self.space}/pods", self.pod("waits", ""))
        token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
        spec = {"serviceAccountName": "used", "containers": [{"name": "c", "image": "i"}], "volumes": [token]}
        both.create(f"{self.space}/pods", {"metadata": {"name": "plain"}, "spec": {**spec, "nodeName": "first"}})
        until(lambda: self.status(self.first, "GET", f"{self.space}/secrets/used"), 200)

    @staticmethod
    def pod(name: str, node: str) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "serviceAccountName": "used",
            "containers": [{"name": "c", "image": "i"}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "used"}},
                {"name": "b", "configMap": {"name": "used"}},
                {"name": "c", "persistentVolumeClaim": {"claimName": "used"}},
            ],
            "resourceClaims": [{"name": "d", "resourceClaimName": "used"}],
        }
        return {"metadata": {"name": name}, "spec": {**spec, "nodeName": node} if node else spec}

    def status(self, who: Any, method: str, path: str, body: Any = None, **sent: Any) -> int:
        return self.both.send(method, path, body, who=who, **sent).status


@pytest.fixture(scope="session")
def nodes(both: Both) -> Nodes:
    return Nodes(both)


CLAIMS = "/apis/resource.k8s.io/v1/namespaces/of-nodes/resourceclaims"


@pytest.mark.parametrize("kind", ["secrets", "configmaps", "persistentvolumeclaims", "resourceclaims"])
def test_a_node_reads_what_its_pods_use(nodes: Nodes, kind: str) -> None:
    folder = CLAIMS if kind == "resourceclaims" else f"{nodes.space}/{kind}"
    until(lambda: nodes.status(nodes.first, "GET", f"{folder}/used"), 200)
    assert nodes.status(nodes.first, "GET", f"{folder}/other") == 403
    assert nodes.status(nodes.first, "GET", f"{folder}/gone") == 403
    assert nodes.status(nodes.second, "GET", f"{folder}/used") == 403


@pytest.mark.parametrize("kind", ["secrets", "configmaps"])
def test_a_node_lists_and_watches_one_by_its_name_alone(nodes: Nodes, kind: str) -> None:
    folder = f"{nodes.space}/{kind}"
    assert nodes.status(nodes.first, "GET", f"{folder}?fieldSelector=metadata.name%3Dused") == 200
    for query in (
        "",
        "?fieldSelector=metadata.name%3Dother",
        "?fieldSelector=metadata.name!%3Dother",
        "?fieldSelector=metadata.namespace%3Dof-nodes",
        "?labelSelector=a%3Db",
        "?watch=true&timeoutSeconds=1",
    ):
        assert nodes.status(nodes.first, "GET", folder + query) == 403, query
    assert nodes.status(nodes.first, "GET", f"/api/v1/{kind}") == 403
    assert nodes.status(nodes.first, "GET", f"/api/v1/namespaces/kube-system/{kind}/used") == 403


@pytest.mark.parametrize("kind", ["secrets", "configmaps", "serviceaccounts", "persistentvolumeclaims"])
def test_a_node_writes_none_of_what_its_pods_use(nodes: Nodes, kind: str) -> None:
    folder = f"{nodes.space}/{kind}"
    assert nodes.status(nodes.first, "POST", folder, {"metadata": {"name": "new"}}) == 403
    assert nodes.status(nodes.first, "PUT", f"{folder}/used", {"metadata": {"name": "used"}}) == 403
    assert nodes.status(nodes.first, "PATCH", f"{folder}/used", {}, kind="application/merge-patch+json") == 403
    assert nodes.status(nodes.first, "DELETE", f"{folder}/used") == 403


MERGE = "application/merge-patch+json"


def test_a_node_writes_about_itself_alone(nodes: Nodes) -> None:
    status = {"status": {"conditions": []}}
    assert nodes.status(nodes.first, "PATCH", f"{NODES}/first/status", status, kind=MERGE) == 200
    assert nodes.status(nodes.first, "PATCH", f"{NODES}/second/status", status, kind=MERGE) == 403
    assert nodes.status(nodes.first, "PATCH", f"{NODES}/second", {}, kind=MERGE) == 403
    assert nodes.status(nodes.first, "DELETE", f"{NODES}/second") == 403
    assert nodes.status(nodes.first, "DELETE", f"{NODES}/first") == 403
    assert nodes.status(nodes.first, "POST", NODES, {"metadata": {"name": "third"}}) == 403
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert nodes.status(nodes.first, "PATCH", f"{NODES}/first", taint, kind=MERGE) == 403
    for label, expected in (
        ("node-restriction.kubernetes.io/trusted", 403),
        ("node-role.kubernetes.io/control-plane", 403),
        ("kubernetes.io/hostname", 200),
        ("example.com/own", 200),
    ):
        patch = {"metadata": {"labels": {label: "first"}}}
        assert nodes.status(nodes.first, "PATCH", f"{NODES}/first", patch, kind=MERGE) == expected, label


def test_a_node_writes_the_status_of_its_own_pods(nodes: Nodes) -> None:
    pods = f"{nodes.space}/pods"
    status = {"status": {"phase": "Running"}}
    assert nodes.status(nodes.first, "PATCH", f"{pods}/uses/status", status, kind=MERGE) == 200
    assert nodes.status(nodes.second, "PATCH", f"{pods}/uses/status", status, kind=MERGE) == 403
    assert nodes.status(nodes.first, "PATCH", f"{pods}/waits/status", status, kind=MERGE) == 403
    assert nodes.status(nodes.second, "DELETE", f"{pods}/uses") == 403
    assert nodes.status(nodes.second, "POST", f"{pods}/uses/eviction", eviction("uses")) == 403
    assert nodes.status(nodes.first, "PATCH", f"{pods}/uses", {}, kind=MERGE) == 403
    assert nodes.status(nodes.first, "POST", f"{pods}/waits/binding", bound("waits", "first")) == 403


def eviction(name: str) -> dict[str, Any]:
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}


def bound(name: str, node: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}


def test_a_node_makes_no_pods_that_reach_secrets(nodes: Nodes) -> None:
    pods = f"{nodes.space}/pods"
    # With a service account, secrets and claims: not a mirror of a pod that the node runs by itself.
    assert nodes.status(nodes.first, "POST", pods, Nodes.pod("made", "first")) == 403
    plain = {"metadata": {"name": "made"}, "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "first"}}
    assert nodes.status(nodes.first, "POST", pods, plain) == 403
    mirror = {"kubernetes.io/config.mirror": "x"}
    other = {"metadata": {"name": "made", "annotations": mirror}, "spec": {**plain["spec"], "nodeName": "second"}}
    assert nodes.status(nodes.first, "POST", pods, other) == 403


def test_a_node_has_tokens_for_the_accounts_of_its_pods(nodes: Nodes) -> None:
    def request(name: str, **reference: Any) -> dict[str, Any]:
        return {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, **reference}}}

    pod = {
        server.name: server.send("GET", f"{nodes.space}/pods/plain").value["metadata"]["uid"]
        for server in nodes.both.every
    }
    token = f"{nodes.space}/serviceaccounts/used/token"
    for server in nodes.both.every:
        for who, name, status in ((nodes.first, "used", 201), (nodes.second, "used", 403), (nodes.first, "other", 403)):
            body = request("plain", uid=pod[server.name])
            path = f"{nodes.space}/serviceaccounts/{name}/token"
            assert server.send("POST", path, body, who=who[server.name]).status == status, (server.name, name)
        # Not for somebody whom the pod does not ask for.
        elsewhere = request("plain", uid=pod[server.name])
        elsewhere["spec"]["audiences"] = ["https://example.com"]
        assert server.send("POST", token, elsewhere, who=nodes.first[server.name]).status == 403, server.name
    # Not without a pod: such a token would outlive it.
    assert nodes.status(nodes.first, "POST", token, {"spec": {}}) == 403
    assert nodes.status(nodes.first, "POST", token, request("plain", uid="x")) == 403


SIGNER = "example.com/pods"


def proof_of_key() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return b64encode(request.public_bytes(serialization.Encoding.DER)).decode()


def test_a_node_asks_for_certificates_of_its_own_pods_alone_and_both_servers_say_why(nodes: Nodes) -> None:
    certificate = {"signerName": SIGNER, "keyType": "ED25519", "credentialBundlePath": "bundle.pem"}
    volume = {"name": "c", "projected": {"sources": [{"podCertificate": certificate}]}}
    spec = {"serviceAccountName": "used", "containers": [{"name": "c", "image": "i"}], "volumes": [volume]}
    for name, node in (("certified", "first"), ("elsewhere", "second")):
        nodes.both.create(f"{nodes.space}/pods", {"metadata": {"name": name}, "spec": {**spec, "nodeName": node}})
    stub, told = proof_of_key(), dict[str, list[tuple[str, int, str]]]()
    for server in nodes.both.every:

        def uid(path: str, of: Any = server) -> str:
            found: str = of.send("GET", path).value["metadata"]["uid"]
            return found

        asked = {
            "signerName": SIGNER,
            "podName": "certified",
            "podUID": uid(f"{nodes.space}/pods/certified"),
            "serviceAccountName": "used",
            "serviceAccountUID": uid(f"{nodes.space}/serviceaccounts/used"),
            "nodeName": "first",
            "nodeUID": uid(f"{NODES}/first"),
            "stubPKCS10Request": stub,
        }
        other = uid(f"{nodes.space}/serviceaccounts/other")
        cases: dict[str, dict[str, str]] = {
            "its own": {},
            "another node": {"nodeName": "second", "nodeUID": uid(f"{NODES}/second")},
            "a node that was": {"nodeUID": "x"},
            "a pod elsewhere": {"podName": "elsewhere", "podUID": uid(f"{nodes.space}/pods/elsewhere")},
            "a pod that was": {"podUID": "x"},
            "no pod": {"podName": "gone"},
            "another account": {"serviceAccountName": "other", "serviceAccountUID": other},
            "an account that was": {"serviceAccountUID": "x"},
            "another signer": {"signerName": "example.com/others"},
            "a pod without certificates": {"podName": "plain", "podUID": uid(f"{nodes.space}/pods/plain")},
        }

        def ask(changes: dict[str, str], of: Any = server, asked: dict[str, str] = asked) -> Any:
            made = {"metadata": {"name": "req"}, "spec": {**asked, **changes}}
            return of.send("POST", f"{POD_CERTIFICATES}?dryRun=All", made, who=nodes.first[of.name])

        # Servers see new pods a moment later.
        wait_for("its own is admitted", lambda ask=ask: ask({}).status == 201)
        for what, changes in cases.items():
            answer = ask(changes)
            message = answer.value.get("message", "")
            for name, value in (
                (each, uid(f"{nodes.space}/pods/{each}")) for each in ("certified", "elsewhere", "plain")
            ):
                message = message.replace(value, f"<{name}>")
            message = message.replace(asked["nodeUID"], "<node>").replace(asked["serviceAccountUID"], "<account>")
            told.setdefault(server.name, []).append((what, answer.status, message))
        named = server.send("POST", POD_CERTIFICATES, {"metadata": {"name": "made"}, "spec": asked}).status
        assert named == 201, server.name
        for method, path, body in (
            ("DELETE", f"{POD_CERTIFICATES}/made", None),
            ("PATCH", f"{POD_CERTIFICATES}/made", {}),
        ):
            assert server.send(method, path, body, who=nodes.first[server.name], kind=MERGE).status == 403, server.name
    (first, *others) = told.values()
    for other in others:
        assert other == first
    assert {what: status for what, status, _ in first} == {
        "its own": 201,
        "another node": 403,
        "a node that was": 500,
        "a pod elsewhere": 403,
        "a pod that was": 500,
        "no pod": 500,
        "another account": 403,
        "an account that was": 500,
        "another signer": 403,
        "a pod without certificates": 403,
    }


def test_a_node_publishes_its_own_devices_alone(nodes: Nodes) -> None:
    def slice_(name: str, node: str) -> dict[str, Any]:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        return {"metadata": {"name": name}, "spec": {"driver": "gpu.example.com", "nodeName": node, "pool": pool}}

    assert nodes.status(nodes.first, "POST", SLICES, slice_("first-gpu", "first")) == 201
    assert nodes.status(nodes.first, "POST", SLICES, slice_("stolen-gpu", "second")) == 403
    until(lambda: nodes.status(nodes.first, "DELETE", f"{SLICES}/first-gpu?dryRun=All"), 200)
    assert nodes.status(nodes.second, "DELETE", f"{SLICES}/first-gpu") == 403
    assert nodes.status(nodes.first, "GET", SLICES) == 403
    assert nodes.status(nodes.first, "GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dsecond") == 403
    assert nodes.status(nodes.first, "GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dfirst") == 200


def test_a_node_renews_its_own_lease(nodes: Nodes) -> None:
    lease = {"spec": {"holderIdentity": "first", "leaseDurationSeconds": 40}}
    assert nodes.status(nodes.first, "POST", LEASES, {"metadata": {"name": "first"}, **lease}) == 201
    assert nodes.status(nodes.first, "POST", LEASES, {"metadata": {"name": "second"}, **lease}) == 403
    assert nodes.status(nodes.second, "PATCH", f"{LEASES}/first", {}, kind=MERGE) == 403


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("system:node:", ("system:nodes",)),
        ("system:node:first", ()),
        ("first", ("system:nodes",)),
        ("system:node:first/second", ("system:nodes",)),
        ("system:node:FIRST", ("system:nodes",)),
        ("jane", ("system:nodes",)),
    ],
)
def test_half_a_node_is_none(nodes: Nodes, name: str, groups: tuple[str, ...]) -> None:
    who = nodes.both.user(name, *groups)
    assert nodes.status(who, "GET", f"{nodes.space}/secrets/used") == 403
    assert nodes.status(who, "PATCH", f"{NODES}/first/status", {}, kind=MERGE) == 403


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles"),
        ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
        ("GET", "/api/v1/namespaces/of-nodes/secrets"),
        ("POST", "/api/v1/namespaces/of-nodes/pods/uses/exec?command=sh"),
        ("GET", "/api/v1/nodes/second/proxy/"),
        ("POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval"),
        ("DELETE", "/apis/resource.k8s.io/v1/namespaces/of-nodes/resourceclaims/used"),
        ("PUT", "/apis/resource.k8s.io/v1/namespaces/of-nodes/resourceclaims/other/status"),
        ("GET", "/metrics"),
    ],
)
def test_a_node_has_no_other_rights(nodes: Nodes, method: str, path: str) -> None:
    body = None if method in ("GET", "DELETE") else {}
    assert nodes.status(nodes.first, method, path, body) == 403
