"""How allot gets into clusters that others have made: kubeconfigs of vendors, a node with a certificate of the cluster's authority, the
kubelet client certificate of the API server, and pods that somebody starts by name.

Kubeconfigs on allot's API server always; the rest on a real kube-apiserver where KUBEBUILDER_ASSETS names a folder with it and etcd.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.apiserver.access.certificates import Certificates, Identity
from allot.apiserver.access.kubeconfig import write_kubeconfig
from allot.process.clock import SystemClock
from cli.command import Result, allot
from e2e.components import Caller, Component
from e2e.kube_cluster import KUBELET_CLIENT, NO_ACCOUNTS, caller_of, kube_apiserver
from e2e.kubectl import MISSING, Kubectl, find_kubectls
from e2e.servers import ServerProcess
from e2e.test_components import RESOURCE, add_node, claim_spec, device_class, device_slice
from waiting import WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

TOKEN = "vendors-token"
ADMINISTRATOR = f'{TOKEN},vendor,uid-1,"system:masters"\n'
NODE = "joined"

# Users as the vendors' tools write them; commands are looked for on the PATH.
EXEC = "client.authentication.k8s.io/v1beta1"
USERS: dict[str, dict[str, Any]] = {
    "eks": {
        "exec": {
            "apiVersion": EXEC,
            "command": "aws",
            "args": ["--region", "eu-west-1", "eks", "get-token", "--cluster-name", "demo", "--output", "json"],
            "env": [{"name": "AWS_PROFILE", "value": "demo"}],
        }
    },
    "gke": {
        "exec": {
            "apiVersion": EXEC,
            "command": "gke-gcloud-auth-plugin",
            "installHint": "Install gke-gcloud-auth-plugin for use with kubectl",
            "provideClusterInfo": True,
        }
    },
    "aks": {
        "exec": {
            "apiVersion": EXEC,
            "command": "kubelogin",
            "args": ["get-token", "--environment", "AzurePublicCloud", "--server-id", "s", "--login", "azurecli"],
            "env": None,
            "interactiveMode": "IfAvailable",
            "provideClusterInfo": False,
        }
    },
    "tokenFile": {"tokenFile": "token"},
}


@contextmanager
def server(kind: str, folder: Path) -> Iterator[Path]:
    """The kubeconfig of the administrator of a server that knows TOKEN."""
    if kind == "allot":
        with ServerProcess("memory", folder, tokens=ADMINISTRATOR) as running:
            yield running.kubeconfig
        return
    tokens = folder / "tokens.csv"
    tokens.write_text(ADMINISTRATOR)
    with kube_apiserver(folder, NO_ACCOUNTS, f"--token-auth-file={tokens}") as kubeconfig:
        yield kubeconfig


def plugin(folder: Path, name: str) -> None:
    """A vendor's program: prints a credential, and notes how it was called."""
    credential = {"apiVersion": EXEC, "kind": "ExecCredential", "spec": {}, "status": {"token": TOKEN}}
    path = folder / name
    noted = f'echo "$@" > {folder}/{name}.called; printf %s "$KUBERNETES_EXEC_INFO" > {folder}/{name}.info'
    path.write_text(f"#!/bin/sh\n{noted}\n/bin/cat <<'END'\n{json.dumps(credential)}\nEND\n")
    path.chmod(0o700)


def devices(kubeconfig: Path) -> Result:
    """`allot top devices` with a kubeconfig."""
    return allot("top", "devices", "-o", "json", "--kubeconfig", str(kubeconfig))


