"""GPU models (gpus.yaml), with the facts that NVML reports."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from allot.devices.profiles.mig import MigProfile, mig_tables
from allot.process.data_files import read_data_file

DRIVER_VERSION = "580.126.20"
CUDA_DRIVER_VERSION = "13.0"
VENDOR_ID = "0x10de"


class GpuModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model of GPU. memory: as it is published."""

    key: str
    product_name: str
    architecture: str
    cuda_compute_capability: str
    memory_mib: int
    power_limit_w: int
    idle_power_w: int
    multiprocessors: int
    pci_device_id: str
    brand: str = "Nvidia"
    addressing_mode: str = "None"
    # How it can be cut into instances, by the name of a table in mig.yaml; empty if the card has no MIG.
    mig_table: str = ""
    # Ampere needs a reset to change MIG mode, so the mode stays as it was at boot.
    mig_mode_needs_reset: bool = False
    # How GKE labels nodes with such cards; empty if it has none.
    gke_accelerator: str = ""
    # GPUs of how many machines are joined by NVLink.
    nvlink_domain_machines: int = 1

    @property
    def mig_profiles(self) -> tuple[MigProfile, ...]:
        """The kinds of instances that it can be cut into."""
        return mig_tables()[self.mig_table] if self.mig_table else ()


@cache
def gpu_models() -> Mapping[str, GpuModel]:
    """All models by key."""
    return {model.key: model for model in read_data_file(__package__, "gpus.yaml", tuple[GpuModel, ...])}
