"""The agent of one node: registers it, watches its pods, and starts a worker for each.

Combines the parts: `pods` handles a pod, `registration` the Node object, `server` HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.events import EventRecorder, Reference
from allot.client.informers import Informers
from allot.core.lifecycle.pod_sysctls import SysctlRules
from allot.core.metrics.exposition import Exposition
from allot.core.model.core_v1 import Node, Pod
from allot.network.client import PodNetwork
from allot.node.actions import Actions
from allot.node.admission import Admission
from allot.node.cluster_names import ClusterNames
from allot.node.containers import ContainerSpecs
from allot.node.control_groups import GroupOptions, NoGroups, PodGroups, find_tree
from allot.node.deviceplugins.device_plugins import DevicePlugins
from allot.node.devices import Devices
from allot.node.machine import Machine
from allot.node.metric_problems import FAILED_SCRAPE
from allot.node.metrics import Measured, measured_here
from allot.node.objects import Objects
from allot.node.pod_certificates import PodCertificates
from allot.node.pod_folders import PODS
from allot.node.pod_names import NameOptions, PodNames
from allot.node.pods import PodWorker, Services
from allot.node.registration import NodeOptions, Registration
from allot.node.reports import Reports
from allot.node.runtimes.port import Container, Runtime, RuntimeStatus, Sandbox
from allot.node.service_proxy import ServiceProxy
from allot.node.service_variables import ApiVariables, ServiceVariables
from allot.node.terminations import Terminations
from allot.node.volumes import Volumes
from allot.node.workers import PodWorkers
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_log = logging.getLogger("allot.node")

Object = dict[str, Any]
_RELIST_S = 10.0
# The kubelet's value.
_MEASURE_S = 10.0
_AMOUNTS_S = 1.0
_CLASSES_S = 60.0
_RECONCILE_PAUSES_S = (1.0, 4.0, 10.0)


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where the agent keeps things, and what its node is."""

    node: NodeOptions
    root: Path
    log_folder: Path
    # Which pods get the API server's address like that of any other Service; the others get it elsewhere.
    api_variables: ApiVariables = ApiVariables.NONE
    # DNS for pods, and that the agent mounts their volumes; None if the runtime does both itself.
    names: NameOptions | None = None
    sysctls: SysctlRules = SysctlRules()
    # None: pods get no control groups of their own.
    groups: GroupOptions | None = None


def log_isolation(status: RuntimeStatus) -> None:
    """Log how the commands of pods run."""
    if (found := status.isolation) is not None:
        _log.log(logging.INFO if found.is_on else logging.WARNING, "commands of pods: %s", found.message)
    if (found := status.network) is not None:
        _log.log(logging.INFO if found.is_on else logging.WARNING, "network of pods: %s", found.message)


def report_no_network(status: RuntimeStatus, events: EventRecorder, node: str) -> None:
    """Record an event on the node if its pods should have their own network but do not."""
    if (found := status.network) is not None and not found.is_on:
        about = Reference(api_version="v1", kind="Node", name=node, uid=node)
        events.record(about, "Warning", found.reason, "Starting", found.message)


class RuntimeListing:
    """The runtime's state, listed once for all workers until something changes. tell: receives the addresses of pods each time."""

    def __init__(self, runtime: Runtime, tell: Iterable[Callable[[Iterable[str]], None]] = ()) -> None:
        self._runtime = runtime
        self._tell = tuple(tell)
        self._is_stale = True
        self._sandboxes: dict[str, list[Sandbox]] = {}
        self._containers: dict[str, list[Container]] = {}
        self._asking = asyncio.Lock()

    def stale(self) -> None:
        """Something has changed."""
        self._is_stale = True

    async def of(self, uid: str) -> tuple[tuple[Sandbox, ...], tuple[Container, ...]]:
        """Sandboxes and containers of a pod."""
        await self._refresh()
        return tuple(self._sandboxes.get(uid, ())), tuple(self._containers.get(uid, ()))

    async def uids(self) -> tuple[str, ...]:
        """All pods that the runtime has anything of."""
        await self._refresh()
        return tuple({**self._sandboxes, **self._containers})

    async def _refresh(self) -> None:
        async with self._asking:
            if not self._is_stale:
                return
            # A change during the listing makes it stale again.
            self._is_stale = False
            try:
                sandboxes, containers = await self._runtime.list()
            except BaseException:
                self._is_stale = True
                raise
            addresses = [address for each in sandboxes if each.ready for address in each.ips]
            for tell in self._tell:
                tell(addresses)
            self._sandboxes, self._containers = {}, {}
            for sandbox in sandboxes:
                self._sandboxes.setdefault(sandbox.pod.uid, []).append(sandbox)
            for container in containers:
                self._containers.setdefault(container.pod.uid, []).append(container)


