"""Converts between the port's types and the messages of the container runtime interface. Pure: makes no calls.

What a restarted agent needs is kept in the runtime itself: the owner of a sandbox or container in the kubelet's labels, and what the interface
does not return (the requested sandbox, whether a container has a terminal) in our own annotations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import msgspec

from allot.core.lifecycle.control_groups import PERIOD_US, quota_of, shares_of, spelled_size
from allot.core.lifecycle.pull_secrets import Credentials
from allot.node.runtimes.port import (
    Confinement,
    Container,
    ContainerSpec,
    Mount,
    PodName,
    Resources,
    RuntimeFailure,
    Sandbox,
    SandboxSpec,
    State,
    User,
)
from allot.wire import cri_pb2 as pb

POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
RESTART_COUNT = "io.kubernetes.container.restartCount"
# Ours: the requested sandbox, which each of its containers needs again, and the streams of a container.
SANDBOX_SPEC = "allot.dev/sandbox"
STREAMS = "allot.dev/streams"

_NANOSECONDS = 1_000_000_000

# Kernel files that a container does not see, and those that are read-only, unless it is privileged.
_MASKED = (
    *("/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats"),
    *("/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi"),
    *("/sys/firmware", "/sys/devices/virtual/powercap"),
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_PROPAGATION = {
    "HostToContainer": pb.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": pb.PROPAGATION_BIDIRECTIONAL,
}
_STATES = {
    pb.CONTAINER_CREATED: State.CREATED,
    pb.CONTAINER_RUNNING: State.RUNNING,
    pb.CONTAINER_EXITED: State.EXITED,
}
_PROFILES = {
    "RuntimeDefault": pb.SecurityProfile.RuntimeDefault,
    "Unconfined": pb.SecurityProfile.Unconfined,
    "Localhost": pb.SecurityProfile.Localhost,
}
# Older ones do not know these fields.
_IMAGE_VOLUMES_SINCE, _IMAGE_PARTS_SINCE = (2, 1), (2, 2)
_PROTOCOLS = {"TCP": pb.TCP, "UDP": pb.UDP, "SCTP": pb.SCTP}


# --- requests ---


def sandbox_config(spec: SandboxSpec) -> pb.PodSandboxConfig:
    """A sandbox to create; sent again with each of its containers."""
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(
            name=spec.pod.name, uid=spec.pod.uid, namespace=spec.pod.namespace, attempt=spec.attempt
        ),
        # A pod on the host network has the machine's name.
        hostname="" if spec.host_network else spec.hostname,
        log_directory=spec.log_directory,
        labels={**spec.labels, **_pod_labels(spec.pod)},
        annotations={**spec.annotations, SANDBOX_SPEC: _remembered(spec)},
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=spec.cgroup_parent,
            sysctls=spec.sysctls,
            security_context=pb.LinuxSandboxSecurityContext(
                namespace_options=_namespaces(spec),
                privileged=spec.privileged,
                seccomp=pb.SecurityProfile(profile_type=pb.SecurityProfile.RuntimeDefault),
            ),
        ),
    )
    if spec.dns_servers or spec.dns_searches or spec.dns_options:
        config.dns_config.servers.extend(spec.dns_servers)
        config.dns_config.searches.extend(spec.dns_searches)
        config.dns_config.options.extend(spec.dns_options)
    for port in spec.host_ports:
        config.port_mappings.add(
            protocol=_PROTOCOLS.get(port.protocol, pb.TCP),
            container_port=port.container_port,
            host_port=port.host_port,
            host_ip=port.host_ip,
        )
    return config


def container_config(
    spec: ContainerSpec,
    sandbox: SandboxSpec,
    image_user: tuple[int | None, str] = (None, ""),
    page_sizes: Iterable[int] = (),
) -> pb.ContainerConfig:
    """A container to create. image_user: id or name of the image's own user, for a group without a user; page_sizes: the machine's huge pages."""
    streams = ",".join(name for name, wanted in (("stdin", spec.stdin), ("tty", spec.tty)) if wanted)
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=pb.ImageSpec(image=spec.image_id or spec.image, user_specified_image=spec.image),
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_directory,
        envs=[pb.KeyValue(key=key, value=value.encode()) for key, value in spec.environment.items()],
        mounts=[_mount(each) for each in spec.mounts],
        devices=[
            pb.Device(host_path=each.host_path, container_path=each.container_path, permissions=each.permissions)
            for each in spec.devices
        ],
        labels={**spec.labels, **_pod_labels(spec.pod), CONTAINER_NAME: spec.name},
        annotations={RESTART_COUNT: str(spec.attempt), **spec.annotations, STREAMS: streams},
        log_path=spec.log_path,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        linux=pb.LinuxContainerConfig(
            resources=container_resources(spec.resources, page_sizes),
            security_context=_security(spec.user, sandbox, image_user),
        ),
        # Repeated names would be applied twice.
        CDI_devices=[pb.CDIDevice(name=name) for name in dict.fromkeys(spec.cdi_devices)],
    )


def check_non_root(spec: ContainerSpec, image_user: tuple[int | None, str]) -> None:
    """RuntimeFailure if a container that must not be root would be, or if that is unknown. image_user: as above."""
    number, name = image_user
    if number != 0 and not name:
        return
    whose = f'(pod: "{spec.pod.name}_{spec.pod.namespace}({spec.pod.uid})", container: {spec.name})'
    text = f"container has runAsNonRoot and image will run as root {whose}"
    if name:
        text = f"container has runAsNonRoot and image has non-numeric user ({name}), cannot verify user is non-root {whose}"
    raise RuntimeFailure("CreateContainerConfigError", text)


def check_images(mounts: Iterable[Mount], runtime: str, version: str) -> None:
    """RuntimeFailure if a container mounts an image, or a part of it, and this runtime is known not to support that: it would silently mount
    something else."""
    found = [each for each in mounts if each.image]
    if not found or runtime != "containerd":
        return
    numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:2])
    for needed, what, wanted in (
        (_IMAGE_VOLUMES_SINCE, "image volumes", found),
        (_IMAGE_PARTS_SINCE, "subPath of image volumes", [each for each in found if each.sub_path]),
    ):
        if wanted and numbers < needed:
            text = f"volumeMount {wanted[0].container_path}: {what} need containerd {'.'.join(map(str, needed))}; this is {version}"
            raise RuntimeFailure("CreateContainerError", text)


def auth_config(credentials: Credentials) -> pb.AuthConfig:
    """The credentials for pulling an image."""
    return pb.AuthConfig(
        username=credentials.username, password=credentials.password, identity_token=credentials.identity_token
    )


def _pod_labels(pod: PodName) -> dict[str, str]:
    return {POD_NAME: pod.name, POD_NAMESPACE: pod.namespace, POD_UID: pod.uid}


def _remembered(spec: SandboxSpec) -> str:
    # Labels and annotations are returned by the runtime, and can be long.
    return msgspec.json.encode(msgspec.structs.replace(spec, labels={}, annotations={})).decode()


def _namespaces(spec: SandboxSpec) -> pb.NamespaceOption:
    return pb.NamespaceOption(
        network=pb.NODE if spec.host_network else pb.POD,
        pid=pb.NODE if spec.host_pid else pb.POD if spec.share_process_namespace else pb.CONTAINER,
        ipc=pb.NODE if spec.host_ipc else pb.POD,
    )


def _mount(mount: Mount) -> pb.Mount:
    made = pb.Mount(
        container_path=mount.container_path,
        host_path=mount.host_path,
        readonly=mount.read_only,
        recursive_read_only=mount.recursive_read_only,
        propagation=_PROPAGATION.get(mount.propagation, pb.PROPAGATION_PRIVATE),
    )
    if mount.image:
        made.image.image = mount.image
        made.image_sub_path = mount.sub_path
    return made


def container_resources(resources: Resources, page_sizes: Iterable[int] = ()) -> pb.LinuxContainerResources:
    """The limits of a container, in the units of control groups. page_sizes: the machine's huge pages."""
    request = resources.cpu_milli_request
    if request is None:
        request = resources.cpu_milli_limit or 0
    made = pb.LinuxContainerResources(
        cpu_shares=shares_of(request),
        oom_score_adj=resources.oom_score_adjust,
        cpuset_cpus=resources.cpuset_cpus,
    )
    if resources.cpu_milli_limit:
        made.cpu_period = PERIOD_US
        made.cpu_quota = quota_of(resources.cpu_milli_limit)
    if resources.memory_limit_bytes:
        made.memory_limit_in_bytes = resources.memory_limit_bytes
    for size in page_sizes:
        made.hugepage_limits.add(page_size=spelled_size(size), limit=resources.huge_pages.get(size, 0))
    return made


