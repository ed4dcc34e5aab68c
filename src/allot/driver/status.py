"""A driver's reports about devices in claim status, by server-side apply with the driver's own field manager.

Written in the background: a claim is ready whether or not its status is written. An apply contains everything that its manager
owns, so earlier reports, including those of an earlier instance of the driver, are repeated.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from allot.client.api import Client
from allot.client.backoff import Backoff
from allot.client.errors import ApiError, NotFound, ServerFault, TooManyRequests, Unreachable
from allot.core.model.codec import encode
from allot.core.model.meta import RawJSON
from allot.core.model.resource_v1 import (
    AllocatedDeviceStatus,
    DeviceRequestAllocationResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from allot.driver.claims import DeviceStatus
from allot.driver.metrics import DriverMetrics
from allot.process.clock import Clock
from allot.process.ids import Ids

_log = logging.getLogger("allot.driver")

# The limit of claims with pending status; a driver has far fewer devices.
_CLAIMS_MAX = 4096

DeviceKey = tuple[str, str, str]


class StatusWriter:
    """Writes the status of claims, one at a time. is_controller: reports the conditions that pods wait for before binding, and their
    data, in addition to the driver's reports on the node."""

    def __init__(
        self,
        client: Client,
        driver: str,
        metrics: DriverMetrics,
        clock: Clock,
        ids: Ids,
        *,
        is_controller: bool = False,
    ) -> None:
        self._client = client
        self._driver = driver
        self._is_controller = is_controller
        self._field_manager = f"{driver}-controller" if is_controller else driver
        self._metrics = metrics
        self._clock = clock
        self._backoff = Backoff(clock, ids)
        # (namespace, name, uid) -> (pool, device, share) -> report.
        self._waiting: dict[tuple[str, str, str], dict[DeviceKey, DeviceStatus]] = {}
        self._news = asyncio.Event()

    def set(self, claim: tuple[str, str, str], device: DeviceKey, status: DeviceStatus) -> None:
        """Report on a device of a claim (namespace, name, uid), soon."""
        if claim not in self._waiting and len(self._waiting) >= _CLAIMS_MAX:
            _log.warning("status of claim %s/%s: too many others wait, not reported", claim[0], claim[1])
            self._metrics.problem("status")
            return
        self._waiting.setdefault(claim, {})[device] = status
        self._news.set()

    async def run(self) -> None:
        """Write pending reports."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                claim = next(iter(self._waiting))
                devices = self._waiting.pop(claim)
                try:
                    await self._write(claim, devices)
                except (Unreachable, ServerFault, TooManyRequests) as error:
                    self._waiting[claim] = {**devices, **self._waiting.get(claim, {})}
                    await self._report(claim, error)
                    await self._clock.sleep(max(self._backoff.next_s(), error.retry_after_s or 0.0))
                except NotFound:
                    continue
                except ApiError as error:
                    # A retry would also be refused.
                    await self._report(claim, error)

    async def _report(self, claim: tuple[str, str, str], error: ApiError) -> None:
        _log.warning("status of claim %s/%s: %s", claim[0], claim[1], error)
        self._metrics.problem("status")

    async def _write(self, claim: tuple[str, str, str], devices: dict[DeviceKey, DeviceStatus]) -> None:
        namespace, name, uid = claim
        typed = await self._client.typed_as_served(ResourceClaim)
        present = await typed.get(name, namespace)
        if present.metadata.uid != uid or present.status.allocation is None:
            return
        held = {
            (result.pool, result.device, result.share_id or ""): result
            for result in present.status.allocation.devices.results
            if result.driver == self._driver
        }
        before = {
            key: self._own(status, held[key])
            for status in present.status.devices
            if status.driver == self._driver and (key := (status.pool, status.device, status.share_id or "")) in held
        }
        told = {**before, **{key: self._told(key, status, before.get(key)) for key, status in devices.items()}}
        told = {key: told[key] for key in sorted(told) if key in held}
        entries = tuple(told.values())
        if told == before:
            # A claim prepared again after a restart.
            return
        body: dict[str, Any] = encode(
            ResourceClaim(status=ResourceClaimStatus(devices=entries)), typed.resource.api_version
        )
        body["metadata"] = {"name": name, "namespace": namespace, "uid": uid}
        body.pop("spec", None)
        await typed.resource.apply(body, self._field_manager, namespace, force=True, subresource="status")
        self._backoff.reset()

    def _own(self, status: AllocatedDeviceStatus, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus:
        """The part of a report that this writer owns."""
        if not self._is_controller:
            return status
        types = (*result.binding_conditions, *result.binding_failure_conditions)
        conditions = tuple(each for each in status.conditions if each.type in types)
        return msgspec.structs.replace(status, conditions=conditions, network_data=None)

    def _told(
        self, key: DeviceKey, status: DeviceStatus, before: AllocatedDeviceStatus | None
    ) -> AllocatedDeviceStatus:
        times = {(each.type, each.status): each.last_transition_time for each in (before.conditions if before else ())}
        conditions = tuple(
            msgspec.structs.replace(
                each,
                last_transition_time=each.last_transition_time
                or times.get((each.type, each.status))
                or self._clock.now(),
                reason=each.reason or "Reported",
            )
            for each in status.conditions
        )
        return AllocatedDeviceStatus(
            driver=self._driver,
            pool=key[0],
            device=key[1],
            share_id=key[2] or None,
            conditions=conditions,
            data=RawJSON(status.data) if status.data is not None else None,
            network_data=status.network,
        )
