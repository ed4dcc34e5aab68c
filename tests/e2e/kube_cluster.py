"""Clusters in which one part is Kubernetes' own: kube-apiserver as kubeadm sets it up, or kube-controller-manager; allot is the rest.

kube-apiserver has an authority, a kubelet client certificate and an RSA key for service accounts; `allot controllers`, `allot scheduler`
and `allot node` with three simulated nodes reach it with kubeconfigs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from allot.apiserver.access.certificates import ADMIN, Certificates, Identity
from allot.apiserver.access.kubeconfig import write_kubeconfig
from allot.core.workloads.folder_volumes import storage_class
from allot.process.clock import SystemClock
from e2e.components import Caller, Component, component, gates
from e2e.kubectl import MISSING, Kubectl, find_kubectls
from e2e.servers import ServerProcess, client_context
from etcd_server import MISSING as NO_ETCD
from etcd_server import EtcdServer, find_etcd
from ports import free_port

NODES = {"t4-0", "t4-1", "t4-2"}
# For clusters in which nobody makes service accounts.
NO_ACCOUNTS = "--disable-admission-plugins=ServiceAccount"
KUBELET_CLIENT = Identity("kube-apiserver-kubelet-client", ("system:masters",))  # as kubeadm has it


def caller_of(kubeconfig: Path) -> Caller:
    """Requests as the user of a kubeconfig with a client certificate."""
    server: str = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    return Caller(server, client_context(kubeconfig))


def rsa_key() -> bytes:
    """A new RSA key in the form that kubeadm writes."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


@contextmanager
def kube_apiserver(folder: Path, *options: str, etcd_address: str = "", address: str = "127.0.0.1") -> Iterator[Path]:
    """A real kube-apiserver, as kubeadm sets it up, on an etcd of its own unless one is named; the kubeconfig of its administrator.

    address: where it is; the options have to say it too if it is another one."""
    binary = component("kube-apiserver")
    if find_etcd() is None:
        pytest.skip(NO_ETCD)
    pki, kubeconfig, port = folder / "pki", folder / "admin.kubeconfig", free_port()
    certificates = Certificates(pki, SystemClock(), ("127.0.0.1", "localhost", address))
    certificates.client("kubelet-client", KUBELET_CLIENT)
    (pki / "sa.key").write_bytes(rsa_key())
    admin = certificates.client("admin", ADMIN)
    url = f"https://{address}:{port}"
    write_kubeconfig(kubeconfig, url, certificates.authority.pem, admin.certificate, admin.key, "admin")
    with ExitStack() as stack:
        etcd_address = etcd_address or stack.enter_context(EtcdServer(folder)).address
        arguments = [
            *("--etcd-servers", etcd_address, "--secure-port", str(port), "--bind-address=127.0.0.1"),
            *(f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key"),
            *(f"--client-ca-file={certificates.ca_file}", "--authorization-mode=Node,RBAC"),
            *("--enable-admission-plugins=NodeRestriction", "--allow-privileged"),
            "--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
            *(
                f"--kubelet-client-certificate={pki}/kubelet-client.crt",
                f"--kubelet-client-key={pki}/kubelet-client.key",
            ),
            *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={pki}/sa.key"),
            *(f"--service-account-signing-key-file={pki}/sa.key", "--service-cluster-ip-range=10.96.0.0/16"),
            *gates(binary),
            *options,
        ]
        running = stack.enter_context(Component(binary, arguments, folder))
        caller = caller_of(kubeconfig)
        # The roles of controllers are made after it is ready.
        role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:controller:job-controller"
        running.wait_for("kube-apiserver has its roles", lambda: caller.get(role))
        yield kubeconfig


@contextmanager
def kube_cluster() -> Iterator[Path]:
    """A kube-apiserver with allot around it and three nodes, a T4 each; the kubeconfig of its administrator."""
    with tempfile.TemporaryDirectory(prefix="k-") as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = stack.enter_context(kube_apiserver(folder))
        key = f"--service-account-private-key-file={folder}/pki/sa.key"
        stack.enter_context(_furnished(folder, kubeconfig, "--beside-kube-controller-manager=no", key))
        yield kubeconfig


@contextmanager
def kube_managed_cluster() -> Iterator[Path]:
    """The same around allot's API server with a real kube-controller-manager; allot has only the controllers that it lacks."""
    manager = component("kube-controller-manager")
    with tempfile.TemporaryDirectory(prefix="m-") as name, ExitStack() as stack:
        folder = Path(name)
        kubeconfig = stack.enter_context(ServerProcess("memory", folder)).kubeconfig
        pki = folder / "data" / "pki"
        arguments = [
            *(
                f"--kubeconfig={kubeconfig}",
                "--leader-elect=false",
                "--secure-port=0",
                "--use-service-account-credentials",
            ),
            *(f"--root-ca-file={pki}/ca.crt", f"--service-account-private-key-file={pki}/sa.key"),
            *("--kube-api-qps=500", "--kube-api-burst=500", *gates(manager)),
        ]
        stack.enter_context(Component(manager, arguments, folder))
        stack.enter_context(_furnished(folder, kubeconfig, "--beside-kube-controller-manager=yes"))
        yield kubeconfig


@contextmanager
def _furnished(folder: Path, kubeconfig: Path, *options: str) -> Iterator[None]:
    """Controllers with these options, scheduler, three nodes and the default storage class."""
    binaries = find_kubectls()
    if not binaries:
        pytest.skip(MISSING)
    Kubectl(next(iter(binaries.values())), kubeconfig, folder, "default").apply(
        msgspec.json.encode(storage_class()).decode()
    )
    parts = {
        "controllers": (*options, "--volume-folder", str(folder / "volumes"), "--port=-1"),
        "scheduler": ("--no-leader-elect", "--port=-1"),
        "node": (
            *("--runtime", "simulated", "--profile", "t4", "--count", "3", "--name", "t4", "--port=0"),
            *("--node-ip=127.0.0.1", "--root-dir", str(folder / "nodes")),
        ),
    }
    with ExitStack() as stack:
        for part, own in parts.items():
            logs = folder / part
            logs.mkdir()
            arguments = ["-m", "allot", part, "--kubeconfig", str(kubeconfig), *own]
            running = stack.enter_context(Component(Path(sys.executable), arguments, logs))
        caller = caller_of(kubeconfig)
        running.wait_for("three nodes are ready", lambda: _ready_nodes(caller) == NODES or None)
        yield


def _ready_nodes(caller: Caller) -> set[str]:
    nodes = (caller.get("/api/v1/nodes") or {"items": []})["items"]
    return {node["metadata"]["name"] for node in nodes if _is_ready(node) and not node["spec"].get("taints")}


def _is_ready(node: Any) -> bool:
    return any((each["type"], each["status"]) == ("Ready", "True") for each in node["status"].get("conditions") or ())
