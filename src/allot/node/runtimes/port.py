"""The agent's port to container runtimes, in the words of the container runtime interface.

A sandbox is what the containers of a pod share; a runtime without sandboxes keeps them as names. Calls are idempotent:
stopping or removing a missing one succeeds. A runtime remembers what it runs across restarts of the agent, so that `list`
shows everything.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from allot.core.lifecycle.pull_secrets import Credentials


class RuntimeFailure(Exception):
    """A request to a runtime failed. reason: for the waiting state of a container (`ErrImagePull`, `CreateContainerError`, `RunContainerError`,
    ...)."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class State(StrEnum):
    """The state of a container."""

    CREATED = "Created"
    RUNNING = "Running"
    EXITED = "Exited"
    UNKNOWN = "Unknown"


class PodName(msgspec.Struct, frozen=True, kw_only=True):
    """The pod that owns a sandbox or container."""

    uid: str
    namespace: str
    name: str


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder of the node in a container. sub_path: a part of it, perhaps of a volume that containers write to: finding and mounting it
    must be one step. image: the id of an image to mount instead of host_path."""

    host_path: str
    container_path: str
    image: str = ""
    sub_path: str = ""
    read_only: bool = False
    # Whether mounts below it are read-only, too.
    recursive_read_only: bool = False
    propagation: str = "None"


class HostDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device node of the machine, or a folder of them, in a container. permissions: letters of `rwm`."""

    host_path: str
    container_path: str
    permissions: str = ""


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a container; None: unlimited."""

    cpu_milli_request: int | None = None
    cpu_milli_limit: int | None = None
    memory_limit_bytes: int | None = None
    storage_limit_bytes: int | None = None
    cpuset_cpus: str = ""
    # Bytes by page size in bytes; other sizes are not allowed.
    huge_pages: Mapping[int, int] = {}
    oom_score_adjust: int = 0


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """A profile for seccomp or AppArmor."""

    # `RuntimeDefault`, `Unconfined` or `Localhost`.
    kind: str
    # The file (seccomp) or the name (AppArmor) of a profile on this machine.
    profile: str = ""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a container, and its privileges."""

    user: int | None = None
    group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    # Whether to reject an image that runs as root, or as an unknown user.
    non_root: bool = False
    privileged: bool = False
    read_only_root: bool = False
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    allow_privilege_escalation: bool = True
    # None: not specified; the kubelet then disables seccomp and leaves AppArmor to the runtime.
    seccomp: Confinement | None = None
    apparmor: Confinement | None = None


class HostPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the node that is forwarded to a port of the pod."""

    container_port: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = ""


class PodVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the node that belongs to a pod, and its size limit."""

    path: str
    size_bytes: int | None = None


class SandboxSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A sandbox to create."""

    pod: PodName
    attempt: int = 0
    hostname: str = ""
    log_directory: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_process_namespace: bool = False
    # The fully qualified host name, if the pod has one: with its subdomain, namespace and the cluster's domain.
    full_name: str = ""
    # Addresses with names that only this pod knows.
    host_aliases: tuple[tuple[str, tuple[str, ...]], ...] = ()
    dns_policy: str = "ClusterFirst"
    dns_servers: tuple[str, ...] = ()
    dns_searches: tuple[str, ...] = ()
    dns_options: tuple[str, ...] = ()
    runtime_handler: str = ""
    # Whether one of its containers is privileged.
    privileged: bool = False
    sysctls: Mapping[str, str] = {}
    host_ports: tuple[HostPort, ...] = ()
    cgroup_parent: str = ""
    # The commands of its containers.
    commands: tuple[tuple[str, ...], ...] = ()
    # Those with the pod's lifetime: a runtime can keep them in memory.
    volumes: tuple[PodVolume, ...] = ()


class ContainerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A container to create. ports: its declared TCP ports."""

    pod: PodName
    name: str
    attempt: int = 0
    ports: tuple[int, ...] = ()
    image: str = ""
    image_id: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_directory: str = ""
    environment: Mapping[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[HostDevice, ...] = ()
    # Qualified CDI names, which the runtime resolves and applies.
    cdi_devices: tuple[str, ...] = ()
    resources: Resources = Resources()
    user: User = User()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    # Below the sandbox's log directory.
    log_path: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    # Otherwise, containers keep running when the agent ends.
    ends_with_agent: bool = False


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """An existing sandbox."""

    id: str
    pod: PodName
    attempt: int = 0
    ready: bool = True
    ips: tuple[str, ...] = ()
    # Seconds since 1970.
    created_at: float = 0.0


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """An existing container."""

    id: str
    sandbox_id: str
    pod: PodName
    name: str
    attempt: int = 0
    state: State = State.UNKNOWN
    image: str = ""
    image_id: str = ""
    # Seconds since 1970; 0 if not yet.
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    # `OOMKilled`, `Completed`, `Error`, `ContainerCannotRun`.
    reason: str = ""
    message: str = ""
    annotations: Mapping[str, str] = {}


class Isolation(msgspec.Struct, frozen=True, kw_only=True):
    """Whether containers are sandboxed, and if not, why. runs: whether they run without a sandbox."""

    is_on: bool
    runs: bool = True
    reason: str
    message: str


class RuntimeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the runtime."""

    name: str
    version: str
    ready: bool = True
    network_ready: bool = True
    message: str = ""
    # Without images, containers are built from the machine's own files.
    pulls_images: bool = True
    # None: not managed by the runtime.
    isolation: Isolation | None = None
    # Whether pods have their own addresses; None as above.
    network: Isolation | None = None
    # How it names control groups, `cgroupfs` or `systemd`; empty if it does not say.
    cgroup_driver: str = ""
    # The runtime handlers that support recursive read-only mounts; "" is the default handler.
    recursive_read_only: frozenset[str] = frozenset()


class ContainerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What a container uses."""

    id: str
    processor_seconds: float = 0.0
    memory_bytes: int = 0
    # Seconds since 1970.
    started_at: float = 0.0


class Streams(Protocol):
    """An interactive program in a container."""

    async def write(self, data: bytes) -> None:
        """To its standard input; empty closes it."""

    def output(self) -> AsyncIterator[tuple[int, bytes]]:
        """Its output: (1, data) on standard output, (2, data) on standard error, until it ends. RuntimeFailure if a port turns out not to exist."""

    async def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""

    async def exit_code(self) -> int:
        """Wait for its end (exec); 0 for attach. RuntimeFailure if the program turns out not to exist."""

    async def close(self) -> None:
        """Disconnect; ends a program that was started by exec."""


class Runtime(Protocol):
    """Runs containers. RuntimeFailure if that is not possible."""

    async def open(self) -> None:
        """Start, and find what an earlier agent left running."""

    async def close(self) -> None:
        """Close; containers keep running."""

    async def status(self) -> RuntimeStatus:
        """The runtime's status."""

    async def ensure_image(
        self, image: str, pull_policy: str, pod: PodName, credentials: Sequence[Credentials] = ()
    ) -> str:
        """Make sure that an image is present; returns its id. credentials: tried in order."""

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox."""

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop everything in it."""

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove it and its containers."""

    async def create_container(self, sandbox_id: str, spec: ContainerSpec) -> str:
        """Create a container; returns its id."""

    async def start_container(self, container_id: str) -> None:
        """Start it."""

    async def update_container(self, container_id: str, resources: Resources) -> None:
        """Change the limits of a running container."""

    async def stop_container(self, container_id: str, grace_seconds: float) -> None:
        """Ask it to end, and kill it after the grace period."""

    async def remove_container(self, container_id: str) -> None:
        """Remove it."""

    async def list(self) -> tuple[Sequence[Sandbox], Sequence[Container]]:
        """All sandboxes and containers."""

    def changes(self) -> AsyncIterator[str]:
        """The uid of a pod each time something of it changes; the agent then lists. May report too much, never too little."""

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, bytes]:
        """Run a program in a container: exit code and output (probes, hooks)."""

    async def exec(self, container_id: str, command: Sequence[str], *, tty: bool, stdin: bool) -> Streams:
        """Run a program in a container with streams."""

    async def attach(self, container_id: str) -> Streams:
        """Attach to the container itself."""

    async def connect(self, sandbox_id: str, port: int) -> Streams:
        """A connection to a port of the pod."""

    async def usage(self) -> Sequence[ContainerUsage]:
        """The current usage of running containers, as far as known."""
