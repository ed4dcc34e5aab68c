"""What a CRI runtime is told, and how its answers are read."""

from __future__ import annotations

import re

import msgspec
import pytest

from allot.node.runtimes import cri_messages as messages
from allot.node.runtimes.cri_streams import exit_code_of
from allot.node.runtimes.port import (
    Confinement,
    ContainerSpec,
    HostDevice,
    HostPort,
    Mount,
    PodName,
    Resources,
    RuntimeFailure,
    SandboxSpec,
    State,
    User,
)
from allot.wire import cri_pb2 as pb

POD = PodName(uid="uid-1", namespace="team", name="pod-1")
LABELS = {
    "io.kubernetes.pod.name": "pod-1",
    "io.kubernetes.pod.namespace": "team",
    "io.kubernetes.pod.uid": "uid-1",
}


def _container(**more: object) -> pb.ContainerConfig:
    spec = ContainerSpec(pod=POD, name="main", image="busybox", **more)  # type: ignore[arg-type]
    return messages.container_config(spec, SandboxSpec(pod=POD))


def test_sandboxes_and_containers_have_the_labels_of_the_kubelet() -> None:
    sandbox = messages.sandbox_config(SandboxSpec(pod=POD, labels={"app": "web"}))
    assert dict(sandbox.labels) == {"app": "web", **LABELS}
    assert dict(_container().labels) == {**LABELS, "io.kubernetes.container.name": "main"}


def test_how_a_sandbox_was_asked_for_is_read_back_from_it() -> None:
    spec = SandboxSpec(
        pod=POD,
        attempt=3,
        hostname="box",
        log_directory="/logs",
        labels=LABELS,
        annotations={"note": "kept"},
        host_pid=True,
        dns_servers=("10.0.0.1",),
        sysctls={"net.core.somaxconn": "10"},
        host_ports=(HostPort(container_port=80, host_port=8080),),
        privileged=True,
    )
    config = messages.sandbox_config(spec)
    listed = pb.PodSandbox(metadata=config.metadata, labels=config.labels, annotations=config.annotations)
    assert messages.sandbox_spec(listed) == spec


def test_a_sandbox_of_another_agent_is_taken_with_the_kubelet_s_defaults() -> None:
    listed = pb.PodSandbox(metadata=pb.PodSandboxMetadata(name="pod-1", uid="uid-1", namespace="team", attempt=1))
    spec = messages.sandbox_spec(listed)
    assert (spec.pod, spec.attempt, spec.hostname) == (POD, 1, "pod-1")
    assert spec.log_directory == "/var/log/pods/team_pod-1_uid-1"
    listed.annotations[messages.SANDBOX_SPEC] = "{damaged"
    assert messages.sandbox_spec(listed).pod == POD


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (pb.POD, pb.CONTAINER, pb.POD)),
        ({"share_process_namespace": True}, (pb.POD, pb.POD, pb.POD)),
        ({"host_network": True, "host_pid": True, "host_ipc": True}, (pb.NODE, pb.NODE, pb.NODE)),
    ],
)
def test_namespaces_are_shared_as_the_pod_says(spec: dict[str, bool], expected: tuple[int, int, int]) -> None:
    sandbox = SandboxSpec(pod=POD, hostname="box", **spec)  # type: ignore[arg-type]
    config = messages.sandbox_config(sandbox)
    inside = messages.container_config(ContainerSpec(pod=POD, name="main"), sandbox)
    for options in (
        config.linux.security_context.namespace_options,
        inside.linux.security_context.namespace_options,
    ):
        assert (options.network, options.pid, options.ipc) == expected
    assert config.hostname == ("" if sandbox.host_network else "box")


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (Resources(), (2, 0, 0, 0)),
        (Resources(cpu_milli_request=250), (256, 0, 0, 0)),
        (Resources(cpu_milli_limit=500, memory_limit_bytes=1024), (512, 100_000, 50_000, 1024)),
        (Resources(cpu_milli_request=100, cpu_milli_limit=1), (102, 100_000, 1000, 0)),
        (Resources(cpu_milli_request=1_000_000_000), (262_144, 0, 0, 0)),
    ],
)
def test_processor_and_memory_become_shares_quota_and_limit(
    resources: Resources, expected: tuple[int, int, int, int]
) -> None:
    made = _container(resources=resources).linux.resources
    assert (made.cpu_shares, made.cpu_period, made.cpu_quota, made.memory_limit_in_bytes) == expected


