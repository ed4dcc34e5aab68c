"""The base of a controller that allocates claims itself, as drivers did in Kubernetes 1.26 to 1.31 (feature gate DRAControlPlaneController).

Claims name it in `spec.controller`. Before a pod with such a claim gets a node, the scheduler offers nodes in a PodSchedulingContext; the
controller says which are unsuitable, and allocates when one is selected. When a claim has no users left, it deallocates. For drivers and
manifests of that time; new drivers publish devices, and let the scheduler choose.

Uses resource.k8s.io/v1alpha3 of 1.31, on plain values. Methods are as in `controller`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar

import msgspec

from allot.client.api import Client
from allot.client.errors import ApiError, NotFound
from allot.client.informer import Informer, Object
from allot.client.workqueue import RateLimiter, WorkQueue
from allot.core.model.classic import GATE, POTENTIAL_NODES_MAX
from allot.core.validation.names import check_driver_name
from allot.driver.callbacks import call
from allot.driver.controller import AttachError
from allot.driver.plugin import DriverFailed
from allot.process.clock import Clock, SystemClock
from allot.process.ids import Ids, SystemIds
from allot.process.supervise import answer_or_failure, supervise

_log = logging.getLogger("allot.driver")

_GROUP, _VERSION = "resource.k8s.io", "v1alpha3"
_CLAIM, _CONTEXT = "claim", "context"


class AllocateError(AttachError):
    """Raised by a controller that cannot allocate or deallocate a claim; this is retried later."""


class PendingClaim(msgspec.Struct, frozen=True):
    """A pending claim. name: in the pod; object: in v1alpha3; classes: those of its requests."""

    name: str
    object: Object
    classes: Mapping[str, Object] = {}

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return str(self.object["metadata"]["uid"])

    @property
    def requests(self) -> tuple[Object, ...]:
        """spec.devices.requests."""
        return tuple((self.object["spec"].get("devices") or {}).get("requests") or ())


class ClassicDevice(msgspec.Struct, frozen=True):
    """A device that a claim gets. pool: by default the node's name."""

    request: str
    pool: str
    device: str


class Allocated(msgspec.Struct, frozen=True):
    """A claim allocated by this controller. nodes: where it can be used; empty: anywhere."""

    uid: str
    namespace: str
    name: str
    devices: tuple[ClassicDevice, ...]
    nodes: tuple[str, ...] = ()


class ClassicController:
    """A controller that allocates claims."""

    # The driver's name, in the claims' spec.controller.
    name: ClassVar[str] = ""
    # How often unsuitable nodes are rechecked.
    recheck_s: ClassVar[float] = 30.0

    # All claims that are allocated now; set before every call.
    allocated: tuple[Allocated, ...] = ()

    def unsuitable_nodes(
        self, claims: Sequence[PendingClaim], nodes: Sequence[str]
    ) -> Mapping[str, Iterable[str]] | Awaitable[Mapping[str, Iterable[str]]]:
        """The nodes on which each claim cannot be allocated, by its name in the pod. All claims belong to one pod."""
        raise NotImplementedError(f"{type(self).__name__}.unsuitable_nodes")

    def allocate(
        self, claims: Sequence[PendingClaim], node: str
    ) -> Mapping[str, Iterable[ClassicDevice]] | Awaitable[Mapping[str, Iterable[ClassicDevice]]]:
        """The devices of each claim, by its name in the pod, for a node. AllocateError refuses."""
        raise NotImplementedError(f"{type(self).__name__}.allocate")

    def deallocate(self, claim: Allocated) -> Awaitable[None] | None:
        """Free a claim's devices. May be called again, and for claims whose allocation never completed."""


