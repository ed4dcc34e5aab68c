"""Many simulated nodes in one process: like `agent` for one machine, with everything shared that can be.

One watch of the pods of all nodes, one runtime, one recorder of events, and one loop each for leases and states, whatever the
number of nodes; the same workers (`pods`) as on a real node manage pods. Slices are published at once, as each node's drivers
would; the drivers themselves run when there are claims to prepare (`simulated_devices`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.errors import AlreadyExists, ApiError, NotFound
from allot.client.events import EventRecorder, Reference
from allot.client.informers import Informers
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.pod_environment import PodFacts
from allot.core.lifecycle.pod_sysctls import SysctlRules
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.metrics.exposition import Exposition, Sample
from allot.core.model.containers_v1 import HTTPGetAction, TCPSocketAction
from allot.core.model.core_v1 import Container, Node, Pod
from allot.core.model.pods_v1 import RunnablePod, decode_runnable
from allot.core.model.resource_v1 import DeviceClass
from allot.core.model.volumes_v1 import HostPathVolumeSource
from allot.network.client import PodNetwork
from allot.node.actions import Actions
from allot.node.admission import Admission
from allot.node.agent import log_isolation, report_no_network
from allot.node.cdi.registry import CdiRegistry
from allot.node.containers import ContainerSpecs
from allot.node.gpu_series import TYPES, DeviceFacts, DeviceName, Holder, facts_of, gpu_series
from allot.node.machine import Machine
from allot.node.metric_problems import BAD_ANNOTATION, FAILED_SCRAPE
from allot.node.metrics import Measured, joined
from allot.node.objects import Objects
from allot.node.pod_certificates import PodCertificates
from allot.node.pod_folders import PODS
from allot.node.pod_resources import Allocatable, allocatable_of
from allot.node.pods import PodWorker, Services
from allot.node.registration import NodeOptions, Registration
from allot.node.reports import Reports
from allot.node.runtimes.port import PodName, Runtime, RuntimeFailure, RuntimeStatus
from allot.node.runtimes.simulated import PROGRAMS_MAX, SimulatedRuntime
from allot.node.runtimes.stand_ins import command_of
from allot.node.service_variables import ApiVariables, ServiceVariables
from allot.node.simulated_devices import AWAKE_MAX, SOCKETS_BELOW, Drivers, SimulatedDevices, has_claims
from allot.node.simulated_slices import SimulatedSlices
from allot.node.simulated_usage import SimulatedUsage
from allot.node.terminations import Terminations
from allot.node.volumes import Volumes, host_path
from allot.node.workers import PodWorkers
from allot.process.beneath import checked_name
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.short_names import short_name
from allot.process.supervise import supervise

_log = logging.getLogger("allot.node")

Object = dict[str, Any]

# Concurrent requests: enough to keep a server busy, few enough to leave it time for others.
AT_ONCE = 32
# Leases last 40 s; without a machine that could die, half the kubelet's pace is enough, and halves their cost.
LEASE_ROUND_S = 20.0
# The interval for checking the states of all nodes in turn.
STATUS_ROUND_S = 60.0
_TURNS = 50
_NAME_LENGTH_MAX = 250


PoolsOf = Callable[[], Sequence[tuple[str, Pool]]]


class SimulatedSet(msgspec.Struct, frozen=True, kw_only=True):
    """Equal nodes. node: what they have in common; each has its own name."""

    names: tuple[str, ...]
    node: NodeOptions
    machine: Machine
    drivers: Drivers
    # Labels of single nodes, by name; common labels take precedence.
    labels: Mapping[str, Mapping[str, str]] = {}

    def options_of(self, name: str) -> NodeOptions:
        """The options of one of them."""
        labels = {**self.labels.get(name, {}), **self.node.labels}
        return msgspec.structs.replace(self.node, name=name, labels=labels)


class SimulatedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes, and where the process keeps its state on disk."""

    sets: tuple[SimulatedSet, ...]
    # The kinds of nodes that can be added later.
    kinds: tuple[SimulatedSet, ...] = ()
    address: str
    root: Path
    # How many times faster probes run.
    time_factor: float = 1.0
    programs_max: int = PROGRAMS_MAX
    awake_max: int = AWAKE_MAX
    sysctls: SysctlRules = SysctlRules()


