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
    """A GPU model. memory: as published."""

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
    # Its table of instances in mig.yaml; empty if the card has no MIG.
    mig_table: str = ""
    # Ampere needs a reset to change MIG mode, so the mode stays as at boot.
    mig_mode_needs_reset: bool = False
    # GKE's node label value for such cards; empty if it has none.
    gke_accelerator: str = ""
    # The number of machines whose GPUs NVLink joins.
    nvlink_domain_machines: int = 1

    @property
    def mig_profiles(self) -> tuple[MigProfile, ...]:
        """The profiles of its possible instances."""
        return mig_tables()[self.mig_table] if self.mig_table else ()


@cache
def gpu_models() -> Mapping[str, GpuModel]:
    """All models by key."""
    return {model.key: model for model in read_data_file(__package__, "gpus.yaml", tuple[GpuModel, ...])}