def _security(user: User, sandbox: SandboxSpec, image_user: tuple[int | None, str]) -> pb.LinuxContainerSecurityContext:
    made = pb.LinuxContainerSecurityContext(
        capabilities=pb.Capability(add_capabilities=user.add_capabilities, drop_capabilities=user.drop_capabilities),
        privileged=user.privileged,
        namespace_options=_namespaces(sandbox),
        readonly_rootfs=user.read_only_root,
        supplemental_groups=user.supplemental_groups,
        no_new_privs=not user.allow_privilege_escalation,
        seccomp=_profile(user.seccomp or Confinement(kind="Unconfined")),
    )
    if user.apparmor is not None:
        made.apparmor.CopyFrom(_profile(user.apparmor))
    if not user.privileged:
        made.masked_paths.extend(_MASKED)
        made.readonly_paths.extend(_READ_ONLY)
    number, name = (user.user, "") if user.user is not None else image_user
    if number is not None:
        made.run_as_user.value = number
    elif name:
        made.run_as_username = name
    if user.group is not None:
        made.run_as_group.value = user.group
    return made


def _profile(confinement: Confinement) -> pb.SecurityProfile:
    # An unknown type must not result in less than the runtime's own protection.
    kind = _PROFILES.get(confinement.kind, pb.SecurityProfile.RuntimeDefault)
    return pb.SecurityProfile(profile_type=kind, localhost_ref=confinement.profile)


