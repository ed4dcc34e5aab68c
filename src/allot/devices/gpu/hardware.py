"""The driver's port to GPUs: NVML and its tools, or a simulation.

Calls may block and run in threads. HardwareError reports failures of a card.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import msgspec

from allot.devices.profiles.mig import MigProfile, Placement
from allot.driver import Edits


class HardwareError(Exception):
    """A card operation failed, with the message of the tool that refused."""


class FaultKind(StrEnum):
    """What can be wrong with a card."""

    # An error event with a number.
    XID = "xid"
    # The card no longer responds.
    LOST = "gpu-lost"
    # Events of the card cannot be received.
    UNMONITORED = "unmonitored"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with a card."""

    kind: FaultKind
    xid: int = 0


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU instance with the one compute instance that fills it."""

    uuid: str
    gpu_uuid: str
    profile: MigProfile
    placement: Placement
    gpu_instance_id: int
    compute_instance_id: int = 0


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """The current state of a card."""

    minor: int
    uuid: str
    product_name: str
    brand: str
    architecture: str
    cuda_compute_capability: str
    driver_version: str
    cuda_driver_version: str
    memory_mib: int
    pci_address: str
    # Empty if unknown.
    pcie_root: str = ""
    addressing_mode: str = ""
    pci_device_id: str = ""
    numa_node: int = -1
    # Whether the kernel has the newer passthrough interface (IOMMUFD).
    has_iommu_fd: bool = False
    # None: the card has no MIG.
    mig_mode: bool | None = None
    mig_mode_needs_reset: bool = False
    mig_profiles: tuple[MigProfile, ...] = ()
    mig_instances: tuple[MigInstance, ...] = ()
    faults: tuple[Fault, ...] = ()


class ComputeMode(StrEnum):
    """The compute mode, in nvidia-smi's words."""

    DEFAULT = "DEFAULT"
    EXCLUSIVE_PROCESS = "EXCLUSIVE_PROCESS"


class MpsSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of an MPS control daemon. Limits in MiB, by UUID."""

    id: str
    uuids: tuple[str, ...]
    active_thread_percentage: int | None = None
    pinned_memory_limits_mib: Mapping[str, int] = {}


class MpsFolders(msgspec.Struct, frozen=True, kw_only=True):
    """Folders of a control daemon on the node."""

    pipe: Path
    shm: Path
    log: Path


class Hardware(Protocol):
    """The cards of a machine."""

    def open(self) -> None:
        """Open the cards. HardwareError if that is impossible."""

    def close(self) -> None:
        """Close the cards, leaving their state unchanged."""

    def gpus(self) -> tuple[Gpu, ...]:
        """The current state of all cards."""

    def wait_for_change(self, seconds: float) -> bool:
        """Wait until a card may have changed by itself, or for the timeout; returns whether one may have."""

    def set_mig_mode(self, gpu_uuid: str, is_on: bool) -> None:
        """Turn MIG on or off."""

    def create_instance(self, gpu_uuid: str, profile: MigProfile, placement: Placement) -> MigInstance:
        """Create a MIG instance at this placement, or return an identical existing one."""

    def destroy_instance(self, gpu_uuid: str, instance: MigInstance) -> None:
        """Destroy a MIG instance, if it exists."""

    def set_compute_mode(self, gpu_uuid: str, mode: ComputeMode) -> None:
        """Set whether one or many programs may use the card."""

    def set_time_slice(self, gpu_uuid: str, interval: int) -> None:
        """Set how long a program runs before the next one: 0 (the card's default) to 3 (long)."""

    def start_mps(self, settings: MpsSettings) -> MpsFolders:
        """Start a control daemon and wait until it is ready; a running one is kept."""

    def stop_mps(self, id_: str) -> None:
        """Stop a control daemon, if it runs."""

    def pass_through(self, gpu: Gpu, *, iommu_fd: bool, api_device: bool) -> Edits:
        """Move a card from its driver to a virtual machine monitor; returns the container's edits."""

    def take_back(self, gpu: Gpu) -> None:
        """Return a card to its driver, unless the driver already has it."""

    def common_edits(self) -> Edits:
        """What every container with a card gets."""

    def gpu_edits(self, gpu: Gpu, name: str) -> Edits:
        """What a container gets with a whole card."""

    def instance_edits(self, gpu: Gpu, instance: MigInstance, name: str) -> Edits:
        """What a container gets with a MIG instance."""
