"""Many nodes that exist only here, in one process: what `agent` is for one machine, with everything shared that can be.

One watch of the pods of all nodes, one runtime, one recorder of events, and one loop each for leases and states, whatever the
number of nodes; what happens to a pod is the business of the same workers (`pods`) as on a real node. Devices come as pools from
outside: they are published as a driver would, and claims on them are checked as the kubelet does, but there is nothing to prepare.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.client.events import EventRecorder, Reference
from allot.client.informers import Informers
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.pod_environment import PodFacts
from allot.core.lifecycle.preparation import PREPARE, Refused, check_claim, entries_of
from allot.core.lifecycle.slice_publishing import Pool, plan_writes
from allot.core.model.meta import OwnerReference
from allot.core.model.pods_v1 import Container, HttpAction, Pod, SocketAction, decode_pod
from allot.core.model.resource_v1 import ResourceClaim, ResourceSlice
from allot.core.quantity import Quantity
from allot.node.actions import Actions
from allot.node.containers import ContainerSpecs
from allot.node.devices import NoDevices, PrepareFailed
from allot.node.machine import Machine
from allot.node.objects import Objects
from allot.node.pods import PodWorker, Services
from allot.node.registration import NodeOptions, Registration
from allot.node.reports import Reports
from allot.node.runtimes.port import PodName, Runtime, RuntimeStatus
from allot.node.runtimes.simulated import PROGRAMS_MAX, SimulatedRuntime
from allot.node.volumes import Volumes
from allot.node.workers import PodWorkers
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_log = logging.getLogger("allot.node")

Object = dict[str, Any]
# The pools of a node, with the driver that each is of.
PoolsOf = Callable[[str], Sequence[tuple[str, Pool]]]

# Requests under way at a time: enough to keep a server busy, few enough to leave it time for others.
AT_ONCE = 32
# Leases last 40 s; half the kubelet's pace is enough where there is no machine that could die, and halves what they cost.
LEASE_ROUND_S = 20.0
# The states of all nodes are looked at in turn, once in so many seconds.
STATUS_ROUND_S = 60.0
_TURNS = 50


class SimulatedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes are. node: what they have in common; each has its own name."""

    names: tuple[str, ...]
    node: NodeOptions
    machine: Machine
    root: Path
    programs_max: int = PROGRAMS_MAX


class SimulatedDevices(NoDevices):
    """Claims are checked as the kubelet does before it calls a driver; then there is nothing to do."""

    def __init__(self, client: Client, drivers: frozenset[str], gates: FeatureGates) -> None:
        self._claims = client.typed(ResourceClaim)
        self._drivers = drivers
        self._gates = gates

    async def prepare(self, pod: Mapping[str, Any]) -> None:
        """PrepareFailed unless the pod may use its claims and the node has their drivers."""
        decoded = decode_pod(pod)
        try:
            for entry in entries_of(decoded):
                try:
                    claim = await self._claims.get(entry.claim_name, decoded.metadata.namespace)
                except ApiError as error:
                    raise Refused(f"fetch ResourceClaim {entry.claim_name}: {error.message}") from error
                record = check_claim(decoded, entry, claim, self._gates)
                for driver, part in record.drivers.items():
                    if driver not in self._drivers and not part.skips(PREPARE):
                        raise Refused(f"DRA driver {driver} is not registered")
        except Refused as error:
            raise PrepareFailed(f"prepare dynamic resources: {error}") from error


class _Volumes(Volumes):
    """Volumes for pods that run programs; placeholders never look into theirs."""

    def __init__(self, folder: Path, objects: Objects, clock: Clock, runtime: SimulatedRuntime) -> None:
        super().__init__(folder, objects, clock)
        self._runtime = runtime

    async def set_up(self, pod: Pod, facts: PodFacts) -> Mapping[str, Path]:
        """Where they are, or would be."""
        commands = (each.command for each in pod.containers())
        if self._runtime.can_run(pod.metadata.annotations, commands):
            return await super().set_up(pod, facts)
        folder = self.pod_folder(pod.metadata.uid) / "volumes"
        return {each.name: folder / each.name for each in pod.spec.volumes}


