"""A node that runs pods as processes, seen through kubectl: the whole way from a manifest to an exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.kubectl import MISSING, find_kubectls
from node.cluster import Cluster, sharing, shell
from node.deviceplugins.plugin import plugin_process
from node.signing import Signer
from ports import free_port
from waiting import WAIT_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason=MISSING)]

_KUBECTLS = {version: str(path) for version, path in find_kubectls().items()}
# WebSockets came with 1.30; older ones speak SPDY.
_BINARIES = [next(iter(_KUBECTLS.values()), "kubectl"), *(_KUBECTLS[each] for each in ("1.29",) if each in _KUBECTLS)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("c")) as made:
        yield made


def test_the_node_says_what_it_is(cluster: Cluster) -> None:
    node = json.loads(cluster.run("get", "node", "n1", "-o", "json"))
    assert node["metadata"]["labels"]["zone"] == "a"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    status = node["status"]
    assert int(status["capacity"]["cpu"]) == os.cpu_count()
    assert {each["type"]: each["status"] for each in status["conditions"]}["Ready"] == "True"
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("process://")
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
    lease = json.loads(cluster.run("get", "lease", "-n", "kube-node-lease", "n1", "-o", "json"))
    assert lease["spec"]["holderIdentity"] == "n1"
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]


def test_a_pod_gets_its_environment_and_volumes_and_tells_how_it_ended(cluster: Cluster) -> None:
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"a": "1", "b": "2"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key"}, "stringData": {"k": "hidden"}},
    )
    mounts = [
        {"name": "shared", "mountPath": "/allot-shared"},
        {"name": "files", "mountPath": "/allot-files", "readOnly": True},
    ]
    sources = [
        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "sub/a"}]}},
        {"secret": {"name": "key"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    cluster.pod(
        "whole",
        shell(
            "main",
            "cat /allot-shared/made /allot-files/sub/a /allot-files/k /allot-files/labels; echo; echo $A $K $POD;"
            "test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token; echo why > /dev/termination-log; exit 7",
            env=[
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}},
                {"name": "K", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            ],
            volumeMounts=mounts,
        ),
        initContainers=[shell("first", "echo made > /allot-shared/made", volumeMounts=mounts)],
        volumes=[{"name": "shared", "emptyDir": {}}, {"name": "files", "projected": {"sources": sources}}],
        restartPolicy="Never",
    )
    assert cluster.phase("whole", "Succeeded", "Failed") == "Failed"
    said = cluster.run("logs", "whole").splitlines()
    assert said == ["made", '1hiddenapp="whole"', "1 hidden whole", "token"]
    pod = json.loads(cluster.run("get", "pod", "whole", "-o", "json"))
    ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (7, "Error", "why\n")
    assert pod["status"]["initContainerStatuses"][0]["ready"]
    reasons = [line.partition(":")[0] for line in cluster.events("whole")]
    assert sorted(reasons) == ["Created", "Created", "Pulled", "Pulled", "Scheduled", "Started", "Started"]
    cluster.run("delete", "pod", "whole")
    wait_for("nothing left", lambda: not list((cluster.root / "pods").iterdir()))


def test_a_volume_outlives_its_pods_and_goes_with_its_claim(cluster: Cluster) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name, more in (
        ("data", {}),
        ("unknown", {"storageClassName": "fast"}),
        ("shared", {"accessModes": ["ReadWriteMany"]}),
    ):
        claim = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {**spec, **more},
        }
        cluster.apply(claim)
    wait_for("a word", lambda: any("waiting for first consumer" in line for line in cluster.events("data")))
    mount = {"volumeMounts": [{"name": "v", "mountPath": "/allot-data"}]}
    claimed = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    cluster.pod(
        "writes", shell("main", "echo kept > /allot-data/file", **mount), volumes=claimed, restartPolicy="Never"
    )
    assert cluster.phase("writes", "Succeeded", "Failed") == "Succeeded"
    assert cluster.get("pvc", "data", "{.status.phase} {.status.capacity.storage}") == "Bound 1Gi"
    cluster.run("delete", "pod", "writes")
    only_read = [{"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}]
    ephemeral = {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    cluster.pod(
        "reads", shell("main", "cat /allot-data/file", **mount), volumes=[*only_read, ephemeral], restartPolicy="Never"
    )
    assert cluster.phase("reads", "Succeeded", "Failed") == "Succeeded"
    assert cluster.run("logs", "reads") == "kept\n"
    assert cluster.get("pvc", "reads-e", "{.status.phase}") == "Bound"
    # A claim that is in use stays.
    cluster.run("delete", "pvc", "data", "--wait=false")
    assert cluster.get("pvc", "data", "{.metadata.finalizers}") == '["kubernetes.io/pvc-protection"]'
    cluster.run("delete", "pod", "reads")
    cluster.run("wait", "--for=delete", "pvc/data", "pvc/reads-e", "--timeout=30s")
    wait_for("no volumes", lambda: not cluster.run("get", "pv", "-o", "name"))
    wait_for("no folders", lambda: not list((cluster.folder / "data" / "volumes").iterdir()))
    texts = {
        "unknown": 'ProvisioningFailed: storageclass.storage.k8s.io "fast" not found',
        "shared": 'ProvisioningFailed: failed to provision volume with StorageClass "standard": '
        "a directory belongs to one node: access mode ReadWriteMany is not supported",
    }
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}]
    cluster.pod("waits", shell("main", "true", **mount), volumes=volumes, restartPolicy="Never")
    for name, text in texts.items():
        wait_for(text, lambda name=name, text=text: text in cluster.events(name))  # type: ignore[misc]


def test_containers_that_fail_come_back_later_and_later(cluster: Cluster) -> None:
    cluster.pod("crashes", shell("main", "echo attempt; exit 1"))
    path = "{.status.containerStatuses[0].state.waiting.reason}"
    wait_for("a back-off", lambda: cluster.get("pod", "crashes", path) == "CrashLoopBackOff")
    assert cluster.get("pod", "crashes", "{.status.phase}") == "Running"
    assert cluster.get("pod", "crashes", "{.status.containerStatuses[0].restartCount}") == "1"
    assert cluster.get("pod", "crashes", "{.status.containerStatuses[0].lastState.terminated.exitCode}") == "1"
    assert cluster.run("logs", "crashes", "--previous") == "attempt\n"
    wait_for(
        "an event", lambda: any(line.startswith("BackOff: Back-off restarting") for line in cluster.events("crashes"))
    )
    cluster.pod("lost", {"name": "main", "image": "busybox:1", "command": ["no-such-command"]})
    text = "{.status.containerStatuses[0].state.waiting.message}"
    wait_for("a reason", lambda: "executable file not found" in cluster.get("pod", "lost", text))
    cluster.pod("unset", shell("main", "true", envFrom=[{"configMapRef": {"name": "nowhere"}}]))
    wait_for("a reason", lambda: cluster.get("pod", "unset", text) == 'configmap "nowhere" not found')
    cluster.run("delete", "pod", "crashes", "lost", "unset", "--timeout=20s")


def test_probes_and_hooks_steer_a_container(cluster: Cluster) -> None:
    folder = cluster.folder / "probed"
    folder.mkdir()
    volume, mount = sharing(folder)
    file = folder / "probe"
    probe = {"exec": {"command": ["test", "-e", f"{file}-ready"]}, "periodSeconds": 1}
    alive = {"exec": {"command": ["test", "!", "-e", f"{file}-sick"]}, "periodSeconds": 1, "failureThreshold": 1}
    cluster.pod(
        "probed",
        shell(
            "main",
            f"rm -f {file}-sick; trap 'exit 0' TERM; while true; do sleep 0.1; done",
            readinessProbe=probe,
            livenessProbe=alive,
            volumeMounts=[mount],
            lifecycle={
                "postStart": {"exec": {"command": ["touch", f"{file}-began"]}},
                "preStop": {"exec": {"command": ["touch", f"{file}-stops"]}},
            },
        ),
        volumes=[volume],
    )
    cluster.phase("probed", "Running")
    ready = "{.status.containerStatuses[0].ready}"
    assert cluster.get("pod", "probed", ready) == "false"
    assert Path(f"{file}-began").exists()
    wait_for(
        "an event", lambda: any(line.startswith("Unhealthy: Readiness probe") for line in cluster.events("probed"))
    )
    Path(f"{file}-ready").touch()
    cluster.ready("probed")
    Path(f"{file}-sick").touch()
    count = "{.status.containerStatuses[0].restartCount}"
    wait_for("a restart", lambda: cluster.get("pod", "probed", count) == "1")
    assert "Killing: Container main failed liveness probe, will be restarted" in cluster.events("probed")
    assert Path(f"{file}-stops").exists()
    cluster.run("delete", "pod", "probed", "--timeout=20s")


def test_sidecars_start_before_and_end_after(cluster: Cluster) -> None:
    folder = cluster.folder / "ordered"
    folder.mkdir()
    volume, mount = sharing(folder)
    log = folder / "order"
    loop = f"echo %s starts >> {log}; trap 'echo %s ends >> {log}; exit 0' TERM; while true; do sleep 0.05; done"
    cluster.pod(
        "ordered",
        shell("main", f"echo main >> {log}; sleep 0.3", volumeMounts=[mount]),
        initContainers=[
            shell("one", loop.replace("%s", "one"), restartPolicy="Always", volumeMounts=[mount]),
            shell("two", loop.replace("%s", "two"), restartPolicy="Always", volumeMounts=[mount]),
        ],
        volumes=[volume],
        restartPolicy="Never",
    )
    assert cluster.phase("ordered", "Succeeded", "Failed") == "Succeeded"
    assert log.read_text().splitlines() == ["one starts", "two starts", "main", "two ends", "one ends"]
    cluster.run("delete", "pod", "ordered")


@pytest.mark.parametrize("binary", _BINARIES, ids=lambda path: Path(path).name)
def test_kubectl_says_that_a_container_does_not_run(cluster: Cluster, binary: str) -> None:
    name = f"absent-{Path(binary).name.replace('.', '-').lower()}"
    cluster.pod(name, shell("main", "true", envFrom=[{"configMapRef": {"name": "nowhere"}}]))
    reason = "{.status.containerStatuses[0].state.waiting.reason}"
    wait_for("a refusal", lambda: cluster.get("pod", name, reason) == "CreateContainerConfigError")
    # Word for word as with a kubelet.
    expected = 'unable to upgrade connection: container not found ("main")\n'
    assert cluster.run("exec", name, "--", "true", check=False, binary=binary) == f"error: {expected}"
    cluster.run("delete", "pod", name, "--now")


@pytest.mark.parametrize("binary", _BINARIES, ids=lambda path: Path(path).name)
def test_kubectl_talks_to_containers(cluster: Cluster, binary: str) -> None:
    name = f"talks-{Path(binary).name.replace('.', '-').lower()}"
    port = free_port()
    script = f"echo hello; python3 -m http.server {port} --bind 127.0.0.1 & while read line; do echo got $line; done; sleep 600"
    cluster.pod(name, shell("main", script, stdin=True))
    cluster.ready(name)
    said = cluster.run("exec", name, "--", "sh", "-c", "echo out; echo err >&2; exit 3", check=False, binary=binary)
    assert said.startswith("out\nerr\n")
    assert "exit code 3" in said
    assert cluster.run("exec", "-i", name, "--", "cat", stdin="typed", binary=binary) == "typed"
    data = cluster.folder / "data-file"
    data.write_bytes(os.urandom(300_000))
    copy = cluster.folder / "copy"
    cluster.run("cp", str(data), f"{name}:/tmp/copy-there", binary=binary)
    cluster.run("cp", f"{name}:/tmp/copy-there", f"{copy}-back", binary=binary)
    assert Path(f"{copy}-back").read_bytes() == data.read_bytes()
    assert not Path("/tmp/copy-there").exists()
    environment = {"PATH": os.environ["PATH"], "HOME": str(cluster.folder), "KUBECONFIG": str(cluster.kubeconfig)}
    attached = subprocess.Popen(
        [binary, "attach", "-i", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert attached.stdin is not None and attached.stdout is not None
    attached.stdin.write(b"words\n")
    attached.stdin.flush()
    assert b"got words" in attached.stdout.readline()
    attached.kill()
    attached.communicate()
    forward = subprocess.Popen(
        [binary, "port-forward", f"pod/{name}", f":{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert forward.stdout is not None
    local = forward.stdout.readline().decode().split("127.0.0.1:")[1].split(" ")[0]
    for _ in range(3):
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=WAIT_S) as answer:
            assert answer.status == 200
    forward.kill()
    forward.communicate()
    followed = cluster.run("logs", name, "--tail=-1", binary=binary)
    assert followed.startswith("hello\n")
    assert "got words" in followed
    cluster.run("delete", "pod", name, "--timeout=20s")


def test_metrics_and_refusals(cluster: Cluster) -> None:
    cluster.pod("busy", shell("main", "sleep 600"))
    cluster.ready("busy")
    metrics = cluster.run("get", "--raw", "/api/v1/nodes/n1/proxy/metrics/resource")
    assert 'container_memory_working_set_bytes{container="main",namespace="default",pod="busy"}' in metrics
    summary = json.loads(cluster.run("get", "--raw", "/api/v1/nodes/n1/proxy/stats/summary"))
    (busy,) = [each for each in summary["pods"] if each["podRef"]["name"] == "busy"]
    assert busy["memory"]["workingSetBytes"] > 0 and busy["containers"][0]["cpu"]["usageCoreNanoSeconds"] >= 0
    node = summary["node"]
    assert node["nodeName"] == "n1" and node["memory"]["availableBytes"] > 0 and node["cpu"]["usageCoreNanoSeconds"] > 0
    assert cluster.run("get", "--raw", "/api/v1/nodes/n1/proxy/healthz") == "ok"
    assert '"name":"busy"' in cluster.run("get", "--raw", "/api/v1/nodes/n1/proxy/pods")
    port = cluster.get("node", "n1", "{.status.daemonEndpoints.kubeletEndpoint.Port}")
    bare = subprocess.run(
        ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", f"https://127.0.0.1:{port}/pods"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert bare.stdout == "401"
    cluster.run("delete", "pod", "busy")


def test_pods_that_were_bound_past_the_scheduler_are_rejected_as_by_a_kubelet(cluster: Cluster) -> None:
    def rejected(name: str, reason: str, container: dict[str, Any] | None = None, **spec: Any) -> str:
        cluster.pod(name, {**shell("main", "sleep 600"), **(container or {})}, nodeName="n1", **spec)
        cluster.phase(name, "Failed")
        assert cluster.get("pod", name, "{.status.reason}") == reason
        wait_for("the event", lambda: any(each.startswith(f"{reason}: ") for each in cluster.events(name)))
        return cluster.get("pod", name, "{.status.message}")

    told = rejected("large", "OutOfcpu", {"resources": {"requests": {"cpu": "900"}}})
    there = f"capacity: {1000 * (os.cpu_count() or 1)}"
    assert told.startswith("Pod was rejected: Node didn't have enough resource: cpu, requested: 900000, used: ")
    assert told.endswith(there)
    ports = {"ports": [{"containerPort": 18499, "hostPort": 18499}]}
    cluster.pod("first", {**shell("main", "sleep 600"), **ports}, nodeName="n1")
    cluster.phase("first", "Running")
    text = "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    assert rejected("second", "NodePorts", ports) == text
    rejected("elsewhere", "NodeAffinity", nodeSelector={"zone": "b"})
    cluster.run("delete", "pod", "large", "first", "second", "elsewhere", "--timeout=20s")


def test_a_pod_is_resized_in_place_or_waits_until_there_is_room(cluster: Cluster) -> None:
    def container(cpu: str, memory: str) -> dict[str, Any]:
        amounts = {"cpu": cpu, "memory": memory}
        return {"name": "main", "resources": {"requests": amounts, "limits": amounts}}

    def resize(name: str, cpu: str, memory: str = "64Mi") -> None:
        patch = {"spec": {"containers": [container(cpu, memory)]}}
        cluster.run("patch", "pod", name, "--subresource=resize", "-p", json.dumps(patch))

    def runs_with(name: str, cpu: str, memory: str = "64Mi") -> bool:
        told = cluster.get("pod", name, "{.status.containerStatuses[0].resources.limits}")
        return bool(told) and json.loads(told) == {"cpu": cpu, "memory": memory}

    pending = "{.status.conditions[?(@.type=='PodResizePending')]['status','reason','message']}"
    cluster.pod("resized", {**shell("main", "while true; do sleep 0.1; done"), **container("100m", "64Mi")})
    cluster.phase("resized", "Running")
    wait_for("what it runs with", lambda: runs_with("resized", "100m"))
    resize("resized", "200m", "96Mi")
    wait_for("more", lambda: runs_with("resized", "200m", "96Mi"))
    assert json.loads(cluster.get("pod", "resized", "{.status.containerStatuses[0].allocatedResources}")) == {
        "cpu": "200m",
        "memory": "96Mi",
    }
    assert cluster.get("pod", "resized", "{.status.containerStatuses[0].restartCount}") == "0"
    wait_for("its events", lambda: {"ResizeStarted", "ResizeCompleted"} <= _reasons(cluster, "resized"))
    wait_for("its end", lambda: "PodResizeInProgress" not in cluster.get("pod", "resized", "{.status.conditions}"))
    resize("resized", "900", "96Mi")
    told = wait_for("a condition", lambda: cluster.get("pod", "resized", pending))
    assert told.startswith("True Deferred Node didn't have enough resource: cpu, requested: 900000, used: ")
    assert runs_with("resized", "200m", "96Mi")
    resize("resized", "300m", "96Mi")
    wait_for("less than that", lambda: runs_with("resized", "300m", "96Mi"))
    wait_for("no condition", lambda: not cluster.get("pod", "resized", pending))
    cluster.run("delete", "pod", "resized", "--timeout=20s")


def _reasons(cluster: Cluster, name: str) -> set[str]:
    return {each.partition(":")[0] for each in cluster.events(name)}


def test_a_pod_gets_what_it_trusts_and_a_certificate_as_soon_as_a_signer_has_issued_it(cluster: Cluster) -> None:
    signer = Signer("test authority")
    bundle = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "ClusterTrustBundle",
        "metadata": {"name": "example.com:pods:one", "labels": {"use": "test"}},
        "spec": {
            "signerName": "example.com/pods",
            "trustBundle": f"said first\n{signer.certificate}",
        },
    }
    cluster.apply(bundle)
    selected = {"signerName": "example.com/pods", "labelSelector": {"matchLabels": {"use": "test"}}}
    sources = [
        {"clusterTrustBundle": {**selected, "path": "ca.pem"}},
        {"clusterTrustBundle": {"name": "absent", "optional": True, "path": "none.pem"}},
        {
            "podCertificate": {
                "signerName": "example.com/pods",
                "keyType": "ECDSAP256",
                "credentialBundlePath": "own.pem",
                "keyPath": "key.pem",
                "certificateChainPath": "chain.pem",
            }
        },
    ]
    cluster.pod(
        "certified",
        shell(
            "main",
            "cat /c/ca.pem /c/none.pem /c/chain.pem; head -n 1 /c/own.pem; sleep 600",
            volumeMounts=[{"name": "c", "mountPath": "/c"}],
        ),
        volumes=[{"name": "c", "projected": {"sources": sources}}],
    )
    waits = 'is not issued yet: it waits for signer "example.com/pods"'
    wait_for("an event", lambda: any(waits in each for each in cluster.events("certified")))
    request = json.loads(cluster.run("get", "podcertificaterequests", "-o", "json"))["items"][0]
    assert request["spec"]["nodeName"] == "n1"
    assert request["metadata"]["ownerReferences"][0]["name"] == "certified"
    answer, name = signer.answer(request), request["metadata"]["name"]
    patch = json.dumps({"status": answer})
    cluster.run("patch", "podcertificaterequest", name, "--subresource=status", "--type=merge", "-p", patch)
    cluster.phase("certified", "Running")
    wanted = f"{signer.certificate}{answer['certificateChain']}-----BEGIN PRIVATE KEY-----\n"
    wait_for("its log", lambda: cluster.run("logs", "certified") == wanted)
    cluster.run("delete", "pod", "certified", "--timeout=20s")
    cluster.run("delete", "clustertrustbundle", "example.com:pods:one")


def test_devices_of_a_plugin_are_counted_given_away_and_kept_over_a_killed_agent(
    cluster: Cluster, tmp_path: Path
) -> None:
    def offered(*amounts: str) -> None:
        path = "{.status.capacity.vendor\\.example/gpu} {.status.allocatable.vendor\\.example/gpu}"
        wait_for(f"{amounts} devices", lambda: cluster.get("node", "n1", path) == " ".join(amounts))

    def health(name: str) -> str:
        return cluster.get("pod", name, "{.status.containerStatuses[0].allocatedResourcesStatus[*].resources[*]}")

    one = {"resources": {"limits": {"vendor.example/gpu": "1"}}}
    with plugin_process(cluster.root / "device-plugins", tmp_path / "devices") as plugin:
        offered("2", "2")
        (cluster.root / "device-plugins/files").mkdir(exist_ok=True)
        (cluster.root / "device-plugins/files/note").write_text("mounted\n")
        (cluster.root / "device-plugins/files/cdi").write_text("vendor.example/cdi=all")
        edits = {"env": ["BY_CDI=yes"]}
        spec = {
            "cdiVersion": "0.6.0",
            "kind": "vendor.example/cdi",
            "devices": [{"name": "all", "containerEdits": edits}],
        }
        (cluster.folder / "cdi").mkdir(exist_ok=True)
        (cluster.folder / "cdi" / "vendor.json").write_text(json.dumps(spec))
        script = "echo $GPU $GPU_MODE $BY_CDI; cat /opt/gpu/note; echo x > /dev/gpu && echo device; sleep 600"
        # The pod's own variables come first.
        own = {"env": [{"name": "GPU_MODE", "value": "own"}], **one}
        cluster.pod("plugged", {**shell("main", script), **own})
        cluster.phase("plugged", "Running")
        wait_for("its log", lambda: cluster.run("logs", "plugged") == "d0 own yes\nmounted\ndevice\n")
        assert health("plugged") == '{"health":"Healthy","resourceID":"d0"}'
        pid = cluster.pid("plugged")
        two = {"resources": {"limits": {"vendor.example/gpu": "2"}}}
        cluster.pod("greedy", {**shell("main", "sleep 600"), **two}, nodeName="n1")
        cluster.phase("greedy", "Failed")
        assert cluster.get("pod", "greedy", "{.status.reason}") == "UnexpectedAdmissionError"
        assert cluster.get("pod", "greedy", "{.status.message}") == (
            "Pod was rejected: Allocate failed due to requested number of devices unavailable for vendor.example/gpu. "
            "Requested: 2, Available: 1, which is unexpected"
        )

        cluster.node.stop(signal.SIGKILL)
        cluster.start_node()
        offered("2", "2")
        cluster.pod("next", {**shell("main", "echo $GPU; sleep 600"), **one})
        cluster.phase("next", "Running")
        wait_for("its log", lambda: cluster.run("logs", "next") == "d1\n")
        assert cluster.pid("plugged") == pid and Path(f"/proc/{pid}").exists()
        (tmp_path / "devices").write_text('{"d0": "Unhealthy", "d1": "Healthy"}')
        offered("2", "1")
        wait_for("its health", lambda: health("plugged") == '{"health":"Unhealthy","resourceID":"d0"}')
        plugin.kill()
        offered("2", "0")
    cluster.run("delete", "pod", "plugged", "greedy", "next", "--timeout=20s")


def test_pods_outlive_a_killed_agent_and_orphans_are_removed(cluster: Cluster, tmp_path: Path) -> None:
    volume, mount = sharing(tmp_path)
    cluster.pod("survivor", shell("main", "while true; do sleep 0.1; done"))
    cluster.pod("orphan", shell("main", "while true; do sleep 0.1; done"))
    script = f"until [ -e {tmp_path}/gone ]; do sleep 0.05; done; exit 9"
    cluster.pod("ends", shell("main", script, volumeMounts=[mount]), volumes=[volume], restartPolicy="Never")
    for name in ("survivor", "orphan", "ends"):
        cluster.phase(name, "Running")
    pids = {name: cluster.pid(name) for name in ("survivor", "orphan", "ends")}
    cluster.node.stop(signal.SIGKILL)
    cluster.run("delete", "pod", "orphan", "--force", "--grace-period=0")
    (tmp_path / "gone").touch()
    wait_for("the end of one", lambda: not Path(f"/proc/{pids['ends']}").exists())
    assert all(Path(f"/proc/{pids[name]}").exists() for name in ("survivor", "orphan"))
    # As after a change of the node's address.
    address = cluster.get("pod", "survivor", "{.status.hostIP}")
    moved = [
        {"op": "replace", "path": "/status/hostIP", "value": "192.0.2.1"},
        {"op": "replace", "path": "/status/hostIPs", "value": [{"ip": "192.0.2.1"}]},
    ]
    cluster.run("patch", "pod", "survivor", "--subresource=status", "--type=json", "-p", json.dumps(moved))
    cluster.start_node()
    wait_for("the address", lambda: cluster.get("pod", "survivor", "{.status.hostIPs[*].ip}") == address)
    cluster.phase("ends", "Failed")
    assert cluster.get("pod", "ends", "{.status.containerStatuses[0].state.terminated.exitCode}") == "9"
    assert cluster.get("pod", "survivor", "{.status.containerStatuses[0].restartCount}") == "0"
    wait_for("the orphan's end", lambda: not Path(f"/proc/{pids['orphan']}").exists())
    assert Path(f"/proc/{pids['survivor']}").exists()
    cluster.run("delete", "pod", "survivor", "ends", "--timeout=20s")
    wait_for("the survivor's end", lambda: not Path(f"/proc/{pids['survivor']}").exists())
    wait_for("nothing left", lambda: not list((cluster.root / "runtime/containers").iterdir()))
