"""What a node of a machine shape publishes, without a driver: for nodes of which there is nothing but their objects in the API."""

from __future__ import annotations

from pathlib import Path

from allot.core.lifecycle.slice_publishing import Pool
from allot.devices.gpu.gates import Gates
from allot.devices.gpu.inventory import DRIVER_NAME, offers, pool
from allot.devices.gpu.simulated import SimulatedHardware
from allot.devices.profiles.machines import Machine

_NOWHERE = Path()


def profile_pools(machine: Machine, node: str, gates: Gates | None = None) -> tuple[tuple[str, Pool], ...]:
    """The driver and its pool, as the driver with simulated hardware publishes it on a node of that name."""
    # Nothing is opened, so nothing is written.
    gpus = SimulatedHardware(machine, _NOWHERE, node).gpus()
    return ((DRIVER_NAME, pool(node, offers(gpus, gates or Gates()), gpus)),)
