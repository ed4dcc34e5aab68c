"""What containers see of simulated cards: a directory per card, and programs that read it.

A card's folder is mounted into each container that has the card. `info` describes it in shell syntax;
below `memory` each program that uses the card has a file, so that all containers count the same memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from allot.devices import container_programs
from allot.devices.gpu.hardware import ComputeMode, FaultKind, Gpu, MigInstance
from allot.driver import Edits, Mount
from allot.driver.files import remove_folder

CONTAINER_CARDS = "/run/nvidia-simulated"
PROGRAMS = ("nvidia-smi", "gpu-memory")
_SOURCE = Path(__file__).parent / "container_programs"


def write_programs(folder: Path) -> None:
    """Write the programs to where they can be mounted from."""
    container_programs.write_programs(_SOURCE, PROGRAMS, folder)


def program_edits(folder: Path) -> Edits:
    """The programs on a container's PATH."""
    # As in real driver containers, so that NVIDIA's runtime hook adds nothing.
    return Edits(env={"NVIDIA_VISIBLE_DEVICES": "void"}, mounts=container_programs.program_mounts(folder, PROGRAMS))


def card_edits(folder: Path, gpu: Gpu, name: str) -> Edits:
    """A card in a container, in the order of the cards."""
    target = f"{CONTAINER_CARDS}/{gpu.minor:03d}-{name}"
    return Edits(mounts=(Mount(host_path=str(folder), container_path=target, options=("rw", "rbind")),))


def card_information(
    gpu: Gpu,
    *,
    power_limit_w: int,
    idle_power_w: int,
    compute_mode: ComputeMode,
    time_slice: int,
    cpu_affinity: str,
    instance: MigInstance | None = None,
) -> dict[str, str]:
    """The content of `info`. cpu_affinity: the CPUs near the card."""
    domain, _, rest = gpu.pci_address.partition(":")
    is_lost = any(fault.kind is FaultKind.LOST for fault in gpu.faults)
    xids = [fault.xid for fault in gpu.faults if fault.kind is FaultKind.XID]
    modes = {None: "N/A", True: "Enabled", False: "Disabled"}
    is_exclusive = compute_mode is ComputeMode.EXCLUSIVE_PROCESS
    information = {
        "minor": str(gpu.minor),
        "name": gpu.product_name,
        "uuid": gpu.uuid,
        "bus": f"{domain:0>8}:{rest}".upper(),
        "serial": f"165{gpu.minor:010d}",
        "memory_total": str(gpu.memory_mib),
        "driver_version": gpu.driver_version,
        "cuda_version": gpu.cuda_driver_version,
        "compute_cap": gpu.cuda_compute_capability,
        "compute_mode": "Exclusive_Process" if is_exclusive else "Default",
        "compute_mode_short": "E. Process" if is_exclusive else "Default",
        "time_slice": str(time_slice),
        "mig_mode": modes[gpu.mig_mode],
        "power_limit": str(power_limit_w),
        "power_draw": str(idle_power_w),
        "cpu_affinity": cpu_affinity,
        "temperature": str(30 + gpu.minor % 8),
        "ecc": str(sum(xid in (48, 94, 95) for xid in xids)),
        "xids": " ".join(str(xid) for xid in xids),
        "lost": "1" if is_lost else "",
    }
    return information | (_instance_information(instance) if instance is not None else {})


def _instance_information(instance: MigInstance) -> dict[str, str]:
    profile = instance.profile
    return {
        "mig_uuid": instance.uuid,
        "mig_profile": profile.name,
        "mig_gi": str(instance.gpu_instance_id),
        "mig_ci": str(instance.compute_instance_id),
        "mig_memory": str(profile.memory_mib),
        "mig_sm": str(profile.multiprocessors),
        "mig_ce": str(profile.copy_engines),
        "mig_dec": str(profile.decoders),
        "mig_enc": str(profile.encoders),
        "mig_jpg": str(profile.jpeg_engines),
        "mig_ofa": str(profile.ofa_engines),
    }


def write_card(folder: Path, information: Mapping[str, str]) -> None:
    """Create or update the directory of a card. Programs of any user may write to it."""
    memory = folder / "memory"
    if not memory.is_dir():
        memory.mkdir(parents=True, exist_ok=True)
        memory.chmod(0o777)
        lock = memory / ".lock"
        lock.touch()
        lock.chmod(0o666)
    container_programs.write_information(folder / "info", information)


def remove_card(folder: Path) -> None:
    """Remove the directory of a removed card."""
    remove_folder(folder)
