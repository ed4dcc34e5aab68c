"""A driver for tests: two devices with a variable each."""

from __future__ import annotations

from allot.driver import Claim, Device, Driver, Edits, Prepared, device, run


class TwoGpus(Driver):
    """There is nothing to undo."""

    name = "gpu.example.com"

    def devices(self) -> list[Device]:
        """Two of them."""
        return [device(f"gpu-{number}") for number in range(2)]

    def prepare(self, claim: Claim) -> list[Prepared]:
        """A variable with the device's name."""
        return [Prepared(each, Edits(env={f"GPU_{each.name[-1]}": each.name})) for each in claim.devices]


if __name__ == "__main__":
    run(TwoGpus())