class NodeAgent:
    """Runs a node until cancelled. port: where it serves; set it before running."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        clock: Clock,
        ids: Ids,
        options: AgentOptions,
        machine: Machine,
        runtime: Runtime,
        devices: Devices,
        network: PodNetwork | None = None,
        proxy: ServiceProxy | None = None,
        names: ClusterNames | None = None,
        plugins: DevicePlugins | None = None,
        metrics: CollectorRegistry | None = None,
    ) -> None:
        """network: where pods have addresses, if the agent manages that; otherwise proxy routes their traffic to Services, and names resolves the
        cluster's names."""
        self._clock = clock
        self._network = network
        self._proxy = proxy
        self._names = names
        self._runtime = runtime
        self._devices = devices
        self._plugins = plugins
        self._options = options
        self._informers = informers
        self.port = 0
        self.listing = RuntimeListing(runtime, [each.set_pods for each in (proxy, names) if each is not None])
        node = options.node
        self._events = EventRecorder(
            client, clock, ids, controller="kubelet", instance=node.name, tells_notes_apart=True
        )
        self._registration = Registration(client, clock, node, machine, lambda: self.port, plugins)
        objects = Objects(client)
        certificates = PodCertificates(client, clock, ids, lambda _node: self._registration.uid)
        is_mounted = options.names is not None
        self._volumes = Volumes(options.root / PODS, objects, clock, certificates, is_mounted=is_mounted)
        self._ids = ids
        self._allocatable = machine.allocatable
        self._page_sizes = tuple(machine.huge_pages)
        self._groups: PodGroups | None = None
        self._objects = objects
        self._reports = Reports(client, self._events)
        self._terminations = Terminations(metrics if metrics is not None else CollectorRegistry())
        self._pods = informers.dynamic("", "v1", "pods", namespaced=True, field_selector=f"spec.nodeName={node.name}")
        self._admission = Admission(client, informers.typed(Node, field_selector=f"metadata.name={node.name}"))
        self._workers = PodWorkers(clock)
        # Whether all pods of the node have workers: until then, one without a worker may still use its devices.
        self._knows_pods = False
        self._variables = ServiceVariables(informers, options.api_variables)

    async def run(self) -> None:
        """Register, then look after pods."""
        await self._runtime.open()
        try:
            status = await self._runtime.status()
            log_isolation(status)
            self._groups = self._open_groups(status)
            report_no_network(status, self._events, self._options.node.name)
            async with asyncio.TaskGroup() as tasks:
                services = self._make_services(status)
                self._workers.open(lambda _pod: services, tasks)
                tasks.create_task(supervise("events", self._events.run, self._clock))
                await self._registration.register(status)
                tasks.create_task(self._registration.keep_lease())
                tasks.create_task(self._registration.keep_status(self._runtime.status))
                tasks.create_task(supervise("devices", self._devices.run, self._clock))
                tasks.create_task(self._follow_runtime())
                tasks.create_task(self._follow_health(self._devices.health_changes()))
                if (plugins := self._plugins) is not None:
                    tasks.create_task(supervise("device plugins", plugins.run, self._clock))
                    tasks.create_task(self._follow_health(plugins.health_changes()))
                    tasks.create_task(self._follow_amounts(plugins))
                tasks.create_task(self._relist())
                if (groups := self._groups) is not None:
                    tasks.create_task(supervise("control groups", lambda: self._keep_classes(groups), self._clock))
                tasks.create_task(supervise("volumes", self._watch_sizes, self._clock))
                if (proxy := self._proxy) is not None:
                    tasks.create_task(supervise("services", lambda: proxy.run(self._events), self._clock))
                if self._names is not None:
                    tasks.create_task(supervise("names", self._names.run, self._clock))
                await self._variables.wait()
                await self._admission.wait()
                # All at once: count running pods before admitting the first new one.
                await self._pods.wait_synced()
                self._pods.add_handler(self._workers.pod_changed)
                self._knows_pods = True
                tasks.create_task(supervise("orphans", self._remove_orphans, self._clock))
        finally:
            if self._proxy is not None:
                await self._proxy.close()
            if self._names is not None:
                self._names.close()
            await self._runtime.close()

    def _open_groups(self, status: RuntimeStatus) -> PodGroups | None:
        """The control groups of pods, as the runtime names them; None, with a message, if this machine has none for us."""
        options = self._options.groups
        if options is None:
            return None
        if status.cgroup_driver:
            options = msgspec.structs.replace(options, driver=status.cgroup_driver)
        try:
            groups = PodGroups(find_tree(self._page_sizes), options, self._clock)
            groups.open(self._allocatable)
        except NoGroups as error:
            _log.warning("pods get no control groups of their own, so only containers are limited: %s", error)
            return None
        return groups

    async def _keep_classes(self, groups: PodGroups) -> None:
        """The share of burstable pods depends on what they request; others may have changed it, too."""
        while True:
            await groups.update_classes(self.unfinished())
            await groups.wait_changed(_CLASSES_S)

    def _make_services(self, status: RuntimeStatus) -> Services:
        told = self._options.names
        names = PodNames(told, self._reports) if told is not None else None
        return Services(
            clock=self._clock,
            ids=self._ids,
            runtime=self._runtime,
            listing=self.listing,
            devices=self._devices,
            volumes=self._volumes,
            specs=ContainerSpecs(self._objects, names, status.recursive_read_only),
            reports=self._reports,
            terminations=self._terminations,
            actions=Actions(self._runtime, self._network),
            log_folder=self._options.log_folder,
            host_ips=(self._options.node.address,),
            runtime_name=status.name,
            pulls_images=status.pulls_images,
            allocatable=self._allocatable,
            variables=self._variables,
            sysctls=self._options.sysctls,
            admission=self._admission,
            groups=self._groups,
            plugins=self._plugins,
        )

    # --- pods ---

    def worker(self, namespace: str, name: str) -> PodWorker | None:
        """The worker of the pod that currently has this name."""
        pod = self._pods.cache.get(f"{namespace}/{name}")
        return self._workers.get(pod["metadata"]["uid"]) if pod is not None else None

    def record_scrape_problem(self, pod: Mapping[str, Any], text: str) -> None:
        """Report that the metrics of a pod are not available."""
        self._events.record(pod, "Warning", FAILED_SCRAPE, "Scraping", text)

    def is_node(self, name: str) -> bool:
        """Whether this agent runs a node of this name."""
        return name == self._options.node.name

    def pods(self, _node: str = "", /) -> tuple[Object, ...]:
        """The pods of this node."""
        return tuple(self._pods.cache)

    async def measure(self, _node: str = "", /) -> Measured:
        """What this machine and its containers use."""
        usage = await self._runtime.usage()
        _, containers = await self._runtime.list()
        return measured_here(usage, containers, self._clock.seconds())

    async def device_samples(self, _node: str = "", /) -> Exposition:
        """Nothing: real devices have their own exporters, which run as pods."""
        return Exposition(())

    def unfinished(self) -> tuple[Pod, ...]:
        """The managed pods that have not ended."""
        return self._workers.unfinished(self._workers)

    def active(self) -> frozenset[str] | None:
        """The uids of pods that may use devices; None until all pods of the node are known."""
        return frozenset(self._workers) if self._knows_pods else None

    def wake(self, uid: str) -> None:
        """Something about a pod has changed, such as the health of a device."""
        self._workers.wake(uid)

    # --- the runtime ---

    async def _follow_runtime(self) -> None:
        async for uid in self._runtime.changes():
            self.listing.stale()
            self.wake(uid)

    async def _follow_health(self, changes: AsyncIterator[str]) -> None:
        async for uid in changes:
            self.wake(uid)

    async def _follow_amounts(self, plugins: DevicePlugins) -> None:
        """The scheduler learns of devices at once, not at the next regular report. A plugin that keeps changing its mind is reported once a
        second."""
        async for _ in plugins.changes():
            await self._registration.refresh(await self._runtime.status())
            await self._clock.sleep(_AMOUNTS_S)

    async def _relist(self) -> None:
        """Runtimes may miss an event; an occasional check costs little."""
        while True:
            await self._clock.sleep(_RELIST_S)
            self.listing.stale()

    async def _watch_sizes(self) -> None:
        """Evict pods that exceed the size limits of their volumes."""
        while True:
            await self._clock.sleep(_MEASURE_S)
            for uid in tuple(self._workers):
                worker = self._workers.get(uid)
                if worker is not None and (text := await asyncio.to_thread(self._volumes.excess, worker.pod)):
                    worker.evict(text)

    async def _remove_group(self, uid: str) -> None:
        if self._groups is not None:
            await self._groups.remove(uid)

    async def _remove_orphans(self) -> None:
        """Remove leftovers of pods that the API does not know: deleted while no agent ran."""
        for uid in await self.listing.uids():
            if uid in self._workers:
                continue
            sandboxes, containers = await self.listing.of(uid)
            _log.info("removing what is left of pod %s", uid)
            for container in containers:
                await self._runtime.stop_container(container.id, 1.0)
                await self._runtime.remove_container(container.id)
            for sandbox in sandboxes:
                await self._runtime.stop_sandbox(sandbox.id)
                await self._runtime.remove_sandbox(sandbox.id)
            self.listing.stale()
        for uid in self._volumes.uids():
            if uid not in self._workers:
                await self._remove_group(uid)
                await asyncio.to_thread(self._volumes.tear_down, uid)
        # Drivers register shortly after the agent starts; the claim preparer retries what fails now.
        for pause in _RECONCILE_PAUSES_S:
            await self._clock.sleep(pause)
            await self._devices.reconcile()
