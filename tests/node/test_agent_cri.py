"""The agent with a real containerd, through kubectl: what people do with pods works as on processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from containerd_server import IMAGE, ContainerdServer, group_places, unmount_below, why_not
from e2e.kubectl import MISSING
from network.test_nftables import why_not as no_rules
from node.cluster import Cluster, pod_of
from node.deviceplugins.plugin import plugin_process
from ports import free_port
from waiting import WAIT_S, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("kubectl") is None, reason=MISSING)]


def container(name: str, script: str, **more: Any) -> dict[str, Any]:
    """A container of the image that containerd has."""
    return {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script], **more}


MOUNT = {"name": "data", "mountPath": "/data"}
# Nobody else on this machine has it; containers in the machine's network reach it.
DNS = f"127.{os.getpid() % 250 + 1}.53.53"
FULL = "box.team.default.svc.cluster.local"
TELLS = "cat /etc/resolv.conf /etc/hosts; busybox hostname; busybox env"
HAS_VOLUMES = (
    "busybox df -k /data | tail -n 1; busybox stat -f -c %T /data; busybox stat -c '%a %g' /data; "
    "echo 1 > /data/file && echo 2 > /disk/file && echo 3 > /part/file && cat /disk/pod/x/file; "
    "busybox stat -c '%a %g' /data/file; busybox stat -L -c '%a %u %g' /modes/a /token/token; "
    "cat /modes/a /token/token > /dev/null; (echo 4 > /seen/file) 2> /dev/null || echo sealed; id; echo why > /dev/custom"
)


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


def image_pod(name: str, script: str, reference: str = IMAGE, **mount: Any) -> dict[str, Any]:
    """A pod that has the content of an image as a volume."""
    volumes = [{"name": "data", "image": {"reference": reference, "pullPolicy": "Never"}}]
    main = container("main", script, volumeMounts=[{**MOUNT, **mount}])
    return pod_of(name, main, volumes=volumes, restartPolicy="Never", hostNetwork=True)


def sysctl_pod(name: str, script: str, **values: str) -> dict[str, Any]:
    sysctls = [{"name": setting.replace("__", "."), "value": value} for setting, value in values.items()]
    return pod_of(name, container("main", script), restartPolicy="Never", securityContext={"sysctls": sysctls})


POD_NEEDS = (
    named("Service", "shop", spec={"ports": [{"name": "web", "port": 80}], "clusterIP": "10.96.3.4"}),
    named("ConfigMap", "modes", data={"a": "1"}),
)
POD_SCENES = (
    pod_of(
        "fills",
        container("main", "head -c 3000000 /dev/zero > /data/file; sleep 600", volumeMounts=[MOUNT]),
        volumes=[{"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}],
        hostNetwork=True,
    ),
    pod_of(
        "names",
        container("main", TELLS),
        restartPolicy="Never",
        hostAliases=[{"ip": "192.0.2.9", "hostnames": ["one", "two"]}],
        hostname="box",
        subdomain="team",
        setHostnameAsFQDN=True,
    ),
    pod_of(
        "alone",
        container("main", TELLS),
        restartPolicy="Never",
        dnsPolicy="None",
        dnsConfig={
            "nameservers": ["192.0.2.1"],
            "searches": ["my.example"],
            "options": [{"name": "ndots", "value": "2"}],
        },
        enableServiceLinks=False,
        hostNetwork=True,
    ),
    pod_of(
        "user",
        container(
            "main",
            HAS_VOLUMES,
            volumeMounts=[
                MOUNT,
                {"name": "disk", "mountPath": "/disk"},
                {"name": "disk", "mountPath": "/part", "subPathExpr": "$(NAME)/x"},
                {"name": "disk", "mountPath": "/seen", "readOnly": True, "recursiveReadOnly": "IfPossible"},
                {"name": "modes", "mountPath": "/modes"},
                {"name": "token", "mountPath": "/token"},
            ],
            env=[{"name": "NAME", "value": "pod"}],
            terminationMessagePath="/dev/custom",
            resources={"limits": {"memory": "64Mi"}},
        ),
        restartPolicy="Never",
        volumes=[
            {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
            {"name": "disk", "emptyDir": {}},
            {"name": "modes", "configMap": {"name": "modes", "defaultMode": 0o400}},
            {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        ],
        securityContext={"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000},
    ),
    pod_of(
        "looks-up",
        container(
            "main",
            f"busybox nslookup -type=a shop.default.svc.cluster.local {DNS}; busybox nslookup -type=ptr 4.3.96.10.in-addr.arpa {DNS}; "
            f"busybox nslookup -type=a absent.default.svc.cluster.local {DNS} || true",
        ),
        restartPolicy="Never",
        hostNetwork=True,
    ),
    sysctl_pod(
        "set",
        "cd /proc/sys; cat kernel/shm_rmid_forced net/ipv4/ip_unprivileged_port_start kernel/msgmax",
        kernel__shm_rmid_forced="1",
        net__ipv4__ip_unprivileged_port_start="80",
        kernel__msgmax="65536",
    ),
    sysctl_pod("unsafe", "sleep 600", kernel__sem="250 32000 32 128"),
    image_pod("content", "cat /data/etc/passwd; (echo 1 > /data/file) 2> /dev/null || echo sealed"),
    image_pod("absent", "true", reference="allot.test/absent:2"),
    image_pod("part", "cat /data/passwd", subPath="etc"),
    pod_of("root", container("main", "id"), securityContext={"runAsNonRoot": True}, hostNetwork=True),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if reason := why_not():
        pytest.skip(reason)
    # Sockets below it must have short names.
    server = ContainerdServer(Path(tempfile.mkdtemp(prefix="allot-cri-")))
    folder = tmp_path_factory.mktemp("r")
    try:
        server.start()
        server.import_image()
        options = ("--runtime", "cri", "--container-runtime-endpoint", f"unix://{server.socket}")
        options += ("--cgroup-root", server.groups, "--pod-max-pids", "500")
        names = ("--cluster-dns", "10.96.0.10", "--serve-dns", DNS, "--allowed-unsafe-sysctls", "kernel.msg*")
        with Cluster(folder, node_options=(*options, *names)) as made:
            made.groups = server.groups
            # All at once and first: by the time that their tests come, they have ended.
            made.apply(*POD_NEEDS, *POD_SCENES)
            yield made
        server.remove_containers()
    finally:
        server.kill()
        server.clean()
        unmount_below(folder)


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


def ended(cluster: Cluster, name: str) -> str:
    """What the containers of a pod said that has ended well."""
    phase = cluster.phase(name, "Succeeded", "Failed")
    said = cluster.run("logs", name, "--all-containers")
    assert phase == "Succeeded", (said, cluster.events(name))
    return said


def test_a_pod_finds_names_and_services(cluster: Cluster) -> None:
    said = ended(cluster, "names").splitlines()
    for line in (
        "nameserver 10.96.0.10",
        "options ndots:5",
        "# Kubernetes-managed hosts file.",
        f"{cluster.get('pod', 'names', '{.status.podIP}')}\t{FULL}\tbox",
        "192.0.2.9\tone\ttwo",
        FULL,
        f"HOSTNAME={FULL}",
        "SHOP_SERVICE_HOST=10.96.3.4",
        "SHOP_SERVICE_PORT_WEB=80",
        "KUBERNETES_SERVICE_HOST=10.96.0.1",
    ):
        assert line in said, line
    assert any(each.startswith("search default.svc.cluster.local svc.cluster.local cluster.local") for each in said)
    said = ended(cluster, "alone").splitlines()
    for line in (
        "search my.example",
        "nameserver 192.0.2.1",
        "options ndots:2",
        "# Kubernetes-managed hosts file (host network).",
        "KUBERNETES_SERVICE_HOST=10.96.0.1",
    ):
        assert line in said, line
    assert not any(each.startswith("SHOP_") for each in said)


def test_the_agent_knows_the_names_of_the_cluster(cluster: Cluster) -> None:
    said = ended(cluster, "looks-up")
    assert "Address: 10.96.3.4" in said
    assert "name = shop.default.svc.cluster.local" in said
    assert "can't find absent.default.svc.cluster.local: NXDOMAIN" in said


def test_a_user_who_is_not_root_has_the_volumes_of_the_pod(cluster: Cluster) -> None:
    """Below a data folder that only root can enter."""
    size, kind, *said = ended(cluster, "user").splitlines()
    assert size.split()[1] == "16384"
    assert kind == "tmpfs"
    assert said[:5] == ["2777 2000", "3", "644 2000", "440 0 2000", "640 1000 2000"]
    assert said[5:] == ["sealed", "uid=1000(worker) gid=3000 groups=2000,3000"]
    found = "{.metadata.uid} {.status.containerStatuses[0].state.terminated.message}"
    uid, _, message = cluster.get("pod", "user", found).partition(" ")
    assert message == "why\n"
    assert uid in Path("/proc/mounts").read_text()
    cluster.run("delete", "pod", "user", "--timeout=20s")
    wait_for("volumes that are gone", lambda: not (cluster.root / "pods" / uid).exists())
    assert uid not in Path("/proc/mounts").read_text()


def test_settings_of_the_kernel_are_set_or_refused(cluster: Cluster) -> None:
    assert ended(cluster, "set") == "1\n80\n65536\n"
    assert cluster.phase("unsafe", "Failed", "Running") == "Failed"
    why = 'forbidden sysctl: "kernel.sem" not allowlisted'
    told = "{.status.reason}: {.status.message}"
    assert cluster.get("pod", "unsafe", told) == f"SysctlForbidden: Pod was rejected: {why}"
    assert f"SysctlForbidden: {why}" in cluster.events("unsafe")


def test_the_content_of_an_image_is_a_volume(cluster: Cluster) -> None:
    said = ended(cluster, "content")
    assert "worker:x:1000" in said and said.endswith("sealed\n")
    reason = "{.status.containerStatuses[0].state.waiting.reason}"
    wait_for("a refusal", lambda: cluster.get("pod", "absent", reason) == "ErrImageNeverPull")
    # containerd before 2.2 would mount all of it, and say nothing.
    found = "{.status.phase} {.status.containerStatuses[0].state.waiting.message}"
    expected = ("Succeeded", "Pending volumeMount /data: subPath of image volumes need containerd 2.2")
    wait_for("an end", lambda: cluster.get("pod", "part", found).startswith(expected))


def test_an_image_that_runs_as_root_does_not_run_where_that_is_forbidden(cluster: Cluster) -> None:
    waiting = (
        "{.status.containerStatuses[0].state.waiting.reason}: {.status.containerStatuses[0].state.waiting.message}"
    )
    expected = "CreateContainerConfigError: container has runAsNonRoot and image will run as root"
    wait_for("a refusal", lambda: cluster.get("pod", "root", waiting).startswith(expected))
    # Nothing of it has run, and kubectl says why.
    said = 'container "main" in pod "root" is waiting to start: CreateContainerConfigError'
    assert said in cluster.run("logs", "root", check=False)


def test_a_pod_with_more_in_a_volume_than_it_may_is_evicted(cluster: Cluster) -> None:
    assert cluster.phase("fills", "Failed") == "Failed"
    text = 'Usage of EmptyDir volume "data" exceeds the limit "1Mi". '
    assert cluster.get("pod", "fills", "{.status.reason}: {.status.message}") == f"Evicted: {text}"
    assert f"Evicted: {text}" in cluster.events("fills")


def test_pods_are_resized_while_they_run_and_restarted_where_they_ask_for_it(cluster: Cluster) -> None:
    def resources(cpu: str, memory: str) -> dict[str, Any]:
        return {"resources": {"limits": {"cpu": cpu, "memory": memory}}}

    def status(path: str) -> str:
        return cluster.get("pod", "grows", f"{{.status.containerStatuses[0].{path}}}")

    def resize(cpu: str, memory: str) -> None:
        patch = {"spec": {"containers": [{"name": "main", **resources(cpu, memory)}]}}
        patch["spec"]["containers"][0]["resources"]["requests"] = {"cpu": cpu, "memory": memory}
        cluster.run("patch", "pod", "grows", "--subresource=resize", "-p", json.dumps(patch))
        wanted = {"cpu": cpu, "memory": memory}
        wait_for("other limits", lambda: (told := status("resources.limits")) and json.loads(told) == wanted)

    policy = {"resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]}
    serve = "trap exit TERM; while true; do sleep 0.1; done"
    cluster.pod("grows", container("main", serve, **resources("100m", "64Mi"), **policy))
    cluster.ready("grows")
    first = status("containerID")
    resize("150m", "64Mi")
    assert status("containerID") == first
    assert _quota(cluster, "grows") == 15_000
    assert _of_pod(cluster, "grows", "cpu.cfs_quota_us", "cpu.max") == "15000"
    resize("150m", "96Mi")
    wait_for("a restart", lambda: status("restartCount") == "1" and status("containerID") != first)
    assert _quota(cluster, "grows") == 15_000
    events = cluster.events("grows")
    assert any("Container main resize requires restart" in each for each in events)
    wait_for("the pod's own limit", lambda: _memory(cluster, "grows") == str(96 * 2**20))
    cluster.run("delete", "pod", "grows", "--timeout=20s")


def _of_pod(cluster: Cluster, name: str, old: str, new: str) -> str:
    """The first word of a file of a pod's own control group, of version 1 or 2."""
    uid = cluster.get("pod", name, "{.metadata.uid}")
    for qos_class in ("", "/burstable", "/besteffort"):
        for place in group_places(f"{cluster.groups}/kubepods{qos_class}/pod{uid}"):
            for file in (place / old, place / new):
                if file.exists():
                    return file.read_text().split()[0]
    raise AssertionError(f"no control group of pod {name} has {old} or {new}")


