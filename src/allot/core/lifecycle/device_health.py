"""Device health from drivers' reports: what a report changes, when it is outdated, and the pod's status.

The rules are the kubelet's (pkg/kubelet/cm/dra/healthinfo.go, 1.37). Times come in as arguments, in seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from allot.core.lifecycle.preparation import Records, Refused, devices_of_container
from allot.core.model.core_v1 import Pod, ResourceHealth, ResourceStatus

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
UNKNOWN = "Unknown"
TIMEOUT_S = 30.0
MESSAGE_BYTES_MAX = 1024
# Far above what a node has: a driver that keeps inventing names must not exhaust memory.
DEVICES_MAX = 16_384

# Pool and device.
DeviceKey = tuple[str, str]


class DeviceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What a driver last reported about a device, and when."""

    health: str = UNKNOWN
    message: str = ""
    timeout_s: float = TIMEOUT_S
    updated_at: float = 0.0

    def is_stale(self, now: float) -> bool:
        """Whether the driver should have reported since."""
        return now - self.updated_at > self.timeout_s

    def differs(self, other: DeviceHealth) -> bool:
        """Whether it reports something else, regardless of the time."""
        return (self.health, self.message, self.timeout_s) != (other.health, other.message, other.timeout_s)


DriverHealth = Mapping[DeviceKey, DeviceHealth]


class Merged(msgspec.Struct, frozen=True):
    """The health after a report, which devices changed, and how many exceeded the limit."""

    devices: Mapping[DeviceKey, DeviceHealth]
    changed: tuple[DeviceKey, ...]
    ignored: int


def reported(health: str, message: str, timeout_s: float, now: float) -> DeviceHealth:
    """One device of a report; a long message is truncated, an invalid timeout replaced by the default."""
    raw = message.encode()
    if len(raw) > MESSAGE_BYTES_MAX:
        message = raw[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."
    return DeviceHealth(
        health=health, message=message, timeout_s=timeout_s if timeout_s > 0 else TIMEOUT_S, updated_at=now
    )


def merge(known: DriverHealth, report: DriverHealth, now: float) -> Merged:
    """A report names all devices of a driver; an omitted one is trusted until it is stale, then forgotten."""
    devices = dict(known)
    changed: list[DeviceKey] = []
    ignored = 0
    for key, health in report.items():
        before = devices.get(key)
        if before is None and len(devices) >= DEVICES_MAX:
            ignored += 1
            continue
        if before is None or before.differs(health):
            changed.append(key)
        devices[key] = health
    for key, health in known.items():
        if key not in report and health.is_stale(now):
            del devices[key]
            if health.health != UNKNOWN:
                changed.append(key)
    return Merged(devices, tuple(changed), ignored)


def newly_stale(known: DriverHealth, before: float, now: float) -> tuple[DeviceKey, ...]:
    """Devices that have become stale."""
    return tuple(
        key
        for key, health in known.items()
        if health.health != UNKNOWN and health.is_stale(now) and not health.is_stale(before)
    )


def pods_using(records: Records, driver: str, devices: Iterable[DeviceKey]) -> tuple[str, ...]:
    """The uids of pods that use any of a driver's devices."""
    wanted = frozenset(devices)
    found: dict[str, None] = {}
    for record in records.values():
        part = record.drivers.get(driver)
        if part is not None and any((each.pool, each.device) in wanted for each in part.devices):
            found |= dict.fromkeys(record.pod_uids)
    return tuple(found)


def container_health(
    records: Records, health: Mapping[str, DriverHealth], pod: Pod, now: float, *, with_message: bool = True
) -> Mapping[str, tuple[ResourceStatus, ...]]:
    """allocatedResourcesStatus of the regular containers of a pod that use claims, by their names."""
    found: dict[str, tuple[ResourceStatus, ...]] = {}
    for container in pod.spec.containers:
        if not container.resources.claims:
            continue
        try:
            used = devices_of_container(records, pod, container)
        except Refused:
            continue
        statuses = []
        for title, _, devices in used:
            entries: dict[str, ResourceHealth] = {}
            for driver, device in devices:
                id_ = device.cdi_ids[0] if device.cdi_ids else f"{driver}/{device.pool}/{device.device}"
                said = health.get(driver, {}).get((device.pool, device.device))
                if said is None or said.is_stale(now):
                    said = DeviceHealth()
                message = said.message if with_message and said.message else None
                entries.setdefault(id_, ResourceHealth(resource_id=id_, health=said.health, message=message))
            if entries:
                statuses.append(ResourceStatus(name=f"claim:{title}", resources=tuple(entries.values())))
        if statuses:
            found[container.name] = tuple(statuses)
    return found
