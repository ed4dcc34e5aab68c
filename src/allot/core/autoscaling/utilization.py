"""Node utilization: of its devices if it has any, as in Cluster Autoscaler, else of CPU and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from allot.core.allocation.accounting import consumed_counters, published_counters
from allot.core.model import resource_v1 as api
from allot.core.scheduling import Claims, NodeInfo

# Driver, pool and device.
DeviceName = tuple[str, str, str]
_NONE = Fraction(0)


def node_utilization(info: NodeInfo, slices: Iterable[api.ResourceSlice], held: set[DeviceName]) -> Fraction:
    """The used fraction of a node. held: the devices that claims hold, except with admin access."""
    devices = device_utilization(slices, held)
    if devices is not None:
        return devices
    return max(_part(info.cpu, info.allocatable_cpu), _part(info.memory, info.allocatable_memory))


def device_utilization(slices: Iterable[api.ResourceSlice], held: set[DeviceName]) -> Fraction | None:
    """The used fraction of the fullest pool; None without devices. Where devices consume counters, these count:
    the mean over counter sets of the fullest counter."""
    pools: dict[tuple[str, str], list[api.ResourceSlice]] = {}
    for slice_ in slices:
        pools.setdefault((slice_.spec.driver, slice_.spec.pool.name), []).append(slice_)
    found = [part for key, pool in pools.items() if (part := _pool(key, pool, held)) is not None]
    return max(found) if found else None


def _pool(key: tuple[str, str], slices: list[api.ResourceSlice], held: set[DeviceName]) -> Fraction | None:
    devices = [device for slice_ in slices for device in slice_.spec.devices or ()]
    published = published_counters(set_ for slice_ in slices for set_ in slice_.spec.shared_counters or ())
    if not devices:
        return None
    if not published:
        return Fraction(sum((*key, device.name) in held for device in devices), len(devices))
    used: dict[tuple[str, str], int] = {}
    for device in devices:
        if (*key, device.name) in held:
            for counter, amount in consumed_counters(device).items():
                used[counter] = used.get(counter, 0) + amount
    return _mean_of_fullest(published, used)


def _mean_of_fullest(published: Mapping[tuple[str, str], int], used: Mapping[tuple[str, str], int]) -> Fraction:
    fullest: dict[str, Fraction] = {}
    for counter, amount in published.items():
        part = _part(used.get(counter, 0), amount)
        fullest[counter[0]] = max(fullest.get(counter[0], _NONE), part)
    return sum(fullest.values(), _NONE) / len(fullest)


def _part(used: int, there: int) -> Fraction:
    return Fraction(used, there) if there else _NONE


def held_on(info: NodeInfo, claims: Claims) -> set[DeviceName]:
    """The devices that the pods of a node hold, except with admin access."""
    return {
        (result.driver, result.pool, result.device)
        for pod in info.pods.values()
        for id_ in claims.claims_of(pod.pod)
        if (allocation := claims.allocation(id_)) is not None
        for result in allocation.devices.results
        if not result.admin_access
    }