def test_users_groups_and_privileges_are_passed_on() -> None:
    user = User(user=0, group=5, add_capabilities=("SYS_PTRACE",), allow_privilege_escalation=False)
    security = _container(user=user).linux.security_context
    assert security.HasField("run_as_user")
    assert (security.run_as_user.value, security.run_as_group.value) == (0, 5)
    assert (list(security.capabilities.add_capabilities), security.no_new_privs) == (["SYS_PTRACE"], True)
    assert "/proc/kcore" in security.masked_paths
    assert not _container(user=User(privileged=True)).linux.security_context.masked_paths
    assert not _container().linux.security_context.HasField("run_as_user")
    spec = ContainerSpec(pod=POD, name="main", user=User(group=5))
    for image_user, number, name in (((7, ""), 7, ""), ((None, "worker"), 0, "worker")):
        security = messages.container_config(spec, SandboxSpec(pod=POD), image_user).linux.security_context
        assert (security.run_as_user.value, security.run_as_username) == (number, name)


def test_seccomp_and_apparmor_are_passed_on() -> None:
    security = _container().linux.security_context
    assert security.seccomp.profile_type == pb.SecurityProfile.Unconfined
    assert not security.HasField("apparmor")
    user = User(seccomp=Confinement(kind="RuntimeDefault"), apparmor=Confinement(kind="Localhost", profile="strict"))
    security = _container(user=user).linux.security_context
    assert security.seccomp.profile_type == pb.SecurityProfile.RuntimeDefault
    assert (security.apparmor.profile_type, security.apparmor.localhost_ref) == (pb.SecurityProfile.Localhost, "strict")
    unknown = _container(user=User(seccomp=Confinement(kind="Later"))).linux.security_context
    assert unknown.seccomp.profile_type == pb.SecurityProfile.RuntimeDefault


def test_cdi_devices_are_passed_once_in_their_order_and_mounts_with_their_propagation() -> None:
    made = _container(
        cdi_devices=("b/c=2", "b/c=1", "b/c=2"),
        mounts=(Mount(host_path="/a", container_path="/b", propagation="HostToContainer"),),
        devices=(HostDevice(host_path="/dev/a", container_path="/dev/b", permissions="rw"),),
        environment={"NAME": "wért"},
    )
    assert made.devices == [pb.Device(host_path="/dev/a", container_path="/dev/b", permissions="rw")]
    assert [each.name for each in made.CDI_devices] == ["b/c=2", "b/c=1"]
    assert made.mounts[0].propagation == pb.PROPAGATION_HOST_TO_CONTAINER
    assert made.envs[0].value == "wért".encode()


def test_a_container_without_its_sandbox_still_has_its_pod() -> None:
    listed = pb.Container(
        id="c",
        pod_sandbox_id="gone",
        labels=LABELS,
        state=pb.CONTAINER_UNKNOWN,
        metadata=pb.ContainerMetadata(name="m"),
    )
    made = messages.container_of(listed, None, {})
    assert (made.pod, made.name, made.state) == (POD, "m", State.UNKNOWN)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("busybox", "busybox:latest"),
        ("busybox:1", "busybox:1"),
        ("localhost:5000/busybox", "localhost:5000/busybox:latest"),
        ("busybox@sha256:0f", "busybox@sha256:0f"),
    ],
)
def test_an_image_without_a_tag_is_the_latest(image: str, expected: str) -> None:
    assert messages.with_tag(image) == expected