class _Volumes(Volumes):
    """Volumes for pods that run programs; placeholders never use theirs. disks: replace this machine's disk for nodes."""

    def __init__(
        self,
        folder: Path,
        disks: Path,
        objects: Objects,
        certificates: PodCertificates,
        clock: Clock,
        runtime: SimulatedRuntime,
    ) -> None:
        super().__init__(folder, objects, clock, certificates)
        self._disks = disks
        self._runtime = runtime

    def _host_path(self, pod: RunnablePod, source: HostPathVolumeSource) -> Path:
        """A folder or file of the simulated node. Each path gets a separate one, so that no link leads from one to another."""
        name = quote(str(PurePosixPath("/", source.path)), safe="")
        if len(name) > _NAME_LENGTH_MAX:
            name = hashlib.sha256(name.encode()).hexdigest()
        disk = self._disks / checked_name(pod.spec.node_name, "node")
        disk.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A real machine would have the folders that pods expect.
        return host_path(disk / name, "DirectoryOrCreate" if source.type == "Directory" else source.type)

    async def set_up(self, pod: RunnablePod, facts: PodFacts) -> Mapping[str, Path]:
        """Where they are, or would be."""
        commands = (command_of(each.command, each.image) for each in pod.containers())
        if self._runtime.can_run(pod.metadata.annotations, commands, has_claims(pod)):
            return await super().set_up(pod, facts)
        folder = self.pod_folder(pod.metadata.uid) / "volumes"
        return {each.name: folder / each.name for each in pod.spec.volumes}


class _Actions(Actions):
    """Probes and hooks over the network: those of placeholders always succeed, because nothing listens."""

    def __init__(self, runtime: SimulatedRuntime, network: PodNetwork | None) -> None:
        super().__init__(runtime, network)
        self._simulated = runtime

    async def request(
        self,
        action: HTTPGetAction,
        container: Container,
        address: str,
        timeout_s: float,
        *,
        takes_any_status: bool = False,
    ) -> str:
        """Send a request."""
        if self._simulated.is_nowhere(action.host or address):
            return ""
        return await super().request(action, container, address, timeout_s, takes_any_status=takes_any_status)

    async def dial(self, action: TCPSocketAction, container: Container, address: str, timeout_s: float) -> str:
        """Open a connection."""
        if self._simulated.is_nowhere(action.host or address):
            return ""
        return await super().dial(action, container, address, timeout_s)

    async def ask_health(self, port: int, service: str, address: str, timeout_s: float) -> str:
        """Query gRPC's health service."""
        if self._simulated.is_nowhere(address):
            return ""
        return await super().ask_health(port, service, address, timeout_s)


