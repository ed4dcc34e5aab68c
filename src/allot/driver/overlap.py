"""Whether a device may be prepared for a claim while others are: the last guard against giving a device away twice.

The scheduler has decided; a driver that sees two claims for one device has met a bug, a race or a stale pod, and must not set
the device up for both. Partitions are checked by the counters that they share: a whole device does not overlap its parts.
"""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.model.resource_v1 import Device
from allot.core.quantity import Quantity
from allot.driver.checkpoint import Record, RecordedDevice
from allot.driver.inventory import Inventory


def find_overlap(uid: str, devices: Iterable[RecordedDevice], records: Iterable[Record], inventory: Inventory) -> str:
    """Why the devices cannot be prepared for the claim; empty if they can."""
    wanted = [device for device in devices if not device.admin_access]
    held = [
        (device, record)
        for record in records
        if record.uid != uid
        for device in record.devices
        if not device.admin_access
    ]
    by_key: dict[tuple[str, str], list[tuple[RecordedDevice, Record]]] = {}
    for device, record in held:
        by_key.setdefault((device.pool, device.device), []).append((device, record))
    for device in wanted:
        for other, record in by_key.get((device.pool, device.device), ()):
            # Shares of a device are prepared side by side; a whole device is nobody else's.
            if device.share_id is None or other.share_id is None or device.share_id == other.share_id:
                return (
                    f"requested device {device.device} of pool {device.pool} is already allocated to different claim "
                    f"{record.namespace}/{record.name} ({record.uid})"
                )
    return _find_exhausted(wanted, held, inventory)


def _find_exhausted(
    wanted: Iterable[RecordedDevice], held: Iterable[tuple[RecordedDevice, Record]], inventory: Inventory
) -> str:
    """Shared counters that all prepared devices together would take too much of."""
    if not inventory.has_counters:
        return ""
    used: dict[tuple[str, str, str], Quantity] = {}
    counted: set[tuple[str, str]] = set()
    for device in (*(device for device, _ in held), *wanted):
        key = (device.pool, device.device)
        if key not in counted:
            counted.add(key)
            _consume(used, device.pool, inventory.device(*key))
    for device in wanted:
        declared = inventory.device(device.pool, device.device)
        for consumed in declared.consumes_counters if declared is not None else ():
            for name in consumed.counters:
                limit = inventory.counter(device.pool, consumed.counter_set, name)
                if limit is not None and used[device.pool, consumed.counter_set, name] > limit.value:
                    return (
                        f"requested device {device.device} of pool {device.pool} overlaps devices of other claims: "
                        f"counter {name} of {consumed.counter_set} is exhausted"
                    )
    return ""


def _consume(used: dict[tuple[str, str, str], Quantity], pool: str, device: Device | None) -> None:
    for consumed in device.consumes_counters if device is not None else ():
        for name, counter in consumed.counters.items():
            key = (pool, consumed.counter_set, name)
            used[key] = used.get(key, Quantity.ZERO).add(counter.value)
