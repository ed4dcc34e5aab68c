"""Builds the runtime's configuration of a container: environment, mounts, user, limits.

Fetches what the environment refers to; everything else follows from the pod.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from allot.core.lifecycle.control_groups import oom_score, size_of
from allot.core.lifecycle.plugin_devices import Edits, HostPath
from allot.core.lifecycle.pod_amounts import HUGE_PAGES, container_limits
from allot.core.lifecycle.pod_environment import BadEnvironment, PodFacts, environment, expand, references
from allot.core.lifecycle.pod_sysctls import sysctls_of
from allot.core.lifecycle.pod_users import must_not_be_root, run_as_user
from allot.core.lifecycle.pods import Start, pod_title
from allot.core.lifecycle.pull_secrets import Credentials, credentials_for
from allot.core.model.containers_v1 import ConfinementProfile, RunnableContainer, SecurityContext
from allot.core.model.core_v1 import Container, Pod
from allot.core.model.pods_v1 import PodSecurityContext, RunnablePod
from allot.core.network.pod_files import BadHostname, HostNames, host_names
from allot.core.network.ranges import DOMAIN
from allot.node.objects import Missing, Objects
from allot.node.pod_folders import MESSAGES, MESSAGES_BYTES, opened
from allot.node.pod_names import HOSTS, PodNames, own_resolving
from allot.node.runtimes.port import (
    Confinement,
    ContainerSpec,
    HostDevice,
    HostPort,
    Mount,
    PodName,
    PodVolume,
    Resources,
    RuntimeFailure,
    SandboxSpec,
    User,
)
from allot.node.runtimes.stand_ins import command_of
from allot.node.volume_mounts import VolumeMounts
from allot.process.beneath import BadName, checked_name, remove_entry, write_file

_log = logging.getLogger("allot.node")

TERMINATION_FILE = "allot.dev/termination-message-file"
# For containers that must end before the pod continues.
INIT_CONTAINER = "allot.dev/init-container"


def pod_name(pod: Pod) -> PodName:
    """The pod that owns the containers."""
    return PodName(uid=pod.metadata.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)


def labels(pod: Pod) -> dict[str, str]:
    """How tools find a pod's containers in the runtime; the kubelet's own labels."""
    return {
        **pod.metadata.labels,
        "io.kubernetes.pod.name": pod.metadata.name,
        "io.kubernetes.pod.namespace": pod.metadata.namespace,
        "io.kubernetes.pod.uid": pod.metadata.uid,
    }


def names_of(pod: RunnablePod, domain: str) -> HostNames:
    """A pod's names. BadHostname."""
    spec = pod.spec
    return host_names(
        pod.metadata.name,
        pod.metadata.namespace,
        domain,
        hostname=spec.hostname,
        subdomain=spec.subdomain,
        as_full=spec.set_hostname_as_fqdn,
        override=spec.hostname_override,
    )


def sandbox_spec(pod: RunnablePod, attempt: int, log_directory: Path, names: HostNames) -> SandboxSpec:
    """What the containers share."""
    own = own_resolving(pod)
    return SandboxSpec(
        pod=pod_name(pod),
        attempt=attempt,
        hostname=names.kernel,
        full_name=names.full_name,
        host_aliases=tuple((each.ip, each.hostnames) for each in pod.spec.host_aliases),
        dns_policy=pod.spec.dns_policy or "ClusterFirst",
        log_directory=str(log_directory),
        labels=labels(pod),
        annotations=pod.metadata.annotations,
        host_network=pod.spec.host_network,
        host_pid=pod.spec.host_pid,
        host_ipc=pod.spec.host_ipc,
        share_process_namespace=pod.spec.share_process_namespace,
        dns_servers=own.servers,
        dns_searches=own.searches,
        dns_options=own.options,
        privileged=any(each.security_context and each.security_context.privileged for each in pod.containers()),
        sysctls=sysctls_of(pod),
        host_ports=tuple(
            HostPort(
                container_port=port.container_port,
                host_port=port.host_port,
                protocol=port.protocol or "TCP",
                host_ip=port.host_ip,
            )
            for each in pod.containers()
            for port in each.ports
            if port.host_port and not pod.spec.host_network
        ),
        commands=tuple(command_of(each.command, each.image) for each in pod.containers()),
    )


def pod_volumes(pod: RunnablePod, volumes: Mapping[str, Path], folder: Path) -> tuple[PodVolume, ...]:
    """Volumes with a pod's lifetime: its emptyDirs, and the messages of its containers. folder: the pod's own."""
    found = [PodVolume(path=str(folder / MESSAGES), size_bytes=MESSAGES_BYTES)]
    for each in pod.spec.volumes:
        if each.empty_dir is not None and each.name in volumes:
            limit = each.empty_dir.size_limit
            size = limit.value() if limit is not None and limit.value() > 0 else None
            found.append(PodVolume(path=str(volumes[each.name]), size_bytes=size))
    return tuple(found)


