"""Answers ResourcePoolStatusRequests: how many devices of a driver's pools exist, are allocated and are available.

The answer is written once and deleted after an hour; a request that cannot be answered, because a pool is incomplete, is retried
until it can, and deleted after a day. (Kubernetes gives up after five attempts.)
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from allot.core.lifecycle.actions import Action, Delete, RequeueAfter, Retry, Update, resource_of
from allot.core.lifecycle.pool_views import Pool, PublishedDevice, view_pool
from allot.core.lifecycle.times import seconds_of, time_of
from allot.core.model.meta import Condition
from allot.core.model.resource_v1 import (
    EFFECT_NO_EXECUTE,
    EFFECT_NO_SCHEDULE,
    Device,
    DeviceTaintRule,
    PoolStatus,
    ResourceClaim,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestStatus,
    ResourceSlice,
)
from allot.core.quantity import Quantity
from allot.core.selectors import selects_device

COMPLETE = "Complete"
FAILED = "Failed"
LIMIT_DEFAULT = 100
ANSWERED_TTL_S = 3600.0
PENDING_TTL_S = 24 * 3600.0
ERROR_BYTES_MAX = 256

_REQUESTS = resource_of(ResourcePoolStatusRequest)
_UNAVAILABLE = (EFFECT_NO_SCHEDULE, EFFECT_NO_EXECUTE)


def reconcile_request(
    request: ResourcePoolStatusRequest,
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    rules: Iterable[DeviceTaintRule],
    now_s: float,
) -> tuple[Action, ...]:
    """Answer a request, or delete it when it has expired."""
    left_s = _expires_s(request) - now_s
    if left_s <= 0:
        delete = Delete(resource=_REQUESTS, name=request.metadata.name, uid=request.metadata.uid)
        return () if request.metadata.deletion_timestamp is not None else (delete,)
    if request.status is not None:
        return (RequeueAfter(seconds=left_s),)
    pools = pool_statuses(request, slices, claims, tuple(rules))
    incomplete = [pool for pool in pools if (pool.validation_error or "").startswith("PoolIncomplete:")]
    if incomplete:
        return (Retry(message=f"request {request.metadata.name}: {incomplete[0].validation_error}"),)
    status = _answer(request, pools, now_s)
    return (Update(resource=_REQUESTS, object=replace(request, status=status), subresource="status"),)


def _expires_s(request: ResourcePoolStatusRequest) -> float:
    created = request.metadata.creation_timestamp
    created_s = float("inf") if created is None else seconds_of(created)
    if request.status is None:
        return created_s + PENDING_TTL_S
    for condition in request.status.conditions:
        if condition.type in (COMPLETE, FAILED) and condition.last_transition_time is not None:
            return seconds_of(condition.last_transition_time) + ANSWERED_TTL_S
    return created_s + ANSWERED_TTL_S


def _answer(
    request: ResourcePoolStatusRequest, pools: tuple[PoolStatus, ...], now_s: float
) -> ResourcePoolStatusRequestStatus:
    limit = request.spec.limit if request.spec.limit is not None else LIMIT_DEFAULT
    shown = pools[:limit]
    message = f"Calculated status for {len(shown)} pools"
    faulty = sum(pool.validation_error is not None for pool in shown)
    if faulty:
        message += f" ({faulty} incomplete)"
    return ResourcePoolStatusRequestStatus(
        pool_count=len(pools),
        pools=shown,
        conditions=(
            Condition(
                type=COMPLETE,
                status="True",
                last_transition_time=time_of(now_s),
                reason="CalculationComplete",
                message=message,
            ),
        ),
    )


# --- counting ---


def pool_statuses(
    request: ResourcePoolStatusRequest,
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    rules: tuple[DeviceTaintRule, ...],
) -> tuple[PoolStatus, ...]:
    """The pools of a request, each by the slices of its newest generation, sorted by name."""
    driver, wanted = request.spec.driver, request.spec.pool_name
    by_pool: dict[str, list[ResourceSlice]] = {}
    for slice_ in slices:
        if slice_.spec.driver == driver and (not wanted or slice_.spec.pool.name == wanted):
            by_pool.setdefault(slice_.spec.pool.name, []).append(slice_)
    used = _used(driver, claims)
    attribute = request.spec.default_partition_type_attribute or ""
    return tuple(_pool_status(driver, name, by_pool[name], used, rules, attribute) for name in sorted(by_pool))


class _Use:
    """What claims use of a pool, without admin access, which only observes."""

    def __init__(self) -> None:
        self.devices: dict[str, None] = {}
        self.consumed: dict[str, Quantity] = {}


def _used(driver: str, claims: Iterable[ResourceClaim]) -> dict[str, _Use]:
    used: dict[str, _Use] = {}
    for claim in claims:
        if claim.status.allocation is None:
            continue
        for result in claim.status.allocation.devices.results:
            if result.driver != driver or result.admin_access:
                continue
            use = used.setdefault(result.pool, _Use())
            use.devices[result.device] = None
            for name, amount in result.consumed_capacity.items():
                use.consumed[name] = use.consumed[name].add(amount) if name in use.consumed else amount
    return used


def _pool_status(
    driver: str,
    name: str,
    slices: list[ResourceSlice],
    used: dict[str, _Use],
    rules: tuple[DeviceTaintRule, ...],
    attribute: str,
) -> PoolStatus:
    newest = max(slice_.spec.pool.generation for slice_ in slices)
    slices = [slice_ for slice_ in slices if slice_.spec.pool.generation == newest]
    nodes = {slice_.spec.node_name or "": None for slice_ in slices}
    status = PoolStatus(
        driver=driver,
        pool_name=name,
        generation=newest,
        node_name=next(iter(nodes)) or None if len(nodes) == 1 else None,
    )
    expected = slices[0].spec.pool.resource_slice_count
    if len(slices) < expected:
        error = (
            f"PoolIncomplete: pool {driver}/{name} is incomplete:"
            f" observed {len(slices)}/{expected} slices at generation {newest}"
        )
        return replace(status, validation_error=_shortened(error))
    use = used.get(name, _Use())
    devices = [device for slice_ in slices for device in slice_.spec.devices or ()]
    unavailable = sum(_is_unavailable(driver, name, device, rules) for device in devices)
    views = view_pool(
        Pool(
            driver=driver,
            name=name,
            devices=tuple(
                PublishedDevice(device, slice_.spec.partition_type_attribute or "")
                for slice_ in slices
                for device in slice_.spec.devices or ()
            ),
            counters=tuple(counters for slice_ in slices for counters in slice_.spec.shared_counters or ()),
            in_use=frozenset(use.devices),
            consumed=use.consumed,
        ),
        attribute,
    )
    return replace(
        status,
        resource_slice_count=len(slices),
        total_devices=len(devices),
        allocated_devices=len(use.devices),
        # As in Kubernetes: a tainted and allocated device is subtracted twice.
        available_devices=max(0, len(devices) - len(use.devices) - unavailable),
        unavailable_devices=unavailable,
        partition_summary=views.partitions,
        shareable_summary=views.shareable,
        validation_error=_shortened(views.error) if views.error else None,
    )


def _is_unavailable(driver: str, pool: str, device: Device, rules: tuple[DeviceTaintRule, ...]) -> bool:
    return any(taint.effect in _UNAVAILABLE for taint in device.taints) or any(
        rule.spec.taint.effect in _UNAVAILABLE
        and selects_device(rule.spec.device_selector, driver, pool, device.name, absent_selects=False)
        for rule in rules
    )


def _shortened(error: str) -> str:
    return error.encode()[:ERROR_BYTES_MAX].decode(errors="ignore")
