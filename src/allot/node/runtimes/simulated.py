"""The runtime `simulated`: for nodes that exist only here, thousands of them in one process.

A container whose command exists on this machine runs in a sandbox (`process`), with the stand-in of its image (`stand_ins`). All
others, and everything where sandboxes are not allowed, become placeholders: an entry in memory that starts at once, explains itself
in its log and in an event, and ends when it is stopped. Two annotations of a pod make all its containers placeholders and define their course:

    allot.dev/run-seconds: "2.5"    how long its containers run
    allot.dev/exit-code: "3"        how they end; without run-seconds at once

Placeholders of init containers succeed at once. Placeholders are forgotten when the agent ends; its next start recreates them.

A program in a placeholder (`kubectl exec`) finds the container's environment, its devices and their edits: the placeholder then
gets a body, a process that only waits, in which programs of this machine and of the devices can run. Bodies are not reported, and
end with their placeholders, or with the agent.
"""

from __future__ import annotations

import asyncio
import heapq
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from allot.core.lifecycle.pull_secrets import Credentials
from allot.core.network.ranges import BLOCK_SIZE, BLOCKS, address_of, number_of
from allot.network.client import PodNetwork
from allot.network.relays import reset
from allot.node.cdi.registry import CdiRegistry, Unresolvable
from allot.node.containers import INIT_CONTAINER, TERMINATION_FILE
from allot.node.runtimes.placeholder_answers import PlaceholderFacts, answer_once
from allot.node.runtimes.placeholders import EXIT_CODE, RUN_SECONDS, Course, Placeholder, course_of, text_of, write_log
from allot.node.runtimes.port import (
    Container,
    ContainerSpec,
    ContainerUsage,
    PodName,
    Resources,
    Runtime,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxSpec,
    State,
    Streams,
)
from allot.node.runtimes.process_network import streams_of
from allot.node.runtimes.stand_ins import programs_of, with_stand_in
from allot.process.clock import Clock
from allot.process.ids import Ids

NAME = "simulated"
VERSION = "0.1.0"
# The limit of concurrent programs: simulating thousands of nodes must not overload the machine.
PROGRAMS_MAX = 100
_STOPPED = 143
_PATH = "PATH"
_BODY = "allot.dev/body-of-placeholder"
_BODY_COMMAND = ("sh", "-c", "while true; do sleep 3600; done")
_ADDRESSES = BLOCK_SIZE - 2
_VISITS_MAX = 512

# Called for each placeholder: its pod, the container's name, and the text.
Announce = Callable[[PodName, str, str], None]
# The node of a container, and its devices.
Whereabouts = Callable[[PodName, str], tuple[str, tuple[str, ...]]]


class _Room:
    """A sandbox; program_id: its id in the other runtime, once a program of the pod runs; body_id: that of bodies there."""

    __slots__ = ("body_id", "containers", "made", "program_id", "spec")

    def __init__(self, made: Sandbox, spec: SandboxSpec | None, program_id: str = "") -> None:
        self.made = made
        self.spec = spec
        self.program_id = program_id
        self.body_id = ""
        self.containers: dict[str, Placeholder] = {}


