"""Applies the load of a workload to a control plane, step by step, and records when pods were created and scheduled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from allot.bench import objects
from allot.bench.cases import INIT, TEST, AllocateClaims, CreateNodes, CreateObjects, CreatePods, Step
from allot.bench.measure import INTERVAL_S, Throughput
from allot.bench.workloads import Workload
from allot.client.api import Client, ResourceClient
from allot.client.errors import NotFound
from allot.client.informer import Change
from allot.client.informers import Informers
from allot.core.allocation import Allocated, Features, Inventory, allocate, claim_id
from allot.core.features import FeatureGates
from allot.core.model import core_v1
from allot.core.model import resource_v1 as api
from allot.core.model.codec import encode
from allot.process.clock import Clock
from allot.process.ids import Ids

Object = dict[str, Any]
T = TypeVar("T")

# As Kubernetes' benchmark creates pods.
POD_WORKERS = 30
# Objects before the measurement are created as fast as possible; their order does not matter.
_SETUP_WORKERS = 50
_CLUSTER_KINDS = {
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
    "ResourceSlice": "resourceslices",
}
_KINDS = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "PodGroup": "podgroups",
}

# The activity, progress so far, and total.
Progress = Callable[[str, int, int], None]


class TooSlow(Exception):
    """Not everything was scheduled in time."""


class Watcher:
    """Counts scheduled pods, and knows when each was created."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.count = 0
        self.namespace = ""
        self._created: dict[str, float] = {}
        self._scheduled: dict[str, float] = {}
        self._waiting: asyncio.Event = asyncio.Event()
        # Pods that were scheduled, for the steady state.
        self.fresh: asyncio.Queue[str] = asyncio.Queue()

    def observe(self, namespace: str) -> None:
        """From now on pods of this namespace count."""
        self.namespace = namespace
        self.count = 0
        self._created, self._scheduled = {}, {}
        self.fresh = asyncio.Queue()

    def created(self, name: str, at: float) -> None:
        """A pod was created at that time."""
        self._created[name] = at

    def changed(self, change: Change[core_v1.Pod]) -> None:
        """For the informer: records when a pod gets its node."""
        new, old = change.new, change.old
        if new is None or not new.spec.node_name or (old is not None and old.spec.node_name):
            return
        metadata = new.metadata
        if metadata.namespace == self.namespace:
            self.count += 1
            self._scheduled[metadata.name] = self._clock.monotonic()
            self.fresh.put_nowait(metadata.name)
            self._waiting.set()

    async def wait_for(self, count: int) -> None:
        """Wait until this many are scheduled."""
        while self.count < count:
            self._waiting.clear()
            await self._waiting.wait()

    def latencies_s(self) -> list[float]:
        """Time from the creation of each pod until it is scheduled."""
        return [end - self._created[name] for name, end in self._scheduled.items() if name in self._created]

    def first_created(self) -> float:
        """When the first pod was created."""
        return min(self._created.values())

    def last_scheduled(self) -> float:
        """When the last one was scheduled."""
        return max(self._scheduled.values())


