"""The runtime `cri`: containers in containerd, CRI-O or any other runtime with the container runtime interface v1 and CDI.

Keeps no state: the runtime knows everything, so a restarted agent finds everything. The cache only saves calls: the details of a
container do not change as long as its state does not.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from allot.core.lifecycle.control_groups import CGROUPFS, SYSTEMD
from allot.core.lifecycle.pull_secrets import Credentials
from allot.node.runtimes import cri_messages as messages
from allot.node.runtimes.cri_calls import CALL_S, PULL_S, CriCalls
from allot.node.runtimes.cri_events import CriEvents, listed
from allot.node.runtimes.cri_streams import CriStreams
from allot.node.runtimes.port import (
    Container,
    ContainerSpec,
    ContainerUsage,
    Mount,
    PodName,
    Resources,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxSpec,
    Streams,
)
from allot.node.subpaths import bind_subpath
from allot.process.beneath import checked_name
from allot.process.clock import Clock
from allot.wire import cri_pb2 as pb

# The version of the interface's handshake, not of the runtime.
_HANDSHAKE = "0.1.0"
_SAID_BYTES_MAX = 10 * 1024
_NANOSECONDS = 1_000_000_000


class CriOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime's socket and polling intervals."""

    socket: str = "/run/containerd/containerd.sock"
    # The folder of all pods, in which subPaths are mounted for the runtime.
    pods: Path = Path("/var/lib/allot/node/pods")
    # Between lists if the runtime sends no events, and if it does.
    poll_s: float = 1.0
    relist_s: float = 30.0
    # The machine's huge pages, in bytes: each container has a limit of each.
    page_sizes: tuple[int, ...] = ()