class RunningClassicController:
    """A running controller. Use `running_classic_controller`."""

    def __init__(self, controller: ClassicController, client: Client, clock: Clock, ids: Ids) -> None:
        problems = check_driver_name(controller.name, "name")
        if problems:
            raise DriverFailed(f"controller of driver {controller.name!r}: {problems[0].error}")
        self.controller = controller
        # For `run_classic_controller`, which serves no metrics.
        self.address = ""
        self._finalizer = f"{controller.name}/deletion-protection"
        self._clock = clock
        self._claims = client.resource(_GROUP, _VERSION, "resourceclaims", namespaced=True)
        self._contexts = client.resource(_GROUP, _VERSION, "podschedulingcontexts", namespaced=True)
        self._classes = client.resource(_GROUP, _VERSION, "deviceclasses", namespaced=False)
        self._pods = client.resource("", "v1", "pods", namespaced=True)
        self._informers: dict[str, Informer[Object]] = {
            kind: Informer(resource, lambda object_: object_, clock, ids)
            for kind, resource in ((_CLAIM, self._claims), (_CONTEXT, self._contexts), ("class", self._classes))
        }
        # (kind, namespace/name)
        limiter: RateLimiter[tuple[str, str]] = RateLimiter(clock, first_s=0.1, max_s=controller.recheck_s)
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(clock, limiter=limiter)
        for kind in (_CLAIM, _CONTEXT):
            self._informers[kind].add_handler(lambda change, kind=kind: self._queue.add((kind, change.key)))  # type: ignore[misc]
        # Claims as last written, until the watch reports them.
        self._written: dict[str, Object] = {}
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled. One operation at a time, so that free devices do not change while nodes are compared."""
        await self._check_served()
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in self._informers.items():
                name = f"{self.controller.name}: {kind}"
                tasks.create_task(supervise(name, informer.run, self._clock))
            for informer in self._informers.values():
                await informer.wait_synced()
            self.ready.set()
            await self._work()

    async def _check_served(self) -> None:
        try:
            await self._contexts.list()
        except NotFound:
            text = f"the server does not have PodSchedulingContexts; is feature gate {GATE} on?"
            raise DriverFailed(f"controller of driver {self.controller.name}: {text}") from None
        except ApiError as error:
            _log.warning("controller of driver %s: %s", self.controller.name, error)

    async def _work(self) -> None:
        while True:
            kind, key = await self._queue.get()
            sync = self._sync_claim if kind == _CLAIM else self._sync_context
            failure = await answer_or_failure(_calling(sync, key))
            self._queue.done((kind, key))
            match failure:
                case None:
                    self._queue.forget((kind, key))
                    continue
                case AllocateError() | ApiError():
                    _log.warning("%s %s: %s", kind, key, failure)
                case _:
                    _log.error("%s %s", kind, key, exc_info=failure)
            self._queue.add_rate_limited((kind, key))

    # --- claims ---

    def _claim(self, key: str) -> Object | None:
        seen = self._informers[_CLAIM].cache.get(key)
        written = self._written.get(key)
        if written is None or seen is None or seen["metadata"]["uid"] != written["metadata"]["uid"]:
            self._written.pop(key, None)
            return seen
        if int(seen["metadata"]["resourceVersion"]) >= int(written["metadata"]["resourceVersion"]):
            del self._written[key]
            return seen
        return written

    def _wrote(self, claim: Object) -> Object:
        self._written[f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"] = claim
        return claim

    def _is_own(self, claim: Object) -> bool:
        return bool(claim["spec"].get("controller") == self.controller.name)

    def _allocations(self) -> tuple[Allocated, ...]:
        keys = self._informers[_CLAIM].cache.keys()
        claims = [claim for key in keys if (claim := self._claim(key)) is not None and self._is_own(claim)]
        return tuple(_allocated(claim) for claim in claims if (claim.get("status") or {}).get("allocation"))

    async def _sync_claim(self, key: str) -> None:
        """Deallocate unused claims."""
        claim = self._claim(key)
        if (
            claim is None
            or not self._is_own(claim)
            or self._finalizer not in (claim["metadata"].get("finalizers") or ())
        ):
            return
        status = claim.get("status") or {}
        is_unwanted = bool(status.get("deallocationRequested") or claim["metadata"].get("deletionTimestamp"))
        if status.get("reservedFor") or not is_unwanted:
            return
        self.controller.allocated = self._allocations()
        await call(self.controller.deallocate, _allocated(claim))
        namespace = claim["metadata"]["namespace"]
        if status.get("allocation"):
            kept = {
                name: value for name, value in status.items() if name not in ("allocation", "deallocationRequested")
            }
            claim = self._wrote(await self._claims.update_status({**claim, "status": kept}, namespace))
            _log.info("claim %s: deallocated", key)
        left = [each for each in claim["metadata"].get("finalizers") or () if each != self._finalizer]
        self._wrote(
            await self._claims.update({**claim, "metadata": {**claim["metadata"], "finalizers": left}}, namespace)
        )
        # Unsuitable nodes may now be suitable.
        contexts = self._informers[_CONTEXT].cache.keys()
        for other in contexts:
            self._queue.add((_CONTEXT, other))

    # --- negotiations ---

    async def _sync_context(self, key: str) -> None:
        context = self._informers[_CONTEXT].cache.get(key)
        if context is None or context["metadata"].get("deletionTimestamp"):
            return
        spec = context.get("spec") or {}
        selected = spec.get("selectedNode") or ""
        nodes = list(dict.fromkeys([*(spec.get("potentialNodes") or ()), *([selected] if selected else [])]))
        pod = await self._pod_of(context)
        claims = self._pending(pod) if pod is not None else []
        if not nodes or pod is None or not claims:
            return
        self.controller.allocated = self._allocations()
        answer: Mapping[str, Iterable[str]] = await call(self.controller.unsuitable_nodes, claims, nodes)
        unsuitable = {
            claim.name: [node for node in nodes if node in set(answer.get(claim.name, ()))] for claim in claims
        }
        if selected and not any(selected in found for found in unsuitable.values()):
            await self._allocate(pod, claims, selected)
        await self._tell(context, unsuitable, selected)
        self._queue.add_after((_CONTEXT, key), self.controller.recheck_s)

    async def _pod_of(self, context: Object) -> Object | None:
        metadata = context["metadata"]
        try:
            pod = await self._pods.get(metadata["name"], metadata["namespace"])
        except NotFound:
            return None
        owners = [owner.get("uid") for owner in metadata.get("ownerReferences") or ()]
        is_of = pod["metadata"]["uid"] in owners and not pod["metadata"].get("deletionTimestamp")
        return pod if is_of else None

    def _pending(self, pod: Object) -> list[PendingClaim]:
        """The claims of a pod that this controller must allocate. AllocateError if a class is missing."""
        named = {each["name"]: each for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        found = []
        for entry in pod["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimName") or named.get(entry["name"], {}).get("resourceClaimName")
            claim = self._claim(f"{pod['metadata']['namespace']}/{name}") if name else None
            if claim is None or not self._is_own(claim) or (claim.get("status") or {}).get("allocation"):
                continue
            if claim["metadata"].get("deletionTimestamp"):
                continue
            found.append(PendingClaim(entry["name"], claim, self._classes_of(claim)))
        return found

    def _classes_of(self, claim: Object) -> dict[str, Object]:
        classes = {}
        for request in (claim["spec"].get("devices") or {}).get("requests") or ():
            name = request.get("deviceClassName") or ""
            found = self._informers["class"].cache.get(name)
            if found is None:
                raise AllocateError(f"claim {claim['metadata']['name']}: device class {name!r} does not exist")
            classes[name] = found
        return classes

    async def _allocate(self, pod: Object, claims: Sequence[PendingClaim], node: str) -> None:
        protected = []
        for pending in claims:
            metadata = pending.object["metadata"]
            claim = pending.object
            if self._finalizer not in (metadata.get("finalizers") or ()):
                # Before allocating, so that the devices are always released.
                finalizers = [*(metadata.get("finalizers") or ()), self._finalizer]
                body = {**claim, "metadata": {**metadata, "finalizers": finalizers}}
                claim = self._wrote(await self._claims.update(body, metadata["namespace"]))
            protected.append(msgspec.structs.replace(pending, object=claim))
        devices: Mapping[str, Iterable[ClassicDevice]] = await call(self.controller.allocate, protected, node)
        consumer = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        for pending in protected:
            if pending.name not in devices:
                raise AllocateError(f"claim {pending.object['metadata']['name']}: the controller gave it no devices")
            await self._write_allocation(pending, tuple(devices[pending.name]), node, consumer)

    async def _write_allocation(
        self, pending: PendingClaim, devices: Sequence[ClassicDevice], node: str, consumer: Object
    ) -> None:
        results = [
            {"request": each.request, "driver": self.controller.name, "pool": each.pool, "device": each.device}
            for each in devices
        ]
        here = {"key": "metadata.name", "operator": "In", "values": [node]}
        allocation = {
            "controller": self.controller.name,
            "devices": {"results": results, "config": _configs(pending, self.controller.name)},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
        }
        status = {**(pending.object.get("status") or {}), "allocation": allocation, "reservedFor": [consumer]}
        namespace, name = pending.object["metadata"]["namespace"], pending.object["metadata"]["name"]
        self._wrote(await self._claims.update_status({**pending.object, "status": status}, namespace))
        _log.info("claim %s/%s: allocated for node %s", namespace, name, node)

    async def _tell(self, context: Object, unsuitable: Mapping[str, Sequence[str]], selected: str) -> None:
        """Report unsuitable nodes; entries of other controllers stay."""
        before = (context.get("status") or {}).get("resourceClaims") or []
        entries = {entry["name"]: entry for entry in before}
        for name, nodes in unsuitable.items():
            # The selected node is the one that matters.
            ordered = sorted(nodes, key=lambda node: node != selected)
            entries[name] = {"name": name, "unsuitableNodes": ordered[:POTENTIAL_NODES_MAX]}
        after = list(entries.values())
        if after != before:
            body = {**context, "status": {"resourceClaims": after}}
            await self._contexts.update_status(body, context["metadata"]["namespace"])


def _calling(sync: Callable[[str], Awaitable[None]], key: str) -> Callable[[], Awaitable[None]]:
    return lambda: sync(key)


def _allocated(claim: Object) -> Allocated:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    nodes = [value for term in terms for field in term.get("matchFields") or () for value in field.get("values") or ()]
    metadata = claim["metadata"]
    return Allocated(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        devices=tuple(ClassicDevice(each["request"], each["pool"], each["device"]) for each in results),
        nodes=tuple(nodes),
    )


def _configs(pending: PendingClaim, driver: str) -> list[Object]:
    """The parameters of classes and claim for the driver on the node, as the scheduler would copy them."""
    found = []
    for request in pending.requests:
        class_ = pending.classes.get(request.get("deviceClassName") or "") or {}
        for config in (class_.get("spec") or {}).get("config") or ():
            found.append({**config, "source": "FromClass", "requests": [request["name"]]})
    for config in (pending.object["spec"].get("devices") or {}).get("config") or ():
        found.append({**config, "source": "FromClaim"})
    return [config for config in found if (config.get("opaque") or {}).get("driver") == driver]


@asynccontextmanager
async def running_classic_controller(
    controller: ClassicController, client: Client, *, clock: Clock | None = None, ids: Ids | None = None
) -> AsyncIterator[RunningClassicController]:
    """A controller that runs while the context is open. DriverFailed if it cannot."""
    runs = RunningClassicController(controller, client, clock or SystemClock(), ids or SystemIds())
    async with AsyncExitStack() as stack:
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        work = tasks.create_task(runs.run())
        try:
            yield runs
        finally:
            work.cancel()
