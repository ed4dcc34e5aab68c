"""A cluster of Kubernetes' own on this machine, with one node that runs containers: kube-apiserver, kube-controller-manager, kube-scheduler
and kubelet from KUBEBUILDER_ASSETS, the project's containerd; or the kubelet alone, on a control plane of allot's. Needs root.

There is no kube-proxy: pods find the API server by an address of this machine that is only used here, and the API server finds
webhooks by their EndpointSlices (--enable-aggregator-routing).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml

from allot.apiserver.access.certificates import Certificates, Identity
from allot.apiserver.access.kubeconfig import write_kubeconfig
from allot.process.clock import SystemClock
from containerd_server import ContainerdServer, unmount_below, why_not
from e2e.components import Caller, Component, component, gates
from e2e.kube_cluster import caller_of, kube_apiserver
from e2e.kubectl import MISSING, Kubectl, find_kubectls
from e2e.servers import ServerProcess

NODE = "real"


class RealNode:
    """What tests need to know of it."""

    def __init__(
        self, folder: Path, kubeconfig: Path, address: str, containerd: ContainerdServer, kubelet: Component
    ) -> None:
        self.folder = folder
        self.kubeconfig = kubeconfig
        self.address = address
        self.containerd = containerd
        self.kubelet = kubelet
        self.root = folder / "kubelet"
        self.caller: Caller = caller_of(kubeconfig)
        self.port = int(yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"].rpartition(":")[2])
        self.kubectl = Kubectl(next(iter(find_kubectls().values())), kubeconfig, folder, "default")


@contextmanager
def real_node() -> Iterator[RealNode]:
    """The whole; skipped where something is missing."""
    binaries = _binaries("kube-controller-manager", "kube-scheduler", "kubelet")
    with ExitStack() as stack:
        folder, containerd, address = stack.enter_context(_machine())
        options = (f"--bind-address={address}", f"--advertise-address={address}", "--enable-aggregator-routing=true")
        kubeconfig = stack.enter_context(kube_apiserver(folder, *options, address=address))
        manager, scheduler = binaries["kube-controller-manager"], binaries["kube-scheduler"]
        arguments = [
            *("--kubeconfig", str(kubeconfig), "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=500"),
            *(f"--root-ca-file={folder}/pki/ca.crt", f"--service-account-private-key-file={folder}/pki/sa.key"),
            *gates(manager),
        ]
        stack.enter_context(Component(manager, arguments, folder))
        delegated = [f"--{use}-kubeconfig={kubeconfig}" for use in ("authentication", "authorization")]
        arguments = ["--kubeconfig", str(kubeconfig), "--secure-port=0", *delegated, *gates(scheduler)]
        stack.enter_context(Component(scheduler, arguments, folder))
        authority = Certificates(folder / "pki", SystemClock(), ("127.0.0.1", "localhost", address))
        yield stack.enter_context(_kubelet(binaries["kubelet"], folder, kubeconfig, authority, address, containerd))


@contextmanager
def kubelet_on_allot() -> Iterator[RealNode]:
    """A real kubelet with containerd on a control plane of allot's: API server, scheduler and controllers as processes."""
    binaries = _binaries("kubelet")
    with ExitStack() as stack:
        folder, containerd, address = stack.enter_context(_machine())
        kubeconfig = stack.enter_context(ServerProcess("sqlite", folder)).kubeconfig
        for part in ("scheduler", "controllers"):
            logs = folder / part
            logs.mkdir()
            arguments = ["-m", "allot", part, "--kubeconfig", str(kubeconfig), "--port=-1", "--no-leader-elect"]
            stack.enter_context(Component(Path(sys.executable), arguments, logs))
        authority = Certificates(folder / "data" / "pki", SystemClock(), ())
        yield stack.enter_context(_kubelet(binaries["kubelet"], folder, kubeconfig, authority, address, containerd))


def _binaries(*names: str) -> dict[str, Path]:
    if reason := why_not():
        pytest.skip(reason)
    if not find_kubectls():
        pytest.skip(MISSING)
    return {name: component(name) for name in names}


@contextmanager
def _machine() -> Iterator[tuple[Path, ContainerdServer, str]]:
    """A folder, a containerd whose pods reach the machine, and an address of the machine for the node."""
    # Sockets below it must have short names.
    folder = Path(tempfile.mkdtemp(prefix="allot-real-"))
    (folder / "containerd").mkdir()
    # Ours is a large image, which would be copied for each container.
    has_overlays = "\toverlay\n" in Path("/proc/filesystems").read_text()
    containerd = ContainerdServer(folder / "containerd", "overlayfs" if has_overlays else "native")
    # There is nothing else that could route.
    network = folder / "containerd/net.d/10-test.conflist"
    found = json.loads(network.read_text())
    found["plugins"][0]["ipam"]["routes"] = [{"dst": "0.0.0.0/0"}]
    network.write_text(json.dumps(found))
    with ExitStack() as stack:
        stack.callback(containerd.clean, folder)
        stack.callback(unmount_below, folder)
        stack.callback(containerd.kill)
        containerd.start()
        containerd.import_image()
        stack.callback(containerd.remove_containers)
        yield folder, containerd, stack.enter_context(_address())


@contextmanager
def _kubelet(
    binary: Path, folder: Path, kubeconfig: Path, authority: Certificates, address: str, containerd: ContainerdServer
) -> Iterator[RealNode]:
    arguments = _kubelet_arguments(folder, kubeconfig, authority, address, containerd)
    with Component(binary, arguments, folder) as kubelet:
        made = RealNode(folder, kubeconfig, address, containerd, kubelet)
        kubelet.wait_for("the node is ready", lambda: _is_ready(made.caller) or None)
        yield made


@contextmanager
def _address() -> Iterator[str]:
    """An address of this machine that nothing else uses, for as long as the block lasts."""
    address = f"10.218.{os.getpid() % 250 + 1}.1"
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    try:
        yield address
    finally:
        subprocess.run(["ip", "address", "del", f"{address}/32", "dev", "lo"], check=True)


def _kubelet_arguments(
    folder: Path, kubeconfig: Path, authority: Certificates, address: str, containerd: ContainerdServer
) -> list[str]:
    pair = authority.client("node", Identity(f"system:node:{NODE}", ("system:nodes",)))
    own = folder / "node.kubeconfig"
    url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    write_kubeconfig(own, url, authority.authority.pem, pair.certificate, pair.key, "node")
    configuration = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": str(authority.ca_file)}},
        "address": address,
        # Nested machines with control groups of version 1.
        "failCgroupV1": False,
        "failSwapOn": False,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": f"unix://{containerd.socket}",
        "podLogsDir": str(folder / "pod-logs"),
        "healthzPort": 0,
        "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%"},
        "localStorageCapacityIsolation": False,
        "resolvConf": "",
    }
    file = folder / "kubelet.yaml"
    file.write_text(yaml.safe_dump(configuration))
    return [
        *(
            "--config",
            str(file),
            "--kubeconfig",
            str(own),
            f"--root-dir={folder}/kubelet",
            f"--hostname-override={NODE}",
        ),
        *(f"--node-ip={address}", f"--cert-dir={folder}/kubelet-pki"),
    ]


def _is_ready(caller: Caller) -> bool:
    node = caller.get(f"/api/v1/nodes/{NODE}") or {"status": {}}
    conditions = node["status"].get("conditions") or ()
    is_ready = any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
    return is_ready and not node["spec"].get("taints")