class SimulatedRuntime:
    """Runs placeholders itself and leaves programs to another runtime. Queries about one pod do not scan the others."""

    def __init__(
        self,
        programs: Runtime,
        clock: Clock,
        ids: Ids,
        *,
        announce: Announce | None = None,
        programs_max: int = PROGRAMS_MAX,
        path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        cdi_of: Callable[[PodName], CdiRegistry] | None = None,
        network: PodNetwork | None = None,
        whereabouts: Whereabouts = lambda _pod, _container: ("", ()),
    ) -> None:
        """path: where to look for commands, unless a container has its own PATH. cdi_of: the CDI devices that a pod can use. network: that of the
        programs."""
        self._programs = programs
        self._clock = clock
        self._ids = ids
        self._announce = announce
        self._programs_max = programs_max
        self._network = network
        # The start of the address block for pods of placeholders.
        self._block = number_of(BLOCKS[0])
        self._path = path
        self._cdi_of = cdi_of
        # Why this machine runs no programs, if so.
        self._no_programs = ""
        self._whereabouts = whereabouts
        # Addresses of pods of placeholders, and how many have been assigned.
        self._addresses: dict[str, _Room] = {}
        self._visits: set[asyncio.Task[None]] = set()
        self._given = 0
        self._rooms: dict[str, _Room] = {}
        self._by_pod: dict[str, dict[str, _Room]] = {}
        self._placeholders: dict[str, Placeholder] = {}
        # When placeholders end, and the uids of their pods.
        self._ends: list[tuple[float, str]] = []
        self._changed: asyncio.Queue[str] = asyncio.Queue()
        # Held while a body is created or ended.
        self._bodies = asyncio.Lock()

    # --- life ---

    async def open(self) -> None:
        """Programs of an earlier agent are found again; placeholders are not."""
        await self._programs.open()
        if self._network is not None:
            self._block = number_of(await self._network.take_block())
            self._network.visited = self._visited
        isolation = (await self._programs.status()).isolation
        self._no_programs = "" if isolation is None or isolation.runs else isolation.message
        sandboxes, containers = await self._programs.list()
        bodies = {each.sandbox_id for each in containers if _BODY in each.annotations}
        for each in sandboxes:
            if each.id in bodies:
                await self._end_bodies(each.id)
            else:
                self._keep(_Room(each, None, each.id))

    async def _end_bodies(self, sandbox_id: str) -> None:
        await self._programs.stop_sandbox(sandbox_id)
        await self._programs.remove_sandbox(sandbox_id)

    async def close(self) -> None:
        """Close; programs keep running, placeholders and their bodies end."""
        for visit in tuple(self._visits):
            visit.cancel()
        for room in self._rooms.values():
            if room.body_id:
                await self._end_bodies(room.body_id)
        await self._programs.close()

    async def status(self) -> RuntimeStatus:
        """Always ready."""
        status = await self._programs.status()
        return msgspec.structs.replace(status, name=NAME, version=VERSION)

    async def ensure_image(
        self,
        image: str,
        pull_policy: str,  # noqa: ARG002 - the port's signature
        pod: PodName,  # noqa: ARG002
        credentials: Sequence[Credentials] = (),  # noqa: ARG002
    ) -> str:
        """Nothing is pulled."""
        return image

    # --- sandboxes ---

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        """Create an entry; with a sandbox if programs are expected, so that the pod keeps one address from the start."""
        ips = () if spec.host_network else (self._next_address(),)
        now = self._clock.seconds()
        made = Sandbox(id=self._new_id(), pod=spec.pod, attempt=spec.attempt, ips=ips, created_at=now)
        room = _Room(made, spec)
        self._addresses.update(dict.fromkeys(ips, room))
        if self.can_run(spec.annotations, spec.commands, has_devices=False) and not await self._why_no_more():
            await self._run_program_sandbox(room, spec)
        self._keep(room)
        return room.made

    def _next_address(self) -> str:
        """An address that no program listens on, so that clients of the pod notice."""
        self._given = self._given % _ADDRESSES + 1
        return address_of(self._block + self._given)

    def _keep(self, room: _Room) -> None:
        self._rooms[room.made.id] = room
        self._by_pod.setdefault(room.made.pod.uid, {})[room.made.id] = room

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """End everything in it."""
        room = self._rooms.get(sandbox_id)
        if room is None:
            return
        for each in room.containers.values():
            await self._stop(each)
        if room.program_id:
            await self._programs.stop_sandbox(room.program_id)
        room.made = msgspec.structs.replace(room.made, ready=False)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Remove it and its containers."""
        room = self._rooms.get(sandbox_id)
        if room is None:
            return
        if room.body_id:
            await self._end_bodies(room.body_id)
        if room.program_id:
            await self._programs.remove_sandbox(room.program_id)
        for id_ in room.containers:
            self._placeholders.pop(id_, None)
        for address in room.made.ips:
            self._addresses.pop(address, None)
        self._rooms.pop(sandbox_id, None)
        rooms = self._by_pod.get(room.made.pod.uid, {})
        rooms.pop(sandbox_id, None)
        if not rooms:
            self._by_pod.pop(room.made.pod.uid, None)

    # --- containers ---

    async def create_container(self, sandbox_id: str, spec: ContainerSpec) -> str:
        """Create a program if this machine has it, else a placeholder."""
        room = self._rooms.get(sandbox_id)
        if room is None or not room.made.ready:
            raise RuntimeFailure("CreateContainerError", f"sandbox {sandbox_id} does not exist")
        course = course_of(room.spec.annotations) if room.spec is not None else None
        spec = with_stand_in(spec, self._path)
        brought = self._brought(spec)
        why = "" if course is not None else await self._why_not(spec, brought)
        if course is None and not why:
            return await self._create_program(room, spec)
        if INIT_CONTAINER in spec.annotations:
            course = Course(0.0, 0)
        text = text_of(spec, course or Course(), why)
        made = Placeholder(self._new_id(), sandbox_id, spec, course or Course(), text, self._clock.seconds())
        if room.spec is not None and room.spec.log_directory and spec.log_path:
            made.log = Path(room.spec.log_directory) / spec.log_path
        room.containers[made.id] = self._placeholders[made.id] = made
        return made.id

    def _brought(self, spec: ContainerSpec) -> Mapping[str, str]:
        """The programs that a container's devices and the stand-in of its image provide: their names, and their paths in it."""
        own = programs_of(spec.image)
        if not spec.cdi_devices or self._cdi_of is None:
            return own
        try:
            mounts = self._cdi_of(spec.pod).resolve(spec.cdi_devices).mounts
        except Unresolvable as error:
            raise RuntimeFailure("CreateContainerError", f"failed to inject CDI devices: {error}") from error
        folders = spec.environment.get(_PATH, self._path).split(":")
        paths = [Path(each.container_path) for each in mounts]
        return {**own, **{path.name: str(path) for path in paths if str(path.parent) in folders}}

    async def _why_not(self, spec: ContainerSpec, brought: Mapping[str, str]) -> str:
        """Why a program cannot run; empty if it can."""
        if not spec.command:
            return f'image "{spec.image}" is not pulled, and the container names no command'
        if not self._can_start(spec.command[0], spec, brought):
            return f'this machine has no command "{spec.command[0]}"'
        return await self._why_no_more()

    def _can_start(self, command: str, spec: ContainerSpec, brought: Mapping[str, str]) -> bool:
        if command in brought or command in brought.values():
            return True
        return self._has(command, spec.environment.get(_PATH, self._path))

    async def _why_no_more(self) -> str:
        if self._no_programs:
            return self._no_programs
        _, programs = await self._programs.list()
        if sum(each.state != State.EXITED for each in programs) >= self._programs_max:
            return f"this machine runs {self._programs_max} programs for simulated nodes already"
        return ""

    async def _create_program(self, room: _Room, spec: ContainerSpec) -> str:
        if not room.program_id:
            assert room.spec is not None, "only sandboxes of an earlier agent have no spec, and those have programs"
            await self._run_program_sandbox(room, room.spec)
        return await self._programs.create_container(room.program_id, spec)

    async def _run_program_sandbox(self, room: _Room, spec: SandboxSpec) -> None:
        """From now on, the pod has the address of its programs."""
        inner = await self._programs.run_sandbox(spec)
        room.program_id = inner.id
        for address in room.made.ips:
            self._addresses.pop(address, None)
        room.made = msgspec.structs.replace(room.made, ips=inner.ips)

    async def start_container(self, container_id: str) -> None:
        """Start it."""
        made = self._placeholders.get(container_id)
        if made is None:
            await self._programs.start_container(container_id)
            return
        made.started_at = self._clock.seconds()
        if made.course.run_seconds is not None:
            made.ends_at = made.started_at + made.course.run_seconds
            heapq.heappush(self._ends, (made.ends_at, made.spec.pod.uid))
        write_log(made)
        if self._network is not None and made.spec.ports:
            self._network.open_doors(made.spec.ports)
        if self._announce is not None:
            self._announce(made.spec.pod, made.spec.name, made.text)
        self._changed.put_nowait(made.spec.pod.uid)

    async def update_container(self, container_id: str, resources: Resources) -> None:
        """Placeholders use nothing, and so have no limits."""
        if container_id not in self._placeholders:
            await self._programs.update_container(container_id, resources)

    async def stop_container(self, container_id: str, grace_seconds: float) -> None:
        """Placeholders end at once."""
        made = self._placeholders.get(container_id)
        if made is None:
            await self._programs.stop_container(container_id, grace_seconds)
        else:
            await self._stop(made)

    async def _stop(self, made: Placeholder) -> None:
        now = self._clock.seconds()
        if made.is_running(now):
            made.ends_at, made.exit_code = now, _STOPPED
            self._changed.put_nowait(made.spec.pod.uid)
        await self._end_body(made)

    async def _end_body(self, made: Placeholder) -> None:
        async with self._bodies:
            body, made.body = made.body, ""
            if body:
                await self._programs.stop_container(body, 0.0)
                await self._programs.remove_container(body)

    async def remove_container(self, container_id: str) -> None:
        """Remove it."""
        made = self._placeholders.pop(container_id, None)
        if made is None:
            await self._programs.remove_container(container_id)
            return
        await self._end_body(made)
        room = self._rooms.get(made.sandbox_id)
        if room is not None:
            room.containers.pop(container_id, None)

    # --- listing ---

    async def list(self) -> tuple[Sequence[Sandbox], Sequence[Container]]:
        """Everything."""
        now = self._clock.seconds()
        _, programs = await self._programs.list()
        own = tuple(each.described(now) for each in self._placeholders.values())
        return tuple(room.made for room in self._rooms.values()), (*own, *self._in_rooms(programs))

    async def of(self, uid: str) -> tuple[tuple[Sandbox, ...], tuple[Container, ...]]:
        """Everything of one pod."""
        rooms = self._by_pod.get(uid, {})
        now = self._clock.seconds()
        found = [each.described(now) for room in rooms.values() for each in room.containers.values()]
        if any(room.program_id for room in rooms.values()):
            _, programs = await self._programs.list()
            found += [each for each in self._in_rooms(programs) if each.pod.uid == uid]
        return tuple(room.made for room in rooms.values()), tuple(found)

    def stale(self) -> None:
        """Nothing is cached that could be stale."""

    def can_run(self, annotations: Mapping[str, str], commands: Iterable[Sequence[str]], has_devices: bool) -> bool:
        """Whether a pod has a container that may run as a program. has_devices: they may provide the program."""
        if self._no_programs or RUN_SECONDS in annotations or EXIT_CODE in annotations:
            return False
        return any(command and (has_devices or self._has(command[0], self._path)) for command in commands)

    def is_nowhere(self, address: str) -> bool:
        """Whether an address belongs to a pod of placeholders."""
        return address in self._addresses

    def _has(self, command: str, path: str) -> bool:
        return "$(" in command or shutil.which(command, path=path) is not None

    def _in_rooms(self, programs: Sequence[Container]) -> Sequence[Container]:
        """Containers of the other runtime, with the ids of their sandboxes here."""
        shown = [each for each in programs if _BODY not in each.annotations]
        here = {
            room.program_id: id_
            for uid in {each.pod.uid for each in shown}
            for id_, room in self._by_pod.get(uid, {}).items()
        }
        return tuple(
            msgspec.structs.replace(each, sandbox_id=here.get(each.sandbox_id, each.sandbox_id)) for each in shown
        )

    async def changes(self) -> AsyncIterator[str]:
        """Pods with changes: programs, changed placeholders, and those whose time is over."""
        told = self._programs.changes()
        own, other = asyncio.ensure_future(self._changed.get()), asyncio.ensure_future(anext(told))
        try:
            while True:
                await asyncio.wait((own, other), timeout=self._pause(), return_when=asyncio.FIRST_COMPLETED)
                now = self._clock.seconds()
                while self._ends and self._ends[0][0] <= now:
                    yield heapq.heappop(self._ends)[1]
                if own.done():
                    uid = own.result()
                    own = asyncio.ensure_future(self._changed.get())
                    yield uid
                if other.done():
                    uid = other.result()
                    other = asyncio.ensure_future(anext(told))
                    yield uid
        finally:
            own.cancel()
            other.cancel()
            await asyncio.gather(own, other, return_exceptions=True)

    def _pause(self) -> float | None:
        return max(self._ends[0][0] - self._clock.seconds(), 0.0) if self._ends else None

    async def usage(self) -> Sequence[ContainerUsage]:
        """Placeholders use nothing."""
        return await self._programs.usage()

    # --- exec, attach and ports ---

    async def exec_sync(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, bytes]:
        """Nothing runs in a placeholder: commands of probes and hooks count as successful."""
        made = self._placeholders.get(container_id)
        if made is None:
            return await self._programs.exec_sync(container_id, command, timeout_s)
        return 0, made.text.encode()

    async def exec(self, container_id: str, command: Sequence[str], *, tty: bool, stdin: bool) -> Streams:
        """In a placeholder: programs of this machine, and of the container's devices."""
        made = self._placeholders.get(container_id)
        id_ = container_id if made is None else await self._body(made, command)
        return await self._programs.exec(id_, command, tty=tty, stdin=stdin)

    async def _body(self, made: Placeholder, command: Sequence[str]) -> str:
        """A process in which a program can run in a placeholder; RuntimeFailure if the program does not exist."""
        brought = self._brought(made.spec)
        if not self._can_start(command[0], made.spec, brought):
            those = (
                f"its devices provide {', '.join(sorted(brought))}" if brought else "it has no devices that provide one"
            )
            self._refuse(made.id, f'run "{command[0]}" (this machine has no such program, and {those}) in')
        async with self._bodies:
            if not made.is_running(self._clock.seconds()):
                raise RuntimeFailure("NotRunning", f"container {made.id} is not running")
            if not made.body:
                made.body = await self._make_body(made)
            return made.body

    async def _make_body(self, made: Placeholder) -> str:
        room = self._rooms[made.sandbox_id]
        assert room.spec is not None, "placeholders are made in sandboxes of this agent"
        why_not = await self._why_no_more()
        if why_not:
            self._refuse(made.id, f"run a program ({why_not}) in")
        if not room.body_id:
            room.body_id = (await self._programs.run_sandbox(room.spec)).id
        message = made.spec.annotations.get(TERMINATION_FILE, "")
        spec = msgspec.structs.replace(
            made.spec,
            command=_BODY_COMMAND,
            args=(),
            ends_with_agent=True,
            stdin=False,
            tty=False,
            # Volumes of placeholders are not created, and no one reads a body's message.
            mounts=tuple(
                each for each in made.spec.mounts if each.host_path != message and Path(each.host_path).exists()
            ),
            log_path=f"{made.spec.name}/body.log",
            annotations={**made.spec.annotations, TERMINATION_FILE: "", _BODY: "true"},
        )
        body = await self._programs.create_container(room.body_id, spec)
        await self._programs.start_container(body)
        return body

    async def attach(self, container_id: str) -> Streams:
        """Only to programs."""
        self._refuse(container_id, "attach to")
        return await self._programs.attach(container_id)

    async def connect(self, sandbox_id: str, port: int) -> Streams:
        """To a program, or to a placeholder that declares the port."""
        room = self._rooms.get(sandbox_id)
        found = self._listening(room, port) if room is not None else None
        if room is None or (found is None and not room.program_id):
            text = "the pod has placeholders only, and none of them says to listen there"
            raise RuntimeFailure("PortForwardError", f"port {port}: {text}")
        if found is None:
            return await self._programs.connect(room.program_id, port)
        ours, theirs = socket.socketpair()
        self._answer(theirs, found, port)
        return await streams_of(ours)

    # --- connections to placeholders ---

    def _listening(self, room: _Room, port: int) -> Placeholder | None:
        """The placeholder that answers on a port."""
        now = self._clock.seconds()
        return next(
            (each for each in room.containers.values() if port in each.spec.ports and each.is_running(now)), None
        )

    def _visited(self, connection: socket.socket, address: str, port: int) -> None:
        room = self._addresses.get(address)
        found = self._listening(room, port) if room is not None else None
        if found is None or len(self._visits) >= _VISITS_MAX:
            reset(connection)
            return
        self._answer(connection, found, port)

    def _answer(self, connection: socket.socket, made: Placeholder, port: int) -> None:
        node, devices = self._whereabouts(made.spec.pod, made.spec.name)
        facts = PlaceholderFacts(
            placeholder=made.text,
            namespace=made.spec.pod.namespace,
            pod=made.spec.pod.name,
            node=node,
            container=made.spec.name,
            image=made.spec.image,
            port=port,
            devices=devices,
        )
        visit = asyncio.get_running_loop().create_task(answer_once(connection, facts))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)

    def _refuse(self, container_id: str, what: str) -> None:
        made = self._placeholders.get(container_id)
        if made is not None:
            raise RuntimeFailure("Placeholder", f'cannot {what} container "{made.spec.name}": {made.text}')

    def _new_id(self) -> str:
        return self._ids.new_uid().replace("-", "")
