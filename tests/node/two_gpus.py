"""A driver for tests: two devices, one variable each, with health and prepare failures that files decide."""

from __future__ import annotations

import sys
from pathlib import Path

from allot.driver import (
    Claim,
    Device,
    DeviceHealth,
    Driver,
    Edits,
    Health,
    Prepared,
    PreparedClaim,
    PrepareError,
    device,
    run,
)


class TwoGpus(Driver):
    """Files in `folder`: `refuse` (prepare and unprepare fail), `sick` (gpu-0 is unhealthy)."""

    name = "gpu.example.com"
    rescan_s = 0.2
    folder: Path

    def devices(self) -> list[Device]:
        """Two of them."""
        return [device(f"gpu-{number}") for number in range(2)]

    def prepare(self, claim: Claim) -> list[Prepared]:
        """A variable with the device's name."""
        if (self.folder / "refuse").exists():
            raise PrepareError("the test refuses")
        return [Prepared(each, Edits(env={f"GPU_{each.name[-1]}": each.name})) for each in claim.devices]

    def unprepare(self, claim: PreparedClaim) -> None:  # noqa: ARG002
        """Nothing to undo."""
        if (self.folder / "refuse").exists():
            raise PrepareError("the test refuses")

    def health(self) -> list[DeviceHealth]:
        """As the file says."""
        sick = (self.folder / "sick").exists()
        return [
            DeviceHealth(name="gpu-0", health=Health.UNHEALTHY if sick else Health.HEALTHY),
            DeviceHealth(name="gpu-1"),
        ]


if __name__ == "__main__":
    TwoGpus.folder = Path(sys.argv.pop(1))
    run(TwoGpus())
