"""A driver for accelerators behind a fabric: a rack has eight, and none is in a machine until a pod needs it there.

The controller runs once. It publishes the accelerators for all nodes of the rack, attaches the one that the scheduler has chosen to the pod's
node while the pod waits, and detaches it when the pod is done. The part on each node gives containers what was attached.

    python examples/drivers/fabric.py controller --fabric ./fabric
    python examples/drivers/fabric.py node --fabric ./fabric --node-name n1

What stands for the fabric's switch is a folder, so that the driver can be tried without one (`Switch`).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from allot.driver import (
    AllocatedDevice,
    AttachError,
    Attachment,
    Claim,
    Controller,
    Driver,
    Edits,
    Pool,
    Prepared,
    PrepareError,
    device,
    nodes_with,
    run,
    run_controller,
)

NAME = "fabric.example.com"
POOL = "rack-1"
RACK = {"fabric.example.com/rack": "rack-1"}
ACCELERATORS = 8


class Switch:
    """A folder: `attached/NAME` names the node that an accelerator is attached to; `faults` has a line with a name and what is wrong for each
    that cannot be attached; while there is a file `busy` the switch takes its time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._attached = folder / "attached"
        self._attached.mkdir(parents=True, exist_ok=True)

    def attached(self) -> dict[str, str]:
        """The node of each accelerator that has one."""
        return {path.name: path.read_text() for path in sorted(self._attached.iterdir())}

    def attach(self, name: str, node: str) -> int:
        """The port at which the node finds it."""
        while (self._folder / "busy").exists():
            time.sleep(0.05)
        faults = self._faults()
        if name in faults:
            raise AttachError(f"accelerator {name}: {faults[name]}")
        (self._attached / name).write_text(node)
        return int(name.rpartition("-")[2])

    def detach(self, name: str) -> None:
        """From whatever node it is attached to."""
        (self._attached / name).unlink(missing_ok=True)

    def _faults(self) -> dict[str, str]:
        path = self._folder / "faults"
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.split(" ", 1) for line in lines)


class FabricController(Controller):
    name = NAME
    attached_condition = "fabric.example.com/Attached"
    failed_condition = "fabric.example.com/AttachFailed"
    rescan_s = 10.0

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def pools(self) -> list[Pool]:
        devices = tuple(
            device(f"accelerator-{number}", attributes={"model": "A1", "port": number}, capacity={"memory": "64Gi"})
            for number in range(ACCELERATORS)
        )
        return [Pool(name=POOL, devices=devices, node_selector=nodes_with(RACK))]

    def attached(self) -> list[Attachment]:
        return [Attachment(POOL, name, node) for name, node in self._switch.attached().items()]

    def attach(self, device: AllocatedDevice, node: str) -> dict[str, int]:
        return {"port": self._switch.attach(device.name, node)}

    def detach(self, attachment: Attachment) -> None:
        self._switch.detach(attachment.device)


class FabricDriver(Driver):
    name = NAME
    has_controller = True

    def __init__(self, switch: Switch) -> None:
        self._switch = switch

    def prepare(self, claim: Claim) -> list[Prepared]:
        attached = self._switch.attached()
        prepared = []
        for number, each in enumerate(claim.devices):
            if attached.get(each.name) != self.node.name:
                raise PrepareError(f"accelerator {each.name} is not attached to this node")
            env = {f"ACCELERATOR_{number}": each.name, f"ACCELERATOR_{number}_PORT": str(each.data["port"])}
            prepared.append(Prepared(each, Edits(env=env)))
        return prepared


def main() -> None:
    """Run the part that the first argument names."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("part", choices=("controller", "node"))
    parser.add_argument("--fabric", type=Path, default=Path("fabric"), help="the folder of the switch [%(default)s]")
    given, rest = parser.parse_known_args()
    switch = Switch(given.fabric.absolute())
    if given.part == "controller":
        run_controller(FabricController(switch), rest)
    run(FabricDriver(switch), rest)


if __name__ == "__main__":
    main()
