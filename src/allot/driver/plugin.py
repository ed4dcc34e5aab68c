"""A running driver: combines everything in this package.

Start order: directories, checkpoint, driver, CDI files, service socket, registration socket, slices. Stop order: the
registration socket first, so that the kubelet sends no more requests; then running operations; then the rest. Slices stay: the kubelet
removes them if the driver does not come back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.client.typed import TypedResource
from allot.core.lifecycle.slice_publishing import Pool
from allot.core.model.resource_v1 import Device, DeviceAttribute, NetworkDeviceData, ResourceClaim
from allot.core.validation.names import check_driver_name
from allot.driver.callbacks import call
from allot.driver.cdi_files import CdiFiles
from allot.driver.checkpoint import BOOT_ID_FILE, Checkpoint, CheckpointError, Phase, read_boot_id
from allot.driver.claims import AllocatedDevice, Claim, DeviceStatus, PreparedClaim, prepared_claim
from allot.driver.driver import Driver
from allot.driver.health import HealthBoard
from allot.driver.inventory import Inventory
from allot.driver.metadata import MetadataFiles
from allot.driver.metrics import DriverMetrics
from allot.driver.operation_lock import OperationLock
from allot.driver.preparing import ClaimName, ClaimResult, Preparer
from allot.driver.publishing import REPAIR_DELAY_S, Publish, SlicePublisher
from allot.driver.service import (
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    KUBELET_PATIENCE_S,
    V1,
    V1BETA1,
    DraService,
    Registration,
    health_handlers,
)
from allot.driver.socket_check import check_sockets
from allot.driver.sockets import SocketPathError, is_served, registration_socket, remove_dead_sockets, service_socket
from allot.driver.status import StatusWriter
from allot.http1.health import serving_health
from allot.process.clock import Clock, SystemClock
from allot.process.ids import Ids, SystemIds
from allot.process.owner_only import owner_only
from allot.process.supervise import answer_or_failure, supervise

_log = logging.getLogger("allot.driver")

# After the kubelet has registered the driver: it may have deleted the slices when it started.
_REGISTERED_SYNC_S = 1.0
_STALE_CHECK_S = 300.0
LISTENING_CHECK_S = 10.0
# How many consecutive checks a socket must be dead before the driver gives up: another instance may be taking it over.
_DEAF_MAX = 2
_STOP_S = 30.0


class DriverFailed(Exception):
    """The driver cannot start or continue."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where a driver runs. By default, folders are below the kubelet's."""

    node_name: str
    kubelet_root: Path = Path("/var/lib/kubelet")
    registry_directory: Path | None = None
    data_directory: Path | None = None
    cdi_directory: Path = Path("/var/run/cdi")
    # The UID of the driver's pod: sockets carry it, and two instances can run during an update.
    pod_uid: str = ""
    boot_id_file: Path = BOOT_ID_FILE
    # For /healthz and /metrics; -1: nowhere, 0: any.
    address: str = "127.0.0.1"
    port: int = -1
    versions: tuple[str, ...] = (V1, V1BETA1)
    health_versions: tuple[str, ...] = (HEALTH_V1, HEALTH_V1ALPHA1)
    repair_delay_s: float = REPAIR_DELAY_S
    # How often the driver checks that its sockets still exist.
    listening_check_s: float = LISTENING_CHECK_S