@pytest.mark.parametrize("kind", ["allot", "kube-apiserver"])
def test_kubeconfigs_of_vendors_work(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    programs = tmp_path / "programs"
    programs.mkdir()
    for user in USERS.values():
        if "exec" in user:
            plugin(programs, user["exec"]["command"])
    with server(kind, tmp_path) as kubeconfig:
        # Never the machine's own programs.
        monkeypatch.setenv("PATH", str(programs))
        written = yaml.safe_load(kubeconfig.read_text())
        # kubeadm writes certificate and key into the file, as the tests' own administrator has it.
        assert devices(kubeconfig).code == 0
        admin = written["users"][0]["user"]
        # AKS gives administrators a certificate and a token at once.
        users = {**USERS, "aks-admin": {**admin, "token": TOKEN}}
        # A kubelet's own: one file that is replaced when the certificate is.
        both = tmp_path / "kubelet-client-current.pem"
        both.write_bytes(b"".join(base64.b64decode(admin[f"client-{part}-data"]) for part in ("certificate", "key")))
        users["kubelet"] = {"client-certificate": str(both), "client-key": str(both)}
        written["users"] = [{"name": name, "user": user} for name, user in users.items()]
        for name in users:
            written["contexts"][0]["context"]["user"] = name
            file = tmp_path / f"{name}.kubeconfig"
            file.write_text(yaml.safe_dump(written))
            done = devices(file)
            assert done.code == 0, f"{name}: {done.stderr}"
    assert (
        programs / "aws.called"
    ).read_text() == "--region eu-west-1 eks get-token --cluster-name demo --output json\n"
    info = json.loads((programs / "gke-gcloud-auth-plugin.info").read_text())
    assert info["spec"]["cluster"]["server"].startswith("https://")


def test_a_vendors_program_that_is_not_there_is_named_with_its_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "gke"}}
    file = tmp_path / "kubeconfig"
    users = [{"name": "gke", "user": USERS["gke"]}]
    file.write_text(
        yaml.safe_dump({"clusters": [cluster], "contexts": [context], "users": users, "current-context": "c"})
    )
    done = devices(file)
    assert done.code == 3
    assert "gke-gcloud-auth-plugin" in done.stderr
    assert "Install gke-gcloud-auth-plugin for use with kubectl" in done.stderr


class Joined:
    """A kube-apiserver whose kubelet client certificate is of another authority, and a node with a certificate of the cluster's."""

    def __init__(self, folder: Path, kubeconfig: Path, kubelet_ca: Path) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.kubelet_ca = kubelet_ca
        self.caller: Caller = caller_of(kubeconfig)
        authority = Certificates(folder / "pki", SystemClock(), ("127.0.0.1", "localhost"))
        pair = authority.client("node", Identity(f"system:node:{NODE}", ("system:nodes",)))
        self.node_kubeconfig = folder / "node.kubeconfig"
        url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        write_kubeconfig(self.node_kubeconfig, url, authority.authority.pem, pair.certificate, pair.key, "node")

    @contextmanager
    def agent(self, name: str, *options: str) -> Iterator[Component]:
        logs = self.folder / name
        logs.mkdir()
        arguments = ["-m", "allot", "node", "--kubeconfig", str(self.node_kubeconfig), "--name", NODE, "--port=0"]
        arguments += ["--root-dir", str(self.folder / "root"), "--node-ip=127.0.0.1", *options]
        with Component(Path(sys.executable), arguments, logs) as running:
            yield running

    def pod(self, name: str, **spec: Any) -> None:
        """Started by name."""
        container = {
            "name": "main",
            "image": "none",
            "command": ["sh", "-c", "echo hello; sleep 600"],
            **spec.pop("container", {}),
        }
        whole = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
        self.caller.create("/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": whole})

    def found(self, name: str) -> Any:
        return self.caller.get(f"/api/v1/namespaces/default/pods/{name}")

    def delete(self, name: str) -> None:
        assert (
            self.caller.send("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})[0] == 200
        )


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Joined]:
    folder = tmp_path_factory.mktemp("j")
    other = Certificates(folder / "kubelet-pki", SystemClock())
    other.client("kubelet-client", KUBELET_CLIENT)
    options = [f"--kubelet-client-{part}={other.directory}/kubelet-client.{end}" for part, end in (("certificate", "crt"), ("key", "key"))]  # fmt: skip
    with kube_apiserver(folder, NO_ACCOUNTS, *options) as kubeconfig:
        yield Joined(folder, kubeconfig, other.ca_file)


