"""Facts about this machine: processors, memory, disk, names, addresses. Reads the kernel's tables; decides nothing."""

from __future__ import annotations

import os
import platform
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from allot.core.quantity import Format, Quantity

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as a node reports it."""

    processors: int
    memory_bytes: int
    disk_bytes: int
    architecture: str
    operating_system: str
    kernel_version: str
    os_image: str
    machine_id: str
    system_uuid: str
    boot_id: str
    # Bytes of huge pages that are set aside, by page size in bytes.
    huge_pages: Mapping[int, int] = {}

    @property
    def allocatable(self) -> Mapping[str, Quantity]:
        """What pods can use of it."""
        return {
            "cpu": Quantity.from_int(self.processors),
            "memory": Quantity.from_int(self.memory_bytes - sum(self.huge_pages.values())),
            "ephemeral-storage": Quantity.from_int(self.disk_bytes),
            **self.huge_page_resources,
        }

    @property
    def huge_page_resources(self) -> Mapping[str, Quantity]:
        """Huge pages as resources of the node; sizes without pages are left out."""
        return {
            f"hugepages-{Quantity.from_int(size, Format.BINARY_SI)}": Quantity.from_int(amount, Format.BINARY_SI)
            for size, amount in self.huge_pages.items()
            if amount
        }


def read_machine(root: Path) -> Machine:
    """This machine; root: the folder whose disk counts."""
    return Machine(
        processors=os.cpu_count() or 1,
        memory_bytes=_memory().get("MemTotal", 0),
        disk_bytes=shutil.disk_usage(root).total,
        architecture=_MACHINES.get(platform.machine(), platform.machine()),
        operating_system=platform.system().lower(),
        kernel_version=platform.release(),
        os_image=_os_release().get("PRETTY_NAME", platform.system()),
        machine_id=_text("/etc/machine-id"),
        system_uuid=_text("/sys/class/dmi/id/product_uuid") or _text("/etc/machine-id"),
        boot_id=_text("/proc/sys/kernel/random/boot_id"),
        huge_pages=read_huge_pages(),
    )


def read_huge_pages(folder: Path = Path("/sys/kernel/mm/hugepages")) -> Mapping[int, int]:
    """Bytes of huge pages by page size in bytes: hugepages-2048kB/nr_hugepages is their number."""
    found = {}
    for each in sorted(folder.glob("hugepages-*kB")):
        size, count = each.name.removeprefix("hugepages-").removesuffix("kB"), _text(str(each / "nr_hugepages"))
        if size.isdigit() and count.isdigit():
            found[int(size) * 1024] = int(size) * 1024 * int(count)
    return found


def memory_total_bytes() -> int:
    """All memory."""
    return _memory().get("MemTotal", 0)


def memory_available_bytes() -> int:
    """The memory available without swapping."""
    return _memory().get("MemAvailable", 0)


def processor_seconds() -> float:
    """Processor time used since the machine started, all processors together."""
    try:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except (OSError, IndexError):
        return 0.0
    busy = [int(value) for position, value in enumerate(fields[:8]) if position not in (3, 4)]
    return sum(busy) / os.sysconf("SC_CLK_TCK")


def own_address(towards: str) -> str:
    """The address that this machine uses to reach a host; preferably not the loopback."""
    for host in (towards, "192.0.2.1"):
        for family in (socket.AF_INET, socket.AF_INET6):
            try:
                with socket.socket(family, socket.SOCK_DGRAM) as probe:
                    probe.connect((host, 9))
                    address = str(probe.getsockname()[0])
            except OSError:
                continue
            if not address.startswith("127.") and address != "::1":
                return address
    return "127.0.0.1"


def _memory() -> Mapping[str, int]:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, value = line.partition(":")
        words = value.split()
        if words and words[0].isdigit():
            found[name] = int(words[0]) * 1024
    return found


def _os_release() -> Mapping[str, str]:
    lines = _text("/etc/os-release").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: value.strip('"') for name, _, value in pairs}


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
