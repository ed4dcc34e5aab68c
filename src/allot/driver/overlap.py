"""Whether a device may be prepared for a claim while others are prepared: the last guard against double allocation.

The scheduler has decided; a driver that sees two claims for one device has hit a bug, a race or a stale pod, and must not set
the device up for both. Partitions are checked by the counters that they share: a whole device does not overlap its parts.
"""

from __future__ import annotations

from collections.abc import Iterable

from allot.core.allocation.accounting import CounterBalance, consumed_counters, excludes
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
            # Shares of a device may coexist; a whole device may not.
            if excludes(device.share_id, other.share_id):
                return (
                    f"requested device {device.device} of pool {device.pool} is already allocated to different claim "
                    f"{record.namespace}/{record.name} ({record.uid})"
                )
    return _find_exhausted(wanted, held, inventory)


def _find_exhausted(
    wanted: Iterable[RecordedDevice], held: Iterable[tuple[RecordedDevice, Record]], inventory: Inventory
) -> str:
    """Shared counters that the prepared devices together would exceed."""
    if not inventory.has_counters:
        return ""
    balances: dict[str, CounterBalance] = {}
    counted: set[tuple[str, str]] = set()
    for device in (*(device for device, _ in held), *wanted):
        key = (device.pool, device.device)
        declared = inventory.device(*key)
        if declared is None or not declared.consumes_counters or key in counted:
            continue
        counted.add(key)
        if device.pool not in balances:
            balances[device.pool] = CounterBalance(inventory.counters(device.pool))
        balances[device.pool].take(consumed_counters(declared))
    for device in wanted:
        declared = inventory.device(device.pool, device.device)
        if declared is None or not declared.consumes_counters:
            continue
        exhausted = balances[device.pool].overcommitted(consumed_counters(declared))
        if exhausted is not None:
            counter_set, name = exhausted
            return (
                f"requested device {device.device} of pool {device.pool} overlaps devices of other claims: "
                f"counter {name} of {counter_set} is exhausted"
            )
    return ""