def test_a_node_joins_with_a_certificate_of_the_clusters_authority_and_serves_the_api_server(joined: Joined) -> None:
    binaries = find_kubectls()
    if not binaries:
        pytest.skip(MISSING)
    kubectl = Kubectl(next(iter(binaries.values())), joined.kubeconfig, joined.folder, "default")
    with joined.agent("without") as agent:
        agent.wait_for("the node", lambda: joined.caller.get(f"/api/v1/nodes/{NODE}"))
        joined.pod("named")
        agent.wait_for("the pod", lambda: joined.found("named")["status"].get("phase") == "Running" or None)
        # The API server shows a certificate of an authority that the agent does not know.
        kubectl.fails("logs", "named")
        told = agent.wait_for(
            "it is told", lambda: agent.log() if "certificate does not count" in agent.log() else None
        )
        assert "name the authority of its --kubelet-client-certificate here, with --client-ca-file" in told
    with joined.agent("with", "--client-ca-file", str(joined.kubelet_ca)) as agent:
        agent.wait_for("the log", lambda: kubectl.run("logs", "named").stdout == "hello\n" or None)
        assert kubectl("exec", "named", "--", "echo", "inside") == "inside\n"
        joined.delete("named")
        # Programs outlive the agent.
        sandboxes = joined.folder / "root" / "runtime" / "sandboxes"
        agent.wait_for("the end of the pod", lambda: not list(sandboxes.iterdir()) or None)


def test_an_api_server_without_a_certificate_is_told_what_it_lacks(joined: Joined) -> None:
    """What it shows then is nothing, as anybody else may."""
    with joined.agent("bare") as agent:
        agent.wait_for("it serves", lambda: "serving https" in agent.log() or None)
        port = agent.log().split("serving https://127.0.0.1:")[1].split()[0]
        command = ["curl", "-sk", "-w", " %{http_code}", f"https://127.0.0.1:{port}/containerLogs/default/named/main"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.stdout.endswith(" 401")
        assert "expected a client certificate of the cluster's authority, or a bearer token" in done.stdout
        assert "--kubelet-client-certificate" in agent.log() and "--client-ca-file" in agent.log()


def test_pods_that_are_started_by_name_count_for_the_scheduler_beside(joined: Joined) -> None:
    caller, place = joined.caller, "/namespaces/default"
    add_node(caller, "beside")
    caller.create(f"{RESOURCE}/deviceclasses", device_class("named-gpu"))
    caller.create(f"{RESOURCE}/resourceslices", device_slice("beside"))
    caller.create(f"{RESOURCE}{place}/resourceclaims", {"metadata": {"name": "gpu"}, "spec": claim_spec("named-gpu")})
    logs = joined.folder / "scheduler"
    logs.mkdir()
    options = ["--kubeconfig", str(joined.kubeconfig), "--port=-1", "--no-leader-elect"]
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    uses = {"resources": {"claims": [{"name": "gpu"}], "requests": {"cpu": "1"}}}
    with (
        Component(Path(sys.executable), ["-m", "allot", "scheduler", *options], logs) as scheduler,
        Component(
            Path(sys.executable),
            ["-m", "allot", "controllers", "--controllers=resourceclaim-controller", *options],
            joined.folder,
        ) as _,
    ):
        # Six of eight processors are taken by name.
        joined.pod("taker", nodeName="beside", container={"resources": {"requests": {"cpu": "6"}}})
        joined.pod("asker", nodeName="", container={"resources": {"requests": {"cpu": "4"}}})
        joined.pod("first", nodeName="", container=uses, **claims)
        scheduler.wait_for("what fits is bound", lambda: joined.found("first")["spec"].get("nodeName"))

        def told() -> str | None:
            conditions = joined.found("asker")["status"].get("conditions") or ()
            return next((each["message"] for each in conditions if each["status"] == "False"), None)

        assert "Insufficient cpu" in scheduler.wait_for("the other is told", told)
        # By name with a claim that is allocated: it is reserved by the claim controller.
        joined.pod("second", nodeName="beside", container=uses, **claims)

        def users() -> set[str]:
            claim = caller.get(f"{RESOURCE}{place}/resourceclaims/gpu")
            return {each["name"] for each in claim["status"].get("reservedFor") or ()}

        scheduler.wait_for("both have the claim", lambda: users() == {"first", "second"} or None)
        # By name with one that is not: nobody allocates it, and explain says so.
        caller.create(
            f"{RESOURCE}{place}/resourceclaims", {"metadata": {"name": "free"}, "spec": claim_spec("named-gpu")}
        )
        joined.pod(
            "third", nodeName="beside", container=uses, resourceClaims=[{"name": "gpu", "resourceClaimName": "free"}]
        )
        command = [sys.executable, "-m", "allot", "explain", "third", "--kubeconfig", str(joined.kubeconfig)]
        told_by = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False).stdout
        sys.stdout.write(told_by)
        assert "free" in told_by and "nodeName" in told_by
    for name in ("taker", "asker", "first", "second", "third"):
        joined.delete(name)