def _memory(cluster: Cluster, name: str) -> str:
    return _of_pod(cluster, name, "memory.limit_in_bytes", "memory.max")


def test_a_pod_has_a_control_group_that_is_resized_with_it_and_nothing_is_left_of_it(cluster: Cluster) -> None:
    """Also if the agent is killed and the pod is deleted meanwhile, with a process that the runtime does not know."""
    own = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
    serve = "trap exit TERM; while true; do sleep 0.1; done"
    cluster.pod("whole", container("main", serve), resources=own, hostNetwork=True, terminationGracePeriodSeconds=1)
    cluster.ready("whole")
    assert _memory(cluster, "whole") == str(64 * 2**20)
    assert _of_pod(cluster, "whole", "pids.max", "pids.max") == "500"
    # Its container has no limits of its own.
    assert _quota(cluster, "whole") == 20_000
    grown = {"requests": {"cpu": "150m", "memory": "64Mi"}, "limits": {"cpu": "300m", "memory": "96Mi"}}
    cluster.run("patch", "pod", "whole", "--subresource=resize", "-p", json.dumps({"spec": {"resources": grown}}))
    told = "{.status.allocatedResources.cpu} {.status.resources.limits.memory}"
    wait_for("the resize", lambda: cluster.get("pod", "whole", told) == "150m 96Mi")
    assert _memory(cluster, "whole") == str(96 * 2**20)
    assert _quota(cluster, "whole") == 30_000
    uid = cluster.get("pod", "whole", "{.metadata.uid}")
    path = f"{cluster.groups}/kubepods/burstable/pod{uid}"
    cluster.node.stop(signal.SIGKILL)
    with subprocess.Popen(("sleep", "1000")) as left:
        for place in group_places(path):
            if (place / "memory.max").exists() or (place / "memory.limit_in_bytes").exists():
                inside = place / "left"
                inside.mkdir()
                (inside / "cgroup.procs").write_text(str(left.pid))
        cluster.run("delete", "pod", "whole", "--force", "--grace-period=0")
        cluster.start_node()
        assert left.wait(WAIT_S) == -signal.SIGKILL
    wait_for("no group", lambda: not group_places(path))


