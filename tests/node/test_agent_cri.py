"""The agent with a real containerd, through kubectl: what people do with pods works as on processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containerd_server import IMAGE, ContainerdServer, why_not
from e2e.kubectl import MISSING
from node.cluster import Cluster
from ports import free_port
from waiting import WAIT_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason=MISSING)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    # Sockets below it must have short names.
    server = ContainerdServer(Path(tempfile.mkdtemp(prefix="allot-cri-")))
    try:
        server.start()
        server.import_image()
        options = ("--runtime", "cri", "--container-runtime-endpoint", f"unix://{server.socket}")
        with Cluster(tmp_path_factory.mktemp("r"), node_options=options) as made:
            yield made
        server.remove_containers()
    finally:
        server.kill()
        server.clean()


def container(name: str, script: str, **more: Any) -> dict[str, Any]:
    """A container of the image that containerd has."""
    return {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script], **more}


def test_pods_run_in_containerd_and_kubectl_talks_to_them(cluster: Cluster) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    # Of the machine's network: others may run the same test on it.
    port = free_port()
    serve = f"mkdir /www; echo page > /www/index.html; busybox httpd -p 127.0.0.1:{port} -h /www;"
    loop = "while read line; do echo got $line; done; sleep 600"
    cluster.pod(
        "talks",
        container("main", f"cat /shared/made; {serve} {loop}", stdin=True, volumeMounts=mounts),
        initContainers=[container("first", "echo made > /shared/made", volumeMounts=mounts)],
        volumes=[{"name": "shared", "emptyDir": {}}],
        hostNetwork=True,
    )
    try:
        cluster.ready("talks")
    except AssertionError:
        if any("operation not" in line for line in cluster.events("talks")):
            pytest.skip("this machine does not let containers run")
        raise
    assert cluster.get("pod", "talks", "{.status.containerStatuses[0].containerID}").startswith("containerd://")
    assert cluster.run("logs", "talks", "-c", "main") == "made\n"
    said = cluster.run("exec", "talks", "-c", "main", "--", "sh", "-c", "echo out; exit 3", check=False)
    assert said.startswith("out\n")
    assert "exit code 3" in said
    assert cluster.run("exec", "-i", "talks", "-c", "main", "--", "cat", stdin="typed") == "typed"
    data = cluster.folder / "data-file"
    data.write_bytes(os.urandom(100_000))
    cluster.run("cp", str(data), "talks:/shared/there", "-c", "main")
    cluster.run("cp", "talks:/shared/there", f"{data}-back", "-c", "main")
    assert Path(f"{data}-back").read_bytes() == data.read_bytes()
    environment = {"PATH": os.environ["PATH"], "HOME": str(cluster.folder), "KUBECONFIG": str(cluster.kubeconfig)}
    attached = subprocess.Popen(
        ["kubectl", "attach", "-i", "talks", "-c", "main"],
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
        ["kubectl", "port-forward", "pod/talks", f":{port}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert forward.stdout is not None
    local = forward.stdout.readline().decode().split("127.0.0.1:")[1].split(" ")[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{local}/", timeout=WAIT_S) as answer:
        assert answer.read() == b"page\n"
    forward.kill()
    forward.communicate()
    cluster.run("delete", "pod", "talks", "--timeout=20s")


def test_an_exit_code_and_a_missing_image_are_told(cluster: Cluster) -> None:
    cluster.pod(
        "ends", container("main", "echo why > /dev/termination-log; exit 4"), restartPolicy="Never", hostNetwork=True
    )
    assert cluster.phase("ends", "Succeeded", "Failed") == "Failed"
    ended = "{.status.containerStatuses[0].state.terminated.exitCode} {.status.containerStatuses[0].state.terminated.message}"
    assert cluster.get("pod", "ends", ended) == "4 why\n"
    absent = {**container("main", "true"), "image": "allot.test/absent:1", "imagePullPolicy": "Never"}
    cluster.pod("lost", absent, hostNetwork=True)
    reason = "{.status.containerStatuses[0].state.waiting.reason}"
    wait_for("a reason", lambda: cluster.get("pod", "lost", reason) in ("ErrImageNeverPull", "ImagePullBackOff"))
    cluster.run("delete", "pod", "ends", "lost", "--timeout=20s")


def test_a_part_of_a_volume_is_mounted_and_a_link_out_of_it_is_not(cluster: Cluster) -> None:
    cluster.run("create", "configmap", "settings", "--from-literal=a=1")
    links = container(
        "links",
        "mkdir /all/inside; echo here > /all/inside/file; ln -s inside /all/near; ln -s /etc /all/far",
        volumeMounts=[{"name": "work", "mountPath": "/all"}],
    )
    volumes: list[dict[str, Any]] = [
        {"name": "work", "emptyDir": {}},
        {"name": "settings", "configMap": {"name": "settings"}},
    ]
    mounts = [
        {"name": "work", "mountPath": "/part", "subPath": "near"},
        {"name": "work", "mountPath": "/new", "subPath": "deep/er"},
        {"name": "settings", "mountPath": "/settings"},
    ]
    tries = "cat /part/file; echo x > /new/x && echo made; cat /settings/a; echo 2 > /settings/a || echo read-only"
    ends = {"restartPolicy": "Never", "hostNetwork": True, "volumes": volumes, "initContainers": [links]}
    cluster.pod("parts", container("main", tries, volumeMounts=mounts), **ends)
    assert cluster.phase("parts", "Succeeded", "Failed") == "Succeeded"
    said = cluster.run("logs", "parts", "-c", "main")
    assert said.replace("sh: can't create /settings/a: Read-only file system\n", "") == "here\nmade\n1read-only\n"
    outside = [{"name": "work", "mountPath": "/part", "subPath": "far"}]
    cluster.pod("leaves", container("main", "ls /part", volumeMounts=outside), **ends)
    reason = "{.status.containerStatuses[0].state.waiting.reason}"
    wait_for("a refusal", lambda: cluster.get("pod", "leaves", reason) == "CreateContainerConfigError")
    cluster.run("delete", "pod", "parts", "leaves", "--timeout=20s")