# --- answers ---


def sandbox_spec(sandbox: pb.PodSandbox) -> SandboxSpec:
    """The requested sandbox. One from another agent is assumed to have a kubelet's defaults."""
    labels, annotations = dict(sandbox.labels), dict(sandbox.annotations)
    remembered = annotations.pop(SANDBOX_SPEC, "")
    try:
        spec = msgspec.json.decode(remembered, type=SandboxSpec)
    except msgspec.DecodeError:
        metadata = sandbox.metadata
        spec = SandboxSpec(
            pod=_pod(metadata),
            attempt=metadata.attempt,
            hostname=metadata.name,
            log_directory=f"/var/log/pods/{metadata.namespace}_{metadata.name}_{metadata.uid}",
            runtime_handler=sandbox.runtime_handler,
        )
    return msgspec.structs.replace(spec, labels=labels, annotations=annotations)


def sandbox_of(sandbox: pb.PodSandbox, ips: tuple[str, ...]) -> Sandbox:
    """A sandbox of a list."""
    return Sandbox(
        id=sandbox.id,
        pod=_pod(sandbox.metadata),
        attempt=sandbox.metadata.attempt,
        ready=sandbox.state == pb.SANDBOX_READY,
        ips=ips,
        created_at=sandbox.created_at / _NANOSECONDS,
    )


def ips_of(status: pb.PodSandboxStatus) -> tuple[str, ...]:
    """A pod's addresses, the primary one first; none on the host network."""
    network = status.network
    return tuple(filter(None, (network.ip, *(each.ip for each in network.additional_ips))))


def container_of(listed: pb.Container, status: pb.ContainerStatus | None, owners: Mapping[str, PodName]) -> Container:
    """A container of a list. status: None if it has not run; owners: pods by sandbox id."""
    labels = listed.labels
    pod = owners.get(listed.pod_sandbox_id) or PodName(
        uid=labels[POD_UID], namespace=labels[POD_NAMESPACE], name=labels[POD_NAME]
    )
    made = Container(
        id=listed.id,
        sandbox_id=listed.pod_sandbox_id,
        pod=pod,
        name=listed.metadata.name,
        attempt=listed.metadata.attempt,
        state=_STATES.get(listed.state, State.UNKNOWN),
        image=listed.image.user_specified_image or listed.image.image,
        image_id=listed.image_ref or listed.image_id,
        created_at=listed.created_at / _NANOSECONDS,
        annotations=dict(listed.annotations),
    )
    if status is None:
        return made
    return msgspec.structs.replace(
        made,
        state=_STATES.get(status.state, State.UNKNOWN),
        image_id=status.image_ref or made.image_id,
        started_at=status.started_at / _NANOSECONDS,
        finished_at=status.finished_at / _NANOSECONDS,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message,
    )


def _pod(metadata: pb.PodSandboxMetadata) -> PodName:
    return PodName(uid=metadata.uid, namespace=metadata.namespace, name=metadata.name)


# --- names of images ---


def with_tag(image: str) -> str:
    """An image name with the default tag if it has none; ValueError if it is invalid."""
    name, _, digest = image.partition("@")
    if not name or any(letter.isspace() or not letter.isprintable() for letter in image) or name != name.strip("/:"):
        raise ValueError(f'couldn\'t parse image name "{image}": invalid reference format')
    last = name.rpartition("/")[2]
    return image if digest or ":" in last else f"{image}:latest"


def pull_wanted(image: str, policy: str) -> str:
    """The effective pull policy: without one, the API server's default."""
    if policy:
        return policy
    return "Always" if with_tag(image).endswith(":latest") else "IfNotPresent"
