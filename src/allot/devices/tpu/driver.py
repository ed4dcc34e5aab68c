"""The driver: publishes chips, gives a claim all of them, and cleans up after programs."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable
from pathlib import Path

from allot.devices.tpu.chips import Chip, Chips
from allot.devices.tpu.inventory import DRIVER_NAME, Slice, chip_edits, common_edits, devices
from allot.devices.tpu.topology import TopologyError
from allot.driver import (
    Claim,
    Device,
    DeviceHealth,
    Driver,
    DriverFailed,
    Edits,
    Health,
    Prepared,
    PreparedClaim,
    PrepareError,
)
from allot.process.beneath import FOLDER, remove_entry

_log = logging.getLogger("allot.devices.tpu")


class TpuDriver(Driver):
    """The chips of one machine. logs: where programs write their logs on the host."""

    name = DRIVER_NAME
    cdi_class = "tpu"
    rescan_s = 10.0

    def __init__(self, chips: Chips, part_of: Slice | None = None, logs: Path = Path("/tmp/tpu_logs")) -> None:
        self._chips = chips
        self._slice = part_of or Slice()
        self._logs = logs
        # All chips ever seen, so that a missing one is reported as unhealthy.
        self._seen: dict[str, Chip] = {}

    def _read(self) -> tuple[Chip, ...]:
        found = self._chips.read()
        self._seen |= {chip.name: chip for chip in found}
        return found

    def start(self) -> None:
        """Create the directory for containers."""
        try:
            self._logs.mkdir(parents=True, exist_ok=True)
            os.close(self._open_logs())
        except OSError as error:
            raise DriverFailed(f"driver {self.name}: {self._logs}: {(error.strerror or str(error)).lower()}") from error

    def _open_logs(self) -> int:
        """The directory is in a world-writable place, and its contents will be removed: it must be ours."""
        handle = os.open(self._logs, FOLDER)
        if os.fstat(handle).st_uid != os.geteuid():
            os.close(handle)
            raise PermissionError(errno.EPERM, "the directory belongs to another user", str(self._logs))
        return handle

    def devices(self) -> Iterable[Device]:
        """The existing chips."""
        return devices(self._read(), self.node.name, self._slice)

    def health(self) -> Iterable[DeviceHealth]:
        """A chip without its device file is unhealthy."""
        present = {chip.name for chip in self._read() if chip.is_present}
        for name in self._seen:
            if name in present:
                yield DeviceHealth(name=name)
            else:
                yield DeviceHealth(name=name, health=Health.UNHEALTHY, message="the device file is missing")

    def edits_for_all(self) -> Edits:
        """The environment of TPU programs."""
        try:
            return common_edits(self._read(), self._slice, str(self._logs))
        except TopologyError as error:
            raise DriverFailed(f"driver {self.name}: {error}") from None

    def prepare(self, claim: Claim) -> Iterable[Prepared]:
        """Prepare all chips or none."""
        chips = {chip.name: chip for chip in self._read() if chip.is_present}
        if {device.name for device in claim.devices} != set(chips):
            raise PrepareError(
                f"invalid TPU chip count request, you must request all {len(chips)} chips on this node together"
            )
        return [Prepared(device, chip_edits(chips[device.name], claim.uid)) for device in claim.devices]

    def unprepare(self, claim: PreparedClaim) -> None:
        """Remove logs for the next claim. Releasing admin access removes nothing."""
        if all(device.admin_access for device in claim.devices):
            return
        try:
            folder = self._open_logs()
        except OSError as error:
            _log.warning("logs of claim %s/%s: %s", claim.namespace, claim.name, error)
            return
        for name in os.listdir(folder):  # noqa: PTH208 - there is no path
            try:
                remove_entry(folder, name)
            except OSError as error:
                # For example another user's file; the claim is still unprepared.
                _log.warning("logs of claim %s/%s: %s", claim.namespace, claim.name, error)
        os.close(folder)