class _Actions(Actions):
    """Probes and hooks over the network: those of placeholders count as done, as nobody listens."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        super().__init__(runtime)
        self._simulated = runtime

    async def request(self, action: HttpAction, container: Container, address: str, timeout_s: float) -> str:
        """A request."""
        if self._simulated.is_nowhere(action.host or address):
            return ""
        return await super().request(action, container, address, timeout_s)

    async def dial(self, action: SocketAction, container: Container, address: str, timeout_s: float) -> str:
        """A connection."""
        if self._simulated.is_nowhere(action.host or address):
            return ""
        return await super().dial(action, container, address, timeout_s)

    async def ask_health(self, port: int, service: str, address: str, timeout_s: float) -> str:
        """The health service of gRPC."""
        if self._simulated.is_nowhere(address):
            return ""
        return await super().ask_health(port, service, address, timeout_s)


class SimulatedNodes:
    """Runs nodes until cancelled. port: where they all serve, to be set before. programs: who runs what this machine can run."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        ids: Ids,
        options: SimulatedOptions,
        programs: Runtime,
        pools_of: PoolsOf = lambda _node: (),
        gates: FeatureGates = DEFAULT_GATES,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._options = options
        self._pools_of = pools_of
        self.port = 0
        self._events = EventRecorder(client, clock, ids, controller="kubelet", instance="simulated-nodes")
        self.runtime = SimulatedRuntime(
            programs,
            clock,
            ids,
            announce=self._announce,
            programs_max=options.programs_max,
            address=options.node.address,
        )
        self.listing = self.runtime
        self._slices = client.typed(ResourceSlice)
        objects = Objects(client)
        self._registrations = {
            name: Registration(
                client, clock, msgspec.structs.replace(options.node, name=name), options.machine, lambda: self.port
            )
            for name in options.names
        }
        self._registered: set[str] = set()
        drivers = frozenset(driver for name in options.names[:1] for driver, _ in pools_of(name))
        machine = options.machine
        self._services = Services(
            clock=clock,
            ids=ids,
            runtime=self.runtime,
            listing=self.runtime,
            devices=SimulatedDevices(client, drivers, gates),
            volumes=_Volumes(options.root / "pods", objects, clock, self.runtime),
            specs=ContainerSpecs(objects),
            reports=Reports(client, self._events),
            actions=_Actions(self.runtime),
            log_folder=options.root / "log" / "pods",
            host_ips=(options.node.address,),
            runtime_name="simulated",
            pulls_images=False,
            allocatable={
                "cpu": Quantity.from_int(machine.processors),
                "memory": Quantity.from_int(machine.memory_bytes),
                "ephemeral-storage": Quantity.from_int(machine.disk_bytes),
            },
        )
        self._pods = informers.dynamic("", "v1", "pods", namespaced=True, field_selector="spec.nodeName!=")
        self._workers = PodWorkers(clock, lambda pod: pod["spec"].get("nodeName") in self._registrations)
        # Set as soon as every node is in the API with its slices and its lease.
        self.are_ready = asyncio.Event()

    async def run(self) -> None:
        """Register all nodes, then look after pods."""
        await self.runtime.open()
        try:
            status = await self.runtime.status()
            async with asyncio.TaskGroup() as tasks:
                self._workers.open(self._services, tasks)
                tasks.create_task(supervise("events", self._events.run, self._clock))
                # The first nodes must not count as dead while the last ones are registered.
                tasks.create_task(supervise("leases", self._keep_leases, self._clock))
                await self._register_all(status)
                self.are_ready.set()
                tasks.create_task(supervise("states", self._keep_states, self._clock))
                tasks.create_task(self._follow_runtime())
                tasks.create_task(self._follow_pods())
                await self._pods.wait_synced()
                tasks.create_task(supervise("orphans", self._remove_orphans, self._clock))
        finally:
            await self.runtime.close()

    # --- nodes ---

    async def _register_all(self, status: RuntimeStatus) -> None:
        existing = await self._published()

        async def register(name: str) -> None:
            registration = self._registrations[name]
            await registration.register(status)
            await registration.renew()
            self._registered.add(name)
            await self._publish(name, existing.get(name, ()))

        await _each(self._options.names, register)

    async def _published(self) -> dict[str, list[ResourceSlice]]:
        """The slices of our nodes that are there."""
        found: dict[str, list[ResourceSlice]] = {}
        for each in (await self._slices.list()).items:
            if each.spec.node_name in self._registrations:
                found.setdefault(each.spec.node_name, []).append(each)
        return found

    async def _publish(self, name: str, existing: Sequence[ResourceSlice]) -> None:
        """Make the slices of a node what its pools say; what fails is tried again in the next round of states."""
        owner = OwnerReference(
            api_version="v1", kind="Node", name=name, uid=self._registrations[name].uid, controller=True
        )
        for driver, pool in self._pools_of(name):
            own = [each for each in existing if each.spec.driver == driver and each.spec.pool.name == pool.name]
            writes = plan_writes(driver, pool, own, owner)
            try:
                for each in writes.deletes:
                    await self._slices.delete(each.metadata.name)
                for update in writes.updates:
                    await self._slices.update(msgspec.structs.replace(update.slice, spec=update.spec))
                for created in writes.creates:
                    await self._slices.create(created)
            except ApiError as error:
                _log.warning("node %s: slices not published: %s", name, error)

    async def _keep_leases(self) -> None:
        """All leases, a part of them at a time."""
        await self._in_turns(LEASE_ROUND_S, self._renew)

    async def _renew(self, name: str) -> None:
        if name in self._registered:
            await self._registrations[name].renew()

    async def _keep_states(self) -> None:
        await self._in_turns(STATUS_ROUND_S, self._refresh)

    async def _refresh(self, name: str) -> None:
        if await self._registrations[name].refresh(await self.runtime.status()):
            # Who removes a node removes its slices, too.
            await self._publish(name, ())

    async def _in_turns(self, seconds: float, act: Callable[[str], Awaitable[None]]) -> None:
        """Do something for each node once in so many seconds, spread evenly."""
        names = self._options.names
        turns = min(_TURNS, len(names))
        while True:
            for turn in range(turns):
                began = self._clock.monotonic()
                await _each(names[turn::turns], act)
                await self._clock.sleep(max(seconds / turns - (self._clock.monotonic() - began), 0.0))

    # --- pods ---

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of the pod that has a name now."""
        pod = self._pods.cache.get(f"{namespace}/{name}")
        return self._workers.get(pod["metadata"]["uid"]) if pod is not None else None

    def pods(self) -> tuple[Object, ...]:
        """The pods of all these nodes."""
        return tuple(each for each in self._pods.cache if each["spec"].get("nodeName") in self._registrations)

    async def _follow_pods(self) -> None:
        stop = self._pods.add_handler(self._workers.pod_changed)
        try:
            await asyncio.Event().wait()
        finally:
            stop()

    async def _remove_orphans(self) -> None:
        """Programs of pods that went while nobody looked after them."""
        sandboxes, _ = await self.runtime.list()
        for sandbox in sandboxes:
            if sandbox.pod.uid not in self._workers:
                _log.info("removing what is left of pod %s/%s", sandbox.pod.namespace, sandbox.pod.name)
                await self.runtime.stop_sandbox(sandbox.id)
                await self.runtime.remove_sandbox(sandbox.id)
                self._services.volumes.tear_down(sandbox.pod.uid)

    async def _follow_runtime(self) -> None:
        async for uid in self.runtime.changes():
            self._workers.wake(uid)

    def _announce(self, pod: PodName, container: str, text: str) -> None:
        about = Reference(
            api_version="v1",
            kind="Pod",
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            field_path=f"spec.containers{{{container}}}",
        )
        self._events.record(about, "Normal", "Placeholder", "Placeholder", text)


async def _each(names: Iterable[str], act: Callable[[str], Awaitable[None]]) -> None:
    """Do something for every name, so many at a time."""
    rest = iter(names)

    async def work() -> None:
        for name in rest:
            await act(name)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())
