"""Devices of device plugins for the pods of this node: the entry point of this package.

A container gets its devices when its pod is admitted, and keeps them until the pod ends, over restarts of the container and of the agent:
the checkpoint is on disk before the pod is admitted. Allocations of one resource are made one at a time, so that no device is given away
twice. A plugin that ends takes its devices' health with it at once, and its resource after a grace period.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from prometheus_client import CollectorRegistry

from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.plugin_devices import (
    VERSION,
    Device,
    Edits,
    Holding,
    Ledger,
    NodeAmounts,
    Offer,
    Plan,
    Refused,
    amounts,
    changed_devices,
    check_resource_name,
    container_statuses,
    merged,
    node_amounts,
    pick,
    plan,
)
from allot.core.model.core_v1 import Container, Pod
from allot.node.deviceplugins.checkpoint import FILE, decode, encode
from allot.node.deviceplugins.endpoints import ALLOCATE_TIMEOUT_S, Endpoint
from allot.node.deviceplugins.metrics import DevicePluginMetrics
from allot.node.deviceplugins.registration import RegistrationService
from allot.node.plugin_calls import CallFailed, NotUsable, socket_target
from allot.node.state_file import StateFile
from allot.process.clock import Clock
from allot.process.supervise import supervise

_log = logging.getLogger("allot.node.deviceplugins")

FOLDER = "device-plugins"
PLUGIN_TYPE = "DevicePlugin"
# How long a resource without a plugin keeps its capacity; the kubelet's value.
GRACE_S = 300.0
# Far above what a node has: a program that keeps inventing names must not exhaust memory, or the Node object.
ENDPOINTS_MAX = 256
_CHANGES_MAX = 1000


class _Resource:
    """A resource that plugins serve, or have served. devices: None before the first list."""

    def __init__(self, devices: Mapping[str, Device] | None = None, stopped_at: float | None = None) -> None:
        self.endpoints: list[Endpoint] = []
        self.devices = devices
        self.stopped_at = stopped_at

    @property
    def offer(self) -> Offer | None:
        """What containers can get; None before the first list."""
        return None if self.devices is None else Offer(devices=self.devices, is_connected=bool(self.endpoints))

    def newest_list(self) -> Mapping[str, Device] | None:
        """The devices of the newest plugin that has sent a list; what was known if none has. During a rolling update two plugins serve the
        same devices, and the newer one counts."""
        lists = (each.devices for each in reversed(self.endpoints))
        return next((each for each in lists if each is not None), self.devices)


class DevicePlugins:
    """The device plugins of one node. Run it, or none can register.

    root: the kubelet's folder. active_pods: uids of pods that may still use devices, None while unknown. CheckpointCorrupt if an earlier
    run left a damaged file.
    """

    def __init__(
        self,
        root: Path,
        clock: Clock,
        *,
        active_pods: Callable[[], frozenset[str] | None],
        gates: FeatureGates = DEFAULT_GATES,
        metrics: CollectorRegistry | None = None,
        grace_s: float = GRACE_S,
        allocate_s: float = ALLOCATE_TIMEOUT_S,
    ) -> None:
        self._clock = clock
        self._active_pods = active_pods
        self._gates = gates
        self._grace_s = grace_s
        self._allocate_s = allocate_s
        self.metrics = DevicePluginMetrics(metrics if metrics is not None else CollectorRegistry())
        self._ledger = Ledger()
        self._resources: dict[str, _Resource] = {}
        # Resources that have had no plugin for longer than the grace period.
        self._gone: set[str] = set()
        folder = root / FOLDER
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._service = RegistrationService(folder, self.connect)
        self._file = StateFile(folder / FILE, lambda: encode(self._ledger, self._resources))
        content = self._file.read()
        # Without a file, the node is new to this agent: what its Node object says about devices is out of date.
        self.is_new_node = content is None
        if content is not None:
            found = decode(self._file.path, content)
            self._ledger = found.ledger
            now = clock.monotonic()
            # Until their plugins register again there is nothing to give away.
            self._resources = {name: _Resource({}, now) for name in found.resources}
        self._connecting: set[tuple[str, Path]] = set()
        # By resource; an unused lock is dropped automatically.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._health_changes: asyncio.Queue[str] = asyncio.Queue(_CHANGES_MAX)
        self._changed = asyncio.Event()
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Until cancelled: let plugins register, and follow what they report."""
        try:
            socket_target(str(self._service.path))
        except NotUsable as error:
            _log.error("device plugins cannot register on this node: %s; choose a shorter --root-dir", error)
            return
        try:
            async with asyncio.TaskGroup() as tasks, self._service.serving():
                self._tasks = tasks
                # Until cancelled.
                await asyncio.Event().wait()
        finally:
            self._tasks = None
            for resource in self._resources.values():
                endpoints, resource.endpoints, resource.stopped_at = resource.endpoints, [], self._clock.monotonic()
                for endpoint in endpoints:
                    await endpoint.close()
            await self._file.settle()

    # --- for pods ---

    async def allocate(self, pod: Pod) -> None:
        """Give each container of a new pod its devices; Refused, which the pod does not survive."""
        for container in (*pod.spec.init_containers, *pod.spec.containers):
            for resource, required in amounts(pod, container).items():
                if self._is_served(resource):
                    await self._allocate(pod, container, resource, required)

    async def edits(self, pod: Pod, container: Container) -> Edits:
        """What the devices of a container add to it, before each of its starts; Refused."""
        held = self._ledger.of(pod.metadata.uid, container.name)
        for resource, required in amounts(pod, container).items():
            if resource not in held and self._is_served(resource):
                # Its pod was admitted before the plugin was known.
                await self._allocate(pod, container, resource, required)
        holdings = dict(self._ledger.of(pod.metadata.uid, container.name))
        for resource, holding in sorted(holdings.items()):
            await self._pre_start(resource, holding)
        found, conflicts = merged(holdings)
        for conflict in conflicts:
            _log.error("pod %s, container %s: conflicting %s is left out", pod.key, container.name, conflict)
        return found

    async def release(self, uid: str) -> None:
        """A pod no longer uses its devices."""
        if self._ledger.forget(uid):
            await self._save_or_log()

    def held(self) -> dict[str, int]:
        """How many devices of each resource containers hold."""
        return {resource: len(ids) for resource, ids in self._ledger.in_use().items()}

    def holdings(self, pod: Pod, container: Container) -> Mapping[str, Holding]:
        """The devices of a container, by resource."""
        return self._ledger.of(pod.metadata.uid, container.name)

    def health(self, pod: Pod) -> Mapping[str, Sequence[dict[str, Any]]]:
        """allocatedResourcesStatus of the containers of a pod that hold devices, by their names."""
        if "ResourceHealthStatus" not in self._gates or pod.metadata.uid not in self._ledger:
            return {}
        found: dict[str, list[dict[str, Any]]] = msgspec.json.decode(
            msgspec.json.encode(container_statuses(self._ledger, self._offers(), pod))
        )
        return found

    async def health_changes(self) -> AsyncGenerator[str, None]:
        """The uid of a pod each time the health of its devices has changed."""
        while True:
            yield await self._health_changes.get()

    # --- for the node ---

    def amounts(self) -> NodeAmounts:
        """What the node has, and how much of it containers can get."""
        now = self._clock.monotonic()
        for name, resource in tuple(self._resources.items()):
            if resource.stopped_at is not None and now - resource.stopped_at > self._grace_s:
                _log.info("resource %s has had no device plugin for %g s: the node has none", name, self._grace_s)
                del self._resources[name]
                self._gone.add(name)
                if self._tasks is not None:
                    self._tasks.create_task(self._save_or_log())
        return node_amounts(self._offers(), sorted(self._gone))

    def healthy(self) -> dict[str, tuple[Device, ...]]:
        """The healthy devices of each resource."""
        return {
            name: tuple(offer.devices[id_] for id_ in sorted(offer.healthy))
            for name, offer in sorted(self._offers().items())
        }

    async def changes(self) -> AsyncGenerator[None, None]:
        """Each time what the node has may have changed."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield

    # --- allocation ---

    def _is_served(self, resource: str) -> bool:
        """Whether plugins serve a resource, or have given devices of it away. Others belong to the whole cluster."""
        return self._offer(resource) is not None or resource in self._ledger.in_use()

    async def _allocate(self, pod: Pod, container: Container, resource: str, required: int) -> None:
        lock = self._locks.get(resource)
        if lock is None:
            lock = self._locks[resource] = asyncio.Lock()
        async with lock:
            self._forget_inactive()
            if (found := plan(pod, container, resource, required, self._offer(resource), self._ledger)) is None:
                return
            endpoint = self._endpoint(resource)
            preferred = await self._preferred(endpoint, found, required)
            # Devices may have become unhealthy meanwhile.
            found = plan(pod, container, resource, required, self._offer(resource), self._ledger) or found
            ids = pick(found, preferred)
            started = self._clock.monotonic()
            try:
                edits = await endpoint.allocate(ids)
            finally:
                self.metrics.allocations.observe(self._clock.monotonic() - started, resource)
            offer = self._offer(resource)
            known = offer.devices if offer is not None else {}
            devices = tuple(known.get(id_, Device(id=id_)) for id_ in ids)
            self._ledger.hold(pod.metadata.uid, container.name, resource, Holding(devices=devices, edits=edits))
            try:
                await self._file.write()
            except OSError as error:
                self._ledger.let_go(pod.metadata.uid, container.name, resource)
                raise Refused(f'failed to write checkpoint file "{FILE}": {error}') from error

    async def _preferred(self, endpoint: Endpoint, found: Plan, required: int) -> tuple[str, ...]:
        if not endpoint.options.get_preferred_allocation_available or not found.needed:
            return ()
        return await endpoint.preferred(sorted((*found.free, *found.reused)), found.reused, required)

    async def _pre_start(self, resource: str, holding: Holding) -> None:
        known = self._resources.get(resource)
        endpoint = known.endpoints[-1] if known is not None and known.endpoints else None
        if endpoint is not None and endpoint.options.pre_start_required:
            await endpoint.pre_start(holding.ids)

    def _endpoint(self, resource: str) -> Endpoint:
        known = self._resources.get(resource)
        if known is None or not known.endpoints:
            raise Refused(f"unknown Device Plugin {resource}")
        return known.endpoints[-1]

    def _forget_inactive(self) -> None:
        """Pods that were deleted while no agent ran hold nothing."""
        active = self._active_pods()
        if active is not None:
            for uid in self._ledger.uids():
                if uid not in active:
                    self._ledger.forget(uid)

    async def _save_or_log(self) -> None:
        try:
            await self._file.write()
        except OSError as error:
            # What is missing in the file is found out again: pods that ended are not active, plugins register again.
            _log.error("checkpoint %s is not written: %s", self._file.path, error)

    # --- plugins ---

    def _offer(self, resource: str) -> Offer | None:
        known = self._resources.get(resource)
        return known.offer if known is not None else None

    def _offers(self) -> dict[str, Offer]:
        offers = {name: resource.offer for name, resource in self._resources.items()}
        return {name: offer for name, offer in offers.items() if offer is not None}

    def _endpoints(self) -> Iterator[Endpoint]:
        for resource in self._resources.values():
            yield from resource.endpoints

    async def connect(self, resource: str, path: Path) -> None:
        """Connect to a plugin that registers; Refused. One that registers again at a new socket replaces itself."""
        if self._tasks is None:
            raise Refused("the agent is shutting down")
        self.metrics.registrations.add(resource)
        if (resource, path) in self._connecting:
            raise Refused(f"device plugin already connected: {path}")
        self._connecting.add((resource, path))
        try:
            endpoint = Endpoint(resource, path, allocate_s=self._allocate_s)
            try:
                await self._make_room(endpoint)
                await endpoint.connect()
            except BaseException:
                await endpoint.close()
                raise
            known = self._resources.setdefault(resource, _Resource())
            known.endpoints.append(endpoint)
            known.stopped_at = None
            self._gone.discard(resource)
            name = f"device plugin of {resource} at {path}"
            self._tasks.create_task(supervise(name, lambda: self._follow(endpoint), self._clock))
        finally:
            self._connecting.discard((resource, path))
        _log.info("device plugin of %s connected at %s", resource, path)

    async def _make_room(self, endpoint: Endpoint) -> None:
        for each in tuple(self._endpoints()):
            if each.path == endpoint.path:
                if each.identity == endpoint.identity and each.resource == endpoint.resource:
                    raise Refused(f"device plugin already connected: {endpoint.path}")
                if each.identity != endpoint.identity:
                    await self._disconnect(each, "another socket took its place")
        if len(tuple(self._endpoints())) + len(self._connecting) > ENDPOINTS_MAX:
            raise Refused(f"this node has {ENDPOINTS_MAX} device plugins already")

    async def _follow(self, endpoint: Endpoint) -> None:
        """Until a plugin ends. It is not called again: as with the kubelet, it must register again."""
        why = "it ended the list of its devices"
        try:
            async for devices in endpoint.lists():
                endpoint.devices = devices
                await self._update(endpoint.resource)
        except CallFailed as error:
            why = str(error)
        await self._disconnect(endpoint, why)

    async def _update(self, name: str) -> None:
        known = self._resources.get(name)
        if known is None:
            return
        before, known.devices = known.devices, known.newest_list()
        self._changed.set()
        if known.devices is not None:
            self._tell(self._ledger.users(name, changed_devices(before or {}, known.devices)))
        if before is None:
            await self._save_or_log()

    async def _disconnect(self, endpoint: Endpoint, why: str) -> None:
        known = self._resources.get(endpoint.resource)
        if known is None or endpoint not in known.endpoints:
            return
        known.endpoints.remove(endpoint)
        if known.endpoints:
            _log.warning("device plugin of %s at %s has gone: %s", endpoint.resource, endpoint.path, why)
            await self._update(endpoint.resource)
        else:
            known.stopped_at = self._clock.monotonic()
            text = "device plugin of %s at %s has gone, its devices cannot be used until it registers again: %s"
            _log.warning(text, endpoint.resource, endpoint.path, why)
            if known.devices is None:
                del self._resources[endpoint.resource]
        self._changed.set()
        await endpoint.close()

    def _tell(self, uids: Sequence[str]) -> None:
        for uid in uids:
            if self._health_changes.full():
                _log.warning("changes of health are not being read; that of pod %s is dropped", uid)
            else:
                self._health_changes.put_nowait(uid)

    # --- plugins that register through the folder of all plugins ---

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """For the registry: whether a plugin can be used."""
        if VERSION not in versions:
            told = " ".join(versions)[:200]
            raise NotUsable(f"manager version, {VERSION}, is not among plugin supported versions [{told}]")
        try:
            check_resource_name(name)
        except Refused as error:
            raise NotUsable(f"invalid name of device plugin socket: {error}") from error
        socket_target(endpoint)

    async def register(self, name: str, endpoint: str, _versions: Sequence[str]) -> None:
        """For the registry: connect to a plugin."""
        try:
            await self.connect(name, Path(endpoint))
        except Refused as error:
            raise NotUsable(str(error)) from error

    async def deregister(self, name: str, endpoint: str) -> None:
        """For the registry: forget a plugin."""
        for each in tuple(self._endpoints()):
            if (each.resource, str(each.path)) == (name, endpoint):
                await self._disconnect(each, "its socket was removed")