class CriRuntime:
    """Runs containers in a CRI runtime."""

    def __init__(self, clock: Clock, options: CriOptions | None = None) -> None:
        self._options = options or CriOptions()
        self._calls = CriCalls(self._options.socket)
        self._version = pb.VersionResponse()
        self._cgroup_driver = ""
        self._recursive_read_only: frozenset[str] = frozenset()
        # By id: the requested sandbox, and its addresses while it is ready.
        self._specs: dict[str, SandboxSpec] = {}
        self._ips: dict[str, tuple[str, ...]] = {}
        # The last known status of containers that have run.
        self._statuses: dict[str, pb.ContainerStatus] = {}
        self._owners: dict[str, str] = {}
        self._events = CriEvents(
            self._calls,
            clock,
            poll_s=self._options.poll_s,
            relist_s=self._options.relist_s,
            owner=lambda id_: self._owners.get(id_, ""),
        )

    # --- life ---

    async def open(self) -> None:
        """Connect; RuntimeFailure if the runtime is not usable."""
        self._calls.open()
        await self._greet()
        self._cgroup_driver = await self._ask_cgroup_driver()

    async def _ask_cgroup_driver(self) -> str:
        """Empty if the runtime is older than the question."""
        try:
            answer = await self._calls.runtime(
                "RuntimeConfig", pb.RuntimeConfigRequest(), pb.RuntimeConfigResponse, "RuntimeUnavailable"
            )
        except RuntimeFailure:
            return ""
        if not answer.HasField("linux"):
            return ""
        return SYSTEMD if answer.linux.cgroup_driver == pb.SYSTEMD else CGROUPFS

    async def _greet(self) -> None:
        self._version = await self._calls.runtime(
            "Version", pb.VersionRequest(version=_HANDSHAKE), pb.VersionResponse, "RuntimeUnavailable"
        )
        if self._version.version != _HANDSHAKE:
            raise RuntimeFailure(
                "RuntimeUnavailable",
                f"the container runtime at {self._calls.socket} speaks version {self._version.version!r} "
                f"of the interface; {_HANDSHAKE!r} is needed",
            )

    async def close(self) -> None:
        """Close; containers keep running."""
        await self._calls.close()

    async def status(self) -> RuntimeStatus:
        """The runtime's own status; not ready if it does not answer."""
        try:
            await self._greet()
            answer = await self._calls.runtime("Status", pb.StatusRequest(), pb.StatusResponse, "RuntimeUnavailable")
        except RuntimeFailure as error:
            return self._status(ready=False, network_ready=False, message=str(error))
        self._recursive_read_only = frozenset(
            each.name for each in answer.runtime_handlers if each.features.recursive_read_only_mounts
        )
        conditions = {each.type: each for each in answer.status.conditions}
        problems = []
        for kind in ("RuntimeReady", "NetworkReady"):
            condition = conditions.get(kind)
            if condition is None:
                problems.append(f"the container runtime does not report {kind}")
            elif not condition.status:
                problems.append(
                    f"container runtime not ready: {kind}=false reason:{condition.reason} message:{condition.message}"
                )
        return self._status(
            ready=conditions["RuntimeReady"].status if "RuntimeReady" in conditions else False,
            network_ready=conditions["NetworkReady"].status if "NetworkReady" in conditions else False,
            message="; ".join(problems),
        )

    def _status(self, *, ready: bool, network_ready: bool, message: str) -> RuntimeStatus:
        return RuntimeStatus(
            name=self._version.runtime_name or "cri",
            version=self._version.runtime_version.removeprefix("v"),
            ready=ready,
            network_ready=network_ready,
            message=message,
            cgroup_driver=self._cgroup_driver,
            recursive_read_only=self._recursive_read_only,
        )

    # --- images ---

    async def ensure_image(
        self, image: str, pull_policy: str, pod: PodName, credentials: Sequence[Credentials] = ()
    ) -> str:
        """Pull an image if its policy requires it; returns its id."""
        try:
            reference = messages.with_tag(image)
        except ValueError as error:
            text = f'Failed to apply default image tag "{image}": {error}'
            raise RuntimeFailure("InvalidImageName", text) from error
        policy = messages.pull_wanted(image, pull_policy)
        if policy != "Always":
            found = await self._image(reference)
            if found is not None:
                return found.id
            if policy == "Never":
                text = f'Container image "{image}" is not present with pull policy of Never'
                raise RuntimeFailure("ErrImageNeverPull", text)
        problems: dict[str, None] = {}
        for each in credentials or (None,):
            request = pb.PullImageRequest(
                image=pb.ImageSpec(image=reference),
                auth=None if each is None else messages.auth_config(each),
                sandbox_config=messages.sandbox_config(SandboxSpec(pod=pod)),
            )
            try:
                answer = await self._calls.images("PullImage", request, pb.PullImageResponse, "ErrImagePull", PULL_S)
                return answer.image_ref
            except RuntimeFailure as error:
                problems[str(error)] = None
        raise RuntimeFailure("ErrImagePull", "; ".join(problems))

    async def _image(self, reference: str) -> pb.Image | None:
        request = pb.ImageStatusRequest(image=pb.ImageSpec(image=reference))
        answer = await self._calls.images("ImageStatus", request, pb.ImageStatusResponse, "ImageInspectError")
        return answer.image if answer.HasField("image") else None

    # --- sandboxes ---

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """Create a sandbox."""
        if spec.log_directory:
            Path(spec.log_directory).mkdir(mode=0o755, parents=True, exist_ok=True)
        request = pb.RunPodSandboxRequest(config=messages.sandbox_config(spec), runtime_handler=spec.runtime_handler)
        reason = "CreatePodSandboxError"
        made = await self._calls.runtime("RunPodSandbox", request, pb.RunPodSandboxResponse, reason, 2 * CALL_S)
        self._specs[made.pod_sandbox_id] = spec
        status = await self._sandbox_status(made.pod_sandbox_id)
        if status is None:
            raise RuntimeFailure(reason, f"sandbox {made.pod_sandbox_id} vanished right after it was created")
        ips = messages.ips_of(status)
        return Sandbox(
            id=made.pod_sandbox_id,
            pod=spec.pod,
            attempt=spec.attempt,
            ready=status.state == pb.SANDBOX_READY,
            ips=ips,
            created_at=status.created_at / _NANOSECONDS,
        )

    async def _sandbox_status(self, sandbox_id: str) -> pb.PodSandboxStatus | None:
        answer = await self._calls.runtime_if_there(
            "PodSandboxStatus",
            pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id),
            pb.PodSandboxStatusResponse,
            "RuntimeUnavailable",
        )
        return None if answer is None else answer.status

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stop everything in it and release its network."""
        await self._calls.runtime_if_there(
            "StopPodSandbox",
            pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id),
            pb.StopPodSandboxResponse,
            "KillPodSandboxError",
            2 * CALL_S,
        )

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove it and its containers."""
        # Some runtimes do not remove a sandbox that is still ready.
        await self.stop_sandbox(sandbox_id)
        await self._calls.runtime_if_there(
            "RemovePodSandbox",
            pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id),
            pb.RemovePodSandboxResponse,
            "KillPodSandboxError",
            2 * CALL_S,
        )

    # --- containers ---

    async def create_container(self, sandbox_id: str, spec: ContainerSpec) -> str:
        """Create a container, with the edits of its CDI devices."""
        reason = "CreateContainerError"
        sandbox = await self._spec_of(sandbox_id)
        image_user: tuple[int | None, str] = (None, "")
        if spec.user.user is None and (spec.user.group is not None or spec.user.non_root):
            image = await self._image(spec.image_id or spec.image)
            if image is not None:
                # An image without a user runs as root.
                image_user = (None, image.username) if image.username else (image.uid.value, "")
            if spec.user.non_root:
                messages.check_non_root(spec, image_user)
        if spec.log_path and sandbox.log_directory:
            (Path(sandbox.log_directory) / spec.log_path).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        messages.check_images(spec.mounts, self._version.runtime_name, self._version.runtime_version)
        mounts = tuple(
            self._whole(spec, position, each) if each.sub_path and not each.image else each
            for position, each in enumerate(spec.mounts)
        )
        spec = msgspec.structs.replace(spec, mounts=mounts)
        request = pb.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=messages.container_config(spec, sandbox, image_user, self._options.page_sizes),
            sandbox_config=messages.sandbox_config(sandbox),
        )
        try:
            answer = await self._calls.runtime("CreateContainer", request, pb.CreateContainerResponse, reason)
        except RuntimeFailure as error:
            if "reserved" not in str(error) or not await self._remove_unstarted(sandbox_id, spec):
                raise
            answer = await self._calls.runtime("CreateContainer", request, pb.CreateContainerResponse, reason)
        return answer.container_id

    def _whole(self, spec: ContainerSpec, position: int, mount: Mount) -> Mount:
        """A subPath mount as a mount of a whole path, safe against links."""
        folder = self._options.pods / checked_name(spec.pod.uid, f"pod {spec.pod.namespace}/{spec.pod.name}: uid")
        place = bind_subpath(folder, spec.name, position, mount)
        return msgspec.structs.replace(mount, host_path=place, sub_path="")

    async def _remove_unstarted(self, sandbox_id: str, spec: ContainerSpec) -> bool:
        """Remove a container that an earlier attempt created but did not start: it blocks the name. Returns whether there was one."""
        wanted = pb.ContainerFilter(pod_sandbox_id=sandbox_id, state=pb.ContainerStateValue(state=pb.CONTAINER_CREATED))
        request = pb.ListContainersRequest(filter=wanted)
        found = await self._calls.runtime("ListContainers", request, pb.ListContainersResponse, "CreateContainerError")
        same = [
            each.id
            for each in found.containers
            if (each.metadata.name, each.metadata.attempt) == (spec.name, spec.attempt)
        ]
        for id_ in same:
            await self.remove_container(id_)
        return bool(same)

    async def _spec_of(self, sandbox_id: str) -> SandboxSpec:
        """The requested sandbox, from this agent or an earlier one."""
        if sandbox_id not in self._specs:
            request = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(id=sandbox_id))
            reason = "CreateContainerError"
            answer = await self._calls.runtime("ListPodSandbox", request, pb.ListPodSandboxResponse, reason)
            if not answer.items:
                raise RuntimeFailure(reason, f"sandbox {sandbox_id} does not exist")
            self._specs[sandbox_id] = messages.sandbox_spec(answer.items[0])
        return self._specs[sandbox_id]

    async def start_container(self, container_id: str) -> None:
        """Start it."""
        request = pb.StartContainerRequest(container_id=container_id)
        await self._calls.runtime("StartContainer", request, pb.StartContainerResponse, "RunContainerError")

    async def update_container(self, container_id: str, resources: Resources) -> None:
        """Change the limits of a running container."""
        request = pb.UpdateContainerResourcesRequest(
            container_id=container_id, linux=messages.container_resources(resources, self._options.page_sizes)
        )
        await self._calls.runtime(
            "UpdateContainerResources", request, pb.UpdateContainerResourcesResponse, "ResizeContainerError"
        )

    async def stop_container(self, container_id: str, grace_seconds: float) -> None:
        """Send its stop signal, and SIGKILL after the grace period."""
        grace = math.ceil(max(grace_seconds, 0.0))
        await self._calls.runtime_if_there(
            "StopContainer",
            pb.StopContainerRequest(container_id=container_id, timeout=grace),
            pb.StopContainerResponse,
            "KillContainerError",
            CALL_S + grace,
        )

    async def remove_container(self, container_id: str) -> None:
        """Remove it; the runtime ends it if necessary."""
        await self._calls.runtime_if_there(
            "RemoveContainer",
            pb.RemoveContainerRequest(container_id=container_id),
            pb.RemoveContainerResponse,
            "KillContainerError",
        )

    # --- listing ---

    async def list(self) -> tuple[Sequence[Sandbox], Sequence[Container]]:
        """Everything in the runtime."""
        sandboxes, containers = await listed(self._calls)
        owners = {}
        told = []
        for sandbox in sandboxes:
            self._specs.setdefault(sandbox.id, messages.sandbox_spec(sandbox))
            made = messages.sandbox_of(sandbox, await self._ips_of(sandbox))
            owners[sandbox.id] = made.pod
            told.append(made)
        described = []
        for container in containers:
            status = await self._status_of(container)
            described.append(messages.container_of(container, status, owners))
        self._forget({each.id for each in sandboxes}, {each.id for each in containers})
        self._owners = {each.id: each.pod.uid for each in told} | {each.id: each.pod.uid for each in described}
        return told, described

    async def _ips_of(self, sandbox: pb.PodSandbox) -> tuple[str, ...]:
        if sandbox.state != pb.SANDBOX_READY:
            return self._ips.get(sandbox.id, ())
        if sandbox.id not in self._ips:
            status = await self._sandbox_status(sandbox.id)
            if status is None:
                return ()
            ips = messages.ips_of(status)
            # A sandbox without addresses may still get some, unless it is on the host network.
            if not ips and not self._specs[sandbox.id].host_network:
                return ()
            self._ips[sandbox.id] = ips
        return self._ips[sandbox.id]

    async def _status_of(self, container: pb.Container) -> pb.ContainerStatus | None:
        if container.state == pb.CONTAINER_CREATED:
            return None
        known = self._statuses.get(container.id)
        # The status of an ended container is final; a running one keeps its start time.
        if known is not None and known.state == container.state:
            return known
        answer = await self._calls.runtime_if_there(
            "ContainerStatus",
            pb.ContainerStatusRequest(container_id=container.id),
            pb.ContainerStatusResponse,
            "ListError",
        )
        if answer is None:
            return known
        self._statuses[container.id] = answer.status
        return answer.status

    def _forget(self, sandboxes: set[str], containers: set[str]) -> None:
        for id_ in self._specs.keys() - sandboxes:
            del self._specs[id_]
        for id_ in self._ips.keys() - sandboxes:
            del self._ips[id_]
        for id_ in self._statuses.keys() - containers:
            del self._statuses[id_]

    def changes(self) -> AsyncIterator[str]:
        """Pods with changes."""
        return self._events.changes()

    # --- exec, attach and ports ---

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, bytes]:
        """Run a program and wait for it; TimeoutError if it takes too long."""
        seconds = max(1, math.ceil(timeout_s))
        request = pb.ExecSyncRequest(container_id=container_id, cmd=command, timeout=seconds)
        answer = await self._calls.exec_sync(request, seconds + CALL_S)
        return answer.exit_code, (answer.stdout + answer.stderr)[:_SAID_BYTES_MAX]

    async def exec(self, container_id: str, command: Sequence[str], *, tty: bool, stdin: bool) -> Streams:
        """Run a program with streams."""
        request = pb.ExecRequest(
            container_id=container_id, cmd=command, tty=tty, stdin=stdin, stdout=True, stderr=not tty
        )
        answer = await self._calls.runtime("Exec", request, pb.ExecResponse, "ExecError")
        return await CriStreams.command(answer.url, stdin=stdin, tty=tty, what="ExecError")

    async def attach(self, container_id: str) -> Streams:
        """Attach to the container itself."""
        request = pb.ListContainersRequest(filter=pb.ContainerFilter(id=container_id))
        found = await self._calls.runtime("ListContainers", request, pb.ListContainersResponse, "AttachError")
        if not found.containers:
            raise RuntimeFailure("AttachError", f"container {container_id} does not exist")
        streams = found.containers[0].annotations[messages.STREAMS].split(",")
        tty, stdin = "tty" in streams, "stdin" in streams
        attach = pb.AttachRequest(container_id=container_id, stdin=stdin, tty=tty, stdout=True, stderr=not tty)
        answer = await self._calls.runtime("Attach", attach, pb.AttachResponse, "AttachError")
        return await CriStreams.command(answer.url, stdin=stdin, tty=tty, what="AttachError")

    async def connect(self, sandbox_id: str, port: int) -> Streams:
        """A connection to a port of the pod."""
        request = pb.PortForwardRequest(pod_sandbox_id=sandbox_id, port=[port])
        answer = await self._calls.runtime("PortForward", request, pb.PortForwardResponse, "PortForwardError")
        return await CriStreams.port(answer.url, port)

    async def usage(self) -> Sequence[ContainerUsage]:
        """The current usage of running containers."""
        answer = await self._calls.runtime(
            "ListContainerStats", pb.ListContainerStatsRequest(), pb.ListContainerStatsResponse, "ListError"
        )
        return tuple(
            ContainerUsage(
                id=each.attributes.id,
                processor_seconds=each.cpu.usage_core_nano_seconds.value / _NANOSECONDS,
                memory_bytes=each.memory.working_set_bytes.value,
                started_at=self._started_at(each.attributes.id),
            )
            for each in answer.stats
        )

    def _started_at(self, container_id: str) -> float:
        status = self._statuses.get(container_id)
        return 0.0 if status is None else status.started_at / _NANOSECONDS