@pytest.mark.parametrize("image", ["", " ", "a b", "/a", "a:", "@sha256:0f", "a\x00"])
def test_what_is_no_name_of_an_image_is_refused(image: str) -> None:
    with pytest.raises(ValueError, match="couldn't parse image name"):
        messages.with_tag(image)


def test_without_a_policy_only_the_latest_is_always_pulled() -> None:
    assert [messages.pull_wanted(image, "") for image in ("a", "a:latest", "a:1")] == [
        "Always",
        "Always",
        "IfNotPresent",
    ]
    assert messages.pull_wanted("a", "Never") == "Never"


def test_the_end_of_a_program_is_read_from_its_status() -> None:
    failed = {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": "42"}]},
    }
    assert exit_code_of(msgspec.json.encode(failed), "ExecError") == 42
    assert exit_code_of(b'{"status":"Success"}', "ExecError") == 0
    assert exit_code_of(b"", "AttachError") == 0
    for told, text in (
        (b'{"status":"Failure","message":"no such program"}', "no such program"),
        (b"plain words", "plain words"),
        (b"[1]", r"\[1\]"),
        (b'{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[]},"message":"odd"}', "odd"),
        (b"", "hung up"),
    ):
        with pytest.raises(RuntimeFailure, match=text):
            exit_code_of(told, "ExecError")


def test_the_content_of_an_image_is_mounted_by_the_runtime() -> None:
    mount = Mount(host_path="", container_path="/in", image="sha256:1", sub_path="v1", read_only=True)
    made = _container(mounts=(mount,)).mounts[0]
    assert (made.image.image, made.image_sub_path, made.host_path, made.readonly) == ("sha256:1", "v1", "", True)
    assert not _container(mounts=(Mount(host_path="/a", container_path="/b"),)).mounts[0].HasField("image")


@pytest.mark.parametrize(
    ("version", "sub_path", "expected"),
    [
        ("v2.1.9", "", ""),
        ("2.2.0-rc.1", "v1", ""),
        ("v2.0.5", "", "volumeMount /in: image volumes need containerd 2.1; this is v2.0.5"),
        ("v1.7.27", "", "volumeMount /in: image volumes need containerd 2.1; this is v1.7.27"),
        ("v2.1.9", "v1", "volumeMount /in: subPath of image volumes need containerd 2.2; this is v2.1.9"),
    ],
)
def test_a_runtime_that_would_mount_something_else_is_not_asked(version: str, sub_path: str, expected: str) -> None:
    mount = Mount(host_path="", container_path="/in", image="sha256:1", sub_path=sub_path)
    messages.check_images((Mount(host_path="/a", container_path="/b", sub_path="c"),), "containerd", "v1.0")
    messages.check_images((mount,), "cri-o", "1.30")
    if not expected:
        messages.check_images((mount,), "containerd", version)
        return
    with pytest.raises(RuntimeFailure, match=re.escape(expected)):
        messages.check_images((mount,), "containerd", version)


def test_an_image_is_not_run_as_root_or_as_nobody_knows_whom_where_that_is_forbidden() -> None:
    spec = ContainerSpec(pod=POD, name="main", user=User(non_root=True))
    messages.check_non_root(spec, (1000, ""))
    with pytest.raises(RuntimeFailure, match="image will run as root"):
        messages.check_non_root(spec, (0, ""))
    with pytest.raises(RuntimeFailure, match=r"image has non-numeric user \(worker\), cannot verify user is non-root"):
        messages.check_non_root(spec, (None, "worker"))


def test_each_size_of_huge_pages_has_a_limit_and_without_one_none_are_allowed() -> None:
    found = messages.container_resources(Resources(huge_pages={2**21: 4 * 2**20}), (2**21, 2**30))
    assert [(each.page_size, each.limit) for each in found.hugepage_limits] == [("2MB", 4 * 2**20), ("1GB", 0)]
