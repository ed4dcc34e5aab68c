"""`allot install` and `uninstall` on a real kube-apiserver with kube-controller-manager (KUBEBUILDER_ASSETS): every object is taken, programs
have the rights they need and drivers no more than their node's, and nothing is left behind.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from allot.autoscaler.provider import State
from autoscaler.test_external_grpc import provider_process
from cli.command import Result, allot
from dashboard.browser import chromium, find_chromium
from e2e.components import Caller, Component, component, gates
from e2e.kube_cluster import caller_of, kube_apiserver
from e2e.servers import client_context
from e2e.test_components import RESOURCE, add_node, claim_spec
from ports import free_port
from waiting import WAIT_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

NAMESPACE = "allot-system"
PLACE = f"/namespaces/{NAMESPACE}"
SLICES = f"{RESOURCE}/resourceslices"


class Cluster:
    """A control plane of Kubernetes' own, without nodes that run anything."""

    def __init__(self, kubeconfig: Path, folder: Path) -> None:
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.caller = caller_of(kubeconfig)

    def run(self, *arguments: str) -> Result:
        return allot(*arguments, "--kubeconfig", str(self.kubeconfig))

    def install(self, *arguments: str) -> Result:
        done = self.run("install", *arguments, "--no-wait")
        assert done.code == 0, done.stderr
        return done

    def uninstall(self, *arguments: str) -> None:
        done = self.run("uninstall", *arguments)
        assert done.code == 0, done.stderr

    def everything(self) -> set[str]:
        """All objects that people could have made, and leases and endpoints of programs."""
        done = self.run("export", "--system", "--secrets", "--finished", "-o", "json")
        found = {
            f"{each['kind']} {each['metadata'].get('namespace', '')}/{each['metadata']['name']}" for each in done.lines
        }
        for path in ("/apis/coordination.k8s.io/v1/leases", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/pods"):
            listed = self.caller.get(path)["items"]
            found |= {f"{path} {each['metadata']['namespace']}/{each['metadata']['name']}" for each in listed}
        return found

    def token(self, account: str, pod: str = "") -> str:
        """A token of an account, bound to a pod if one is named."""
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod:
            uid = self.caller.get(f"/api/v1{PLACE}/pods/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
        path = f"/api/v1{PLACE}/serviceaccounts/{account}/token"
        token: str = self.caller.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})["status"]["token"]  # fmt: skip
        return token

    def as_account(self, account: str, pod: str = "") -> Path:
        """A kubeconfig with nothing but an account's token."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": self.token(account, pod)}
        path = self.folder / f"{account}{pod}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def pod(self, name: str, account: str, node: str) -> None:
        spec = {"serviceAccountName": account, "nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        self.caller.create(f"/api/v1{PLACE}/pods", {"metadata": {"name": name}, "spec": spec})

    @contextmanager
    def program(self, name: str, module: list[str], *arguments: str) -> Iterator[Component]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        with Component(Path(sys.executable), ["-m", *module, *arguments], folder) as running:
            yield running

    def arguments(self, deployment: str) -> list[str]:
        """What the chart gives a program, without addresses and ports of pods."""
        found = self.caller.get(f"/apis/apps/v1{PLACE}/deployments/{deployment}")
        given: list[str] = found["spec"]["template"]["spec"]["containers"][0]["args"]
        own = (
            "--bind-address",
            "--port",
            "--webhook-bind-address",
            "--webhook-port",
            "--webhook-endpoint-address",
            "--config",
        )
        return [each for each in given if each.partition("=")[0] not in own]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("i")
    with ExitStack() as stack:
        manager = component("kube-controller-manager")
        kubeconfig = stack.enter_context(kube_apiserver(folder))
        arguments = [
            *("--kubeconfig", str(kubeconfig), "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500"),
            *(f"--root-ca-file={folder}/pki/ca.crt", f"--service-account-private-key-file={folder}/pki/sa.key"),
            *("--kube-api-burst=500", "--controllers=*,-node-lifecycle-controller", *gates(manager)),
        ]
        running = stack.enter_context(Component(manager, arguments, folder))
        made = Cluster(kubeconfig, folder)
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        running.wait_for("accounts", lambda: made.caller.get(account))
        for node in ("a", "b"):
            add_node(made.caller, node)
        yield made


def test_every_part_is_taken_brought_up_to_date_and_removed(cluster: Cluster) -> None:
    before = cluster.everything()
    cluster.install("drivers", "gpu", "amd", "nic", "cpu", "tpu")
    cluster.install("scheduler")
    cluster.install("guard")
    cluster.install("advice", "--aggregate-to-view")
    cluster.install("queues")
    cluster.install("autoscaler", "--address", "provider:8086")
    assert "Secret allot-system/allot-dashboard-session: made" in cluster.install("dashboard").stderr
    key = cluster.caller.get(f"/api/v1{PLACE}/secrets/allot-dashboard-session")["data"]["key"]
    assert len(base64.b64decode(base64.b64decode(key))) == 48
    # Another key would end all sessions.
    cluster.install("dashboard")
    assert cluster.caller.get(f"/api/v1{PLACE}/secrets/allot-dashboard-session")["data"]["key"] == key
    again = cluster.install("scheduler")
    assert "Deployment allot-system/allot-scheduler: unchanged" in again.stderr
    assert "pods with schedulerName: allot" in again.stdout
    # Drivers that are no longer wanted go, and with them all that was theirs.
    fewer = cluster.install("drivers", "gpu", "--set", "drivers.gpu.port=50000")
    assert "DaemonSet allot-system/allot-gpu: changed" in fewer.stderr
    assert "DaemonSet allot-system/allot-tpu: removed, because it is no longer needed" in fewer.stderr
    assert cluster.caller.get(f"{RESOURCE}/deviceclasses/dra.cpu") is None
    cluster.uninstall("--definitions")
    assert cluster.everything() - before == set()
    nothing = cluster.run("uninstall")
    assert nothing.code == 1 and "release 'allot' has no objects in namespace 'allot-system'" in nothing.stderr


def test_what_belongs_to_somebody_else_is_not_touched(cluster: Cluster) -> None:
    expression = {"cel": {"expression": 'device.driver == "theirs.example.com"'}}
    theirs = {"metadata": {"name": "dra.cpu"}, "spec": {"selectors": [expression]}}
    cluster.caller.create(f"{RESOURCE}/deviceclasses", theirs)
    before = cluster.everything()
    done = cluster.run("install", "drivers", "cpu")
    assert done.code == 1
    assert "already exist, but not from release 'allot': DeviceClass dra.cpu (not ours)" in done.stderr
    assert cluster.everything() == before
    cluster.caller.send("DELETE", f"{RESOURCE}/deviceclasses/dra.cpu")


def test_what_does_not_run_is_named_with_its_reason(cluster: Cluster) -> None:
    done = cluster.run("install", "scheduler", "--timeout", "3s", "--set", "scheduler.replicas=1")
    assert done.code == 1
    assert "Deployment allot-system/allot-scheduler: 0 of 1 pods are available" in done.stderr
    cluster.uninstall()


def test_an_instance_of_a_driver_writes_the_slices_of_its_own_node(cluster: Cluster) -> None:
    cluster.install("drivers", "gpu", "--simulate", "t4")
    cluster.pod("driver-a", "allot-gpu", "a")
    as_driver = cluster.as_account("allot-gpu", "driver-a")
    url, context = (
        yaml.safe_load(as_driver.read_text())["clusters"][0]["cluster"]["server"],
        client_context(as_driver, certificate=False),
    )
    driver = Caller(url, context, {"Authorization": f"Bearer {cluster.token('allot-gpu', 'driver-a')}"})
    unbound = Caller(url, context, {"Authorization": f"Bearer {cluster.token('allot-gpu')}"})

    def slice_of(node: str, **more: Any) -> dict[str, Any]:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": node, "devices": [], **more}
        return {
            "metadata": {"name": f"{node}-slice"},
            "spec": {key: value for key, value in spec.items() if value is not None},
        }

    def judged() -> bool:
        # Servers hear of policies by a watch.
        return driver.send("POST", f"{SLICES}?dryRun=All", slice_of("b"))[0] == 422

    with cluster.program("none", ["http.server", "0"]) as waiting:
        waiting.wait_for("the policy counts", lambda: judged() or None)
    status, answer = driver.send("POST", SLICES, slice_of("b"))
    assert status == 422 and "this user is on node 'a' and may not change ResourceSlices of node 'b'" in answer
    assert driver.send("POST", SLICES, slice_of("a"))[0] == 201
    assert driver.send("POST", SLICES, slice_of("a", nodeName=None, allNodes=True))[0] == 422
    status, answer = unbound.send("POST", SLICES, slice_of("a"))
    assert status == 422 and "names no node" in answer
    cluster.caller.create(SLICES, slice_of("b"))
    assert driver.send("DELETE", f"{SLICES}/b-slice")[0] == 422
    assert driver.send("DELETE", f"{SLICES}/a-slice")[0] == 200
    # The real one, with that token alone: it publishes and may do all that it tries.
    place = cluster.folder / "kubelet"
    (place / "plugins_registry").mkdir(parents=True)
    own = ["--kubelet-root", str(place), "--cdi-dir", str(place / "cdi"), "--profile=t4", "--node-name=a", "--port=-1"]
    with cluster.program("driver", ["allot.devices.gpu"], *own, "--kubeconfig", str(as_driver)) as running:

        def published() -> Any:
            slices = cluster.caller.get(SLICES)["items"]
            return [each for each in slices if each["spec"]["nodeName"] == "a" and each["spec"].get("devices")] or None

        running.wait_for("its slice", published)
        assert "orbidden" not in running.log()
    for each in cluster.caller.get(SLICES)["items"]:
        cluster.caller.send("DELETE", f"{SLICES}/{each['metadata']['name']}")
    cluster.caller.send("DELETE", f"/api/v1{PLACE}/pods/driver-a", {"gracePeriodSeconds": 0})
    cluster.uninstall()


def test_programs_have_the_rights_that_they_need(cluster: Cluster) -> None:
    """The scheduler decides, the guard judges, and the controllers of queues start, each with its account alone."""
    cluster.install("guard")
    cluster.install("queues")
    refused = cluster.run("uninstall", "drivers")
    assert refused.code == 1, "nothing of that part is there"
    with ExitStack() as stack:
        endpoint = ["--webhook-bind-address=127.0.0.1", "--webhook-port=0", "--port=-1"]
        options = [each for each in cluster.arguments("allot-guard")[1:] if not each.startswith("--webhook-service")]
        guard_account = str(cluster.as_account("allot-guard"))
        guard = stack.enter_context(
            cluster.program("guard", ["allot", "guard"], *options, *endpoint, "--kubeconfig", guard_account)
        )
        guard.wait_for("it decides", lambda: "deciding at" in guard.log() or None)
        cluster.install("scheduler", "--isolation", "guard")
        kept = cluster.run("uninstall", "guard")
        assert (
            kept.code == 1 and "Deployment allot-system/allot-scheduler shares nodes with kube-scheduler" in kept.stderr
        )
        configuration = cluster.caller.get(f"/api/v1{PLACE}/configmaps/allot-scheduler")["data"]["scheduler.yaml"]
        file = cluster.folder / "scheduler.yaml"
        file.write_text(configuration)
        options = [*cluster.arguments("allot-scheduler")[1:], "--config", str(file), "--port=-1"]
        account = str(cluster.as_account("allot-scheduler"))
        scheduler = stack.enter_context(
            cluster.program("scheduler", ["allot", "scheduler"], *options, "--kubeconfig", account)
        )
        scheduler.wait_for("it is ready", lambda: "ready" in scheduler.log() or None)
        options = [*cluster.arguments("allot-queues")[1:], "--port=-1"]
        account = str(cluster.as_account("allot-queues"))
        queues = stack.enter_context(
            cluster.program("queues", ["allot", "controllers"], *options, "--kubeconfig", account)
        )
        _schedule_a_pod(cluster, scheduler)
        queues.wait_for("they lead", lambda: "held by" in queues.log() or None)
        for program in (guard, scheduler, queues):
            assert "orbidden" not in program.log(), program.log()
    cluster.uninstall("--definitions", "--force")


def test_the_autoscaler_has_the_rights_that_it_needs(cluster: Cluster) -> None:
    """It buys a node for a pod that waits, evicts what is on it when nobody needs it, and removes it: with its account alone."""
    caller, merge = cluster.caller, "application/merge-patch+json"
    pods, owner = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/replicasets"
    state = cluster.folder / "cloud"
    state.mkdir()

    def machines() -> list[str]:
        kept = state / "cloud.json"
        found = json.loads(kept.read_text())["machines"] if kept.exists() else {}
        return [name for name, machine in found.items() if machine["state"] != State.DELETING]

    def cordon(is_cordoned: bool) -> None:
        for node in ("a", "b"):
            caller.send("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": is_cordoned or None}}, merge)

    cluster.install("queues")
    with ExitStack() as stack:
        cluster.install("autoscaler", "--address", stack.enter_context(provider_process(state)))
        file = cluster.folder / "cloud.yaml"
        file.write_text(caller.get(f"/api/v1{PLACE}/configmaps/allot-autoscaler")["data"]["cloud.yaml"])
        given = [each for each in cluster.arguments("allot-autoscaler")[1:] if not each.startswith("--cloud-config")]
        quick = ["--scan-interval=1s", "--scale-down-unneeded-time=1s", "--scale-down-delay-after-add=0s"]
        options = [*given, *quick, "--cloud-config", str(file), "--port=-1"]
        account = str(cluster.as_account("allot-autoscaler"))
        running = stack.enter_context(
            cluster.program("autoscaler", ["allot", "autoscaler"], *options, "--kubeconfig", account)
        )
        # Where the others are closed, a pod waits, as a scheduler would say.
        cordon(True)
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        caller.create(pods, {"metadata": {"name": "waits"}, "spec": {"containers": [container]}})
        waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        caller.send("PATCH", f"{pods}/waits/status", {"status": {"conditions": [waiting]}}, merge)
        (name,) = running.wait_for("a machine is bought", lambda: machines() or None)
        events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=waits"

        def told() -> Any:
            return [each for each in caller.get(events)["items"] if each["reason"] == "TriggeredScaleUp"] or None

        running.wait_for("the pod is told", told)
        status = f"/api/v1{PLACE}/configmaps/cluster-autoscaler-status"
        running.wait_for("the status is written", lambda: caller.get(status))
        # Its node comes, with a pod that could be elsewhere; and the one that waited goes.
        add_node(caller, name)
        caller.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"providerID": f"simulated://cpu/{name}"}}, merge)
        caller.send("DELETE", f"{pods}/waits", {"gracePeriodSeconds": 0})
        template = {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0}
        labels = {"app": "small"}
        spec = {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": template}}
        caller.create(owner, {"metadata": {"name": "small"}, "spec": spec})
        small = running.wait_for("its pod", lambda: caller.get(f"{pods}?labelSelector=app=small")["items"] or None)[0]
        place = {"metadata": {"name": small["metadata"]["name"]}, "target": {"kind": "Node", "name": name}}
        caller.create(f"{pods}/{small['metadata']['name']}/binding", {"apiVersion": "v1", "kind": "Binding", **place})
        cordon(False)
        running.wait_for("the machine is removed", lambda: not machines() or None)
        assert small["metadata"]["uid"] not in {
            each["metadata"]["uid"] for each in caller.get(f"{pods}?labelSelector=app=small")["items"]
        }, "it was evicted"
        assert "orbidden" not in running.log(), running.log()
    caller.send("DELETE", f"{owner}/small")
    caller.send("DELETE", f"/api/v1/nodes/{name}")
    cluster.uninstall("--definitions")


def _schedule_a_pod(cluster: Cluster, scheduler: Component) -> None:
    """With a claim, in a group of KAI's with a queue."""
    caller, own = cluster.caller, "/namespaces/default"
    driver = "gpu.example.com"
    expression = {"cel": {"expression": f'device.driver == "{driver}"'}}
    caller.create(f"{RESOURCE}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {"selectors": [expression]}})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "a", "pool": pool, "devices": [{"name": "gpu-0"}]}
    caller.create(SLICES, {"metadata": {"name": "a-gpus"}, "spec": spec})
    caller.create(f"{RESOURCE}{own}/resourceclaims", {"metadata": {"name": "gpu"}, "spec": claim_spec("gpu")})
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    pod = {
        "schedulerName": "allot",
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}],
    }
    caller.create("/apis/scheduling.run.ai/v2/queues", {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "team"}, "spec": {"resources": {"gpu": {"quota": 1, "limit": -1}, "cpu": {"quota": -1, "limit": -1}, "memory": {"quota": -1, "limit": -1}}}})  # fmt: skip
    caller.create(
        f"/api/v1{own}/pods", {"metadata": {"name": "train", "labels": {"kai.scheduler/queue": "team"}}, "spec": pod}
    )
    scheduler.wait_for("the pod is bound", lambda: caller.get(f"/api/v1{own}/pods/train")["spec"].get("nodeName"))
    caller.send("DELETE", f"/api/v1{own}/pods/train", {"gracePeriodSeconds": 0})
    caller.send("DELETE", f"{RESOURCE}{own}/resourceclaims/gpu")
    caller.send("DELETE", "/apis/scheduling.run.ai/v2/queues/team")
    caller.send("DELETE", f"{RESOURCE}/deviceclasses/gpu")
    caller.send("DELETE", f"{SLICES}/a-gpus")


