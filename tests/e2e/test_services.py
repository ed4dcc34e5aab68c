"""Services as people use them: `allot up` with simulated nodes, kubectl, and whoever asks at the address that a Service has."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kubectl import MISSING, Kubectl, find_kubectls
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

WAIT = "--timeout=60s"
SERVE = "mkdir /srv/w; cd /srv/w; hostname > index.html; exec python3 -m http.server 8000"
WEB = f"""
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: c
        image: none
        command: [sh, -c, "{SERVE}"]
        ports: [{{containerPort: 8000, name: http}}]
        readinessProbe: {{httpGet: {{path: /, port: http}}, periodSeconds: 1, timeoutSeconds: 10}}
        livenessProbe: {{tcpSocket: {{port: http}}, timeoutSeconds: 10}}
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  type: LoadBalancer
  selector: {{app: web}}
  ports: [{{port: 8000, targetPort: http, name: http}}]
"""
DB = """
apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432, name: pg}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      hostAliases: [{ip: 192.0.2.9, hostnames: [far.example]}]
      containers: [{name: c, image: none, command: [sleep, "600"]}]
"""
VLLM = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: vllm, labels: {app: vllm}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "vllm/vllm-openai:v0.9", ports: [{containerPort: 8000}], resources: {claims: [{name: gpu}]}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
---
apiVersion: v1
kind: Service
metadata: {name: vllm}
spec: {type: LoadBalancer, selector: {app: vllm}, ports: [{port: 8000}]}
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Path]:
    """A cluster with two nodes; its kubeconfig."""
    if not find_kubectls():
        pytest.skip(MISSING)
    with tempfile.TemporaryDirectory(prefix="s-") as folder:
        environment = {**os.environ, "HOME": folder}

        def allot(command: str, *arguments: str) -> str:
            whole = [sys.executable, "-m", "allot", command, "--data-dir", f"{folder}/data", *arguments]
            done = subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=90, check=False)
            assert done.returncode == 0, done.stderr
            return done.stderr

        said = allot("up", "--detach", "--memory", "--port", "0", "--node", "t4=2")
        try:
            assert "network of pods: " in said
            if "allows no pod network" in said or "allows no sandbox" in said:
                pytest.skip(said)
            yield Path(folder) / "data" / "admin.kubeconfig"
        finally:
            allot("down")


@pytest.fixture
def kubectl(up: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """The newest kubectl, in a namespace of its own."""
    binary = next(iter(find_kubectls().values()))
    name = request.node.name.removeprefix("test_").replace("_", "-")[:40].rstrip("-")
    made = Kubectl(binary, up, up.parent, name)
    made("create", "namespace", name)
    yield made
    made("delete", "namespace", name, "--wait=false", "--ignore-not-found")


def address_of(kubectl: Kubectl, name: str) -> str:
    """That of a load balancer."""
    path = "jsonpath={.status.loadBalancer.ingress[0].ip}"
    return str(wait_for("an address", lambda: kubectl("get", "svc", name, "-o", path)))


def read(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return str(answer.read().decode())


def test_a_load_balancer_answers_and_spreads_over_replicas_with_one_port(kubectl: Kubectl) -> None:
    applied = kubectl.apply(WEB)
    assert "Warning" not in str(applied)
    kubectl("rollout", "status", "deploy/web", WAIT)
    pods = kubectl.json("get", "pods", "-l", "app=web")["items"]
    assert len({pod["status"]["podIP"] for pod in pods}) == 2
    names = {pod["metadata"]["name"] for pod in pods}
    address = address_of(kubectl, "web")
    assert address.startswith("127.")
    wait_for("both answer", lambda: {read(f"http://{address}:8000/").strip() for _ in range(4)} == names)
    node_port = kubectl("get", "svc", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
    assert read(f"http://127.0.0.1:{node_port}/").strip() in names
    # The API server's proxies reach pods, which are not on its network.
    space, pod = kubectl.namespace, sorted(names)[0]
    assert kubectl("get", "--raw", f"/api/v1/namespaces/{space}/pods/{pod}:8000/proxy/").strip() == pod
    assert kubectl("get", "--raw", f"/api/v1/namespaces/{space}/services/web:http/proxy/").strip() in names
    kubectl("scale", "deploy/web", "--replicas=1")
    wait_for("one is left", lambda: len(kubectl.json("get", "pods", "-l", "app=web")["items"]) == 1)
    left = kubectl.json("get", "pods", "-l", "app=web")["items"][0]["metadata"]["name"]
    wait_for("it answers alone", lambda: {read(f"http://{address}:8000/").strip() for _ in range(3)} == {left})


def test_port_forward_to_a_service_reaches_a_pod(kubectl: Kubectl) -> None:
    kubectl.apply(WEB)
    kubectl("rollout", "status", "deploy/web", WAIT)
    command = kubectl.command(("port-forward", "svc/web", ":8000"))
    with subprocess.Popen(command, env=kubectl.environment(), stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())
            assert found is not None
            assert read(f"http://127.0.0.1:{found[1]}/").startswith("web-")
        finally:
            forwarding.terminate()


def test_names_and_variables_lead_to_services(kubectl: Kubectl) -> None:
    kubectl.apply(WEB)
    kubectl.apply(DB)
    kubectl("rollout", "status", "statefulset/db", WAIT)
    kubectl("rollout", "status", "deploy/web", WAIT)
    addresses = {
        pod["metadata"]["name"]: pod["status"]["podIP"] for pod in kubectl.json("get", "pods", "-l", "app=db")["items"]
    }

    def inside(command: str) -> str:
        return str(kubectl("exec", "db-0", "--", "sh", "-c", command)).strip()

    wait_for("the name of db-1", lambda: inside("getent hosts db-1.db | cut -d' ' -f1 || true") == addresses["db-1"])
    assert inside("getent hosts db-0.db | cut -d' ' -f1") == addresses["db-0"]
    assert inside("getent hosts far.example | cut -d' ' -f1") == "192.0.2.9"
    assert f"db-0.db.{kubectl.namespace}.svc.cluster.local" in inside("cat /etc/hosts")
    assert sorted(inside("getent ahostsv4 db | cut -d' ' -f1 | sort -u").split()) == sorted(addresses.values())
    get = "python3 -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode())'"
    assert inside(f"{get} http://web:8000/").startswith("web-")
    assert inside("echo $WEB_SERVICE_HOST:$WEB_SERVICE_PORT $KUBERNETES_SERVICE_HOST") == (
        f"{kubectl('get', 'svc', 'web', '-o', 'jsonpath={.spec.clusterIP}')}:8000 10.96.0.1"
    )
    # A pod that talks to the API server by its Service, as every client does that finds itself in a cluster.
    ask = (
        "import ssl, os, urllib.request; f = '/var/run/secrets/kubernetes.io/serviceaccount/'; "
        "c = ssl.create_default_context(cafile=f + 'ca.crt'); "
        "print(urllib.request.urlopen(f'https://{os.environ[\"KUBERNETES_SERVICE_HOST\"]}/version', context=c, timeout=30).status)"
    )
    assert kubectl("exec", "db-0", "--", "python3", "-c", ask).strip() == "200"


def test_a_placeholder_says_what_it_is(kubectl: Kubectl) -> None:
    kubectl.apply(VLLM)
    kubectl("wait", "--for=condition=Ready", "pod/vllm", WAIT)
    address = address_of(kubectl, "vllm")
    said = str(wait_for("an answer", lambda: _or_nothing(f"http://{address}:8000/v1/models")))
    assert f"pod: {kubectl.namespace}/vllm" in said
    assert 'Placeholder for image "vllm/vllm-openai:v0.9"' in said
    assert "container: main" in said
    assert re.search(r"node: t4-[01]\n", said)
    assert re.search(r"devices: gpu\.nvidia\.com/t4-[01]/gpu-0\n", said)
    space = kubectl.namespace
    assert '"pod":"vllm"' in kubectl("get", "--raw", f"/api/v1/namespaces/{space}/pods/vllm:8000/proxy/")


def _or_nothing(url: str) -> str:
    try:
        return read(url)
    except OSError:
        return ""
