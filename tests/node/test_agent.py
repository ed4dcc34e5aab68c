"""A node that runs pods as processes, seen through kubectl: the whole way from a manifest to an exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.kubectl import MISSING, find_kubectls
from node.cluster import Cluster, shell, wait_for

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
    file = cluster.folder / "probe"
    probe = {"exec": {"command": ["test", "-e", f"{file}-ready"]}, "periodSeconds": 1}
    alive = {"exec": {"command": ["test", "!", "-e", f"{file}-sick"]}, "periodSeconds": 1, "failureThreshold": 1}
    cluster.pod(
        "probed",
        shell(
            "main",
            f"rm -f {file}-sick; trap 'exit 0' TERM; while true; do sleep 0.1; done",
            readinessProbe=probe,
            livenessProbe=alive,
            lifecycle={
                "postStart": {"exec": {"command": ["touch", f"{file}-began"]}},
                "preStop": {"exec": {"command": ["touch", f"{file}-stops"]}},
            },
        ),
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
    log = cluster.folder / "order"
    loop = f"echo %s starts >> {log}; trap 'echo %s ends >> {log}; exit 0' TERM; while true; do sleep 0.05; done"
    cluster.pod(
        "ordered",
        shell("main", f"echo main >> {log}; sleep 0.3"),
        initContainers=[
            shell("one", loop.replace("%s", "one"), restartPolicy="Always"),
            shell("two", loop.replace("%s", "two"), restartPolicy="Always"),
        ],
        restartPolicy="Never",
    )
    assert cluster.phase("ordered", "Succeeded", "Failed") == "Succeeded"
    assert log.read_text().splitlines() == ["one starts", "two starts", "main", "two ends", "one ends"]
    cluster.run("delete", "pod", "ordered")


@pytest.mark.parametrize("binary", _BINARIES, ids=lambda path: Path(path).name)
def test_kubectl_talks_to_containers(cluster: Cluster, binary: str) -> None:
    name = f"talks-{Path(binary).name.replace('.', '-').lower()}"
    port = 17000 + len(name) * 13 + len(_BINARIES)
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
    cluster.run("cp", str(data), f"{name}:{copy}-there", binary=binary)
    cluster.run("cp", f"{name}:{copy}-there", f"{copy}-back", binary=binary)
    assert Path(f"{copy}-back").read_bytes() == data.read_bytes()
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
        with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=10) as answer:
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
    assert cluster.run("get", "--raw", "/api/v1/nodes/n1/proxy/healthz") == "ok"
    assert '"name":"busy"' in cluster.run("get", "--raw", "/api/v1/nodes/n1/proxy/pods")
    port = cluster.get("node", "n1", "{.status.daemonEndpoints.kubeletEndpoint.Port}")
    bare = subprocess.run(
        ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", f"https://127.0.0.1:{port}/pods"],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert bare.stdout == "401"
    cluster.run("delete", "pod", "busy")


def test_pods_outlive_a_killed_agent_and_orphans_are_removed(cluster: Cluster) -> None:
    cluster.pod("survivor", shell("main", "sh -c 'echo $PPID'; while true; do sleep 0.1; done"))
    cluster.pod("orphan", shell("main", "sh -c 'echo $PPID'; while true; do sleep 0.1; done"))
    cluster.pod("ends", shell("main", "sleep 1; exit 9"), restartPolicy="Never")
    for name in ("survivor", "orphan", "ends"):
        cluster.phase(name, "Running")
    pids = {
        name: int(wait_for("a log", lambda name=name: cluster.run("logs", name))) for name in ("survivor", "orphan")
    }
    cluster.node.stop(signal.SIGKILL)
    cluster.run("delete", "pod", "orphan", "--force", "--grace-period=0")
    time.sleep(1.2)
    assert all(Path(f"/proc/{pid}").exists() for pid in pids.values())
    cluster.start_node()
    cluster.phase("ends", "Failed")
    assert cluster.get("pod", "ends", "{.status.containerStatuses[0].state.terminated.exitCode}") == "9"
    assert cluster.get("pod", "survivor", "{.status.containerStatuses[0].restartCount}") == "0"
    wait_for("the orphan's end", lambda: not Path(f"/proc/{pids['orphan']}").exists())
    assert Path(f"/proc/{pids['survivor']}").exists()
    cluster.run("delete", "pod", "survivor", "ends", "--timeout=20s")
    wait_for("the survivor's end", lambda: not Path(f"/proc/{pids['survivor']}").exists())
    wait_for("nothing left", lambda: not list((cluster.root / "runtime/containers").iterdir()))