class ContainerSpecs:
    """Builds container specs. names: DNS for pods; None if the runtime handles it. recursive_read_only: the runtime handlers that support
    recursive read-only mounts."""

    def __init__(
        self, objects: Objects, names: PodNames | None = None, recursive_read_only: frozenset[str] = frozenset()
    ) -> None:
        self._objects = objects
        self._names = names
        self._domain = names.options.domain if names is not None else DOMAIN
        self._recursive_read_only = recursive_read_only

    async def sandbox(
        self,
        pod: RunnablePod,
        attempt: int,
        log_directory: Path,
        volumes: Mapping[str, Path],
        folder: Path,
        cgroup_parent: str = "",
    ) -> SandboxSpec:
        """What the containers share; RuntimeFailure if the pod's runtime class does not exist. folder: the pod's own; cgroup_parent: its control
        group."""
        try:
            handler = await self._handler(pod)
            spec = sandbox_spec(pod, attempt, log_directory, names_of(pod, self._domain))
        except (Missing, BadHostname) as error:
            raise RuntimeFailure("CreatePodSandboxError", str(error)) from error
        spec = msgspec.structs.replace(
            spec, runtime_handler=handler, volumes=pod_volumes(pod, volumes, folder), cgroup_parent=cgroup_parent
        )
        if self._names is None:
            return spec
        found = self._names.resolving(pod)
        return msgspec.structs.replace(
            spec, dns_servers=found.servers, dns_searches=found.searches, dns_options=found.options
        )

    async def _handler(self, pod: RunnablePod) -> str:
        name = pod.spec.runtime_class_name
        return await self._objects.runtime_handler(name) if name else ""

    async def credentials(self, pod: RunnablePod, image: str) -> tuple[Credentials, ...]:
        """Credentials to pull an image for a pod. A missing secret may not be needed: the pull decides."""
        secrets = []
        for each in pod.spec.image_pull_secrets:
            try:
                secrets.append(await self._objects.secret(pod.metadata.namespace, each.name) or {})
            except Missing as error:
                _log.warning("pod %s: pull secret %s: %s", pod.key, each.name, error)
        return credentials_for(image, secrets)

    async def make(
        self,
        pod: RunnablePod,
        container: RunnableContainer,
        start: Start,
        *,
        image_id: str,
        facts: PodFacts,
        volumes: Mapping[str, Path],
        folder: Path,
        cdi_devices: tuple[str, ...],
        images: Mapping[str, str] | None = None,
        plugged: Edits = Edits(),  # noqa: B008
    ) -> ContainerSpec:
        """The spec of one start; RuntimeFailure names what is missing. images: the ids of image volumes, by volume name; folder: the pod's own;
        plugged: what device plugins add. The pod's own variables win over theirs, as in the kubelet."""
        try:
            checked_name(container.name, f"pod {pod.key}: container")
            fetched = {}
            for kind, name in references(container):
                fetch = self._objects.config_map if kind == "configmap" else self._objects.secret
                fetched[kind, name] = await fetch(pod.metadata.namespace, name)
            made = {**plugged.environment, **environment(pod, container, facts, fetched)}
            recurses = await self._handler(pod) in self._recursive_read_only
        except (Missing, BadEnvironment, BadName) as error:
            raise RuntimeFailure("CreateContainerConfigError", str(error)) from error
        mounts = VolumeMounts(pod, container, volumes, images or {}, made, recurses=recurses).make()
        mounts = (*map(_plugged_mount, plugged.mounts), *mounts, *self._hosts(pod, container, facts, folder))
        message_file = ""
        if container.termination_message_path:
            message_file = str(_message_file(folder, container, start))
            mounts = (*mounts, Mount(host_path=message_file, container_path=container.termination_message_path))
        return ContainerSpec(
            pod=pod_name(pod),
            name=container.name,
            attempt=start.attempt,
            ports=tuple(each.container_port for each in container.ports if each.protocol in ("", "TCP")),
            image=container.image,
            image_id=image_id,
            command=tuple(expand(each, made) for each in container.command),
            args=tuple(expand(each, made) for each in container.args),
            working_directory=container.working_dir,
            environment=made,
            mounts=mounts,
            devices=tuple(
                HostDevice(host_path=each.host_path, container_path=each.container_path, permissions=each.permissions)
                for each in plugged.devices
            ),
            cdi_devices=(*cdi_devices, *plugged.cdi_devices),
            resources=resources_of(pod, container, facts),
            user=_user(pod, container, folder),
            stdin=container.stdin,
            stdin_once=container.stdin_once,
            tty=container.tty,
            log_path=f"{container.name}/{start.attempt}.log",
            labels={**labels(pod), "io.kubernetes.container.name": container.name},
            annotations={
                **plugged.annotations,
                TERMINATION_FILE: message_file,
                **({INIT_CONTAINER: "true"} if _must_end(pod, container) else {}),
                "io.kubernetes.container.restartCount": str(start.attempt),
                "io.kubernetes.container.terminationMessagePolicy": container.termination_message_policy,
            },
        )

    def _hosts(
        self, pod: RunnablePod, container: RunnableContainer, facts: PodFacts, folder: Path
    ) -> tuple[Mount, ...]:
        """The hosts file, unless the container brings its own."""
        if (
            self._names is None
            or not facts.pod_ips
            or any(each.mount_path == HOSTS for each in container.volume_mounts)
        ):
            return ()
        try:
            path = self._names.write_hosts(pod, names_of(pod, self._domain), facts.pod_ips, folder)
        except (OSError, BadHostname) as error:
            raise RuntimeFailure("CreateContainerConfigError", f"{HOSTS} of pod {pod.key}: {error}") from error
        return (Mount(host_path=str(path), container_path=HOSTS),)


