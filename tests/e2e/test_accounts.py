"""Service accounts as kubeadm's clusters have them: tokens signed with an RSA key, known to the API server and to controllers."""

from __future__ import annotations

from base64 import b64decode

import pytest
import yaml

from e2e.clusters import until
from e2e.components import Caller
from e2e.kubectl import Kubectl
from e2e.servers import client_context

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: robot, annotations: {kubernetes.io/service-account.name: robot}}
type: kubernetes.io/service-account-token
"""


def asked(kubectl: Kubectl, token: str) -> tuple[int, str]:
    """What the server says of who shows a token, and nothing else."""
    server: str = yaml.safe_load(kubectl.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    context = client_context(kubectl.kubeconfig, certificate=False)
    caller = Caller(server, context, {"Authorization": f"Bearer {token}"})
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    status, value = caller.send("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return status, value["status"]["userInfo"]["username"] if status == 201 else ""


def test_a_secret_gets_a_token_that_the_server_accepts_until_the_account_goes(user_anywhere: Kubectl) -> None:
    kubectl = user_anywhere
    until(lambda: "kube-root-ca.crt" in kubectl("get", "configmaps", "-o", "name"))
    kubectl("create", "serviceaccount", "robot")
    kubectl.apply(SECRET)
    data = until(lambda: kubectl.json("get", "secret", "robot").get("data", {}).get("token"))
    token, name = b64decode(data).decode(), f"system:serviceaccount:{kubectl.namespace}:robot"
    assert asked(kubectl, token) == (201, name)
    assert asked(kubectl, kubectl("create", "token", "robot").strip()) == (201, name)
    kubectl("delete", "serviceaccount", "robot")
    until(lambda: asked(kubectl, token)[0] == 401)
    until(lambda: kubectl("get", "secret", "robot", "--ignore-not-found") == "")