def test_each_scheduler_has_nodes_of_its_own(cluster: Cluster) -> None:
    cluster.install("scheduler")
    pods = "/api/v1/namespaces/default/pods?dryRun=All"
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]

    def pod(**spec: Any) -> tuple[int, Any]:
        whole = {"containers": [{"name": "main", "image": "none"}], **spec}
        return cluster.caller.send("POST", pods, {"metadata": {"name": "p"}, "spec": whole})

    ours = {"schedulerName": "allot"}
    toleration = {"key": "allot.dev/scheduler", "operator": "Equal", "value": "allot", "effect": "NoSchedule"}
    with cluster.program("none", ["http.server", "0"]) as waiting:
        waiting.wait_for(
            "the policy counts", lambda: pod(resourceClaims=claims, tolerations=[toleration])[0] == 403 or None
        )
    assert pod(**ours, tolerations=[toleration])[0] == 201
    assert pod(resourceClaims=claims)[0] == 201
    status, answer = pod(resourceClaims=claims, tolerations=[toleration])
    assert status == 403 and "are given away by scheduler allot alone" in answer
    assert pod(resourceClaims=claims, tolerations=[{"operator": "Exists"}])[0] == 403
    counted = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    assert pod(containers=[counted], tolerations=[{"operator": "Exists"}])[0] == 403
    # Without devices, such as system pods, it may run anywhere.
    assert pod(tolerations=[{"operator": "Exists"}])[0] == 201
    _keeps_to_its_nodes(cluster, toleration)
    cluster.uninstall()


