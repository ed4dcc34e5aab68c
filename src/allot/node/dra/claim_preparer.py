"""Prepares and unprepares the claims of pods on this node: the entry point of this package.

The order of steps makes it safe to be killed at any moment: everything is checked before anything is recorded; a claim is recorded on
disk before its driver is first called, and removed after the driver has unprepared it. Whether a claim is
prepared is known for this run only: after a restart drivers are called again, which must be idempotent.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from prometheus_client import CollectorRegistry

from allot.client.api import Client
from allot.client.errors import ApiError
from allot.core.features import DEFAULT_GATES, FeatureGates
from allot.core.lifecycle.preparation import (
    PREPARE,
    UNPREPARE,
    ClaimRecord,
    Entry,
    Plan,
    Records,
    Refused,
    cdi_ids,
    check_answers,
    check_claim,
    claim_keys_of,
    entries_of,
    inactive_pods,
    plan_prepare,
    plan_unprepare,
    whole_claims_of_container,
    with_devices,
)
from allot.core.model.core_v1 import Container, Pod
from allot.core.model.resource_v1 import ResourceClaim
from allot.node.devices import PrepareFailed
from allot.node.dra.checkpoint import CLAIMS_FILE, decode_claims, encode_claims
from allot.node.dra.health import LOOK_S, REDIAL_S, HealthBook
from allot.node.dra.metrics import DraMetrics
from allot.node.dra.plugins import CALL_TIMEOUT_S, Plugin, Plugins, choose_service
from allot.node.dra.registration import INFO_TIMEOUT_S, PAUSE_FIRST_S, PERIOD_S, Handler, Registry
from allot.node.dra.slices import DELAY_S, SliceWiper
from allot.node.plugin_calls import CallFailed, NotUsable, socket_target
from allot.node.state_file import StateFile
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_log = logging.getLogger("allot.node.dra")

PLUGIN_TYPE = "DRAPlugin"
RECONCILE_S = 60.0
CHANGES_MAX = 1000
_DRIVER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DRIVER_NAME_MAX = 63


class Periods(msgspec.Struct, frozen=True, kw_only=True):
    """Intervals and timeouts, in seconds. The defaults are the kubelet's where it has them."""

    call_s: float = CALL_TIMEOUT_S
    registration_s: float = PERIOD_S
    registration_pause_s: float = PAUSE_FIRST_S
    info_s: float = INFO_TIMEOUT_S
    reconcile_s: float = RECONCILE_S
    look_s: float = LOOK_S
    wipe_s: float = DELAY_S
    redial_s: float = REDIAL_S


