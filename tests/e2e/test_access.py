"""kubectl auth, impersonation and tokens: who may do what."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from e2e.kubectl import Kubectl
from e2e.manifests import CLAIM

pytestmark = pytest.mark.slow

Unique = Callable[[str], str]


def test_who_am_i(kubectl: Kubectl) -> None:
    shown = kubectl("auth", "whoami")
    assert "system:masters" in shown
    assert kubectl.json("auth", "whoami", "--as=ann", "--as-group=g")["status"]["userInfo"]["username"] == "ann"
    robot = kubectl("auth", "whoami", f"--as=system:serviceaccount:{kubectl.namespace}:robot")
    assert f"system:serviceaccounts:{kubectl.namespace}" in robot


def test_can_i(kubectl: Kubectl) -> None:
    assert kubectl("auth", "can-i", "create", "pods") == "yes\n"
    assert kubectl("auth", "can-i", "*", "*", "--all-namespaces") == "yes\n"
    denied = kubectl.run("auth", "can-i", "create", "resourceclaims", "--as=ann")
    assert (denied.returncode, denied.stdout) == (1, "no\n")
    kubectl("create", "role", "r", "--verb=create,get", "--resource=resourceclaims.resource.k8s.io")
    kubectl("create", "rolebinding", "rb", "--role=r", "--user=ann")
    assert kubectl("auth", "can-i", "create", "resourceclaims", "--as=ann") == "yes\n"
    assert kubectl.run("auth", "can-i", "delete", "resourceclaims", "--as=ann").stdout == "no\n"
    assert kubectl.run("auth", "can-i", "create", "resourceclaims", "--as=ann", "-n", "default").stdout == "no\n"
    assert "resourceclaims.resource.k8s.io" in kubectl("auth", "can-i", "--list", "--as=ann")
    assert kubectl("auth", "can-i", "get", "/healthz", "--as=ann", "--as-group=system:authenticated") == "yes\n"
    assert kubectl.run("auth", "can-i", "get", "/metrics", "--as=ann").stdout == "no\n"
    assert kubectl.run("auth", "can-i", "get", "pods", "--subresource=log", "--as=ann").stdout == "no\n"
    assert kubectl("create", "-f", "-", "--as=ann", stdin=CLAIM) == "resourceclaim.resource.k8s.io/shared created\n"
    refused = kubectl.fails("delete", "resourceclaim", "shared", "--as=ann")
    expected = (
        'Error from server (Forbidden): resourceclaims.resource.k8s.io "shared" is forbidden: User "ann" cannot delete '
        f'resource "resourceclaims" in API group "resource.k8s.io" in the namespace "{kubectl.namespace}"\n'
    )
    assert refused == expected


def test_the_usual_roles(kubectl: Kubectl) -> None:
    roles = set(kubectl("get", "clusterroles", "-o", "name").split())
    expected = {"cluster-admin", "admin", "edit", "view", "system:node", "system:kube-scheduler"}
    assert {f"clusterrole.rbac.authorization.k8s.io/{name}" for name in expected} <= roles
    kubectl("create", "rolebinding", "viewers", "--clusterrole=view", "--user=vera")
    assert kubectl("auth", "can-i", "list", "pods", "--as=vera") == "yes\n"
    assert kubectl.run("auth", "can-i", "list", "secrets", "--as=vera").stdout == "no\n"
    kubectl("create", "rolebinding", "editors", "--clusterrole=edit", "--user=ed")
    assert kubectl("auth", "can-i", "create", "resourceclaims", "--as=ed") == "yes\n"
    kubectl("create", "rolebinding", "admins", "--clusterrole=admin", "--user=ada")
    assert kubectl("auth", "can-i", "create", "rolebindings", "--as=ada") == "yes\n"
    refused = kubectl.fails("create", "role", "more", "--verb=get", "--resource=nodes", "--as=ada")
    assert "attempting to grant RBAC permissions not currently held" in refused
    rules = (
        f"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: rec, namespace: {kubectl.namespace}}}\n"
        "rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"
    )
    assert "role.rbac.authorization.k8s.io/rec reconciled" in kubectl("auth", "reconcile", "-f", "-", stdin=rules)


def test_service_account_tokens(kubectl: Kubectl, unique: Unique) -> None:
    kubectl("create", "serviceaccount", "robot")
    token = kubectl("create", "token", "robot", "--duration=1h").strip()
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    status = kubectl.json("create", "-f", "-", stdin=json.dumps(review))["status"]
    assert status["authenticated"]
    assert status["user"]["username"] == f"system:serviceaccount:{kubectl.namespace}:robot"
    review["spec"]["token"] = token[:-5] + "xxxxx"  # type: ignore[index]
    assert not kubectl.json("create", "-f", "-", stdin=json.dumps(review))["status"].get("authenticated")
    assert 'serviceaccounts "none" not found' in kubectl.fails("create", "token", "none")
    kubectl(
        "create", "clusterrolebinding", unique("b"), "--clusterrole=view", f"--serviceaccount={kubectl.namespace}:robot"
    )
    account = f"--as=system:serviceaccount:{kubectl.namespace}:robot"
    assert kubectl("auth", "can-i", "list", "pods", "-A", account) == "yes\n"


def test_certificate_signing_requests(kubectl: Kubectl, unique: Unique) -> None:
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ann")])
    key = ec.generate_private_key(ec.SECP256R1())
    pem = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    encoded = b64encode(pem.public_bytes(serialization.Encoding.PEM)).decode()

    def signing_request(name: str, request: str) -> str:
        spec = {"request": request, "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}
        kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
        return json.dumps({**kind, "metadata": {"name": name}, "spec": spec})

    kubectl("create", "-f", "-", stdin=signing_request(name := unique("ann"), encoded))
    assert kubectl.rows("get", "csr", name)[1][-1] == "Pending"
    assert "approved" in kubectl("certificate", "approve", name)
    assert kubectl.rows("get", "csr", name)[1][-1] == "Approved"
    assert "Common Name:    ann" in kubectl("describe", "csr", name)
    kubectl("create", "-f", "-", stdin=signing_request(denied := unique("denied"), encoded))
    assert "denied" in kubectl("certificate", "deny", denied)
    assert kubectl.rows("get", "csr", denied)[1][-1] == "Denied"
    refused = kubectl.fails("create", "-f", "-", stdin=signing_request(unique("bad"), "bm9wZQ=="))
    assert "PEM block type must be CERTIFICATE REQUEST" in refused