def _quota(cluster: Cluster, name: str) -> int:
    """How many microseconds of a tenth of a second a pod's container may use, as its kernel has it."""
    id_ = cluster.get("pod", name, "{.status.containerStatuses[0].containerID}").removeprefix("containerd://")
    for pattern, file in ((f"**/{id_}", "cpu.cfs_quota_us"), (f"**/{id_}", "cpu.max")):
        for folder in Path("/sys/fs/cgroup").glob(pattern):
            if (folder / file).exists():
                return int((folder / file).read_text().split()[0])
    raise AssertionError(f"no control group of {id_}")


def test_pods_reach_services_and_the_api_server_by_their_addresses(cluster: Cluster) -> None:
    if reason := no_rules():
        pytest.skip(reason)
    serve = "mkdir /www; hostname > /www/name; busybox httpd -f -p 8080 -h /www"
    pods = [pod_of(name, container("main", serve)) for name in ("web-1", "web-2", "visitor")]
    for each in pods[:2]:
        each["metadata"]["labels"] = {"app": "web"}
    services = [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": selector}, "ports": [{"port": 80, "targetPort": 8080}]},
        }
        for name, selector in (("web", "web"), ("empty", "nobody"), ("self", "visitor"))
    ]
    cluster.apply(*pods, *services)
    for name in ("web-1", "web-2", "visitor"):
        cluster.ready(name)
    addresses = {name: cluster.get("service", name, "{.spec.clusterIP}") for name in ("web", "empty", "self")}

    def ask(address: str, port: int = 80) -> str:
        # The static busybox has no wget that works.
        script = f"printf 'GET /name HTTP/1.0\\r\\n\\r\\n' | busybox nc -w 5 {address} {port} && echo reached"
        return cluster.run("exec", "visitor", "--", "sh", "-c", script, check=False)

    said: dict[str, None] = {}

    def is_told_by_both() -> bool:
        said.update(dict.fromkeys(ask(addresses["web"]).splitlines()))
        return {"web-1", "web-2"} <= said.keys()

    wait_for("both pods", is_told_by_both)
    assert "refused" in ask(addresses["empty"])
    assert "refused" in ask(addresses["web"], 81)
    # By way of its own Service a pod reaches itself.
    wait_for("itself", lambda: "visitor" in ask(addresses["self"]))
    # It listens on the loopback address of the machine.
    assert "reached" in ask(cluster.get("service", "kubernetes", "{.spec.clusterIP}"), 443)
    cluster.run("delete", "service", "web", "empty", "self")
    wait_for("nobody", lambda: "web-" not in ask(addresses["web"]))
    cluster.run("delete", "pod", "web-1", "web-2", "visitor", "--timeout=20s")