def _plugged_mount(path: HostPath) -> Mount:
    return Mount(host_path=path.host_path, container_path=path.container_path, read_only=path.read_only)


def _must_end(pod: RunnablePod, container: RunnableContainer) -> bool:
    return not container.is_sidecar and any(each is container for each in pod.spec.init_containers)


def _message_file(folder: Path, container: RunnableContainer, start: Start) -> Path:
    """A file that the container can write to, and nothing else: its folder belongs to the agent."""
    around, name = f"{MESSAGES}/{container.name}", f"{start.attempt}"
    try:
        with opened(folder, around) as handle:
            remove_entry(handle, name)
            write_file(handle, name, b"", 0o666)
    except OSError as error:
        text = f'container "{container.name}": the file for its termination message: {error}'
        raise RuntimeFailure("CreateContainerConfigError", text) from error
    return folder / around / name


def resources_of(pod: Pod, container: Container, facts: PodFacts) -> Resources:
    """The limits of a container: its spec or its pod's, plus what the devices of its claims map to and cost."""
    limits = container_limits(pod, container)
    own = {**(pod.spec.resources.limits if pod.spec.resources is not None else {}), **container.resources.limits}
    # Without a request, the limit counts, but not what claims add to it.
    request = container.resources.requests.get("cpu", own.get("cpu"))
    machine = {name: each.value() for name, each in facts.allocatable.items()}
    # Pages that are set aside are memory, too.
    capacity = sum(each for name, each in machine.items() if name == "memory" or name.startswith(HUGE_PAGES))
    return Resources(
        cpu_milli_request=None if request is None else request.milli_value(),
        cpu_milli_limit=limits["cpu"].milli_value() if "cpu" in limits else None,
        memory_limit_bytes=limits["memory"].value() if "memory" in limits else None,
        storage_limit_bytes=limits["ephemeral-storage"].value() if "ephemeral-storage" in limits else None,
        huge_pages={size_of(name): each.value() for name, each in limits.items() if name.startswith(HUGE_PAGES)},
        oom_score_adjust=oom_score(pod, container, capacity),
    )


def _user(pod: RunnablePod, container: RunnableContainer, folder: Path) -> User:
    shared = pod.spec.security_context or PodSecurityContext()
    own = container.security_context or SecurityContext()
    user, non_root = run_as_user(pod, container), must_not_be_root(pod, container)
    if non_root and user == 0:
        text = f'container\'s runAsUser breaks non-root policy (pod: "{pod_title(pod)}", container: {container.name})'
        raise RuntimeFailure("CreateContainerConfigError", text)
    groups = shared.supplemental_groups
    made = User(
        user=user,
        group=own.run_as_group if own.run_as_group is not None else shared.run_as_group,
        supplemental_groups=(*groups, shared.fs_group) if shared.fs_group is not None else groups,
        non_root=non_root,
        privileged=own.privileged,
        read_only_root=own.read_only_root_filesystem,
        allow_privilege_escalation=own.allow_privilege_escalation is not False,
        # This machine's profiles are next to the folder of all pods.
        seccomp=_confinement(own.seccomp_profile or shared.seccomp_profile, folder.parents[1] / "seccomp"),
        apparmor=_confinement(own.app_armor_profile or shared.app_armor_profile, None),
    )
    if own.capabilities is None:
        return made
    return msgspec.structs.replace(made, add_capabilities=own.capabilities.add, drop_capabilities=own.capabilities.drop)


def _confinement(asked: ConfinementProfile | None, below: Path | None) -> Confinement | None:
    """below: the folder of profiles, if they are files."""
    if asked is None or not asked.type:
        return None
    profile = asked.localhost_profile
    if asked.type != "Localhost":
        profile = ""
    elif below is not None:
        if Path(profile).is_absolute() or ".." in Path(profile).parts:
            raise RuntimeFailure(
                "CreateContainerConfigError", f'seccomp profile "{profile}": expected a path below {below}'
            )
        profile = str(below / profile)
    return Confinement(kind=asked.type, profile=profile)
