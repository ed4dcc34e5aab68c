"""What containers see of simulated cards: a folder per card, and programs that read it.

A card's folder is mounted into each container that was given the card. `info` says what it is, in words that a shell can read;
below `memory` each program that uses the card has a file, so that all containers count the same memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from allot.devices.gpu.hardware import ComputeMode, FaultKind, Gpu, MigInstance
from allot.driver import Edits, Mount
from allot.driver.files import remove_folder, replace_file

CONTAINER_CARDS = "/run/nvidia-simulated"
# On every PATH, and small: a runtime without root has to rebuild the folder that it adds a file to.
CONTAINER_PROGRAMS = "/usr/local/bin"
PROGRAMS = ("nvidia-smi", "gpu-memory")
_SOURCE = Path(__file__).parent / "container_programs"


def write_programs(folder: Path) -> None:
    """Put the programs where they can be mounted from."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        target = folder / name
        content = (_SOURCE / name).read_bytes()
        # A container may be running it: the file is replaced only if it has to be.
        if not target.exists() or target.read_bytes() != content:
            replace_file(target, content, 0o755)


def program_edits(folder: Path) -> Edits:
    """The programs on a container's PATH."""
    return Edits(
        # Real driver containers set the same: NVIDIA's own runtime hook adds nothing then.
        env={"NVIDIA_VISIBLE_DEVICES": "void"},
        mounts=tuple(
            Mount(host_path=str(folder / name), container_path=f"{CONTAINER_PROGRAMS}/{name}", options=("ro", "bind"))
            for name in PROGRAMS
        ),
    )


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
    instance: MigInstance | None = None,
) -> dict[str, str]:
    """What `info` says."""
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
    """Make or bring up to date the folder of a card. Programs of any user may count in it."""
    memory = folder / "memory"
    if not memory.is_dir():
        memory.mkdir(parents=True, exist_ok=True)
        memory.chmod(0o777)
        lock = memory / ".lock"
        lock.touch()
        lock.chmod(0o666)
    text = "".join(f"{key}={shlex.quote(value)}\n" for key, value in information.items()).encode()
    path = folder / "info"
    if not path.exists() or path.read_bytes() != text:
        replace_file(path, text, 0o644)


def remove_card(folder: Path) -> None:
    """Remove the folder of a card that is there no more."""
    remove_folder(folder)