def _keeps_to_its_nodes(cluster: Cluster, toleration: dict[str, Any]) -> None:
    """The scheduler with its account and configuration: a pod waits until a node is labelled, without naming nodes itself."""
    file = cluster.folder / "own-nodes.yaml"
    file.write_text(cluster.caller.get(f"/api/v1{PLACE}/configmaps/allot-scheduler")["data"]["scheduler.yaml"])
    options = [*cluster.arguments("allot-scheduler")[1:], "--config", str(file), "--port=-1"]
    account = str(cluster.as_account("allot-scheduler"))
    pods, merge = "/api/v1/namespaces/default/pods", "application/merge-patch+json"
    with cluster.program("own-nodes", ["allot", "scheduler"], *options, "--kubeconfig", account) as scheduler:
        spec = {
            "schedulerName": "allot",
            "tolerations": [toleration],
            "containers": [{"name": "main", "image": "none"}],
        }
        cluster.caller.create(pods, {"metadata": {"name": "waits"}, "spec": spec})

        def message() -> str | None:
            conditions = cluster.caller.get(f"{pods}/waits")["status"].get("conditions") or ()
            return next((each["message"] for each in conditions if each["type"] == "PodScheduled"), None)

        refused = scheduler.wait_for("it is refused", message)
        assert "2 node(s) didn't match scheduler-enforced node affinity" in refused
        label = {"metadata": {"labels": {"allot.dev/scheduler": "allot"}}}
        cluster.caller.send("PATCH", "/api/v1/nodes/b", label, merge)
        node = scheduler.wait_for("it is bound", lambda: cluster.caller.get(f"{pods}/waits")["spec"].get("nodeName"))
        assert node == "b"
        assert "orbidden" not in scheduler.log()
    cluster.caller.send("DELETE", f"{pods}/waits", {"gracePeriodSeconds": 0})
    cluster.caller.send("PATCH", "/api/v1/nodes/b", {"metadata": {"labels": {"allot.dev/scheduler": None}}}, merge)


