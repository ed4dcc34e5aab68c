"""Commands of real kubectls that send protobuf."""

from __future__ import annotations

import asyncio
import os
import shutil
from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from apiserver.live import LiveServer
from waiting import WAIT_S

# Since this version typed clients send protobuf; the server reads JSON of those before.
VERSIONS = ("1.31", "1.32", "1.33")


def _binary(version: str) -> str:
    """The kubectl of a version, beside the one on the path."""
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("kubectl is not installed")
    beside = Path(found).resolve().parent / f"kubectl.{version}"
    if not beside.exists():
        pytest.skip(f"kubectl {version} is not installed beside {found}")
    return str(beside)


class Kubectl:
    """Runs kubectl as the administrator of a server."""

    def __init__(self, binary: str, server: LiveServer) -> None:
        self._binary = binary
        self._environment = {
            "KUBECONFIG": str(server.kubeconfig),
            "HOME": str(server.directory),
            "PATH": os.environ["PATH"],
        }

    async def run(self, command: str) -> tuple[int, str]:
        """Exit code, and what was printed."""
        process = await asyncio.create_subprocess_exec(
            self._binary,
            *command.split(),
            env=self._environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
        except TimeoutError:
            process.kill()
            raise
        assert process.returncode is not None
        return process.returncode, output.decode()

    async def __call__(self, command: str) -> str:
        """What was printed by a command that works."""
        code, output = await self.run(command)
        assert code == 0, f"kubectl {command}\n{output}"
        return output

    async def get(self, what: str) -> Any:
        """An object as JSON."""
        return msgspec.json.decode(await self(f"get {what} -o json"))


@pytest.fixture(params=VERSIONS)
def kubectl(request: pytest.FixtureRequest, server: LiveServer) -> Kubectl:
    return Kubectl(_binary(request.param), server)


@pytest.mark.slow
async def test_what_kubectl_creates_itself_arrives_whole(kubectl: Kubectl) -> None:
    await kubectl("create namespace shop")
    await kubectl("create configmap settings --from-literal=color=blue --from-literal=empty= -n shop")
    assert (await kubectl.get("configmap/settings -n shop"))["data"] == {"color": "blue", "empty": ""}
    await kubectl("create secret generic key --from-literal=password=s3cret -n shop")
    assert (await kubectl.get("secret/key -n shop"))["data"] == {"password": "czNjcmV0"}
    await kubectl("create quota small --hard=pods=3,requests.cpu=1500m -n shop")
    assert (await kubectl.get("quota/small -n shop"))["spec"]["hard"] == {"pods": "3", "requests.cpu": "1500m"}
    await kubectl("create serviceaccount robot -n shop")
    await kubectl("create service clusterip front --tcp=80:8080 -n shop")
    (port,) = (await kubectl.get("service/front -n shop"))["spec"]["ports"]
    assert (port["port"], port["targetPort"], port["protocol"]) == (80, 8080, "TCP")
    await kubectl("create priorityclass urgent --value=1000 --description=soon")
    assert (await kubectl.get("priorityclass/urgent"))["value"] == 1000


@pytest.mark.slow
async def test_workloads_that_kubectl_creates_get_their_defaults(kubectl: Kubectl) -> None:
    await kubectl("create deployment web --image=nginx:1 --replicas=2 --port=80")
    spec = (await kubectl.get("deployment/web"))["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"]["type"] == "RollingUpdate"
    (container,) = spec["template"]["spec"]["containers"]
    assert (container["image"], container["ports"][0]["containerPort"]) == ("nginx:1", 80)
    await kubectl("create job once --image=busybox -- echo hello")
    assert (await kubectl.get("job/once"))["spec"]["template"]["spec"]["containers"][0]["command"] == ["echo", "hello"]
    await kubectl("create cronjob hourly --image=busybox --schedule=@hourly")
    await kubectl("create job from-cron --from=cronjob/hourly")
    await kubectl("create poddisruptionbudget some --selector=app=web --min-available=50%")
    assert (await kubectl.get("pdb/some"))["spec"]["minAvailable"] == "50%"
    await kubectl("create ingress way --rule=shop.example/*=front:80")
    await kubectl("scale deployment/web --replicas=5")
    assert (await kubectl.get("deployment/web"))["spec"]["replicas"] == 5
    await kubectl("autoscale deployment web --max=4")
    assert (await kubectl.get("hpa/web"))["spec"]["maxReplicas"] == 4
    await kubectl("run one --image=nginx")
    await kubectl("set image deployment/web nginx=nginx:2")


@pytest.mark.slow
async def test_rights_tokens_and_questions_work(kubectl: Kubectl) -> None:
    await kubectl("create role reader --verb=get,list --resource=pods,deployments.apps")
    assert len((await kubectl.get("role/reader"))["rules"]) == 2
    await kubectl("create rolebinding readers --role=reader --serviceaccount=default:robot --user=ann")
    assert len((await kubectl.get("rolebinding/readers"))["subjects"]) == 2
    await kubectl("create clusterrole watcher --verb=watch --resource=nodes")
    await kubectl("create clusterrole all --aggregation-rule=a=b")
    await kubectl("create clusterrolebinding watchers --clusterrole=watcher --group=staff")
    await kubectl("create serviceaccount robot")
    assert (await kubectl("create token robot --duration=10m")).count(".") == 2
    assert "yes" in await kubectl("auth can-i create pods")
    assert "yes" in await kubectl("auth can-i get pods --as=ann")
    code, output = await kubectl.run("auth can-i delete pods --as=ann")
    assert (code, output.strip()) == (1, "no")
    assert "pods" in await kubectl("auth can-i --list --as=ann")
    assert "Username" in await kubectl("auth whoami")


@pytest.mark.slow
async def test_deletions_and_evictions_work(kubectl: Kubectl, server: LiveServer) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    assert (await server.post("/api/v1/nodes", node)).status == 201
    await kubectl("create deployment web --image=nginx")
    await kubectl("delete deployment web --cascade=foreground --wait=false")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "lonely"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }
    assert (await server.post("/api/v1/namespaces/default/pods", pod)).status == 201
    await kubectl("cordon n1")
    assert (await kubectl.get("node/n1"))["spec"]["unschedulable"] is True
    assert "evicting pod" in await kubectl("drain n1 --force --dry-run=server")
    await kubectl("taint nodes n1 a=b:NoSchedule")
    await kubectl("drain n1 --force --grace-period=0 --timeout=15s")
    assert (await server.get("/api/v1/namespaces/default/pods/lonely")).status == 404
    await kubectl("create configmap short-lived")
    await kubectl("delete configmap short-lived")


@pytest.mark.slow
async def test_certificates_are_approved(kubectl: Kubectl, server: LiveServer) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ann")])
    wanted = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    request = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "ann"},
        "spec": {
            "request": b64encode(wanted.public_bytes(Encoding.PEM)).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    }
    created = await server.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", request)
    assert created.status == 201, created.raw
    await kubectl("certificate approve ann")
    told = await kubectl.get("csr/ann")
    assert [condition["type"] for condition in told["status"]["conditions"]] == ["Approved"]
    assert told["spec"] == created.json["spec"]