class Load:
    """Carries out the steps of a workload as a client."""

    def __init__(
        self,
        workload: Workload,
        client: Client,
        informers: Informers,
        clock: Clock,
        ids: Ids,
        gates: FeatureGates,
        *,
        timeout_s: float,
        progress: Progress,
    ) -> None:
        self._workload = workload
        self._client = client
        self._clock = clock
        self._ids = ids
        self._gates = gates
        self._timeout_s = timeout_s
        self._progress = progress
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self.watcher = Watcher(clock)
        informers.typed(core_v1.Pod).add_handler(self.watcher.changed)
        self.throughput = Throughput()

    async def prepare(self) -> None:
        """Create the namespaces, with what pods need in them."""
        namespaces = self._client.resource("", "v1", "namespaces", namespaced=False)
        accounts = self._client.resource("", "v1", "serviceaccounts", namespaced=True)
        for name in (INIT, TEST):
            await namespaces.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            await _until_there(accounts, "default", name, self._clock)

    async def carry_out(self, step: Step) -> None:
        """One step."""
        match step:
            case CreateNodes():
                await self._create_nodes(step)
            case CreateObjects():
                await self._create_objects(step)
            case AllocateClaims():
                await self._allocate_claims(step)
            case CreatePods() if step.steady_seconds:
                await self._replace_pods(step)
            case CreatePods():
                await self._create_pods(step)

    # --- objects ---

    async def _create_nodes(self, step: CreateNodes) -> None:
        nodes = self._client.resource("", "v1", "nodes", namespaced=False)
        made = [objects.plain_node(f"node-0-{self._ids.suffix()}") for _ in range(step.plain)]
        made += [objects.node_with_dra(index) for index in range(step.with_dra)]
        await self._each("nodes", made, nodes.create, _SETUP_WORKERS)

    async def _create_objects(self, step: CreateObjects) -> None:
        if not step.count:
            return
        made = [step.make(index, self._workload) for index in range(step.count)]
        kind = made[0]["kind"]
        group, _, version = made[0]["apiVersion"].rpartition("/")
        plural = _KINDS.get(kind) or _CLUSTER_KINDS[kind]
        resource = self._client.resource(group, version, plural, namespaced=kind in _KINDS)
        workers = 1 if step.measured else _SETUP_WORKERS
        await self._each(plural, made, lambda object_: resource.create(object_, step.namespace), workers)

    async def _allocate_claims(self, step: AllocateClaims) -> None:
        """As in Kubernetes' benchmark: for each claim the first node that fits, in random order; allocation only."""
        inventory = Inventory(Features.from_gates(self._gates))
        for slice_ in (await self._client.typed(api.ResourceSlice).list()).items:
            inventory.put_slice(slice_)
        for class_ in (await self._client.typed(api.DeviceClass).list()).items:
            inventory.put_class(class_)
        nodes = list((await self._client.typed(core_v1.Node).list()).items)
        resource = self._client.resource("resource.k8s.io", "v1", "resourceclaims", namespaced=True)
        allocated: list[Object] = []
        for claim in (await self._client.typed(api.ResourceClaim).list(step.namespace)).items:
            for node in self._shuffled(nodes):
                answer = allocate(inventory, node, [claim], with_reasons=False)
                if isinstance(answer, Allocated):
                    break
            else:
                raise TooSlow(f"claim {claim.metadata.name} of the initial load does not fit anywhere")
            inventory.hold(claim_id(claim), answer.results[0])
            allocated.append({**encode(claim), "status": {"allocation": encode(answer.results[0])}})
        await self._each("allocations", allocated, resource.update_status, _SETUP_WORKERS)

    def _shuffled(self, nodes: list[core_v1.Node]) -> Iterator[core_v1.Node]:
        """In random order, up to the given number."""
        for place in range(len(nodes)):
            other = place + int(self._ids.jitter() * (len(nodes) - place))
            nodes[place], nodes[other] = nodes[other], nodes[place]
            yield nodes[place]

    async def _each(self, what: str, items: Sequence[T], work: Callable[[T], Awaitable[object]], workers: int) -> None:
        """Process all items, a limited number at a time, started in order."""
        rest = iter(items)
        done = 0

        async def worker() -> None:
            nonlocal done
            for item in rest:
                await work(item)
                done += 1
                if done % 100 == 0 or done == len(items):
                    self._progress(what, done, len(items))

        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(workers, len(items))):
                tasks.create_task(worker())

    # --- pods ---

    async def _create_pods(self, step: CreatePods) -> None:
        if not step.count:
            return
        self.watcher.observe(step.namespace)
        async with self._sampled(step):
            indexes = range(step.count)
            await self._each("pods created", indexes, lambda index: self._create_pod(step, index), POD_WORKERS)
            try:
                async with asyncio.timeout(self._timeout_s):
                    await self.watcher.wait_for(step.count)
            except TimeoutError:
                raise TooSlow(
                    f"{step.count - self.watcher.count} of {step.count} pods in namespace {step.namespace} were not "
                    f"scheduled within {self._timeout_s:g} s"
                ) from None

    async def _create_pod(self, step: CreatePods, index: int) -> None:
        began = self._clock.monotonic()
        pod = await self._pods.create(step.make(index, self._workload), step.namespace)
        self.watcher.created(pod["metadata"]["name"], began)

    async def _replace_pods(self, step: CreatePods) -> None:
        """A backlog of pods, each replaced as soon as it is scheduled, for a while."""
        self.watcher.observe(step.namespace)
        async with self._sampled(step), asyncio.TaskGroup() as tasks:
            for index in range(step.count):
                await self._create_pod(step, index)
            workers = [tasks.create_task(self._replace(step)) for _ in range(min(step.count, POD_WORKERS))]
            await self._clock.sleep(step.steady_seconds)
            for worker in workers:
                worker.cancel()
        if not self.watcher.count:
            raise TooSlow(f"not one pod was scheduled within {step.steady_seconds:g} s")

    async def _replace(self, step: CreatePods) -> None:
        while True:
            name = await self.watcher.fresh.get()
            try:
                await self._pods.delete(name, step.namespace, grace_period_seconds=0, propagation_policy="Background")
            except NotFound:
                pass
            await self._create_pod(step, 0)

    @asynccontextmanager
    async def _sampled(self, step: CreatePods) -> AsyncIterator[None]:
        """Record every second how many pods are scheduled, for the measured step."""

        async def sample() -> None:
            while True:
                await self._clock.sleep(INTERVAL_S)
                self._progress("pods scheduled", self.watcher.count, step.count if not step.steady_seconds else 0)
                if step.measured:
                    self.throughput.sample(self.watcher.count, self._clock.monotonic())

        async with asyncio.TaskGroup() as tasks:
            sampling = tasks.create_task(sample())
            try:
                yield
            finally:
                sampling.cancel()


async def _until_there(resource: ResourceClient, name: str, namespace: str, clock: Clock) -> None:
    while True:
        try:
            await resource.get(name, namespace)
            return
        except NotFound:
            await clock.sleep(0.01)
