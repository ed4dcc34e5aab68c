"""The devices of simulated nodes: real drivers and a claim preparer for each node, but only while needed.

What a node's drivers publish is known without them, so a node costs nothing but its objects in the API until its first claim must
be prepared. Then its drivers start, register on sockets below the node's folder and are called as on any other node. They keep
running while claims are prepared or the devices need them (faults), and sleep after a pause; when too many nodes are awake, the least
recently used go to sleep. Their state is on disk, and they wake with it, as after a restart. So one node behaves like each of
thousands; the only difference is that a sleeping node reports no health.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from allot.client.api import Client
from allot.core.features import FeatureGates
from allot.core.lifecycle.preparation import ClaimRecord
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.core_v1 import Container, Pod
from allot.core.model.resource_v1 import DeviceClass
from allot.node.cdi.registry import CdiRegistry
from allot.node.devices import PrepareFailed
from allot.node.dra.checkpoint import CLAIMS_FILE
from allot.node.dra.claim_preparer import ClaimPreparer, Periods
from allot.node.pod_resources import SOCKET, Allocatable, PodResources
from allot.node.state_file import CheckpointCorrupt
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import answer_or_failure

_log = logging.getLogger("allot.node")

# How many nodes may keep their drivers running without needing them.
AWAKE_MAX = 100
IDLE_S = 30.0
# How many nodes wake at a time: registration has deadlines, even when thousands of pods come at once.
WAKING_MAX = 16
# How long drivers may take to register.
WAKE_S = 30.0
# Drivers and agent share a process, which may be busy with thousands of other things.
_PERIODS = Periods(info_s=10.0)
_LOOK_S = 1.0
_USABLE_LOOK_S = 0.01
# How many directories are checked per second.
_LOOKS_MAX = 1000
_FOLDER_NAME_MAX = 24
# What a socket path adds to the folder of all nodes: a node's folder, the registry, a driver's name.
SOCKETS_BELOW = 1 + _FOLDER_NAME_MAX + len("/plugins_registry/") + 40


class Drivers(Protocol):
    """The drivers of equal nodes."""

    @property
    def names(self) -> tuple[str, ...]:
        """The drivers' names."""

    @property
    def device_classes(self) -> tuple[DeviceClass, ...]:
        """The device classes of the drivers."""

    def pools(self, node: str) -> Sequence[tuple[str, Pool]]:
        """What each publishes on a freshly started node."""

    def lay_out(self, node: str, state: Path) -> None:
        """Create what tools expect on a machine, whether or not its drivers run."""

    def are_needed(self, state: Path) -> bool:
        """Whether devices need their drivers even without claims."""

    def running(
        self,
        node: str,
        root: Path,
        state: Path,
        client: Client,
        clock: Clock,
        ids: Ids,
        publish: Callable[[str, tuple[Pool, ...]], None],
    ) -> AbstractAsyncContextManager[None]:
        """Run all drivers while the context is open. root and state are the same folder; root is short enough for sockets. publish: receives the
        pools of a driver each time they change."""


class _Asleep(Exception):
    """Why drivers could not be woken."""


class _NodeDevices:
    """The drivers and the claim preparer of one node. root, state: as for `Drivers.running`."""

    def __init__(
        self, name: str, root: Path, state: Path, drivers: Drivers, make_preparer: Callable[[Path], ClaimPreparer]
    ) -> None:
        self.name = name
        self.root = root
        self.state = state
        self.drivers = drivers
        self._make_preparer = make_preparer
        self._preparer: ClaimPreparer | None = None
        self.registry = CdiRegistry((state / "cdi",))
        self.life: asyncio.Task[None] | None = None
        self.is_awake = asyncio.Event()
        self.sleep = asyncio.Event()
        self.failure = ""
        self.users = 0
        self.used_at = 0.0

    @property
    def preparer(self) -> ClaimPreparer:
        """The current preparer, or while asleep the last one; CheckpointCorrupt."""
        if self._preparer is None:
            self._preparer = self._make_preparer(self.root)
        return self._preparer

    def is_waited_for(self, now: float) -> bool:
        """Whether a pod will retry soon, because a driver could not prepare its claim yet."""
        return now - self.used_at < IDLE_S and any(not each.is_prepared for each in self.preparer.records.values())

    def renew_preparer(self) -> ClaimPreparer:
        """A new preparer, with the state that the last one wrote."""
        self._preparer = None
        return self.preparer