def test_a_device_plugin_adds_to_containers(cluster: Cluster, tmp_path: Path) -> None:
    with plugin_process(cluster.root / "device-plugins", tmp_path / "devices"):
        path = "{.status.allocatable.vendor\\.example/gpu}"
        wait_for("the devices", lambda: cluster.get("node", "n1", path) == "2")
        script = "echo $GPU; busybox stat -c '%F %t:%T' /dev/gpu; (echo 1 > /opt/gpu/file) 2> /dev/null || echo sealed"
        limits = {"resources": {"limits": {"vendor.example/gpu": "2"}}}
        # The second start gets the same devices.
        again = "[ -e /dev/termination-log ] && busybox grep -q . /pod/once || { echo 1 > /pod/once; exit 1; }"
        main = container("main", f"{script}; {again}", volumeMounts=[{"name": "pod", "mountPath": "/pod"}], **limits)
        cluster.apply(
            pod_of(
                "plugged", main, restartPolicy="OnFailure", hostNetwork=True, volumes=[{"name": "pod", "emptyDir": {}}]
            )
        )
        cluster.phase("plugged", "Succeeded")
        assert cluster.run("logs", "plugged") == "d0,d1\ncharacter special file 1:3\nsealed\n"
        assert cluster.get("pod", "plugged", "{.status.containerStatuses[0].restartCount}") == "1"
        cluster.run("delete", "pod", "plugged", "--timeout=20s")
