"""GPU models: what NVML says about each."""

from __future__ import annotations

import msgspec

from allot.devices.profiles import mig

DRIVER_VERSION = "580.126.20"
CUDA_DRIVER_VERSION = "13.0"
VENDOR_ID = "0x10de"


class GpuModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of GPU. memory: as it is published; MIG profiles: none if the card has no MIG."""

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
    mig_profiles: tuple[mig.MigProfile, ...] = ()
    # Ampere has to be reset to turn MIG on or off, so its mode is what it was when the machine started.
    mig_mode_needs_reset: bool = False


MODELS: dict[str, GpuModel] = {
    model.key: model
    for model in (
        GpuModel(
            key="t4",
            product_name="Tesla T4",
            architecture="Turing",
            brand="Tesla",
            cuda_compute_capability="7.5",
            memory_mib=15360,
            power_limit_w=70,
            idle_power_w=9,
            multiprocessors=40,
            pci_device_id="0x1eb8",
        ),
        GpuModel(
            key="l4",
            product_name="NVIDIA L4",
            architecture="Ada Lovelace",
            cuda_compute_capability="8.9",
            memory_mib=23034,
            power_limit_w=72,
            idle_power_w=12,
            multiprocessors=58,
            pci_device_id="0x27b8",
        ),
        GpuModel(
            key="a100-40",
            product_name="NVIDIA A100-SXM4-40GB",
            architecture="Ampere",
            cuda_compute_capability="8.0",
            memory_mib=40960,
            power_limit_w=400,
            idle_power_w=52,
            multiprocessors=108,
            pci_device_id="0x20b0",
            mig_profiles=mig.A100_40GB,
            mig_mode_needs_reset=True,
        ),
        GpuModel(
            key="a100-80",
            product_name="NVIDIA A100-SXM4-80GB",
            architecture="Ampere",
            cuda_compute_capability="8.0",
            memory_mib=81920,
            power_limit_w=400,
            idle_power_w=62,
            multiprocessors=108,
            pci_device_id="0x20b2",
            mig_profiles=mig.A100_80GB,
            mig_mode_needs_reset=True,
        ),
        GpuModel(
            key="a100-80-pcie",
            product_name="NVIDIA A100 80GB PCIe",
            architecture="Ampere",
            cuda_compute_capability="8.0",
            memory_mib=81920,
            power_limit_w=300,
            idle_power_w=45,
            multiprocessors=108,
            pci_device_id="0x20b5",
            mig_profiles=mig.A100_80GB,
            mig_mode_needs_reset=True,
        ),
        GpuModel(
            key="h100",
            product_name="NVIDIA H100 80GB HBM3",
            architecture="Hopper",
            cuda_compute_capability="9.0",
            memory_mib=81559,
            power_limit_w=700,
            idle_power_w=69,
            multiprocessors=132,
            pci_device_id="0x2330",
            mig_profiles=mig.H100_80GB,
        ),
        GpuModel(
            key="h200",
            product_name="NVIDIA H200",
            architecture="Hopper",
            cuda_compute_capability="9.0",
            memory_mib=143771,
            power_limit_w=700,
            idle_power_w=76,
            multiprocessors=132,
            pci_device_id="0x2335",
            mig_profiles=mig.H200_141GB,
        ),
        GpuModel(
            key="b200",
            product_name="NVIDIA B200",
            architecture="Blackwell",
            cuda_compute_capability="10.0",
            memory_mib=183359,
            power_limit_w=1000,
            idle_power_w=140,
            multiprocessors=148,
            pci_device_id="0x2901",
            mig_profiles=mig.B200_180GB,
        ),
        GpuModel(
            key="gb200",
            product_name="NVIDIA GB200",
            architecture="Blackwell",
            cuda_compute_capability="10.0",
            memory_mib=189471,
            power_limit_w=1200,
            idle_power_w=170,
            multiprocessors=152,
            pci_device_id="0x2941",
            addressing_mode="ATS",
            mig_profiles=mig.GB200_189GB,
        ),
    )
}