class SimulatedDevices:
    """The devices of all simulated nodes (`node.devices.Devices`); run it, or nothing is prepared.

    root: where each node has a folder; short_root: the same by a short name. active_pods: of a node, None while unknown.
    publish: receives the node, the driver and its pools each time they change. unfinished, allocatable: the pods of a node and its
    resources, for its PodResources service, which runs while its drivers do.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        ids: Ids,
        root: Path,
        drivers: Mapping[str, Drivers],
        active_pods: Callable[[str], frozenset[str] | None],
        publish: Callable[[str, str, tuple[Pool, ...]], None],
        gates: FeatureGates,
        awake_max: int = AWAKE_MAX,
        unfinished: Callable[[str], Sequence[Pod]] = lambda _node: (),
        allocatable: Callable[[str], Allocatable] = lambda _node: Allocatable(),
    ) -> None:
        self._client = client
        self._clock = clock
        self._ids = ids
        self.root = root
        self.short_root = root
        self._drivers = drivers
        self._active_pods = active_pods
        self._publish = publish
        self._gates = gates
        self._awake_max = awake_max
        self._unfinished = unfinished
        self._allocatable = allocatable
        self._nodes: dict[str, _NodeDevices] = {}
        self._tasks: asyncio.TaskGroup | None = None
        # The number of nodes with running drivers, and the permits to wake more.
        self._awake = 0
        self._waking = asyncio.Semaphore(WAKING_MAX)
        self._changes: asyncio.Queue[str] = asyncio.Queue()

    @property
    def awake(self) -> int:
        """How many nodes have their drivers running."""
        return self._awake

    # --- called by pod workers ---

    async def prepare(self, pod: Pod) -> None:
        """Prepare the devices of a pod; PrepareFailed."""
        if not has_claims(pod):
            return
        async with self._with_drivers(pod.spec.node_name) as node:
            await node.preparer.prepare(pod)

    async def unprepare(self, pod: Pod) -> None:
        """Unprepare the devices; PrepareFailed."""
        if not has_claims(pod):
            return
        async with self._with_drivers(pod.spec.node_name) as node:
            await node.preparer.unprepare(pod)

    def cdi_devices(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """The qualified CDI names for a container; PrepareFailed."""
        if not has_claims(pod):
            return ()
        try:
            return self._node(pod.spec.node_name).preparer.cdi_devices(pod, container)
        except CheckpointCorrupt as error:
            raise PrepareFailed(f"prepare dynamic resources: {error}") from error

    def claims_of(self, pod: Pod) -> Iterator[tuple[str, ClaimRecord]]:
        """The names of a pod's containers with their prepared claims."""
        node = self._nodes.get(pod.spec.node_name)
        if node is None or not has_claims(pod):
            return
        for container in pod.spec.containers:
            for record in node.preparer.claims_of_container(pod, container):
                yield container.name, record

    def health(self, pod: Pod) -> Mapping[str, Sequence[dict[str, Any]]]:
        """As in `allocatedResourcesStatus`; nothing while the node's drivers sleep."""
        node = self._nodes.get(pod.spec.node_name)
        if node is None or not node.is_awake.is_set() or not has_claims(pod):
            return {}
        return node.preparer.health(pod)

    async def health_changes(self) -> AsyncIterator[str]:
        """The uid of a pod each time the health of its devices changes."""
        while True:
            yield await self._changes.get()

    async def reconcile(self) -> None:
        """Each node does this itself as it wakes."""

    def registry(self, node: str) -> CdiRegistry:
        """The CDI devices of a node."""
        return self._node(node).registry

    # --- waking and sleeping ---

    async def run(self) -> None:
        """Run until cancelled."""
        position = 0
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                while True:
                    # Nodes may be added while others are checked.
                    names = tuple(self._drivers)
                    for _ in range(min(len(names), _LOOKS_MAX)):
                        self._wake_if_needed(names[position % len(names)])
                        position += 1
                    self._send_to_sleep()
                    await self._clock.sleep(_LOOK_S)
        finally:
            self._tasks = None

    def _wake_if_needed(self, name: str) -> None:
        """Wake a node with state on disk: claims of an earlier process, or injected faults."""
        if name not in self._nodes:
            folder = self.folder(name)
            if not (folder / CLAIMS_FILE).exists() and not self._drivers[name].are_needed(folder):
                return
        node = self._node(name)
        has_faults = node.drivers.are_needed(node.state)
        if node.life is not None or (self._awake >= self._awake_max and not has_faults):
            return
        if node.failure and self._clock.monotonic() - node.used_at < IDLE_S:
            return
        try:
            if has_faults or node.preparer.records:
                self._wake(node)
        except CheckpointCorrupt as error:
            self._failed(node, str(error))

    def _send_to_sleep(self) -> None:
        now = self._clock.monotonic()
        awake = (node for node in self._nodes.values() if node.is_awake.is_set() and not node.users)
        idle = sorted(
            (node for node in awake if not node.drivers.are_needed(node.state) and not node.is_waited_for(now)),
            key=lambda node: node.used_at,
        )
        too_many = self._awake - self._awake_max
        for number, node in enumerate(idle):
            if number < too_many or (now - node.used_at > IDLE_S and not node.preparer.records):
                node.sleep.set()

    @asynccontextmanager
    async def _with_drivers(self, name: str) -> AsyncIterator[_NodeDevices]:
        """A node with running drivers; PrepareFailed if they cannot run."""
        node = self._node(name)
        node.users += 1
        try:
            if not node.is_awake.is_set() or node.sleep.is_set():
                await self._ensure_awake(node)
            yield node
        finally:
            node.users -= 1
            node.used_at = self._clock.monotonic()

    async def _ensure_awake(self, node: _NodeDevices) -> None:
        try:
            async with self._waking, asyncio.timeout(WAKE_S):
                await self._until_awake(node)
        except TimeoutError:
            raise PrepareFailed("prepare dynamic resources: the node's drivers did not register in time") from None
        except (_Asleep, CheckpointCorrupt) as error:
            raise PrepareFailed(f"prepare dynamic resources: {error}") from error

    async def _until_awake(self, node: _NodeDevices) -> None:
        if node.life is not None and node.sleep.is_set():
            # It is falling asleep.
            await asyncio.wait((node.life,))
        if node.life is None:
            self._wake(node)
            self._send_to_sleep()
        life = node.life
        assert life is not None
        awake = asyncio.ensure_future(node.is_awake.wait())
        try:
            await asyncio.wait((awake, life), return_when=asyncio.FIRST_COMPLETED)
        finally:
            awake.cancel()
        if not node.is_awake.is_set():
            raise _Asleep(node.failure or "the node's drivers do not run")

    def _wake(self, node: _NodeDevices) -> None:
        if self._tasks is None:
            raise _Asleep("the agent is shutting down")
        node.sleep.clear()
        node.life = self._tasks.create_task(self._live(node))
        self._awake += 1

    async def _live(self, node: _NodeDevices) -> None:
        try:
            failure = await answer_or_failure(lambda: self._run_drivers(node))
        finally:
            node.is_awake.clear()
            node.life = None
            self._awake -= 1
        node.failure = ""
        if failure is not None:
            self._failed(node, _first(failure))

    def _failed(self, node: _NodeDevices, why: str) -> None:
        node.failure, node.used_at = why, self._clock.monotonic()
        _log.error("node %s: %s", node.name, why)

    async def _run_drivers(self, node: _NodeDevices) -> None:
        preparer = node.renew_preparer()
        publish = partial(self._publish, node.name)
        drivers = node.drivers.running(node.name, node.root, node.state, self._client, self._clock, self._ids, publish)
        pod_resources = PodResources(
            partial(self._unfinished, node.name), preparer, self._clock, allocatable=self._allocatable(node.name)
        )
        async with drivers, pod_resources.serving(node.root / SOCKET), asyncio.TaskGroup() as tasks:
            # The drivers exist before they are looked up: the first check finds them.
            running = [tasks.create_task(preparer.run()), tasks.create_task(self._follow_health(preparer))]
            while not all(preparer.plugins.is_usable(name) for name in node.drivers.names):
                await self._clock.sleep(_USABLE_LOOK_S)
            node.used_at = self._clock.monotonic()
            node.is_awake.set()
            await node.sleep.wait()
            node.is_awake.clear()
            for task in running:
                task.cancel()

    async def _follow_health(self, preparer: ClaimPreparer) -> None:
        async with aclosing(preparer.health_changes()) as changes:
            async for uid in changes:
                self._changes.put_nowait(uid)

    # --- nodes ---

    def folder(self, node: str) -> Path:
        """Where a node keeps its state."""
        return self.root / folder_name(node)

    def _node(self, name: str) -> _NodeDevices:
        node = self._nodes.get(name)
        if node is None:
            if name not in self._drivers:
                raise PrepareFailed(f"prepare dynamic resources: node {name} is not simulated here")

            def make_preparer(root: Path) -> ClaimPreparer:
                return ClaimPreparer(
                    self._client,
                    name,
                    root,
                    self._clock,
                    self._ids,
                    active_pods=lambda: self._active_pods(name),
                    gates=self._gates,
                    periods=_PERIODS,
                    wipes_slices=False,
                )

            node = self._nodes[name] = _NodeDevices(
                name, self.short_root / folder_name(name), self.folder(name), self._drivers[name], make_preparer
            )
        return node


def folder_name(node: str) -> str:
    """A node's folder: its name, truncated if socket paths below would become too long."""
    if len(node) <= _FOLDER_NAME_MAX:
        return node
    return f"{node[: _FOLDER_NAME_MAX - 11]}-{hashlib.sha256(node.encode()).hexdigest()[:10]}"


def has_claims(pod: Pod) -> bool:
    """Also for extended resources, whose claim the scheduler creates."""
    return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__