class Plugin:
    """A driver running on a node. Use `running`."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        options: Options,
        clock: Clock,
        ids: Ids,
        publish: Publish | None = None,
    ) -> None:
        problems = check_driver_name(driver.name, "name")
        if problems:
            raise DriverFailed(f"driver {driver.name!r}: {problems[0].error}")
        self.driver = driver
        self.options = options
        # Of /healthz and /metrics, once they are served.
        self.address = ""
        self.registry = CollectorRegistry()
        self.metrics = DriverMetrics(self.registry, driver.name)
        self.clock = clock
        self._client = client
        data = options.data_directory or options.kubelet_root / "plugins" / driver.name
        registry = options.registry_directory or options.kubelet_root / "plugins_registry"
        self._folders = (registry, data, options.cdi_directory)
        try:
            self.registration_path = registration_socket(registry, driver.name, options.pod_uid)
            self.service_path = service_socket(data, options.pod_uid)
        except SocketPathError as error:
            raise DriverFailed(f"driver {driver.name}: {error}") from error
        self.checkpoint = Checkpoint(data / "checkpoint", read_boot_id(options.boot_id_file))
        self._cdi = CdiFiles(options.cdi_directory, f"k8s.{driver.name}/{driver.cdi_class}")
        self._metadata = MetadataFiles(driver.name, data, options.cdi_directory) if driver.has_device_metadata else None
        token = options.pod_uid or ids.new_uid()
        self._operation_lock = OperationLock(data / "serialize.lock", token, clock, self.checkpoint.reload)
        self.publisher = SlicePublisher(
            client,
            driver.name,
            options.node_name,
            self.metrics,
            clock,
            ids,
            cluster_pool=driver.cluster_pool,
            repair_delay_s=options.repair_delay_s,
            publish=publish,
        )
        self._status = StatusWriter(client, driver.name, self.metrics, clock, ids)
        self.board = HealthBoard(driver, options.node_name, self.metrics, clock)
        self._claims: TypedResource[ResourceClaim] | None = None
        self._inventory = Inventory()
        self._is_serving = False
        self._rescan_wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        versions = (*options.versions, *(options.health_versions if driver.reports_health else ()))
        self.registration = Registration(
            driver.name, str(self.service_path), versions, lambda: self.publisher.sync_after(_REGISTERED_SYNC_S)
        )

    # --- what the driver sees (`driver.Node`) ---

    @property
    def name(self) -> str:
        """The node."""
        return self.options.node_name

    @property
    def client(self) -> Client:
        """The API server."""
        return self._client

    def prepared(self) -> tuple[PreparedClaim, ...]:
        """Claims that are prepared or partly prepared."""
        return tuple(prepared_claim(record) for record in self.checkpoint)

    def changed(self) -> None:
        """Check devices and health now."""

        def look() -> None:
            self._rescan_wanted.set()
            self.board.look()

        self._loop.call_soon_threadsafe(look)

    def set_status(self, claim: Claim | PreparedClaim, device: str, status: DeviceStatus, pool: str = "") -> None:
        """Report on a device in its claim's status."""
        for held in claim.devices:
            if held.name == device and pool in ("", held.pool):
                key = (held.pool, held.name, held.share_id or "")
                name = (claim.namespace, claim.name, claim.uid)
                self._loop.call_soon_threadsafe(self._status.set, name, key, status)

    def update_metadata(
        self,
        claim: Claim | PreparedClaim,
        device: str,
        *,
        attributes: Mapping[str, DeviceAttribute] | None = None,
        network: NetworkDeviceData | None = None,
    ) -> None:
        """Change the file that describes a device to containers."""
        if self._metadata is None:
            raise ValueError(f"driver {self.driver.name}: has_device_metadata is not set")
        for held in claim.devices:
            if held.name == device:
                self._metadata.update(claim.namespace, claim.name, held, attributes, network)

    # --- life ---

    @asynccontextmanager
    async def start(self) -> AsyncIterator[None]:
        """Run for as long as the context is open."""
        try:
            *own, cdi = self._folders
            for folder in own:
                folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            cdi.mkdir(parents=True, exist_ok=True)
            self._operation_lock.open()
        except OSError as error:
            raise DriverFailed(f"driver {self.driver.name}: {error.filename}: {error.strerror}".lower()) from error
        self.driver.node = self
        async with AsyncExitStack() as stack:
            stack.callback(self._operation_lock.close)
            await self._restore()
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            background = self._start_tasks(tasks)
            preparer = self._preparer(tasks)
            await self._rescan()
            servers = await self._serve(preparer)
            # Last: published devices can be allocated.
            self._is_serving = True
            self.publisher.set(self._inventory.pools)
            listening = tasks.create_task(self._watch_sockets())
            try:
                yield
            finally:
                listening.cancel()
                await self._stop(preparer, servers, background)

    async def ready(self) -> str:
        """Why pods with devices of this driver would not start now; empty if they would. The kubelet retries a pod only after a minute
        if it does not know the driver yet."""
        if not self.registration.is_registered:
            told = f": {self.registration.error}" if self.registration.error else ""
            return f"the kubelet has not registered the driver{told}"
        return await self.publisher.ready()

    async def _restore(self) -> None:
        """Align memory, files and driver with the checkpoint."""
        try:
            async with self._operation_lock.held():
                earlier = self.checkpoint.open()
                self._cdi.open()
                if earlier:
                    _log.warning("the machine was started again: %d prepared claims are forgotten", len(earlier))
                    await call(self.driver.rebooted, tuple(prepared_claim(record) for record in earlier))
                await call(self.driver.start)
                self._cdi.sweep({record.uid for record in self.checkpoint} | set(self.checkpoint.unreadable))
                for record in self.checkpoint:
                    if record.spec is not None and not self._cdi.has_claim(record.uid):
                        self._cdi.write_claim(record.uid, record.spec)
                if self._metadata is not None:
                    self._metadata.sweep([(record.uid, record.namespace, record.name) for record in self.checkpoint])
        except CheckpointError as error:
            raise DriverFailed(f"driver {self.driver.name}: {error}") from error
        for reason in self.checkpoint.unreadable.values():
            _log.error("%s", reason)

    def _start_tasks(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        runs = [
            ("slices", self.publisher.run),
            ("claim status", self._status.run),
            ("devices", self._rescan_loop),
            ("stale claims", self._stale_loop),
        ]
        if self.driver.reports_health:
            runs.append(("health", self.board.run))
        return [
            tasks.create_task(supervise(f"{self.driver.name}: {name}", run, self.clock), name=name)
            for name, run in runs
        ]

    def _preparer(self, tasks: asyncio.TaskGroup) -> Preparer:
        common = self.driver.edits_for_all()
        common_ids = () if common.is_empty else (self._cdi.write_common(common),)

        def spawn(work: Coroutine[Any, Any, ClaimResult]) -> asyncio.Task[ClaimResult]:
            return tasks.create_task(work)

        def set_status(claim: ClaimName, device: AllocatedDevice, status: DeviceStatus) -> None:
            key = (device.pool, device.name, device.share_id or "")
            name = (claim.namespace, claim.name, claim.uid)
            # May be called from a driver's thread.
            self._loop.call_soon_threadsafe(self._status.set, name, key, status)

        self.metrics.watch_claims(lambda: len(self.checkpoint))
        self.metrics.watch_devices(lambda: sum(len(pool.devices) for pool in self.publisher.pools))
        self.preparer = Preparer(
            self.driver,
            checkpoint=self.checkpoint,
            cdi=self._cdi,
            common_cdi_ids=common_ids,
            metadata=self._metadata,
            operation_lock=self._operation_lock,
            fetch=self._fetch,
            inventory=lambda: self._inventory,
            rescan=self._rescan,
            set_status=set_status,
            spawn=spawn,
            metrics=self.metrics,
            clock=self.clock,
        )
        return self.preparer

    async def _serve(self, preparer: Preparer) -> tuple[grpc.aio.Server, grpc.aio.Server]:
        service = grpc.aio.server()
        dra = DraService(preparer, self.clock)
        handlers = [dra.handlers(version) for version in self.options.versions]
        if self.driver.reports_health:
            handlers += [health_handlers(version, self.board) for version in self.options.health_versions]
        service.add_generic_rpc_handlers(tuple(handlers))
        registrar = grpc.aio.server()
        registrar.add_generic_rpc_handlers((self.registration.handlers(),))
        for path in remove_dead_sockets(self.registration_path.parent, self.service_path.parent, self.driver.name):
            _log.warning("removed %s: its instance is dead", path)
        for server, path in ((service, self.service_path), (registrar, self.registration_path)):
            path.unlink(missing_ok=True)
            try:
                # The kubelet is root or the same user.
                with owner_only():
                    server.add_insecure_port(f"unix:{path}")
            except RuntimeError as error:
                raise DriverFailed(f"driver {self.driver.name}: cannot listen on {path}") from error
            await server.start()
        return service, registrar

    async def _watch_sockets(self) -> None:
        """DriverFailed if the kubelet can no longer reach the driver, so that it is restarted."""
        deaf = 0
        while True:
            await self.clock.sleep(self.options.listening_check_s)
            unheard = [path for path in (self.registration_path, self.service_path) if not is_served(path)]
            deaf = deaf + 1 if unheard else 0
            if deaf == _DEAF_MAX:
                raise DriverFailed(f"driver {self.driver.name}: no process listens on {unheard[0]}")

    async def _stop(
        self,
        preparer: Preparer,
        servers: tuple[grpc.aio.Server, grpc.aio.Server],
        background: Iterable[asyncio.Task[None]],
    ) -> None:
        service, registrar = servers
        self.registration_path.unlink(missing_ok=True)
        await registrar.stop(1.0)
        await self.board.close()
        try:
            async with asyncio.timeout(_STOP_S):
                await preparer.drain()
        except TimeoutError:
            _log.warning("claims are still being prepared; they are taken up again by the next start")
            preparer.abandon()
        await service.stop(1.0)
        self.service_path.unlink(missing_ok=True)
        for task in background:
            task.cancel()
        failure = await answer_or_failure(lambda: call(self.driver.stop))
        if isinstance(failure, Exception):
            _log.error("the driver failed to stop", exc_info=failure)

    # --- devices ---

    async def _rescan_loop(self) -> None:
        while True:
            self._rescan_wanted.clear()
            try:
                async with asyncio.timeout(self.driver.rescan_s or None):
                    await self._rescan_wanted.wait()
            except TimeoutError:
                pass
            await self._rescan()

    async def _rescan(self) -> None:
        """Read devices from the driver; the previous ones stay if it fails."""
        answer = await answer_or_failure(lambda: call(self.driver.devices))
        if isinstance(answer, Exception):
            _log.error("the driver failed to list its devices", exc_info=answer)
            self.metrics.problem("devices")
            return
        try:
            # If a controller publishes all devices, the node has no pool, not even an empty one.
            is_empty = self.driver.has_controller and not answer
            pools = () if is_empty else as_pools(answer, self.options.node_name, bool(self.driver.cluster_pool))
        except TypeError as error:
            _log.error("devices of driver %s: %s", self.driver.name, error)
            self.metrics.problem("devices")
            return
        self._inventory = Inventory(pools)
        if self._is_serving:
            self.publisher.set(pools)

    # --- claims ---

    async def _fetch(self, namespace: str, name: str) -> ResourceClaim:
        if self._claims is None:
            self._claims = await self._client.typed_as_served(ResourceClaim)
        return await self._claims.get(name, namespace)

    async def _stale_loop(self) -> None:
        """Unprepare unfinished claims whose object is gone: the kubelet might never request it."""
        while True:
            await self.clock.sleep(_STALE_CHECK_S)
            for record in self.checkpoint:
                if record.phase is Phase.STARTED and await self._is_gone(record.namespace, record.name, record.uid):
                    name = ClaimName(record.namespace, record.name, record.uid)
                    await self.preparer.unprepare(name, self.clock.monotonic() + KUBELET_PATIENCE_S)

    async def _is_gone(self, namespace: str, name: str, uid: str) -> bool:
        try:
            return (await self._fetch(namespace, name)).metadata.uid != uid
        except NotFound:
            return True
        except ApiError:
            return False


def as_pools(answer: Any, node_name: str, is_cluster_wide: bool = False) -> tuple[Pool, ...]:
    """The result of a driver's `devices` as pools. TypeError for any other type."""
    given = (answer,) if isinstance(answer, Pool) else tuple(answer)
    if all(isinstance(each, Device) for each in given):
        given = (Pool(name=node_name, devices=given),)
    pools = []
    for pool in given:
        if not isinstance(pool, Pool):
            raise TypeError(f"devices returned {type(pool).__name__}, expected devices only or pools only")
        has_place = pool.node_name or pool.node_selector or pool.all_nodes or pool.per_device_node_selection
        pools.append(pool if has_place or is_cluster_wide else msgspec.structs.replace(pool, node_name=node_name))
    return tuple(pools)


@asynccontextmanager
async def running(
    driver: Driver,
    client: Client,
    options: Options,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    publish: Publish | None = None,
) -> AsyncIterator[Plugin]:
    """A driver that runs while the context is open. DriverFailed if it cannot. publish: writes its slices instead."""
    plugin = Plugin(driver, client, options, clock or SystemClock(), ids or SystemIds(), publish)
    async with plugin.start(), AsyncExitStack() as stack:
        check = partial(check_sockets, plugin.registration_path, plugin.service_path, driver.name)
        served = serving_health(options.address, options.port, plugin.registry, plugin.clock, check, ready=plugin.ready)
        try:
            plugin.address = await stack.enter_async_context(served)
        except OSError as error:
            where = f"{options.address}:{options.port}"
            raise DriverFailed(f"driver {driver.name}: cannot listen on {where}: {error.strerror}") from error
        yield plugin
