"""The controller: waits for claims that hold its device, sets the images of the pod, and then the condition that the scheduler waits for.

All state is in the API: a controller that ends between two steps does the rest when it starts again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from prometheus_client import CollectorRegistry

from allot.client.api import Client, PatchType
from allot.client.errors import AlreadyExists, ApiError, NotFound
from allot.client.events import EventRecorder
from allot.client.informer import Change
from allot.client.informers import Informers
from allot.client.workqueue import WorkQueue
from allot.core.model.core_v1 import Pod
from allot.core.model.meta import Condition, ObjectMeta
from allot.core.model.resource_v1 import (
    CELDeviceSelector,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from allot.devices.imageconfigurator.images import (
    DRIVER,
    FAILED,
    UPDATED,
    ConfigProblem,
    pending,
    published_pool,
    wanted_images,
)
from allot.driver import DeviceStatus
from allot.driver.metrics import DriverMetrics
from allot.driver.status import StatusWriter
from allot.process.clock import Clock
from allot.process.ids import Ids
from allot.process.supervise import supervise

_log = logging.getLogger("allot.driver")

_ALL_OPERATIONS = ("*",)
_PUBLISH_S = 5.0


class ImageConfigurator:
    """The controller; does nothing until `run` is called."""

    def __init__(self, client: Client, clock: Clock, ids: Ids) -> None:
        self._client = client
        self._clock = clock
        self._informers = Informers(client, clock, ids)
        self._claims = self._informers.typed(ResourceClaim)
        self._pods = client.typed(Pod)
        self._queue: WorkQueue[str] = WorkQueue(clock)
        self._status = StatusWriter(client, DRIVER, DriverMetrics(CollectorRegistry(), DRIVER), clock, ids)
        self._events = EventRecorder(client, clock, ids, controller=DRIVER, instance=DRIVER)

    async def run(self) -> None:
        """Run until cancelled."""
        await self._until_published()
        self._claims.add_handler(self._claim_changed)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informers.run())
            for name, run in (("claim status", self._status.run), ("events", self._events.run), ("work", self._work)):
                tasks.create_task(supervise(f"{DRIVER}: {name}", run, self._clock))

    async def _until_published(self) -> None:
        while True:
            try:
                await self._publish()
                return
            except ApiError as error:
                _log.warning("device of %s: %s", DRIVER, error)
                await self._clock.sleep(_PUBLISH_S)

    async def _publish(self) -> None:
        """Create the device and its class, unless they exist."""
        pool = published_pool()
        slice_ = ResourceSlice(
            metadata=ObjectMeta(name=f"{DRIVER}-{pool.name}"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=ResourcePool(name=pool.name, generation=1, resource_slice_count=1),
                all_nodes=True,
                devices=pool.devices,
                skip_node_operations=_ALL_OPERATIONS,
            ),
        )
        selector = DeviceSelector(cel=CELDeviceSelector(expression=f'device.driver == "{DRIVER}"'))
        class_ = DeviceClass(metadata=ObjectMeta(name=DRIVER), spec=DeviceClassSpec(selectors=(selector,)))
        with suppress(AlreadyExists):
            await self._client.typed(DeviceClass).create(class_)
        with suppress(AlreadyExists):
            await self._client.typed(ResourceSlice).create(slice_)

    def _claim_changed(self, change: Change[ResourceClaim]) -> None:
        if change.new is not None and pending(change.new):
            self._queue.add(f"{change.new.metadata.namespace}/{change.new.metadata.name}")

    async def _work(self) -> None:
        while True:
            key = await self._queue.get()
            try:
                await self._configure(key)
                self._queue.forget(key)
            except ApiError as error:
                _log.warning("claim %s: %s", key, error)
                self._queue.add_rate_limited(key)
            finally:
                self._queue.done(key)

    async def _configure(self, key: str) -> None:
        claim = self._claims.cache.get(key)
        if claim is None or not pending(claim):
            return
        pod = await self._pod_of(claim)
        if pod is None:
            # A pod that waits for the condition reserves the claim, and the watch reports that.
            return
        try:
            await self._set_images(pod, wanted_images(self._claims_of(pod)))
            self._tell(claim, UPDATED, "ImagePatched", "Container image has been updated")
        except ConfigProblem as error:
            self._events.record(pod, "Warning", "ImageConfigError", "CollectImageConfig", str(error))
            self._tell(claim, FAILED, "ImageConfigError", str(error))

    async def _pod_of(self, claim: ResourceClaim) -> Pod | None:
        for user in claim.status.reserved_for:
            if user.resource == "pods":
                try:
                    pod = await self._pods.get(user.name, claim.metadata.namespace)
                except NotFound:
                    continue
                if pod.metadata.uid == user.uid:
                    return pod
        return None

    def _claims_of(self, pod: Pod) -> list[ResourceClaim]:
        names = [each.resource_claim_name for each in pod.spec.resource_claims]
        names += [each.resource_claim_name for each in pod.status.resource_claim_statuses]
        found = (self._claims.cache.get(f"{pod.metadata.namespace}/{name}") for name in names if name)
        return [claim for claim in found if claim is not None]

    async def _set_images(self, pod: Pod, images: Mapping[str, str]) -> None:
        """ConfigProblem names a container that does not exist."""
        present = {each.name: each.image for each in pod.spec.containers}
        unknown = sorted(set(images) - set(present))
        if unknown:
            raise ConfigProblem(f"container {unknown[0]!r}: pod {pod.key} has {', '.join(map(repr, present))}")
        changed = [{"name": name, "image": image} for name, image in images.items() if present[name] != image]
        if not changed:
            return
        patch = {"metadata": {"uid": pod.metadata.uid}, "spec": {"containers": changed}}
        await self._pods.resource.patch(pod.metadata.name, patch, PatchType.STRATEGIC, pod.metadata.namespace)
        text = "Container image(s) updated based on ResourceClaim config"
        self._events.record(pod, "Normal", "ImagePatched", "PatchImage", text)

    def _tell(self, claim: ResourceClaim, condition: str, reason: str, message: str) -> None:
        told = Condition(type=condition, status="True", reason=reason, message=message)
        metadata = claim.metadata
        for device in pending(claim):
            self._status.set(
                (metadata.namespace, metadata.name, metadata.uid), device, DeviceStatus(conditions=(told,))
            )