def test_claims_of_pods_are_made_with_their_finalizer_and_go_without_an_allocation(cluster: Cluster) -> None:
    cluster.install("scheduler", "--set", "scheduler.protectClaims=true")
    claims = f"{RESOURCE}/namespaces/default/resourceclaims"

    def claim(name: str, query: str = "", **metadata: Any) -> Any:
        made = {"metadata": {"name": name, **metadata}, "spec": claim_spec("gpu")}
        return cluster.caller.create(claims + query, made)["metadata"].get("finalizers", [])

    of_pod = {"annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}}
    protected = ["resource.kubernetes.io/delete-protection"]
    with cluster.program("none", ["http.server", "0"]) as waiting:
        waiting.wait_for("the policy counts", lambda: claim("c", "?dryRun=All", **of_pod) == protected or None)
        assert claim("c", "?dryRun=All") == []
        assert claim("c", "?dryRun=All", finalizers=["example.com/own"], **of_pod) == ["example.com/own"]
        assert claim("c", **of_pod) == protected
        cluster.caller.send("DELETE", f"{claims}/c")
        waiting.wait_for("the claim controller lets it go", lambda: cluster.caller.get(f"{claims}/c") is None or None)
    cluster.uninstall()


def _own_address() -> str:
    """Of this machine, as pods would have one: API servers call nobody on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            # Nothing is sent.
            found.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(found.getsockname()[0])


@contextmanager
def _running(cluster: Cluster, deployment: str, address: str) -> Iterator[dict[str, Any]]:
    """As a kubelet would: the pod of a deployment has a node and this address, is ready, and ends with the block. Its container."""
    pods = f"/api/v1{PLACE}/pods"

    def made() -> Any:
        found = cluster.caller.get(f"{pods}?labelSelector=app.kubernetes.io/component={deployment}")["items"]
        return found[0] if found else None

    pod = wait_for("the pod of the deployment", made)
    name = pod["metadata"]["name"]
    binding = {"metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": "a"}}
    cluster.caller.create(f"{pods}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [ready]}
    patched = cluster.caller.send("PATCH", f"{pods}/{name}/status", {"status": status}, "application/merge-patch+json")
    assert patched[0] == 200, patched
    yield pod["spec"]["containers"][0]
    cluster.caller.send("DELETE", f"{pods}/{name}", {"gracePeriodSeconds": 0})


def _probe(address: str, container: dict[str, Any], host: str = "") -> int:
    """The status that a kubelet gets, or somebody who calls the server by another name."""
    probe = container["readinessProbe"]["httpGet"]
    (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == probe["port"]]
    headers = {each["name"]: host or each["value"] for each in probe["httpHeaders"]}
    request = urllib.request.Request(f"{probe['scheme'].lower()}://{address}:{port}{probe['path']}", headers=headers)
    try:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=WAIT_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_dashboard_is_reached_through_the_api_server_and_has_the_rights_that_it_needs(cluster: Cluster) -> None:
    if find_chromium() is None:
        pytest.skip("no Chromium")
    address, port = _own_address(), free_port()
    done = cluster.install("dashboard", "--set", f"dashboard.port={port}")
    assert f"/services/https:allot-dashboard:{port}/proxy/" in done.stdout
    options = [*cluster.arguments("allot-dashboard")[1:], f"--port={port}"]
    account = str(cluster.as_account("allot-dashboard"))
    proxy = ["proxy", "--port=0", "--kubeconfig", str(cluster.kubeconfig)]
    with ExitStack() as stack:
        container = stack.enter_context(_running(cluster, "dashboard", address))
        running = stack.enter_context(
            cluster.program("dashboard", ["allot", "dashboard"], *options, "--kubeconfig", account)
        )
        link = running.wait_for("its link", lambda: re.search(r"dashboard: (\S+)", running.log()))[1]
        assert _probe(address, container) == 200
        # A name that was made to point here is refused, also here.
        assert _probe(address, container, "evil.example.com") == 403
        kubectl = stack.enter_context(Component(component("kubectl"), proxy, cluster.folder))
        local = kubectl.wait_for("it serves", lambda: re.search(r"serve on 127\.0\.0\.1:(\d+)", kubectl.log()))[1]
        page = stack.enter_context(stack.enter_context(chromium()).page())
        # Endpoints of the Service come a little later.
        base = link.partition("#")[0].replace(":8001/", f":{local}/")
        kubectl.wait_for("the Service has its pod", lambda: _answers(base) or None)
        page.go(link.replace(":8001/", f":{local}/"))
        page.at("cluster")
        page.shows("of 2 nodes take pods")
        assert page.evaluate("document.cookie") == "", "scripts do not see the session"
        cordoned = {"spec": {"unschedulable": True}}
        cluster.caller.send("PATCH", "/api/v1/nodes/b", cordoned, "application/merge-patch+json")
        page.until("document.querySelector('.tiles strong').textContent === '1'", "a change comes through the proxy")
        cluster.caller.send(
            "PATCH", "/api/v1/nodes/b", {"spec": {"unschedulable": None}}, "application/merge-patch+json"
        )
        assert not page.faults
        page.evaluate("location.hash = '#/nodes'")
        page.at("nodes")
        # Others on the same origin do not get the cookie.
        cookies = page.send("Network.getCookies", {"urls": [base]})["cookies"]
        assert [each["path"] for each in cookies] == [base.partition(local)[2].rstrip("/")]
        assert "orbidden" not in running.log()
    cluster.uninstall()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError:
        return False


def test_helm_installs_the_same_and_the_two_leave_each_other_alone(cluster: Cluster) -> None:
    from installation.test_chart import CHART, helm

    binary = helm()
    environment = {"HOME": str(cluster.folder), "KUBECONFIG": str(cluster.kubeconfig)}
    before = cluster.everything()

    def call(*arguments: str) -> str:
        done = subprocess.run([binary, *arguments, "-n", NAMESPACE], capture_output=True, text=True, timeout=WAIT_S, env=environment, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = call(
        "install", "allot", str(CHART), "--create-namespace", "--set", "guard.enabled=true,drivers.gpu.enabled=true"
    )
    assert "allocations wait while it does not answer" in told
    done = cluster.run("install", "guard", "--no-wait")
    assert done.code == 1 and "of Helm's release 'allot': use helm upgrade" in done.stderr
    call("upgrade", "allot", str(CHART), "--set", "guard.enabled=true,guard.replicas=3")
    assert cluster.caller.get(f"/apis/apps/v1{PLACE}/deployments/allot-guard")["spec"]["replicas"] == 3
    call("uninstall", "allot", "--wait")
    cluster.caller.send("DELETE", f"/api/v1/namespaces/{NAMESPACE}")
    with cluster.program("none", ["http.server", "0"]) as waiting:
        waiting.wait_for(
            "the namespace is gone", lambda: cluster.caller.get(f"/api/v1/namespaces/{NAMESPACE}") is None or None
        )
    assert cluster.everything() - before == set()