class ClaimPreparer:
    """The claims of one node. Run it, or no driver can register.

    root: the kubelet's folder, with `plugins_registry` and the state files. active_pods: uids of pods that may still use claims,
    None while unknown. wipes_slices: whether to delete slices without a driver. handlers: for plugins of other types. CheckpointCorrupt
    if an earlier run left a damaged file.
    """

    def __init__(
        self,
        client: Client,
        node: str,
        root: Path,
        clock: Clock,
        ids: Ids,
        *,
        active_pods: Callable[[], frozenset[str] | None],
        gates: FeatureGates = DEFAULT_GATES,
        metrics: CollectorRegistry | None = None,
        periods: Periods = Periods(),  # noqa: B008
        wipes_slices: bool = True,
        handlers: Mapping[str, Handler] = MappingProxyType({}),
    ) -> None:
        self._claims = client.typed(ResourceClaim)
        self._clock = clock
        self._active_pods = active_pods
        self._gates = gates
        self._periods = periods
        root.mkdir(parents=True, exist_ok=True)
        self._records: dict[str, ClaimRecord] = {}
        self._file = StateFile(root / CLAIMS_FILE, lambda: encode_claims(self._records))
        content = self._file.read()
        if content is not None:
            self._records = decode_claims(self._file.path, content)
        # The number of the latest change to the records, and of the latest change on disk.
        self._version = 0
        self._written = 0
        self.metrics = DraMetrics(metrics if metrics is not None else CollectorRegistry(), lambda: self._records)
        self._wiper = SliceWiper(client, node, clock, ids, delay_s=periods.wipe_s) if wipes_slices else None
        self.plugins = Plugins(self._driver_changed)
        self.registry = Registry(
            root / "plugins_registry",
            {PLUGIN_TYPE: self, **handlers},
            clock,
            period_s=periods.registration_s,
            pause_first_s=periods.registration_pause_s,
            info_s=periods.info_s,
        )
        self._changes: asyncio.Queue[str] = asyncio.Queue(CHANGES_MAX)
        self._health = HealthBook(
            root,
            lambda: self._records,
            self._health_changed,
            clock,
            with_message="ResourceHealthStatusMessage" in gates,
            redial_s=periods.redial_s,
            look_s=periods.look_s,
        )
        self._has_new_driver = False
        # By pod; an unused lock is dropped automatically.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: asyncio.TaskGroup | None = None
        self._plugin_tasks: dict[Plugin, list[asyncio.Task[None]]] = {}

    # --- called by the agent ---

    @property
    def records(self) -> Records:
        """All recorded claims, by namespace and name."""
        return self._records

    async def prepare(self, pod: Pod) -> None:
        """Prepare all claims of a pod, before its sandbox is created; PrepareFailed. Cheap if they are prepared already."""
        with self._operation("prepare", "PrepareResources"):
            async with self._alone(pod.metadata.uid):
                await self._prepare(pod)

    async def unprepare(self, pod: Pod) -> None:
        """Unprepare a pod's claims, after its containers have ended and before that is reported; PrepareFailed. Can be repeated."""
        with self._operation("unprepare", "UnprepareResources"):
            async with self._alone(pod.metadata.uid):
                await self._unprepare(pod.metadata.uid, claim_keys_of(self._records, pod))

    def _alone(self, pod_uid: str) -> asyncio.Lock:
        """One operation at a time for a pod: unpreparing a claim twice could take it from its next user."""
        lock = self._locks.get(pod_uid)
        if lock is None:
            lock = self._locks[pod_uid] = asyncio.Lock()
        return lock

    @contextmanager
    def _operation(self, verb: str, name: str) -> Iterator[None]:
        started = self._clock.monotonic()
        is_error = True
        try:
            yield
            is_error = False
        except (Refused, NotUsable, ValueError) as error:
            raise PrepareFailed(f"{verb} dynamic resources: {error}") from error
        finally:
            took = self._clock.monotonic() - started
            self.metrics.operations.observe(took, name, "true" if is_error else "false")

    def cdi_devices(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """The CDI devices of a container; PrepareFailed if it uses a claim that is not prepared here."""
        try:
            return cdi_ids(self._records, pod, container)
        except Refused as error:
            raise PrepareFailed(str(error)) from error

    def claims_of_container(self, pod: Pod, container: Container) -> tuple[ClaimRecord, ...]:
        """The recorded claims of a container with all their devices."""
        try:
            return whole_claims_of_container(self._records, pod, container)
        except Refused:
            return ()

    def health(self, pod: Pod) -> Mapping[str, Sequence[dict[str, Any]]]:
        """allocatedResourcesStatus of the containers of a pod, by their names; those without claims are left out."""
        if "ResourceHealthStatus" not in self._gates:
            return {}
        found = self._health.of_pod(pod)
        # Lists, not tuples, as in JSON: they become part of a patch.
        return {name: msgspec.json.decode(msgspec.json.encode(statuses)) for name, statuses in found.items()}

    async def health_changes(self) -> AsyncGenerator[str, None]:
        """The uid of a pod each time the health of its devices changes."""
        while True:
            yield await self._changes.get()

    async def run(self) -> None:
        """Until cancelled: registers drivers, unprepares leftover claims, and deletes slices without a driver."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                if self._wiper is not None:
                    tasks.create_task(supervise("deleting ResourceSlices", self._wiper.run, self._clock))
                for name, run in (
                    ("registering plugins", self.registry.run),
                    ("device health", self._health.run),
                    ("reconciling claims", self._reconcile_for_ever),
                ):
                    tasks.create_task(supervise(name, run, self._clock))
        finally:
            self._tasks = None
            for plugin in self.plugins.instances():
                await plugin.close()
            await self._file.settle()
            await self._health.settle()

    # --- prepare ---

    async def _prepare(self, pod: Pod) -> None:
        claims = [await self._fetch(pod, entry.claim_name, entry) for entry in entries_of(pod)]
        if not claims:
            return
        for claim in claims:
            for driver, part in claim.drivers.items():
                # Also for a prepared claim: without its driver, something is wrong with the node.
                if not part.skips(PREPARE):
                    self.plugins.choose(driver)
        plan = plan_prepare(self._records, pod.metadata.uid, claims)
        self._record(plan.changed)
        for driver in plan.skips:
            self.metrics.prepare_skips.add(driver)
        await self._save("checkpoint ResourceClaim cache")
        await self._in_parallel(plan, self._prepare_batch)
        keys = [record.key for record in plan.claims]
        self._record([msgspec.structs.replace(self._known(key), is_prepared=True) for key in keys])
        await self._save("checkpoint ResourceClaim state")

    async def _fetch(self, pod: Pod, name: str, entry: Entry) -> ClaimRecord:
        try:
            claim = await self._claims.get(name, pod.metadata.namespace)
        except ApiError as error:
            raise Refused(f"fetch ResourceClaim {name}: {error.message}") from error
        return check_claim(pod, entry, claim, self._gates)

    async def _prepare_batch(self, driver: str, batch: Sequence[ClaimRecord]) -> None:
        try:
            answers = await self.plugins.choose(driver).prepare(batch)
        except CallFailed as error:
            raise Refused(f"{PREPARE}: {error}") from error
        check_answers(PREPARE, batch, {uid: error for uid, (error, _) in answers.items()})
        self._record([with_devices(self._known(each.key), driver, answers[each.uid][1]) for each in batch])

    def _known(self, key: str) -> ClaimRecord:
        record = self._records.get(key)
        if record is None:
            # Unprepared meanwhile, because the pod seemed to be gone.
            raise Refused(f"internal error: unable to get claim info for ResourceClaim {key}")
        return record

    # --- unprepare ---

    async def _unprepare(self, pod_uid: str, keys: Sequence[str]) -> None:
        plan = plan_unprepare(self._records, pod_uid, keys)
        self._record(plan.changed)
        for driver in plan.skips:
            self.metrics.unprepare_skips.add(driver)
        await self._in_parallel(plan, self._unprepare_batch)
        for record in plan.claims:
            del self._records[record.key]
        self._version += len(plan.claims)
        await self._save("checkpoint ResourceClaim state")

    async def _unprepare_batch(self, driver: str, batch: Sequence[ClaimRecord]) -> None:
        try:
            errors = await self.plugins.choose(driver).unprepare(batch)
        except CallFailed as error:
            raise Refused(f"{UNPREPARE}: {error}") from error
        check_answers(UNPREPARE, batch, errors)

    async def _reconcile_for_ever(self) -> None:
        due = self._clock.monotonic()
        while True:
            now = self._clock.monotonic()
            if self._has_new_driver or now >= due:
                self._has_new_driver = False
                if self._active_pods() is not None:
                    due = now + self._periods.reconcile_s
                    await self.reconcile()
            await self._clock.sleep(self._periods.look_s)

    async def reconcile(self) -> None:
        """Unprepare claims of pods that disappeared: force-deleted, or deleted while no agent ran."""
        active = self._active_pods()
        if active is None:
            return
        pods = inactive_pods(self._records, active)
        results = await asyncio.gather(
            *(self._forsake(uid, keys) for uid, keys in pods.items()), return_exceptions=True
        )
        for uid, result in zip(pods, results, strict=True):
            if isinstance(result, Refused | NotUsable):
                _log.info("claims of deleted pod %s are not unprepared yet: %s", uid, result)
            elif isinstance(result, BaseException):
                raise result

    async def _forsake(self, pod_uid: str, keys: Sequence[str]) -> None:
        async with self._alone(pod_uid):
            await self._unprepare(pod_uid, keys)

    # --- records ---

    def _record(self, changed: Sequence[ClaimRecord]) -> None:
        for record in changed:
            if self._records.get(record.key) != record:
                self._records[record.key] = record
                self._version += 1

    async def _save(self, what: str) -> None:
        version = self._version
        if version == self._written:
            return
        try:
            await self._file.write()
        except OSError as error:
            raise Refused(f"{what}: {error}") from error
        self._written = max(self._written, version)

    async def _in_parallel(self, plan: Plan, run: Callable[[str, Sequence[ClaimRecord]], Awaitable[None]]) -> None:
        """Call all drivers at once. Successes stay if another fails; the first failure by name is reported."""
        if len(plan.batches) == 1:
            for driver, batch in plan.batches.items():
                await run(driver, batch)
            return
        calls = (run(driver, batch) for driver, batch in plan.batches.items())
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    # --- plugins ---

    def validate(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """For the registry: whether a plugin can be used."""
        if len(name) > _DRIVER_NAME_MAX or not _DRIVER_NAME.fullmatch(name):
            raise NotUsable(
                f"invalid name of DRA driver plugin {name!r} at endpoint {endpoint}: expected a DNS subdomain"
            )
        socket_target(endpoint)
        choose_service(name, endpoint, versions)

    async def register(self, name: str, endpoint: str, versions: Sequence[str]) -> None:
        """For the registry: add a plugin."""
        if self._tasks is None:
            raise NotUsable("the agent is shutting down")
        plugin = Plugin(name, endpoint, versions, self._clock, calls=self.metrics.calls, timeout_s=self._periods.call_s)
        self.plugins.add(plugin)
        runs = [lambda: plugin.watch_connection(lambda: self._driver_changed(name))]
        if plugin.health_service and "ResourceHealthStatus" in self._gates:
            runs.append(lambda: self._health.listen(plugin))
        self._plugin_tasks[plugin] = [
            self._tasks.create_task(supervise(f"connection to {name} at {endpoint}", run, self._clock)) for run in runs
        ]

    async def deregister(self, name: str, endpoint: str) -> None:
        """For the registry: remove a plugin."""
        plugin = self.plugins.remove(name, endpoint)
        if plugin is not None:
            for task in self._plugin_tasks.pop(plugin, ()):
                task.cancel()
            if self._tasks is not None:
                # An instance that a newer one replaces may finish its calls.
                self._tasks.create_task(plugin.close(self._periods.call_s))

    def _driver_changed(self, driver: str) -> None:
        is_usable = self.plugins.is_usable(driver)
        if self._wiper is not None:
            self._wiper.driver_changed(driver, is_usable)
        # It may be the driver that the claim of a deleted pod is waiting for.
        self._has_new_driver = self._has_new_driver or is_usable

    def _health_changed(self, pods: Sequence[str]) -> None:
        for uid in pods:
            if self._changes.full():
                _log.warning("changes of health are not being read; that of pod %s is dropped", uid)
            else:
                self._changes.put_nowait(uid)