class SimulatedNodes:
    """Runs nodes until cancelled. port: where they all serve; set it before running. programs: runs what this machine can run."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        ids: Ids,
        options: SimulatedOptions,
        programs: Runtime,
        gates: FeatureGates = DEFAULT_GATES,
        network: PodNetwork | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        self._clock = clock
        self._options = options
        self._terminations = Terminations(metrics if metrics is not None else CollectorRegistry())
        self.port = 0
        self._events = EventRecorder(
            client, clock, ids, controller="kubelet", instance="simulated-nodes", tells_notes_apart=True
        )
        self.runtime = SimulatedRuntime(
            programs,
            clock,
            ids,
            announce=self._announce,
            programs_max=options.programs_max,
            cdi_of=self.cdi_of,
            network=network,
            whereabouts=self._whereabouts,
        )
        self.listing = self.runtime
        self._classes = client.typed(DeviceClass)
        self._set_of = {name: each for each in options.sets for name in each.names}
        self._registrations = {
            name: Registration(client, clock, each.options_of(name), each.machine, lambda: self.port)
            for name, each in self._set_of.items()
        }
        self._registered: set[str] = set()
        self._client = client
        # Shared with slices and devices: nodes may come and go.
        self._pools_of: dict[str, PoolsOf] = {
            name: partial(each.drivers.pools, name) for name, each in self._set_of.items()
        }
        self._drivers_of = {name: each.drivers for name, each in self._set_of.items()}
        self._slices = SimulatedSlices(client, clock, ids, self._pools_of, self._uid_of)
        self._devices = SimulatedDevices(
            client,
            clock,
            ids,
            options.root / "nodes",
            self._drivers_of,
            self._active,
            self._slices.changed,
            gates,
            options.awake_max,
            self._unfinished,
            self._allocatable,
        )
        self._variables = ServiceVariables(
            informers, ApiVariables.NONE if network is None else ApiVariables.WITH_OWN_NETWORK
        )
        self._admission = Admission(client, informers.typed(Node))
        objects = Objects(client)
        certificates = PodCertificates(client, clock, ids, self._uid_of)
        self._volumes = _Volumes(
            options.root / PODS, options.root / "disks", objects, certificates, clock, self.runtime
        )
        self._shared = self._common_services(client, ids, objects, network)
        by_set = {id(each): self._services(each) for each in options.sets}
        self._services_of = {name: by_set[id(each)] for name, each in self._set_of.items()}
        self._pods = informers.dynamic("", "v1", "pods", namespaced=True, field_selector="spec.nodeName!=")
        self._workers = PodWorkers(clock, lambda pod: pod["spec"].get("nodeName") in self._registrations)
        self._follows_pods = False
        self._usage = SimulatedUsage(
            lambda pod, text: self._events.record(pod, "Warning", BAD_ANNOTATION, "Measuring", text)
        )
        self._facts: dict[str, Mapping[DeviceName, DeviceFacts]] = {}
        # Set as soon as every node is in the API with its slices and its lease.
        self.are_ready = asyncio.Event()

    @property
    def awake(self) -> int:
        """How many nodes have their drivers running."""
        return self._devices.awake

    async def run(self) -> None:
        """Register all nodes, then look after pods."""
        await self.runtime.open()
        try:
            status = await self.runtime.status()
            log_isolation(status)
            for name in self._registrations:
                report_no_network(status, self._events, name)
            with short_name(self._devices.root, SOCKETS_BELOW) as short:
                self._devices.short_root = short
                await self._run(status)
        finally:
            await self.runtime.close()

    async def _run(self, status: RuntimeStatus) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._workers.open(lambda pod: self._services_of[pod["spec"]["nodeName"]], tasks)
            tasks.create_task(supervise("events", self._events.run, self._clock))
            # The first nodes must not count as dead while the last ones are registered.
            tasks.create_task(supervise("leases", self._keep_leases, self._clock))
            await self.create_classes((*self._options.sets, *self._options.kinds))
            await self._register_all(status)
            self.are_ready.set()
            tasks.create_task(supervise("slices", self._slices.run, self._clock))
            tasks.create_task(supervise("devices", self._devices.run, self._clock))
            tasks.create_task(self._follow_health())
            tasks.create_task(supervise("states", self._keep_states, self._clock))
            tasks.create_task(self._follow_runtime())
            await self._variables.wait()
            tasks.create_task(self._follow_pods())
            await self._pods.wait_synced()
            tasks.create_task(supervise("orphans", self._remove_orphans, self._clock))

    # --- nodes ---

    def _common_services(self, client: Client, ids: Ids, objects: Objects, network: PodNetwork | None) -> Services:
        """What the workers of all nodes share."""
        return Services(
            clock=self._clock,
            ids=ids,
            runtime=self.runtime,
            listing=self.runtime,
            devices=self._devices,
            volumes=self._volumes,
            specs=ContainerSpecs(objects),
            reports=Reports(client, self._events),
            terminations=self._terminations,
            actions=_Actions(self.runtime, network),
            log_folder=self._options.root / "log" / "pods",
            host_ips=(self._options.address,),
            runtime_name="simulated",
            pulls_images=False,
            allocatable={},
            variables=self._variables,
            admission=self._admission,
            sysctls=self._options.sysctls,
            time_factor=self._options.time_factor,
        )

    def _services(self, each: SimulatedSet) -> Services:
        return msgspec.structs.replace(self._shared, allocatable=each.machine.allocatable)

    def _uid_of(self, name: str) -> str:
        registration = self._registrations.get(name)
        return registration.uid if registration is not None else ""

    async def add(self, each: SimulatedSet, name: str) -> None:
        """Add a node, after all have been registered; its drivers publish nothing before `publish`."""
        await self.are_ready.wait()
        options = msgspec.structs.replace(each.node, name=name)
        registration = Registration(self._client, self._clock, options, each.machine, lambda: self.port)
        self._set_of[name], self._services_of[name] = each, self._services(each)
        self._drivers_of[name] = each.drivers
        self._pools_of[name] = tuple
        self._registrations[name] = registration
        await registration.register(await self.runtime.status())
        await registration.renew()
        self._registered.add(name)
        each.drivers.lay_out(name, self._devices.folder(name))

    async def publish(self, name: str) -> None:
        """The drivers of an added node have started."""
        if name in self._registrations:
            self._pools_of[name] = partial(self._set_of[name].drivers.pools, name)
            await self._slices.publish(name, ())

    async def remove(self, name: str) -> None:
        """Remove a node, whatever runs on it; other controllers remove its pods. ApiError."""
        self._registered.discard(name)
        registration = self._registrations.pop(name, None)
        self._pools_of.pop(name, None)
        self._facts.pop(name, None)
        if registration is not None:
            await registration.withdraw()
            return
        with suppress(NotFound):
            # From an earlier process.
            await self._client.resource("", "v1", "nodes", namespaced=False).delete(name)

    async def create_classes(self, sets: Iterable[SimulatedSet]) -> None:
        """Create the device classes of the nodes' drivers, unless they exist."""
        classes = {each.metadata.name: each for one in sets for each in one.drivers.device_classes}
        for name, made in classes.items():
            try:
                await self._classes.create(made)
            except AlreadyExists:
                pass
            except ApiError as error:
                _log.warning("DeviceClass %s: %s", name, error)

    async def _register_all(self, status: RuntimeStatus) -> None:
        existing = await self._slices.published()

        async def register(name: str) -> None:
            registration = self._registrations[name]
            await registration.register(status)
            await registration.renew()
            self._registered.add(name)
            self._set_of[name].drivers.lay_out(name, self._devices.folder(name))
            await self._slices.publish(name, existing.get(name, ()))

        await _each(tuple(self._set_of), register)

    async def _keep_leases(self) -> None:
        """Renew all leases, a few at a time."""
        await self._in_turns(LEASE_ROUND_S, self._renew)

    async def _renew(self, name: str) -> None:
        registration = self._registrations.get(name)
        if name in self._registered and registration is not None:
            await registration.renew()

    async def _keep_states(self) -> None:
        await self._in_turns(STATUS_ROUND_S, self._refresh)

    async def _refresh(self, name: str) -> None:
        registration = self._registrations.get(name)
        if registration is not None and await registration.refresh(await self.runtime.status()):
            # A deleted node takes its slices with it.
            await self._slices.publish(name, ())

    async def _in_turns(self, seconds: float, act: Callable[[str], Awaitable[None]]) -> None:
        """Do something for each node once per interval, spread evenly."""
        while True:
            names = tuple(self._registrations)
            turns = min(_TURNS, max(len(names), 1))
            for turn in range(turns):
                began = self._clock.monotonic()
                await _each(names[turn::turns], act)
                await self._clock.sleep(max(seconds / turns - (self._clock.monotonic() - began), 0.0))

    # --- pods ---

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of the pod that currently has this name."""
        pod = self._pods.cache.get(f"{namespace}/{name}")
        return self._workers.get(pod["metadata"]["uid"]) if pod is not None else None

    def pods(self, node: str = "", /) -> tuple[Object, ...]:
        """The pods of all these nodes, or of one."""
        if node:
            return tuple(each for each in self._pods.cache if each["spec"].get("nodeName") == node)
        return tuple(each for each in self._pods.cache if each["spec"].get("nodeName") in self._registrations)

    def record_scrape_problem(self, pod: Mapping[str, Any], text: str) -> None:
        """Report that the metrics of a pod are not available."""
        self._events.record(pod, "Warning", FAILED_SCRAPE, "Scraping", text)

    def is_node(self, name: str) -> bool:
        """Whether a node of this name is here."""
        return name in self._registrations

    async def measure(self, node: str = "", /) -> Measured:
        """What pods use: programs as measured, placeholders as declared. A node uses what its pods do."""
        # In milliseconds, as in the output, so that rates match the declared ones.
        now = int(self._clock.seconds() * 1000) / 1000
        _, containers = await self.runtime.list()
        programs = await self.runtime.usage()
        real = {each.id for each in programs}
        pods = self.pods()
        loads = self._usage.loads(pods)
        declared = self._usage.usage([each for each in containers if each.id not in real], loads, now)
        found = joined((*programs, *declared), containers)
        node_of = {pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods}
        nodes = self._usage.nodes(self._registrations, node_of, found)
        if node:
            nodes = tuple(msgspec.structs.replace(each, name="") for each in nodes if each.name == node)
            found = tuple(each for each in found if node_of.get(each[0].pod.uid) == node)
        return Measured(at=now, nodes=nodes, containers=found)

    async def device_samples(self, node: str = "", /) -> Exposition:
        """GPU usage as DCGM's exporter would report it, and the declared metrics of placeholders."""
        pods = [pod for pod in self.pods(node) if (pod.get("status") or {}).get("phase") == "Running"]
        loads = self._usage.loads(self.pods())
        holders: dict[str, list[Holder]] = {}
        samples: list[Sample] = []
        for pod in pods:
            load = loads[pod["metadata"]["uid"]]
            samples += load.samples
            if pod["spec"].get("resourceClaims") or pod["status"].get("extendedResourceClaimStatus"):
                typed = decode_runnable(pod)
                held = Holder(typed, load, tuple(self._devices.claims_of(typed)))
                holders.setdefault(pod["spec"]["nodeName"], []).append(held)
        for name, found in holders.items():
            samples += gpu_series(name, found, self._device_facts(name))
        return Exposition(tuple(samples), TYPES)

    def _device_facts(self, node: str) -> Mapping[DeviceName, DeviceFacts]:
        """Facts about the GPUs of a node and their possible partitions."""
        found = self._facts.get(node)
        if found is None:
            pools = self._set_of[node].drivers.pools(node)
            found = self._facts[node] = {
                (driver, pool.name, device.name): facts
                for driver, pool in pools
                for device in pool.devices
                if (facts := facts_of(device)) is not None
            }
        return found

    def _whereabouts(self, pod: PodName, container: str) -> tuple[str, tuple[str, ...]]:
        """The node of a container, and its devices."""
        worker = self._workers.get(pod.uid)
        if worker is None:
            return "", ()
        records = (record for name, record in self._devices.claims_of(worker.pod) if name == container)
        devices = {
            f"{driver}/{device.pool}/{device.device}"
            for record in records
            for driver, state in record.drivers.items()
            for device in state.devices
        }
        return worker.pod.spec.node_name, tuple(sorted(devices))

    def cdi_of(self, pod: PodName) -> CdiRegistry:
        """The CDI devices that a pod can use: those of its node."""
        worker = self._workers.get(pod.uid)
        if worker is None:
            raise RuntimeFailure("CreateContainerError", f"pod {pod.namespace}/{pod.name} is not here")
        return self._devices.registry(worker.pod.spec.node_name)

    def _active(self, node: str) -> frozenset[str] | None:
        """The uids of pods of a node that may use devices; None until all pods are known."""
        if not self._pods.has_synced or not self._follows_pods:
            return None
        return frozenset(self._workers.on_node(node))

    def _unfinished(self, node: str) -> tuple[Pod, ...]:
        """The managed pods of a node that have not ended."""
        return self._workers.unfinished(self._workers.on_node(node))

    def _allocatable(self, node: str) -> Allocatable:
        return allocatable_of(self._set_of[node].machine)

    async def _follow_pods(self) -> None:
        await self._admission.wait()
        # All at once: count running pods before admitting the first new one.
        await self._pods.wait_synced()
        stop = self._pods.add_handler(self._workers.pod_changed)
        self._follows_pods = True
        try:
            await asyncio.Event().wait()
        finally:
            stop()

    async def _remove_orphans(self) -> None:
        """Programs of pods that were deleted while no agent ran."""
        sandboxes, _ = await self.runtime.list()
        for sandbox in sandboxes:
            if sandbox.pod.uid not in self._workers:
                _log.info("removing what is left of pod %s/%s", sandbox.pod.namespace, sandbox.pod.name)
                await self.runtime.stop_sandbox(sandbox.id)
                await self.runtime.remove_sandbox(sandbox.id)
                self._volumes.tear_down(sandbox.pod.uid)

    async def _follow_runtime(self) -> None:
        async for uid in self.runtime.changes():
            self._workers.wake(uid)

    async def _follow_health(self) -> None:
        async for uid in self._devices.health_changes():
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
    """Do something for every name, with limited concurrency."""
    rest = iter(names)

    async def work() -> None:
        for name in rest:
            await act(name)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work())
